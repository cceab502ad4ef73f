//! The diary of a call: it comes through the request's extensions, and its replay decides the same.

use redial::{Diary, Note, Why};
use redial_faults::grpc::{Answer, Door, Reason, Script, Server, StatusNumber as Peer};
use redial_grpc::{CallDiary, CallOptions, Client, Retries, RetryLayerBuilder};
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
) -> Diary {
    let layer = change(layer(fields)).build();
    let mut rig = Rig::of(layer, Server::new(script));
    let diary = CallDiary::new();
    let mut request = Request::new(message("x"));
    request.extensions_mut().insert(CallOptions::new().diary(&diary));
    if let Some(deadline) = deadline {
        request.set_timeout(ms(deadline));
    }
    // What has not ended by then is dropped.
    let _ = tokio::time::timeout(ms(5_000), rig.client.unary(request)).await;
    let diary = diary.take();
    let plan = Client::default().plan(config(fields).method(UNARY));
    if let Err(divergence) = diary.replay(plan.policy()) {
        panic!("{divergence}\n{diary:#?}");
    }
    diary
}

fn why(diary: &Diary) -> Why {
    match diary.notes().last() {
        Some((_, Note::Ended { why, .. })) => *why,
        other => panic!("it has not ended: {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_replay_decides_as_the_call_did() {
    let same = |it| it;
    let refused = || Answer::reset(Reason::REFUSED_STREAM);
    let pushed = busy().pushback("70");
    let cases = [
        (replayed(RETRY, [Answer::echo()], same, None).await, Why::Succeeded),
        (
            replayed(RETRY, [busy(), pushed.clone(), Answer::echo()], same, None).await,
            Why::Succeeded,
        ),
        (replayed(RETRY, vec![busy(); 3], same, None).await, Why::Attempts),
        (replayed(RETRY, [busy().pushback("-1")], same, None).await, Why::Refused),
        (replayed(RETRY, [Answer::trailers_only(Peer::ABORTED)], same, None).await, Why::Fatal),
        (replayed(RETRY, [busy(), Answer::hang()], same, Some(300)).await, Why::Deadline),
        (replayed(RETRY, [pushed.clone(), Answer::echo()], same, Some(30)).await, Why::Deadline),
        (replayed(RETRY, [busy(), Answer::hang()], same, None).await, Why::Cancelled),
        (replayed(RETRY, [refused(), refused(), Answer::echo()], same, None).await, Why::Succeeded),
        (
            replayed(HEDGE, [Answer::hang(), busy(), Answer::echo()], same, None).await,
            Why::Succeeded,
        ),
        (
            replayed(HEDGE, [Answer::hang(), pushed, Answer::echo()], same, None).await,
            Why::Succeeded,
        ),
        (replayed(HEDGE, vec![busy().after(ms(30)); 3], same, None).await, Why::Attempts),
        (replayed(HEDGE, vec![Answer::hang(); 3], same, Some(100)).await, Why::Deadline),
        (replayed(HEDGE, vec![Answer::hang(); 3], same, None).await, Why::Cancelled),
        (
            replayed(
                "",
                Script::new().door(Door::ClosedAtOnce, ms(0)).otherwise(Answer::echo()),
                same,
                None,
            )
            .await,
            Why::Succeeded,
        ),
        (
            replayed(RETRY, [busy()], |it| it.per_rpc_buffer_limit_in_bytes(1), None).await,
            Why::Committed,
        ),
        (
            replayed(
                RETRY,
                [Answer::headers().message("").trailers(Peer::UNAVAILABLE)],
                same,
                None,
            )
            .await,
            Why::Committed,
        ),
    ];
    for (diary, expected) in cases {
        assert_eq!(why(&diary), expected, "{diary:#?}");
    }
}

#[tokio::test(start_paused = true)]
async fn another_policy_would_have_gone_another_way() {
    let diary = replayed(RETRY, vec![busy(); 3], |it| it, None).await;
    let other = RETRY.replace(r#""maxAttempts": 3"#, r#""maxAttempts": 2"#);
    let plan = Client::default().plan(config(&other).method(UNARY));
    assert!(diary.replay(plan.policy()).is_err());
}

#[tokio::test(start_paused = true)]
async fn each_call_writes_its_own_diary_and_who_has_none_writes_none() {
    let mut rig = Rig::new(RETRY, Script::new().attempts([busy()]).otherwise(Answer::echo()));
    let (first, second) = (CallDiary::new(), CallDiary::new());
    for diary in [&first, &second] {
        let mut request = Request::new(message("x"));
        request.extensions_mut().insert(CallOptions::new().diary(diary));
        rig.client.unary(request).await.unwrap();
    }
    rig.client.unary(message("x")).await.unwrap();
    let started = |diary: &Diary| {
        diary.notes().iter().filter(|(_, note)| matches!(note, Note::Started { .. })).count()
    };
    assert_eq!((started(&first.read()), started(&second.read())), (2, 1));
    let read = first.read();
    assert_eq!(first.take(), read);
    assert!(first.read().notes().is_empty(), "what was taken is gone");
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
                let diary = CallDiary::new();
                let mut request = Request::new(message(&"m".repeat(19)));
                request.extensions_mut().insert(CallOptions::new().diary(&diary));
                request.set_timeout(ms(70));
                let status = rig.client.unary(request).await.unwrap_err();
                assert_eq!(status.code(), code, "{status:?}");
                assert!(status.metadata().get("grpc-previous-rpc-attempts").is_none());
                let diary = diary.take();
                let [(began, first), (ended, last)] = diary.notes() else { panic!("{diary:?}") };
                let deadline = Some(began + 70_000_000);
                let idempotent = retries == Retries::All;
                assert_eq!(*first, Note::Began { deadline, idempotent });
                assert_eq!(*last, Note::Ended { why: Why::Cancelled, attempt: None });
                assert_eq!(began, ended);
                let mut client = Client::default();
                client.retries = retries;
                let plan = client.plan(config(&fields).method(UNARY));
                assert_eq!(diary.replay(plan.policy()), Ok(()));
                assert_eq!((rig.tokens(), rig.statistics()), (10_000, (0, 0, 0)));
                assert_eq!((rig.server.counts().streams, rig.control.bytes_kept()), (0, 0));
            }
        }
    }
}
