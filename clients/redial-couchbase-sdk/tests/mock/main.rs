//! Goal: the official SDK retries as Redial's policies and strategies say. Method: `CouchbaseMock`, the
//! vendor's mock, with its fault commands, behind a relay (see `shim.rs`), in real time over loopback TCP;
//! times are those of the mock's own log of commands, with a lower bound and a generous upper one.

#[path = "../../../../crates/redial-couchbase/tests/mock/server.rs"]
mod server;
mod shim;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use couchbase::authenticator::PasswordAuthenticator;
use couchbase::cluster::Cluster;
use couchbase::collection::Collection;
use couchbase::error::ErrorKind;
use couchbase::options::cluster_options::{ClusterOptions, PollerOptions};
use couchbase::options::diagnostic_options::WaitUntilReadyOptions;
use couchbase::options::kv_options::{GetOptions, UpsertOptions};
use couchbase::retry::{RetryAction, RetryReason, RetryRequest, RetryStrategy};
use couchbase::search::queries::{MatchQuery, Query};
use couchbase::search::request::SearchRequest;
use redial::strategy::{Decision, Request, Strategy};
use redial::throttle::{Bucket as _, RetryBudget};
use redial::{Policy, StopReason, Throttle, ms, s};
use redial_couchbase::{BestEffort, FastFailOnTerminalError, Orchestrator, operation, reason};
use redial_couchbase_sdk::{SdkError, SdkStrategy, attempt};

use server::Mock;
use shim::Shim;

const GET: u64 = 0x00;
const SET: u64 = 0x01;
/// How long connecting may take on a busy machine.
const READY_MAX: Duration = Duration::from_secs(60);
/// How much longer than asked for a delay may take on a busy machine.
const LATE_MAX: u64 = 2000;

/// The mock's injected failures hit polls of the configuration, too.
const POLL_NEVER: Duration = Duration::from_secs(3600);

/// A cluster of the mock, and the decisions of the cluster's strategy.
struct Setup {
    mock: Mock,
    shim: Shim,
    cluster: Cluster,
    documents: Collection,
    lines: Lines,
}

/// The decisions of a strategy, as the lines of RFC 49's log.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

impl Lines {
    fn of(&self, strategy: SdkStrategy) -> Arc<SdkStrategy> {
        let lines = self.clone();
        Arc::new(strategy.on_decision(move |decision| {
            let line = match decision.outcome {
                Ok(_) => decision.to_string(),
                Err(stop_reason) => format!("{decision}: {stop_reason:?}"),
            };
            lines.0.lock().unwrap().push(line);
        }))
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// A cluster of one node whose operations retry by this strategy.
async fn start(strategy: SdkStrategy) -> Setup {
    let mock = Mock::start(1, 0);
    let shim = Shim::start(&mock.kv_ports("default")).await;
    let lines = Lines::default();
    let cluster = connect(&shim, lines.of(strategy), POLL_NEVER).await;
    let documents = open(&cluster).await;
    lines.take();
    Setup { mock, shim, cluster, documents, lines }
}

async fn connect(shim: &Shim, strategy: Arc<dyn RetryStrategy>, poll: Duration) -> Cluster {
    let polls = PollerOptions::new().config_poll_interval(poll);
    let options = ClusterOptions::new(PasswordAuthenticator::new("default", "").into())
        .poller_options(polls)
        .default_retry_strategy(strategy);
    let connected = tokio::time::timeout(READY_MAX, Cluster::connect(shim.url(), options)).await;
    connected.expect("the SDK connects in time").expect("the SDK connects")
}

async fn open(cluster: &Cluster) -> Collection {
    let bucket = cluster.bucket("default");
    let ready = tokio::time::timeout(READY_MAX, bucket.wait_until_ready(None)).await;
    ready.expect("the bucket opens in time").expect("the bucket opens");
    let documents = bucket.default_collection();
    documents.upsert("a", "1", None).await.expect("the bucket is open");
    documents
}

/// Delays that no other part of the SDK has, with this number of attempts.
fn policy(attempts: u32) -> Policy {
    static DELAYS: [Duration; 3] = [ms(20), ms(60), ms(40)];
    Policy::table(&DELAYS).attempts(attempts).throttle(Throttle::none()).build()
}

fn strategy(policy: Policy) -> SdkStrategy {
    SdkStrategy::new(policy).unwrap()
}

/// A retry budget without a refill by time.
fn budget(reserve: f64) -> Arc<RetryBudget> {
    Arc::new(RetryBudget::new(reserve, 0.1))
}

impl Setup {
    /// The gaps between arrivals of this command at the mock since its log was started, in ms.
    fn gaps(&self, opcode: u64, attempts: usize) -> Vec<u64> {
        let arrived = self.mock.log(0, opcode);
        let last = &arrived[arrived.len() - attempts..];
        last.windows(2).map(|pair| pair[1] - pair[0]).collect()
    }

    fn arrivals(&self, opcode: u64) -> usize {
        self.mock.log(0, opcode).len()
    }

    /// No request fails any more.
    fn heal(&self) {
        self.mock.fail(0, 0);
    }
}

/// Compares measured delays with those of the policy. The mock's clock has whole milliseconds, so a gap may
/// look one shorter.
fn are_near(measured: &[u64], expected: &[u64]) {
    let near = |(measured, expected): (&u64, &u64)| {
        (expected.saturating_sub(1)..expected + LATE_MAX).contains(measured)
    };
    let all = measured.len() == expected.len() && measured.iter().zip(expected).all(near);
    assert!(all, "measured {measured:?}, expected {expected:?}");
}

#[tokio::test]
#[ignore = "needs Java and CouchbaseMock: cargo xtask test couchbase-sdk-mock"]
async fn sdk_waits_the_delays_of_the_policy() {
    let setup = start(strategy(policy(6))).await;
    setup.mock.start_log(0);
    setup.mock.fail(0x86, 4);
    setup.documents.upsert("a", "2", None).await.unwrap();
    are_near(&setup.gaps(SET, 5), &[20, 60, 40, 40]);
    assert_eq!(setup.lines.take(), ["retry KV_TEMPORARY_FAILURE"; 4]);
    setup.mock.fail(0x86, 3);
    setup.documents.get("a", None).await.unwrap();
    are_near(&setup.gaps(GET, 4), &[20, 60, 40]);
}

#[tokio::test]
#[ignore = "needs Java and CouchbaseMock: cargo xtask test couchbase-sdk-mock"]
async fn sdk_stops_at_the_attempt_limit() {
    let setup = start(strategy(policy(3))).await;
    setup.mock.start_log(0);
    setup.mock.fail(0x86, -1);
    let error = setup.documents.upsert("a", "2", None).await.unwrap_err();
    setup.heal();
    assert_eq!(error.kind(), &ErrorKind::TemporaryFailure);
    assert_eq!(setup.arrivals(SET), 3);
    let last = setup.lines.take().pop();
    assert_eq!(last.as_deref(), Some("not-retried KV_TEMPORARY_FAILURE: AttemptsExhausted"));
    // The mock has no search service, and the SDK's own strategy would wait for one without end.
    let scope = setup.cluster.bucket("default").scope("_default");
    let request = SearchRequest::with_search_query(Query::Match(MatchQuery::new("x")));
    let error = scope.search("index", request, None).await.map(drop).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::ServiceNotAvailable(_)), "{error}");
    let retried = ["retry SERVICE_NOT_AVAILABLE"; 2];
    let stopped = ["not-retried SERVICE_NOT_AVAILABLE: AttemptsExhausted"];
    assert_eq!(setup.lines.take(), [&retried[..], &stopped].concat());
}

#[tokio::test]
#[ignore = "needs Java and CouchbaseMock: cargo xtask test couchbase-sdk-mock"]
async fn sdk_budget_is_shared_by_operations_and_other_calls() {
    let shared = budget(3.0);
    let limited = policy(9).with_budget(shared.clone());
    let setup = start(strategy(limited.clone())).await;
    setup.mock.start_log(0);
    setup.mock.fail(0x86, -1);
    setup.documents.get("a", None).await.unwrap_err();
    assert_eq!(setup.arrivals(GET), 4, "three retries are in the budget");
    setup.lines.take();
    setup.documents.upsert("a", "2", None).await.unwrap_err();
    assert_eq!(setup.arrivals(SET), 1);
    assert_eq!(setup.lines.take(), ["not-retried KV_TEMPORARY_FAILURE: Throttled"]);
    let other = limited.retry(|| Err::<(), _>("busy")).when(|_| true).call().unwrap_err();
    assert_eq!((other.attempts(), other.stop_reason()), (1, StopReason::Throttled));
    // Successes of other calls fund retries of the SDK.
    for _ in 0..10 {
        limited.retry(|| Ok::<_, ()>(())).when(|_| true).call().unwrap();
    }
    setup.documents.get("a", None).await.unwrap_err();
    setup.heal();
    assert_eq!(setup.arrivals(GET), 6);
}

#[tokio::test]
#[ignore = "needs Java and CouchbaseMock: cargo xtask test couchbase-sdk-mock"]
async fn sdk_operation_overrides_the_strategy_of_the_cluster() {
    let setup = start(strategy(policy(2))).await;
    setup.mock.start_log(0);
    setup.mock.fail(0x86, 3);
    setup.documents.get("a", None).await.unwrap_err();
    assert_eq!(setup.arrivals(GET), 2);
    let patient = Arc::new(strategy(policy(5)));
    let options = GetOptions::new().retry_strategy(patient);
    setup.mock.fail(0x86, 4);
    setup.documents.get("a", options).await.unwrap();
    assert_eq!(setup.arrivals(GET), 7);
}

#[tokio::test]
#[ignore = "needs Java and CouchbaseMock: cargo xtask test couchbase-sdk-mock"]
async fn sdk_statuses_become_the_reasons_of_rfc_49() {
    let setup = start(SdkStrategy::of(BestEffort::new())).await;
    // The SDK knows LOCKED for writes only; for a read the mock's error map marks it as retryable, like the
    // two after it.
    let rows = [
        (0x86, "KV_TEMPORARY_FAILURE", "KV_TEMPORARY_FAILURE"),
        (0x09, "KV_ERROR_MAP_RETRY_INDICATED", "KV_LOCKED"),
        (0x85, "KV_ERROR_MAP_RETRY_INDICATED", "KV_ERROR_MAP_RETRY_INDICATED"),
        (0x82, "KV_ERROR_MAP_RETRY_INDICATED", "KV_ERROR_MAP_RETRY_INDICATED"),
        (0x7ff0, "KV_ERROR_MAP_RETRY_INDICATED", "KV_ERROR_MAP_RETRY_INDICATED"),
    ];
    for (status, read, written) in rows {
        setup.mock.fail(status, 2);
        setup.documents.get("a", None).await.unwrap();
        assert_eq!(setup.lines.take(), [format!("retry {read}"), format!("retry {read}")]);
        setup.mock.fail(status, 2);
        setup.documents.upsert("a", "2", None).await.unwrap();
        assert_eq!(setup.lines.take(), [format!("retry {written}"), format!("retry {written}")]);
    }
}

#[tokio::test]
#[ignore = "needs Java and CouchbaseMock: cargo xtask test couchbase-sdk-mock"]
async fn sdk_locked_document_is_retried_until_its_lock_ends() {
    let setup = start(SdkStrategy::of(FastFailOnTerminalError::new())).await;
    setup.documents.get_and_lock("a", s(15), None).await.unwrap();
    let unlock = async {
        while setup.lines.0.lock().unwrap().len() < 3 {
            tokio::time::sleep(ms(5)).await;
        }
        setup.mock.command("time_travel?Offset=20");
    };
    let (written, ()) = tokio::join!(setup.documents.upsert("a", "2", None), unlock);
    written.unwrap();
    let lines = setup.lines.take();
    assert!(lines.iter().all(|line| line == "retry KV_LOCKED"), "{lines:?}");
}

#[tokio::test]
#[ignore = "needs Java and CouchbaseMock: cargo xtask test couchbase-sdk-mock"]
async fn sdk_lost_read_is_retried_and_lost_write_is_not() {
    let patient = Policy::constant(ms(20)).attempts(1000).throttle(Throttle::none()).build();
    let setup = start(strategy(patient)).await;
    setup.mock.start_log(0);
    let lose = |opcode| {
        let setup = &setup;
        async move {
            let before = setup.arrivals(opcode);
            while setup.arrivals(opcode) == before {
                tokio::time::sleep(ms(5)).await;
            }
            setup.mock.command("hiccup?bucket=default&msecs=0&offset=0&servers=[]");
            setup.shim.close_connections();
        }
    };
    // Answers are late, so that the requests are in flight when the connection is lost.
    let hiccup = "hiccup?bucket=default&msecs=1000&offset=4&servers=[]";
    setup.mock.command(hiccup);
    let (written, ()) = tokio::join!(setup.documents.upsert("a", "2", None), lose(SET));
    written.unwrap_err();
    let expected = "not-retried SOCKET_CLOSED_WHILE_IN_FLIGHT: NotIdempotent";
    assert_eq!(setup.lines.take(), [expected]);
    setup.documents.get("a", None).await.unwrap();
    setup.lines.take();
    setup.mock.command(hiccup);
    let (read, ()) = tokio::join!(setup.documents.get("a", None), lose(GET));
    read.unwrap();
    assert_eq!(setup.lines.take()[0], "retry SOCKET_CLOSED_WHILE_IN_FLIGHT");
}

#[tokio::test]
#[ignore = "needs Java and CouchbaseMock: cargo xtask test couchbase-sdk-mock"]
async fn attempt_timeouts_outlast_failover_and_respawn_of_a_node() {
    let mock = Mock::start(3, 0);
    let shim = Shim::start(&mock.kv_ports("default")).await;
    let strategy = Arc::new(SdkStrategy::of(BestEffort::new()));
    let cluster = connect(&shim, strategy, ms(200)).await;
    let documents = open(&cluster).await;
    // The SDK has no timeouts, and a write to a node that has just gone may get no answer. Each write
    // stores the same value again, so it may be repeated.
    let policy = Policy::constant(ms(50)).attempts(100).attempt_timeout(s(2)).retry_timeouts();
    let policy = policy.throttle(Throttle::none()).build();
    for command in ["failover", "respawn"] {
        mock.command(&format!("{command}?bucket=default&idx=1"));
        for number in 0..64 {
            let key = format!("key{number}");
            let write = || {
                attempt(|strategy| {
                    documents.upsert(&key, "1", UpsertOptions::new().retry_strategy(strategy))
                })
            };
            let retried = |error: &SdkError| error.reason().map(reason::failure);
            let written = policy.retry(write).when(retried).await;
            written.unwrap_or_else(|error| panic!("{command}, {key}: {error}"));
        }
    }
}

/// The three lines of a user's fail-fast strategy.
fn fail_fast(_: &Request<'_>) -> Decision {
    Decision::Decline
}

#[tokio::test]
#[ignore = "needs Java and CouchbaseMock: cargo xtask test couchbase-sdk-mock"]
async fn sdk_fails_fast_in_three_lines() {
    let setup = start(SdkStrategy::of(fail_fast)).await;
    setup.mock.start_log(0);
    setup.mock.fail(0x86, 1);
    let error = setup.documents.get("a", None).await.unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::TemporaryFailure);
    assert_eq!(setup.arrivals(GET), 1);
    assert_eq!(setup.lines.take(), ["not-retried KV_TEMPORARY_FAILURE: StrategyDeclined"]);
    // The SDK retries NOT_MY_VBUCKET without asking. Its delays are one step ahead of RFC 49's controlled
    // backoff: 10 ms, not 1 ms, is the first.
    setup.mock.fail(0x07, 3);
    setup.documents.get("a", None).await.unwrap();
    are_near(&setup.gaps(GET, 4), &[10, 50, 100]);
    assert_eq!(setup.lines.take(), [""; 0]);
}

/// A strategy of the SDK's own kind that never retries.
#[derive(Debug)]
struct Never;

impl RetryStrategy for Never {
    fn retry_after(&self, _: &RetryRequest, _: &RetryReason) -> Option<RetryAction> {
        None
    }
}

#[tokio::test]
#[ignore = "needs Java and CouchbaseMock: cargo xtask test couchbase-sdk-mock"]
async fn sdk_waits_until_ready_under_every_strategy() {
    let setup = start(SdkStrategy::of(fail_fast)).await;
    let bucket = setup.cluster.bucket("default");
    // What the SDK does with a strategy that declines here.
    setup.mock.fail(0x86, 1);
    let declines = WaitUntilReadyOptions::new().retry_strategy(Arc::new(Never));
    let error = bucket.wait_until_ready(declines).await.unwrap_err();
    assert!(error.to_string().contains("this is a bug"), "{error}");
    for strategy in [SdkStrategy::of(fail_fast), strategy(policy(1))] {
        setup.mock.fail(0x86, 3);
        let options = WaitUntilReadyOptions::new().retry_strategy(setup.lines.of(strategy));
        bucket.wait_until_ready(options).await.unwrap();
        assert_eq!(setup.lines.take(), [""; 0], "nothing has failed");
    }
    setup.mock.fail(0x86, 3);
    let ready = attempt(|strategy| {
        bucket.wait_until_ready(WaitUntilReadyOptions::new().retry_strategy(strategy))
    });
    ready.await.unwrap();
}

#[tokio::test]
#[ignore = "needs Java and CouchbaseMock: cargo xtask test couchbase-sdk-mock"]
async fn sdk_strategy_that_answers_later_declines() {
    let setup = start(SdkStrategy::of(BestEffort::new())).await;
    let ready = |_: &Request<'_>| Decision::later(async { Some(ms(5)) });
    let late = |_: &Request<'_>| {
        Decision::later(async {
            tokio::time::sleep(ms(1)).await;
            Some(ms(5))
        })
    };
    setup.mock.fail(0x86, 2);
    let options = GetOptions::new().retry_strategy(setup.lines.of(SdkStrategy::of(ready)));
    setup.documents.get("a", options).await.unwrap();
    setup.lines.take();
    setup.mock.fail(0x86, 1);
    let options = GetOptions::new().retry_strategy(setup.lines.of(SdkStrategy::of(late)));
    setup.documents.get("a", options).await.unwrap_err();
    assert_eq!(setup.lines.take(), ["not-retried KV_TEMPORARY_FAILURE: StrategyDeclined"]);
    // Redial's own loop waits for it.
    setup.mock.fail(0x86, 2);
    let policy = policy(5).with_strategy(late).unwrap();
    policy.retry(|| get(&setup.documents)).await.unwrap();
}

/// One attempt of a read.
async fn get(documents: &Collection) -> Result<String, SdkError> {
    let read = attempt(|strategy| documents.get("a", GetOptions::new().retry_strategy(strategy)));
    Ok(read.await?.content_as().expect("a text"))
}

/// One attempt of a write.
async fn set(documents: &Collection) -> Result<(), SdkError> {
    let written = attempt(|strategy| {
        documents.upsert("a", "2", UpsertOptions::new().retry_strategy(strategy))
    });
    written.await.map(drop)
}

#[tokio::test]
#[ignore = "needs Java and CouchbaseMock: cargo xtask test couchbase-sdk-mock"]
async fn attempt_keeps_deadlines_budgets_and_reports() {
    let setup = start(SdkStrategy::of(BestEffort::new())).await;
    setup.mock.start_log(0);
    let shared = budget(3.0);
    let limited = policy(9).with_budget(shared.clone());
    setup.mock.fail(0x86, 2);
    let (value, report) = limited.retry(|| get(&setup.documents)).with_report().await.unwrap();
    assert_eq!((value.as_str(), report.attempts), ("1", 3));
    are_near(&setup.gaps(GET, 3), &[20, 60]);
    let left = shared.tokens(0).unwrap();
    assert!((left - 1.1).abs() < 0.001, "two retries, and a success funds a tenth: {left}");
    setup.mock.fail(0x86, -1);
    let deadline = limited.with_budget(budget(99.0)).with_rules(|rules| {
        (rules.deadline, rules.attempts) = (Some(ms(300)), None);
    });
    let error = deadline.unwrap().retry(|| get(&setup.documents)).await.unwrap_err();
    setup.heal();
    assert_eq!(error.stop_reason(), StopReason::Deadline);
    assert!(error.elapsed() < Duration::from_millis(300 + LATE_MAX));
    // NOT_MY_VBUCKET is retried inside the attempt, without end: the deadline ends it.
    setup.mock.fail(0x07, -1);
    let error = deadline_of(ms(300)).retry(|| get(&setup.documents)).await.unwrap_err();
    setup.heal();
    assert_eq!((error.stop_reason(), error.attempts()), (StopReason::Deadline, 1));
}

fn deadline_of(deadline: Duration) -> Policy {
    policy(9).with_rules(|rules| rules.deadline = Some(deadline)).unwrap()
}

#[tokio::test]
#[ignore = "needs Java and CouchbaseMock: cargo xtask test couchbase-sdk-mock"]
async fn attempt_dropped_in_its_delay_refunds_the_retry() {
    let slow = |shared: &Arc<RetryBudget>| {
        Policy::constant(s(60)).throttle(Throttle::none()).build().with_budget(shared.clone())
    };
    let inside = budget(3.0);
    let setup = start(strategy(slow(&inside))).await;
    setup.mock.fail(0x86, 1);
    let read = tokio::time::timeout(s(1), setup.documents.get("a", None)).await;
    assert!(read.is_err(), "it waits for its retry");
    // The SDK does not say that the operation was dropped: the token stays spent.
    assert_eq!(inside.tokens(0), Some(2.0));
    let around = budget(3.0);
    let policy = slow(&around);
    setup.mock.fail(0x86, 1);
    let call = policy.retry(|| get(&setup.documents)).into_future();
    assert!(tokio::time::timeout(s(1), call).await.is_err());
    assert_eq!(around.tokens(0), Some(3.0));
}

#[tokio::test]
#[ignore = "needs Java and CouchbaseMock: cargo xtask test couchbase-sdk-mock"]
async fn attempt_lost_write_is_not_retried() {
    let setup = start(SdkStrategy::of(BestEffort::new())).await;
    setup.mock.start_log(0);
    setup.mock.fail(0x86, 1);
    policy(9).retry(|| set(&setup.documents)).await.unwrap();
    assert_eq!(setup.arrivals(SET), 2, "the status proves that nothing was written");
    setup.mock.command("hiccup?bucket=default&msecs=1000&offset=4&servers=[]");
    let lose = async {
        while setup.arrivals(SET) == 2 {
            tokio::time::sleep(ms(5)).await;
        }
        setup.shim.close_connections();
    };
    let policy = policy(9);
    let (written, ()) = tokio::join!(policy.retry(|| set(&setup.documents)).into_future(), lose);
    let error = written.unwrap_err();
    assert_eq!((error.attempts(), error.stop_reason()), (1, StopReason::NotRetryable));
    let seen = error.last().expect("an error of the SDK");
    assert_eq!(seen.reason(), Some(reason::SOCKET_CLOSED_WHILE_IN_FLIGHT));
    assert_eq!(seen.is_idempotent(), Some(false));
}

/// A request of a robot.
struct Robot;

#[tokio::test]
#[ignore = "needs Java and CouchbaseMock: cargo xtask test couchbase-sdk-mock"]
async fn attempt_runs_in_the_orchestrator_with_data() {
    let setup = start(SdkStrategy::of(BestEffort::new())).await;
    let orchestrator = Orchestrator::with(|request: &Request<'_>| match request.data::<Robot>() {
        Some(Robot) => Decision::Decline,
        None => BestEffort::new().retry_after(request),
    });
    let request = || orchestrator.request(operation::KV_GET, s(20));
    setup.mock.fail(0x86, 2);
    let value = request().run(|_| get(&setup.documents)).await.unwrap();
    assert_eq!(value, "1");
    setup.mock.fail(0x86, 1);
    let error = request().data(Robot).run(|_| get(&setup.documents)).await.unwrap_err();
    assert_eq!(error.reason(), Some(reason::KV_TEMPORARY_FAILURE));
    assert_eq!(error.attempts(), 1);
}
