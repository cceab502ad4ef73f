//! The orchestrator: requests are retried within their timeout, end exactly once, and report a complete
//! error. A scripted fake on tokio's paused clock; blocking requests have delays of a few milliseconds.

mod common;

use std::error::Error as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{AttemptOutcome, Server, after, delays, error, logged, ok, status, texts};
use redial::throttle::RetryBudget;
use redial::time::{Sleeper, Tokio};
use redial::{
    CallLog, Jitter, StopReason, ms,
    rules::{Backoff, DeadlineAction},
    s,
};
use redial_core::{CONTROLLED, Numbering};
use redial_couchbase::{
    AttemptError, BackoffCalculator, BestEffort, CollectionMap, Error, Orchestrator,
    RequestAttempt, RequestOperation, RequestTarget, Response, TerminalError, TerminalState,
    TimeoutKind, operation, orchestrator, reason,
};

fn best_effort() -> Orchestrator {
    Orchestrator::with(BestEffort::new())
}

fn every(delay: Duration) -> Orchestrator {
    Orchestrator::with(BestEffort::with(
        BackoffCalculator::from_backoff(Backoff::Constant(delay)).expect("a series"),
    ))
}

fn every_second() -> Orchestrator {
    every(s(1))
}

#[test]
fn orchestrator_policy_matches_rfc_49() {
    let policy = orchestrator::policy(ms(2500));
    let rules = policy.rules();
    assert_eq!((rules.attempts, rules.deadline), (None, Some(ms(2500))));
    assert_eq!(
        (rules.deadline_action, rules.numbering),
        (DeadlineAction::WaitForDeadline, Numbering::Attempts)
    );
    assert_eq!((rules.jitter, rules.always, rules.uses_strategy), (Jitter::None, CONTROLLED, true));
    assert_eq!(policy.tokens(0), None);
    // Every timeout yields a valid policy.
    for timeout in [Duration::ZERO, Duration::MAX] {
        assert_eq!(orchestrator::policy(timeout).rules().deadline, Some(timeout));
    }
}

#[tokio::test(start_paused = true)]
async fn controlled_backoff_applies_to_always_retried_reasons() {
    let server = Server::new(vec![status(0x07); 7].into_iter().chain([ok()]));
    let (orchestrator, lines) = logged(best_effort());
    let request = orchestrator.request(operation::KV_UPSERT, s(5));
    assert!(request.run(|attempt| server.answer(attempt)).await.is_ok());
    assert_eq!(server.starts(), [0, 1, 11, 61, 161, 661, 1661, 2661]);
    let expected = [1, 10, 50, 100, 500, 1000, 1000].map(Some);
    assert_eq!(delays(&lines), expected);
}

#[tokio::test(start_paused = true)]
async fn retry_attempts_counter_is_read_before_increment() {
    let (locked, vbucket) = (|| status(0x09), || status(0x07));
    let server = Server::new([locked(), vbucket(), locked(), vbucket(), ok()]);
    let (orchestrator, lines) = logged(best_effort());
    let request = orchestrator.request(operation::KV_GET, s(5));
    assert!(request.run(|attempt| server.answer(attempt)).await.is_ok());
    // 2^0, the second entry of the table, 2^2, the fourth.
    assert_eq!(delays(&lines), [1, 10, 4, 100].map(Some));
    assert_eq!(server.starts(), [0, 1, 11, 15, 115]);
}

#[tokio::test(start_paused = true)]
async fn timeout_caps_delay_without_another_attempt() {
    let server = Server::new([after(2000, reason::KV_LOCKED)]);
    let (orchestrator, lines) = logged(every_second());
    let request = orchestrator.request(operation::KV_GET, ms(2500));
    let error = error(request.run(|attempt| server.answer(attempt)).await);
    assert_eq!((server.starts(), server.now()), (vec![0], 2500));
    assert_eq!((error.stop_reason(), error.elapsed()), (StopReason::Deadline, ms(2500)));
    assert_eq!((texts(&lines), delays(&lines)), (vec!["retry KV_LOCKED".into()], vec![Some(500)]));
}

#[tokio::test(start_paused = true)]
async fn timeout_reached_exactly_starts_no_attempt() {
    let server = Server::new([after(1500, reason::KV_LOCKED)]);
    let (orchestrator, lines) = logged(every_second());
    let request = orchestrator.request(operation::KV_GET, ms(2500));
    assert!(error(request.run(|attempt| server.answer(attempt)).await).is_timeout());
    assert_eq!((server.starts(), server.now()), (vec![0], 2500));
    assert_eq!(delays(&lines), [Some(1000)]);
}

#[tokio::test(start_paused = true)]
async fn timeout_caps_controlled_backoff() {
    let server = Server::new(vec![status(0x07); 6]);
    let (orchestrator, lines) = logged(best_effort());
    let request = orchestrator.request(operation::KV_UPSERT, ms(700));
    let error = error(request.run(|attempt| server.answer(attempt)).await);
    assert_eq!(server.starts(), [0, 1, 11, 61, 161, 661]);
    assert_eq!(
        (error.stop_reason(), error.attempts(), server.now()),
        (StopReason::Deadline, 6, 700)
    );
    assert_eq!(delays(&lines).last(), Some(&Some(39)));
}

#[tokio::test(start_paused = true)]
async fn timeout_accepts_outcome_at_same_instant() {
    let server = Server::new([AttemptOutcome::Answer(2500, Ok(()))]);
    let orchestrator = best_effort();
    let request = orchestrator.request(operation::KV_GET, ms(2500));
    assert!(request.run(|attempt| server.answer(attempt)).await.is_ok());
    let server = Server::new([after(2500, reason::KV_LOCKED)]);
    let (orchestrator, lines) = logged(best_effort());
    let request = orchestrator.request(operation::KV_GET, ms(2500));
    assert!(error(request.run(|attempt| server.answer(attempt)).await).is_timeout());
    assert_eq!((server.starts(), delays(&lines)), (vec![0], vec![Some(0)]));
}

#[tokio::test(start_paused = true)]
async fn timeout_of_zero_makes_one_attempt() {
    let orchestrator = best_effort();
    let request = || orchestrator.request(operation::KV_UPSERT, Duration::ZERO);
    let result: Result<(), Error<AttemptError>> = request().run(|_| async { Ok(()) }).await;
    assert!(result.is_ok());
    let server = Server::new([AttemptOutcome::Nothing]);
    let error = error(request().run(|attempt| server.answer(attempt)).await);
    assert_eq!((error.timeout(), server.now()), (Some(TimeoutKind::Ambiguous), 0));
}

#[tokio::test(start_paused = true)]
async fn timeout_alone_bounds_always_retried_reasons() {
    let server = Server::new(vec![status(0x07); 65]);
    let orchestrator = best_effort();
    let request = orchestrator.request(operation::KV_GET, s(60));
    let error = error(request.run(|attempt| server.answer(attempt)).await);
    // Six within 661 ms, then one each second.
    assert_eq!((error.attempts(), server.now()), (6 + 59, 60_000));
    assert_eq!(error.timeout(), Some(TimeoutKind::Unambiguous));
}

async fn timeout_of<F: Future<Output = Result<(), AttemptError>>>(
    operation: RequestOperation,
    attempt: impl FnMut(RequestAttempt) -> F,
) -> Option<TimeoutKind> {
    let orchestrator = every_second();
    let error = error(orchestrator.request(operation, ms(1500)).run(attempt).await);
    error.timeout()
}

#[tokio::test(start_paused = true)]
async fn timeout_is_ambiguous_only_for_possibly_executed_writes() {
    let hangs = || async { std::future::pending().await };
    let (ambiguous, unambiguous) = (Some(TimeoutKind::Ambiguous), Some(TimeoutKind::Unambiguous));
    let write = operation::KV_UPSERT;
    assert_eq!(timeout_of(operation::KV_GET, |_| hangs()).await, unambiguous);
    assert_eq!(timeout_of(write, |_| hangs()).await, ambiguous);
    // Never sent, by the attempt's own mark or by its reason.
    let queued = |attempt: RequestAttempt| {
        attempt.mark_unsent();
        hangs()
    };
    assert_eq!(timeout_of(write, queued).await, unambiguous);
    let refused = |_| async { Err(AttemptError::from(reason::SOCKET_NOT_AVAILABLE)) };
    assert_eq!(timeout_of(write, refused).await, unambiguous);
    let dispatched = |attempt: RequestAttempt| {
        attempt.mark_unsent();
        attempt.mark_sent();
        hangs()
    };
    assert_eq!(timeout_of(write, dispatched).await, ambiguous);
    // The server confirmed that nothing changed.
    let locked = |_| async { Err(AttemptError::from(reason::KV_LOCKED)) };
    assert_eq!(timeout_of(write, locked).await, unambiguous);
    // The mark of the first attempt does not apply to the second.
    let then_hangs = |attempt: RequestAttempt| async move {
        if attempt.number() > 1 {
            return std::future::pending().await;
        }
        attempt.mark_unsent();
        Err(AttemptError::from(reason::SOCKET_NOT_AVAILABLE))
    };
    assert_eq!(timeout_of(write, then_hangs).await, ambiguous);
}

#[tokio::test(start_paused = true)]
async fn error_exposes_data_and_display_text() {
    let server = Server::new([
        after(1, Response::kv(0x07)),
        after(1, Response::kv(0x86).to_command("get")),
        after(1, Response::kv(0x09).to_command("get")),
        AttemptOutcome::Nothing,
    ]);
    let orchestrator = best_effort();
    let request = orchestrator.request(operation::KV_GET, s(2)).label("airline_10");
    let error = error(request.run(|attempt| server.answer(attempt)).await);
    assert_eq!(
        (error.stop_reason(), error.attempts(), error.elapsed()),
        (StopReason::Deadline, 4, s(2))
    );
    let reasons = [reason::KV_NOT_MY_VBUCKET, reason::KV_TEMPORARY_FAILURE, reason::KV_LOCKED];
    assert_eq!((error.reasons(), error.reason()), (&reasons[..], Some(reason::KV_LOCKED)));
    assert_eq!(error.response(), Some(&Response::kv(0x09).to_command("get")));
    assert_eq!(error.context().operation(), operation::KV_GET);
    assert_eq!(error.context().label(), "airline_10");
    assert!(error.is_timeout() && !error.is_ambiguous());
    let text = "kv.get airline_10: unambiguous timeout, kv status 0x09 to get (4 attempts in 2.0 s; \
                gave up: no time left before the deadline)";
    assert_eq!(error.to_string().replace("in 2 s", "in 2.0 s"), text);
    let source = error.source().map(ToString::to_string);
    assert_eq!(source.as_deref(), Some("kv status 0x09 to get"));
    assert_eq!(error.into_last(), Some(AttemptError::from(Response::kv(0x09).to_command("get"))));
}

#[tokio::test(start_paused = true)]
async fn terminal_state_ends_request_and_keeps_cause() {
    let state = TerminalState::new();
    let connection = state.connect();
    connection.tls_failed("certificate not trusted");
    let send = || async {
        match state.terminal_reason_for(RequestTarget::collection("travel", "inventory", "hotel")) {
            Some(terminal) => Err(AttemptError::from(terminal)),
            None => Ok(()),
        }
    };
    let orchestrator = Orchestrator::new();
    let request = || orchestrator.request(operation::KV_UPSERT, s(2));
    let failed = error(request().run(|_| send()).await);
    assert_eq!(failed.terminal(), Some(TerminalError::Couchbase));
    let mut chain = Vec::new();
    let mut next = failed.source();
    while let Some(error) = next {
        chain.push(error.to_string());
        next = error.source();
    }
    assert_eq!(chain, ["TLS_ERROR", "certificate not trusted"]);

    connection.tls_passed();
    state.collections_fetched("travel", CollectionMap::new().scope("inventory", ["airport"]));
    let failed = error(request().run(|_| send()).await);
    assert_eq!(failed.terminal(), Some(TerminalError::CollectionNotFound));
    // Best effort keeps retrying, and succeeds once the collection exists.
    let create = async {
        tokio::time::sleep(ms(100)).await;
        state.collections_fetched("travel", CollectionMap::new().scope("inventory", ["hotel"]));
    };
    let waiting = request().strategy(BestEffort::new()).run(|_| send());
    assert!(tokio::join!(waiting, create).0.is_ok());
}

#[tokio::test(start_paused = true)]
async fn throttle_limits_retries_of_all_requests() {
    let budget = Arc::new(RetryBudget::try_new(1.0, 0.0).expect("a budget"));
    let (orchestrator, lines) = logged(best_effort().throttled(budget));
    let server = Server::new([status(0x86), status(0x86), status(0x86)]);
    let request = || orchestrator.request(operation::KV_GET, s(2));
    let first = error(request().run(|attempt| server.answer(attempt)).await);
    assert_eq!((first.stop_reason(), first.attempts()), (StopReason::Throttled, 2));
    let second = error(request().run(|attempt| server.answer(attempt)).await);
    assert_eq!((second.stop_reason(), second.attempts()), (StopReason::Throttled, 1));
    let line = |event: &str| format!("{event} KV_TEMPORARY_FAILURE");
    assert_eq!(texts(&lines), [line("retry"), line("not-retried"), line("not-retried")]);
}

#[tokio::test(start_paused = true)]
async fn orchestrator_does_not_order_requests() {
    let orchestrator = best_effort();
    let moved = Server::new([status(0x07), status(0x07), ok()]);
    let direct = Server::new([ok()]);
    let ended = std::sync::Mutex::new(Vec::new());
    let write = |name: &'static str, server| {
        let request = orchestrator.request(operation::KV_UPSERT, s(2)).label("airline_10");
        let ended = &ended;
        async move {
            let server: &Server = server;
            request.run(|attempt| server.answer(attempt)).await.expect("both succeed");
            ended.lock().expect("no panic").push(name);
        }
    };
    let (first, second) = (write("first", &moved), write("second", &direct));
    let later = async {
        tokio::time::sleep(ms(5)).await;
        second.await;
    };
    tokio::join!(first, later);
    assert_eq!(*ended.lock().expect("no panic"), ["second", "first"]);
}

#[tokio::test(start_paused = true)]
async fn orchestrator_request_is_send_and_accepts_any_sleeper() {
    #[derive(Clone, Copy)]
    struct Slower;
    impl Sleeper for Slower {
        type Sleep = <Tokio as Sleeper>::Sleep;
        fn now(&self) -> redial::time::Ns {
            Tokio.now()
        }
        fn sleep_until(&self, at: redial::time::Ns) -> Self::Sleep {
            Tokio.sleep_until(at + 1_000_000)
        }
    }
    let task = tokio::spawn(async {
        let server = Server::new([status(0x86), status(0x86), ok()]);
        let orchestrator = best_effort();
        let request = orchestrator.request(operation::KV_GET, s(2)).sleeping_on(Slower);
        let result = request.run(|attempt| server.answer(attempt)).await;
        (result.is_ok(), server.starts())
    });
    assert_eq!(task.await.expect("no panic"), (true, vec![0, 2, 5]));
}

#[tokio::test(start_paused = true)]
async fn cancellation_of_request_is_not_a_failure() {
    let server = Server::new([status(0x86), status(0x86), AttemptOutcome::Nothing]);
    let (orchestrator, lines) = logged(best_effort());
    let mut call_log = CallLog::new();
    let request = orchestrator.request(operation::KV_UPSERT, s(2)).call_log(&mut call_log);
    let dropped = tokio::time::timeout(ms(50), request.run(|attempt| server.answer(attempt))).await;
    assert!(dropped.is_err());
    assert_eq!(texts(&lines), ["retry KV_TEMPORARY_FAILURE"; 2]);
    let stop_reason = call_log.events().last().map(|(_, event)| format!("{event:?}"));
    assert_eq!(stop_reason.as_deref(), Some("CallEnded { stop_reason: Cancelled, attempt: None }"));
}

#[test]
fn blocking_request_is_retried_in_this_thread() {
    let orchestrator = best_effort();
    let mut attempts = Vec::new();
    let begin = Instant::now();
    let result = orchestrator.request(operation::KV_GET, s(10)).call(|attempt| {
        attempts.push((attempt.number(), attempt.last_failure().and_then(|it| it.reason)));
        assert!(attempt.remaining() <= s(10));
        if attempt.number() < 4 { Err(AttemptError::from(Response::kv(0x09))) } else { Ok("value") }
    });
    assert_eq!(result.ok(), Some("value"));
    let locked = Some(reason::KV_LOCKED);
    assert_eq!(attempts, [(1, None), (2, locked), (3, locked), (4, locked)]);
    assert!(begin.elapsed() >= ms(1 + 2 + 4));
}

/// In real time: a loaded machine has one second for the first attempt, and the delay would be one hour.
#[test]
fn blocking_request_ends_at_timeout() {
    let (orchestrator, lines) = logged(every(s(3600)));
    let begin = Instant::now();
    let failed = orchestrator
        .request(operation::KV_UPSERT, s(1))
        .call(|_| Err::<(), _>(AttemptError::from(Response::kv(0x09))));
    let failed = error(failed);
    assert_eq!((failed.attempts(), failed.timeout()), (1, Some(TimeoutKind::Unambiguous)));
    assert!(begin.elapsed() >= s(1) && begin.elapsed() < s(600));
    assert_eq!(texts(&lines), ["retry KV_LOCKED"]);
}
