//! Retry strategies: the built-in ones decide as RFC 49 specifies, and custom ones have the documented
//! capabilities. A scripted fake on tokio's paused clock; start times show the delays.

mod common;

use std::error::Error as _;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use common::{AttemptOutcome, Server, after, error, fails, logged, ok, status, texts};
use redial::{
    PolicyError, Reason, StopReason, ms,
    rules::Backoff,
    s,
    strategy::{Decision, Request, Strategy},
};
use redial_couchbase::{
    AttemptError, BackoffCalculator, BestEffort, ErrorMap, ErrorMapEntry, FailFast,
    FastFailOnTerminalError, Orchestrator, RequestContext, RequestOperation, Response, RetrySpec,
    RetrySpecStrategy, StrategyName, TerminalError, operation, reason,
};

const TIMEOUT: std::time::Duration = ms(2500);

fn locked(times: usize) -> Vec<AttemptOutcome> {
    let mut script = vec![fails(reason::KV_LOCKED); times];
    script.push(ok());
    script
}

async fn starts(strategy: impl Strategy + 'static, script: Vec<AttemptOutcome>) -> Vec<u64> {
    let server = Server::new(script);
    let orchestrator = Orchestrator::with(strategy);
    let request = orchestrator.request(operation::KV_GET, s(10));
    request.run(|attempt| server.answer(attempt)).await.expect("the script ends well");
    server.starts()
}

#[tokio::test(start_paused = true)]
async fn best_effort_doubles_from_1_ms_up_to_500_ms() {
    let expected = [0, 1, 3, 7, 15, 31, 63, 127, 255, 511, 1011, 1511];
    assert_eq!(starts(BestEffort::new(), locked(11)).await, expected);
}

#[tokio::test(start_paused = true)]
async fn best_effort_accepts_controlled_backoff() {
    let expected = [0, 1, 11, 61, 161, 661, 1661, 2661];
    assert_eq!(starts(BestEffort::with(BackoffCalculator::CONTROLLED), locked(7)).await, expected);
}

#[tokio::test(start_paused = true)]
async fn best_effort_accepts_any_backoff_calculator() {
    let series = BackoffCalculator::from_backoff(Backoff::Constant(ms(20))).expect("a series");
    assert_eq!(starts(BestEffort::with(series), locked(3)).await, [0, 20, 40, 60]);
    let table = BackoffCalculator::from_table([ms(5), ms(7)]).expect("a table");
    assert_eq!(starts(BestEffort::with(table), locked(3)).await, [0, 5, 12, 19]);
    let function = BackoffCalculator::from_fn(|request| ms(u64::from(request.retry_attempts())));
    assert_eq!(starts(BestEffort::with(function), locked(3)).await, [0, 0, 1, 3]);
}

#[test]
fn backoff_calculator_rejects_invalid_delays() {
    let factor = Backoff::Exponential { first: ms(1), factor: -1.0, cap: None };
    assert_eq!(BackoffCalculator::from_backoff(factor).err(), Some(PolicyError::Factor));
    assert_eq!(
        BackoffCalculator::from_backoff(Backoff::Table(&[])).err(),
        Some(PolicyError::EmptyTable)
    );
    assert_eq!(BackoffCalculator::from_backoff(Backoff::Own).err(), Some(PolicyError::EmptyTable));
    assert_eq!(BackoffCalculator::from_table(Vec::new()).err(), Some(PolicyError::EmptyTable));
}

#[tokio::test(start_paused = true)]
async fn best_effort_never_retries_unknown_reason() {
    for strategy in [StrategyName::BestEffort, StrategyName::FastFailOnTerminalError] {
        for operation in [operation::KV_GET, operation::KV_UPSERT] {
            let server = Server::new([fails(reason::UNKNOWN)]);
            let orchestrator = Orchestrator::with(strategy.strategy(BackoffCalculator::default()));
            let (orchestrator, lines) = logged(orchestrator);
            let request = orchestrator.request(operation, TIMEOUT);
            let error = error(request.run(|attempt| server.answer(attempt)).await);
            assert_eq!(
                (error.stop_reason(), error.attempts()),
                (StopReason::StrategyDeclined, 1),
                "{operation}"
            );
            assert_eq!(error.terminal(), None);
            assert_eq!(texts(&lines), ["not-retried UNKNOWN"]);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn idempotency_lost_write_is_not_retried() {
    let lost = || after(7, reason::SOCKET_CLOSED_WHILE_IN_FLIGHT);
    let (orchestrator, lines) = logged(Orchestrator::with(BestEffort::new()));
    let server = Server::new([lost()]);
    let write = orchestrator.request(operation::KV_UPSERT, TIMEOUT);
    let error = error(write.run(|attempt| server.answer(attempt)).await);
    assert_eq!(error.stop_reason(), StopReason::NotIdempotent);
    assert_eq!(error.reason(), Some(reason::SOCKET_CLOSED_WHILE_IN_FLIGHT));
    assert_eq!((server.now(), texts(&lines).len()), (7, 1));
    assert_eq!(texts(&lines), ["not-retried SOCKET_CLOSED_WHILE_IN_FLIGHT"]);

    let server = Server::new([lost(), ok()]);
    let read = orchestrator.request(operation::KV_GET, TIMEOUT);
    assert!(read.run(|attempt| server.answer(attempt)).await.is_ok());
    assert_eq!(server.starts(), [0, 8]);
}

#[tokio::test(start_paused = true)]
async fn idempotency_unsent_write_is_retried() {
    for reason in reason::ALL.into_iter().filter(Reason::allows_non_idempotent_retry) {
        let server = Server::new([fails(reason), ok()]);
        let orchestrator = Orchestrator::with(BestEffort::new());
        let request = orchestrator.request(operation::KV_INSERT, TIMEOUT);
        assert!(request.run(|attempt| server.answer(attempt)).await.is_ok(), "{reason}");
        assert_eq!(server.starts(), [0, 1], "{reason}");
    }
}

#[tokio::test(start_paused = true)]
async fn fast_fail_terminal_reason_fails_with_listed_error() {
    let table = [
        (reason::AUTHENTICATION_ERROR, "AuthenticationFailure", "authentication failure"),
        (reason::TLS_ERROR, "Couchbase", "couchbase error"),
        (reason::BUCKET_ACCESS_ERROR, "Couchbase", "couchbase error"),
        (reason::SCOPE_NOT_FOUND, "ScopeNotFound", "scope not found"),
        (reason::COLLECTION_NOT_FOUND, "CollectionNotFound", "collection not found"),
    ];
    for (reason, name, text) in table {
        assert_eq!(TerminalError::of(reason).map(TerminalError::name), Some(name));
        let server = Server::new([fails(reason)]);
        let (orchestrator, lines) = logged(Orchestrator::with(FastFailOnTerminalError::new()));
        let request = orchestrator.request(operation::KV_UPSERT, TIMEOUT).label("key");
        let error = error(request.run(|attempt| server.answer(attempt)).await);
        assert_eq!(
            (error.stop_reason(), error.attempts(), server.now()),
            (StopReason::StrategyDeclined, 1, 0)
        );
        assert_eq!(error.terminal().map(TerminalError::name), Some(name));
        // The error keeps its cause as data and as `source`.
        assert_eq!(error.last(), Some(&AttemptError::Reason(reason)));
        assert_eq!(error.source().map(ToString::to_string), Some(reason.to_string()));
        let begin = format!("kv.upsert key: {reason}, {text} (1 attempt in 0");
        assert!(error.to_string().starts_with(&begin), "{error}");
        assert_eq!(texts(&lines), [format!("not-retried {reason}")]);
    }
    let terminal = table.map(|(reason, ..)| reason);
    for reason in reason::ALL.into_iter().filter(|reason| !terminal.contains(reason)) {
        assert_eq!(TerminalError::of(reason), None, "{reason}");
    }
}

#[tokio::test(start_paused = true)]
async fn fast_fail_leaves_other_reasons_to_best_effort() {
    assert_eq!(starts(FastFailOnTerminalError::new(), locked(4)).await, [0, 1, 3, 7, 15]);
    let delays = BackoffCalculator::from_table([ms(3)]).expect("a table");
    assert_eq!(starts(FastFailOnTerminalError::with(delays), locked(2)).await, [0, 3, 6]);
}

#[tokio::test(start_paused = true)]
async fn best_effort_retries_terminal_reasons() {
    let script = vec![fails(reason::AUTHENTICATION_ERROR), fails(reason::TLS_ERROR), ok()];
    assert_eq!(starts(BestEffort::new(), script).await, [0, 1, 3]);
}

#[tokio::test(start_paused = true)]
async fn orchestrator_default_strategy_is_fast_fail_on_terminal_error() {
    let server = Server::new([fails(reason::AUTHENTICATION_ERROR)]);
    let orchestrator = Orchestrator::new();
    let request = orchestrator.request(operation::SEARCH, s(75));
    let error = error(request.run(|attempt| server.answer(attempt)).await);
    assert_eq!(error.terminal(), Some(TerminalError::AuthenticationFailure));
}

#[tokio::test(start_paused = true)]
async fn fail_fast_retries_only_always_retried_reasons() {
    let server = Server::new([fails(reason::KV_LOCKED)]);
    let orchestrator = Orchestrator::with(FailFast);
    let request = orchestrator.request(operation::KV_GET, TIMEOUT);
    let error = error(request.run(|attempt| server.answer(attempt)).await);
    assert_eq!((error.stop_reason(), error.attempts()), (StopReason::StrategyDeclined, 1));
    let always =
        vec![fails(reason::KV_NOT_MY_VBUCKET), fails(reason::KV_COLLECTION_OUTDATED), ok()];
    assert_eq!(starts(FailFast, always).await, [0, 1, 11]);
}

#[tokio::test(start_paused = true)]
async fn strategy_can_be_a_function() {
    fn fail_fast(_: &Request<'_>) -> Decision {
        Decision::Decline
    }
    let server = Server::new([status(0x86)]);
    let orchestrator = Orchestrator::with(fail_fast);
    let request = orchestrator.request(operation::KV_GET, TIMEOUT);
    let error = error(request.run(|attempt| server.answer(attempt)).await);
    assert_eq!((error.stop_reason(), error.attempts()), (StopReason::StrategyDeclined, 1));
}

#[tokio::test(start_paused = true)]
async fn strategy_is_not_called_for_always_retried_reasons() {
    let asked = Arc::new(AtomicU32::new(0));
    let counted = asked.clone();
    let strategy = move |_: &Request<'_>| {
        counted.fetch_add(1, Ordering::Relaxed);
        Decision::Decline
    };
    let always = [
        reason::KV_NOT_MY_VBUCKET,
        reason::KV_COLLECTION_OUTDATED,
        reason::VIEWS_NO_ACTIVE_PARTITION,
    ];
    let mut script: Vec<_> = always.into_iter().map(fails).collect();
    script.push(ok());
    assert_eq!(starts(strategy, script).await, [0, 1, 11, 61]);
    assert_eq!(asked.load(Ordering::Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn strategy_sees_the_documented_context() {
    struct Robot(u32);
    type Seen = (bool, u32, Vec<Reason>, Option<Reason>, u128, Option<u128>, u32, String);
    let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
    let kept = seen.clone();
    let strategy = move |request: &Request<'_>| {
        let context = RequestContext::of(request).expect("an orchestrator runs it");
        kept.lock().expect("no panic").push((
            request.is_idempotent(),
            request.retry_attempts(),
            request.reasons().to_vec(),
            request.failure().reason,
            request.elapsed().as_millis(),
            request.remaining().map(|left| left.as_millis()),
            request.data::<Robot>().map_or(0, |robot| robot.0),
            context.to_string(),
        ));
        Decision::Retry(ms(4))
    };
    let server = Server::new([
        after(10, reason::KV_NOT_MY_VBUCKET),
        after(20, reason::KV_LOCKED),
        fails(reason::KV_LOCKED),
        fails(reason::KV_TEMPORARY_FAILURE),
        ok(),
    ]);
    let orchestrator = Orchestrator::new();
    let request = orchestrator.request(operation::KV_UPSERT, TIMEOUT).label("key");
    let request = request.strategy(strategy).data(Robot(7));
    assert!(request.run(|attempt| server.answer(attempt)).await.is_ok());
    let (vbucket, locked, busy) =
        (reason::KV_NOT_MY_VBUCKET, reason::KV_LOCKED, reason::KV_TEMPORARY_FAILURE);
    let name = || "kv.upsert key".to_owned();
    // The reasons of earlier retries, including always-retried ones, without the current one.
    let expected: Vec<Seen> = vec![
        (false, 1, vec![vbucket], Some(locked), 31, Some(2469), 7, name()),
        (false, 2, vec![vbucket, locked], Some(locked), 35, Some(2465), 7, name()),
        (false, 3, vec![vbucket, locked], Some(busy), 39, Some(2461), 7, name()),
    ];
    assert_eq!(*seen.lock().expect("no panic"), expected);
}

#[tokio::test(start_paused = true)]
async fn strategy_can_decline_by_user_data() {
    struct IsRobot;
    let strategy = |request: &Request<'_>| match request.data::<IsRobot>() {
        Some(IsRobot) => Decision::Decline,
        None => BestEffort::new().retry_after(request),
    };
    let orchestrator = Orchestrator::with(strategy);
    let server = Server::new([status(0x86)]);
    let robot = orchestrator.request(operation::KV_GET, TIMEOUT).data(IsRobot);
    assert!(robot.run(|attempt| server.answer(attempt)).await.is_err());
    let server = Server::new([status(0x86), ok()]);
    let person = orchestrator.request(operation::KV_GET, TIMEOUT);
    assert!(person.run(|attempt| server.answer(attempt)).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn strategy_can_answer_later() {
    // An external system decides after 5 ms; the delay starts then.
    let strategy = |_: &Request<'_>| {
        Decision::later(async {
            tokio::time::sleep(ms(5)).await;
            Some(ms(2))
        })
    };
    assert_eq!(starts(strategy, locked(2)).await, [0, 7, 14]);
    let declines = |_: &Request<'_>| Decision::later(async { None });
    let server = Server::new([fails(reason::KV_LOCKED)]);
    let orchestrator = Orchestrator::with(declines);
    let request = orchestrator.request(operation::KV_GET, TIMEOUT);
    let error = error(request.run(|attempt| server.answer(attempt)).await);
    assert_eq!((error.stop_reason(), error.attempts()), (StopReason::StrategyDeclined, 1));
}

#[tokio::test(start_paused = true)]
async fn strategy_that_never_answers_ends_at_timeout() {
    let strategy = |_: &Request<'_>| Decision::later(std::future::pending::<Decision>());
    let server = Server::new([fails(reason::KV_LOCKED)]);
    let (orchestrator, lines) = logged(Orchestrator::with(strategy));
    let request = orchestrator.request(operation::KV_GET, TIMEOUT);
    let error = error(request.run(|attempt| server.answer(attempt)).await);
    assert_eq!((error.stop_reason(), server.now()), (StopReason::Deadline, 2500));
    assert_eq!(texts(&lines), ["not-retried KV_LOCKED"]);
}

#[tokio::test(start_paused = true)]
async fn strategy_zero_delay_retries_immediately() {
    let strategy = |_: &Request<'_>| Decision::Retry(ms(0));
    assert_eq!(starts(strategy, locked(3)).await, [0, 0, 0, 0]);
}

#[tokio::test(start_paused = true)]
async fn strategy_error_is_source_of_request_error() {
    fn broken(_: &Request<'_>) -> Decision {
        Decision::Fail("no connection to the oracle".into())
    }
    fn broken_later(_: &Request<'_>) -> Decision {
        Decision::later(async { Err("no connection to the oracle".into()) })
    }
    for strategy in [broken, broken_later] {
        let server = Server::new([fails(reason::KV_LOCKED)]);
        let (orchestrator, lines) = logged(Orchestrator::with(strategy));
        let request = orchestrator.request(operation::KV_GET, TIMEOUT);
        let error = error(request.run(|attempt| server.answer(attempt)).await);
        assert_eq!((error.stop_reason(), error.terminal()), (StopReason::StrategyDeclined, None));
        let source = error.source().map(ToString::to_string);
        assert_eq!(source.as_deref(), Some("no connection to the oracle"));
        assert_eq!(error.last(), Some(&AttemptError::Reason(reason::KV_LOCKED)));
        assert_eq!(texts(&lines), ["not-retried KV_LOCKED"]);
    }
}

#[tokio::test(start_paused = true)]
async fn strategy_of_request_overrides_client() {
    let server = Server::new(locked(2));
    let orchestrator = Orchestrator::with(FailFast);
    let request = orchestrator.request(operation::KV_GET, TIMEOUT).strategy(BestEffort::new());
    assert!(request.run(|attempt| server.answer(attempt)).await.is_ok());
    assert_eq!(server.starts(), [0, 1, 3]);
    // One strategy can be shared by clients and requests.
    let shared: Arc<dyn Strategy> = Arc::new(FailFast);
    for orchestrator in [Orchestrator::sharing(shared.clone()), Orchestrator::new()] {
        let server = Server::new([fails(reason::KV_LOCKED)]);
        let request = orchestrator.request(operation::KV_GET, TIMEOUT).sharing(shared.clone());
        assert!(request.run(|attempt| server.answer(attempt)).await.is_err());
    }
}

#[tokio::test(start_paused = true)]
async fn strategy_can_read_error_map_intervals() {
    let mut spec = RetrySpec::new(RetrySpecStrategy::Constant, ms(25));
    spec.after = ms(10);
    let map =
        ErrorMap::new().with(0x7ff0, ErrorMapEntry::of(["auto-retry", "temp"]).with_retry(spec));
    let script = || {
        let response = Response::kv(0x7ff0).with_error_map(&map);
        vec![fails(response.clone()), fails(response.clone()), fails(response), ok()]
    };
    let as_the_server_wishes = |request: &Request<'_>| {
        let response = RequestContext::of(request).and_then(RequestContext::last_response);
        let Some(Response::Kv { error_map: Some(entry), .. }) = response else {
            return BestEffort::new().retry_after(request);
        };
        entry.retry().map(|spec| spec.delay(request.retry_attempts())).into()
    };
    assert_eq!(starts(as_the_server_wishes, script()).await, [0, 10, 35, 60]);
    assert_eq!(starts(BestEffort::new(), script()).await, [0, 1, 3, 7]);
}

#[tokio::test(start_paused = true)]
async fn strategy_name_builds_its_strategy() {
    let table = || BackoffCalculator::from_table([ms(5), ms(7)]).expect("a table");
    for name in StrategyName::ALL {
        assert_eq!(StrategyName::parse(name.name()), Ok(name));
    }
    for name in ["best-effort", "fast-fail-on-terminal-error"] {
        let strategy = StrategyName::parse(name).expect("a known name").strategy(table());
        let orchestrator = Orchestrator::with(strategy);
        let server = Server::new(locked(3));
        let request = orchestrator.request(RequestOperation::new("mine"), TIMEOUT);
        assert!(request.run(|attempt| server.answer(attempt)).await.is_ok());
        assert_eq!(server.starts(), [0, 5, 12, 19], "{name}");
    }
    let error = StrategyName::parse("best_effort").expect_err("an unknown name");
    assert_eq!(error.nearest(), Some("best-effort"));
}
