//! The diary of a call: it comes through the request's extensions, and its replay decides the same.

use redial::{CallLog, Event, StopReason};
use redial_faults::grpc::{Answer, Door, Reason, Script, Server, StatusNumber as Peer};
use redial_grpc::{CallOptions, ClientOptions, Retries, RetryLayerBuilder, SharedCallLog};
use tonic::{Code, Request};

use super::rig::{HEDGE, RETRY, Rig, UNARY, config, layer, message, ms};

fn busy() -> Answer {
    Answer::trailers_only(Peer::UNAVAILABLE)
}

/// Plays a call, and its diary again.
async fn replayed(
    fields: &str,
    script: impl Into<Script>,
    change: impl FnOnce(RetryLayerBuilder) -> RetryLayerBuilder,
    deadline: Option<u64>,
) -> CallLog {
    let layer = change(layer(fields)).build();
    let mut rig = Rig::of(layer, Server::new(script));
    let call_log = SharedCallLog::new();
    let mut request = Request::new(message("x"));
    request.extensions_mut().insert(CallOptions::new().call_log(&call_log));
    if let Some(deadline) = deadline {
        request.set_timeout(ms(deadline));
    }
    // What has not ended by then is dropped.
    let _ = tokio::time::timeout(ms(5_000), rig.client.unary(request)).await;
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
        other => panic!("it has not ended: {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_replay_decides_as_the_call_did() {
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
            replayed(RETRY, [Answer::trailers_only(Peer::ABORTED)], same, None).await,
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
                Script::new().door(Door::ClosedAtOnce, ms(0)).otherwise(Answer::echo()),
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
                [Answer::headers().message("").trailers(Peer::UNAVAILABLE)],
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
async fn another_policy_would_have_gone_another_way() {
    let call_log = replayed(RETRY, vec![busy(); 3], |it| it, None).await;
    let other = RETRY.replace(r#""maxAttempts": 3"#, r#""maxAttempts": 2"#);
    let plan = ClientOptions::default().plan(config(&other).method(UNARY));
    assert!(call_log.replay(plan.policy()).is_err());
}

#[tokio::test(start_paused = true)]
async fn each_call_writes_its_own_diary_and_who_has_none_writes_none() {
    let mut rig = Rig::new(RETRY, Script::new().attempts([busy()]).otherwise(Answer::echo()));
    let (first, second) = (SharedCallLog::new(), SharedCallLog::new());
    for call_log in [&first, &second] {
        let mut request = Request::new(message("x"));
        request.extensions_mut().insert(CallOptions::new().call_log(call_log));
        rig.client.unary(request).await.unwrap();
    }
    rig.client.unary(message("x")).await.unwrap();
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
    assert!(first.read().events().is_empty(), "what was taken is gone");
}

/// What fails here fails before the first attempt: a message that is larger than the config allows,
/// or than tonic encodes. Such a call has a beginning and an end, too, and nothing between them.
///
/// Red: without `Begun::unstarted` in `service.rs` the diary is empty.
#[tokio::test(start_paused = true)]
async fn a_call_whose_body_fails_before_its_first_attempt_has_an_end() {
    for policy in [RETRY, HEDGE] {
        let fields = format!(r#"{policy}, "maxRequestMessageBytes": 20"#);
        for (encodes, code) in [(30, Code::ResourceExhausted), (10, Code::OutOfRange)] {
            for retries in [Retries::All, Retries::Off] {
                let layer = layer(&fields).retries(retries).build();
                let mut rig = Rig::of(layer, Server::new(Answer::echo()));
                rig.client = rig.client.max_encoding_message_size(encodes);
                let call_log = SharedCallLog::new();
                let mut request = Request::new(message(&"m".repeat(19)));
                request.extensions_mut().insert(CallOptions::new().call_log(&call_log));
                request.set_timeout(ms(70));
                let status = rig.client.unary(request).await.unwrap_err();
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
                assert_eq!((rig.tokens(), rig.statistics()), (10_000, (0, 0, 0)));
                assert_eq!((rig.server.counts().streams, rig.control.bytes_kept()), (0, 0));
            }
        }
    }
}
