//! The call log: it is requested through the extensions of the request, and a replay of it makes the same
//! decisions.

use std::error::Error;

use redial::{CallLog, Event, StopReason};
use redial_faults::grpc::{Answer, OnConnect, Reason, Script, Server, StatusNumber};
use redial_grpc::{CallOptions, ClientOptions, Retries, RetryLayerBuilder, SharedCallLog};
use tonic::{Code, Request};

use crate::common::harness::{HEDGE, Harness, RETRY, UNARY, busy, config, layer, message, ms};

/// Makes a call and replays its call log.
async fn replayed(
    fields: &str,
    script: impl Into<Script>,
    change: impl FnOnce(RetryLayerBuilder) -> RetryLayerBuilder,
    deadline: Option<u64>,
) -> CallLog {
    let layer = change(layer(fields)).build();
    let mut harness = Harness::with_layer(layer, Server::new(script));
    let call_log = SharedCallLog::new();
    let mut request = Request::new(message("x"));
    request.extensions_mut().insert(CallOptions::new().call_log(&call_log));
    if let Some(deadline) = deadline {
        request.set_timeout(ms(deadline));
    }
    // A call that has not ended by then is cancelled.
    let _ = tokio::time::timeout(ms(5_000), harness.client.unary(request)).await;
    let call_log = call_log.take();
    let plan = ClientOptions::default().plan(config(fields).method(UNARY));
    if let Err(divergence) = call_log.replay(plan.policy()) {
        panic!("{divergence}\n{call_log:#?}");
    }
    call_log
}

fn stop_reason(call_log: &CallLog) -> StopReason {
    match call_log.events().last() {
        Some((_, Event::CallEnded { stop_reason, .. })) => *stop_reason,
        other => panic!("the call has not ended: {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn call_log_replay_makes_the_same_decisions() {
    let same = |it| it;
    let refused = || Answer::reset(Reason::REFUSED_STREAM);
    let pushed = busy().pushback("70");
    let cases = [
        (replayed(RETRY, [Answer::echo()], same, None).await, StopReason::Succeeded),
        (
            replayed(RETRY, [busy(), pushed.clone(), Answer::echo()], same, None).await,
            StopReason::Succeeded,
        ),
        (replayed(RETRY, vec![busy(); 3], same, None).await, StopReason::AttemptsExhausted),
        (replayed(RETRY, [busy().pushback("-1")], same, None).await, StopReason::ServerRefused),
        (
            replayed(RETRY, [Answer::trailers_only(StatusNumber::ABORTED)], same, None).await,
            StopReason::NotRetryable,
        ),
        (replayed(RETRY, [busy(), Answer::hang()], same, Some(300)).await, StopReason::Deadline),
        (
            replayed(RETRY, [pushed.clone(), Answer::echo()], same, Some(30)).await,
            StopReason::Deadline,
        ),
        (replayed(RETRY, [busy(), Answer::hang()], same, None).await, StopReason::Cancelled),
        (
            replayed(RETRY, [refused(), refused(), Answer::echo()], same, None).await,
            StopReason::Succeeded,
        ),
        (
            replayed(HEDGE, [Answer::hang(), busy(), Answer::echo()], same, None).await,
            StopReason::Succeeded,
        ),
        (
            replayed(HEDGE, [Answer::hang(), pushed, Answer::echo()], same, None).await,
            StopReason::Succeeded,
        ),
        (
            replayed(HEDGE, vec![busy().after(ms(30)); 3], same, None).await,
            StopReason::AttemptsExhausted,
        ),
        (replayed(HEDGE, vec![Answer::hang(); 3], same, Some(100)).await, StopReason::Deadline),
        (replayed(HEDGE, vec![Answer::hang(); 3], same, None).await, StopReason::Cancelled),
        (
            replayed(
                "",
                Script::new()
                    .on_connect(OnConnect::CloseImmediately, ms(0))
                    .default_answer(Answer::echo()),
                same,
                None,
            )
            .await,
            StopReason::Succeeded,
        ),
        (
            replayed(RETRY, [busy()], |it| it.per_rpc_buffer_limit_in_bytes(1), None).await,
            StopReason::Committed,
        ),
        (
            replayed(
                RETRY,
                [Answer::headers().message("").trailers(StatusNumber::UNAVAILABLE)],
                same,
                None,
            )
            .await,
            StopReason::Committed,
        ),
    ];
    for (call_log, expected) in cases {
        assert_eq!(stop_reason(&call_log), expected, "{call_log:#?}");
    }
}

#[tokio::test(start_paused = true)]
async fn call_log_replay_with_another_policy_is_a_mismatch() {
    let call_log = replayed(RETRY, vec![busy(); 3], |it| it, None).await;
    let other = RETRY.replace(r#""maxAttempts": 3"#, r#""maxAttempts": 2"#);
    let plan = ClientOptions::default().plan(config(&other).method(UNARY));
    assert!(call_log.replay(plan.policy()).is_err());
}

#[tokio::test(start_paused = true)]
async fn call_log_belongs_to_one_call() {
    let mut harness =
        Harness::new(RETRY, Script::new().attempts([busy()]).default_answer(Answer::echo()));
    let (first, second) = (SharedCallLog::new(), SharedCallLog::new());
    for call_log in [&first, &second] {
        let mut request = Request::new(message("x"));
        request.extensions_mut().insert(CallOptions::new().call_log(call_log));
        harness.client.unary(request).await.unwrap();
    }
    harness.client.unary(message("x")).await.unwrap();
    let started = |call_log: &CallLog| {
        call_log
            .events()
            .iter()
            .filter(|(_, event)| matches!(event, Event::AttemptStarted { .. }))
            .count()
    };
    assert_eq!((started(&first.read()), started(&second.read())), (2, 1));
    let read = first.read();
    assert_eq!(first.take(), read);
    assert!(first.read().events().is_empty(), "take leaves an empty log");
}

/// The request body fails before the first attempt because a message exceeds the limit of the config or
/// of tonic. The call log then has a start and an end, and no attempt.
#[tokio::test(start_paused = true)]
async fn call_log_of_a_call_without_attempts_has_an_end() {
    for policy in [RETRY, HEDGE] {
        let fields = format!(r#"{policy}, "maxRequestMessageBytes": 20"#);
        for (encodes, code) in [(30, Code::ResourceExhausted), (10, Code::OutOfRange)] {
            for retries in [Retries::All, Retries::Off] {
                let layer = layer(&fields).retries(retries).build();
                let mut harness = Harness::with_layer(layer, Server::new(Answer::echo()));
                harness.client = harness.client.max_encoding_message_size(encodes);
                let call_log = SharedCallLog::new();
                let mut request = Request::new(message(&"m".repeat(19)));
                request.extensions_mut().insert(CallOptions::new().call_log(&call_log));
                request.set_timeout(ms(70));
                let status = harness.client.unary(request).await.unwrap_err();
                assert_eq!(status.code(), code, "{status:?}");
                assert!(status.metadata().get("grpc-previous-rpc-attempts").is_none());
                let call_log = call_log.take();
                let [(began, first), (ended, last)] = call_log.events() else {
                    panic!("{call_log:?}")
                };
                let deadline = Some(began + 70_000_000);
                let idempotent = retries == Retries::All;
                assert_eq!(*first, Event::CallStarted { deadline, idempotent });
                assert_eq!(
                    *last,
                    Event::CallEnded { stop_reason: StopReason::Cancelled, attempt: None }
                );
                assert_eq!(began, ended);
                let mut client = ClientOptions::default();
                client.retries = retries;
                let plan = client.plan(config(&fields).method(UNARY));
                assert_eq!(call_log.replay(plan.policy()), Ok(()));
                assert_eq!((harness.tokens(), harness.statistics()), (10_000, (0, 0, 0)));
                assert_eq!((harness.server.counts().streams, harness.control.bytes_kept()), (0, 0));
            }
        }
    }
}

fn slow_busy() -> Answer {
    Answer::trailers_only(StatusNumber::UNAVAILABLE).text("busy").after(ms(5))
}

/// After the response headers the status arrives in the trailers, where no report can be attached.
#[tokio::test(start_paused = true)]
async fn call_log_has_the_message_of_failures_after_commit() {
    let answer = Answer::headers().trailers(StatusNumber::INTERNAL).text("disk full");
    let mut harness = Harness::new(RETRY, [slow_busy(), answer]);
    let call_log = SharedCallLog::new();
    let mut request = Request::new(message("x"));
    request.extensions_mut().insert(CallOptions::new().call_log(&call_log));
    let status = harness.client.unary(request).await.unwrap_err();
    assert_eq!((status.code(), status.source().is_some()), (Code::Internal, false));
    let text = call_log.take().to_string();
    assert!(text.contains("attempt 1 failed: a server failure (UNAVAILABLE): UNAVAILABLE: busy"));
    assert!(text.contains("attempt 2 failed, not retryable: INTERNAL: disk full"), "{text}");
}
