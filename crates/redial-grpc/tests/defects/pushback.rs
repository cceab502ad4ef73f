//! What servers say about the next attempt.

use redial::StopReason;
use redial_faults::grpc::{Answer, Script, StatusNumber as Peer};
use tonic::Code;

use super::rig::{RETRY, Rig};

fn busy() -> Answer {
    Answer::trailers_only(Peer::UNAVAILABLE)
}

/// What cannot be read, or is negative: "do not retry".
const GARBAGE: [&str; 14] = [
    "abc",
    "",
    " ",
    "50.5",
    "0x10",
    "1e2",
    "050",
    "+50",
    " 50",
    "50 ",
    "-0",
    "50,60",
    "2147483648",
    "12345678901234567890",
];

/// In grpcio 1.85 a pushback of 0 hangs until the deadline.
///
/// Red: take 0 for what cannot be read (`[b'1'..=b'9', ..]` alone in `Pushback::one`).
#[tokio::test(start_paused = true)]
async fn pushback_zero_retries_immediately() {
    let mut rig = Rig::new(RETRY, [busy().pushback("0"), busy().pushback("0"), Answer::echo()]);
    let told = rig.call().await;
    assert_eq!((told.code(), told.starts()), (Code::Ok, vec![0, 0, 0]));
}

/// In C-core backoffs of a millisecond hang: a timer that has fired is taken for one that was
/// cancelled (grpc#41036).
///
/// Red: leave a timer that has fired as it is (no `reset` in `Timer::poll`).
#[tokio::test(start_paused = true)]
async fn sub_millisecond_backoff_does_not_hang() {
    let policy = r#""retryPolicy": { "maxAttempts": 5, "initialBackoff": "0.0002s",
        "maxBackoff": "0.001s", "backoffMultiplier": 2, "retryableStatusCodes": ["UNAVAILABLE"] }"#;
    let script = Script::new().attempts(vec![busy(); 4]).otherwise(Answer::echo());
    let mut rig = Rig::new(policy, script);
    let told = rig.call().await;
    // Between 0.1 and 0.5 ms each, and the timer's own resolution is 1 ms.
    assert_eq!((told.code(), told.starts()), (Code::Ok, vec![0, 1, 2, 3, 4]));
}

/// In grpcio 1.85 a pushback that cannot be read replaces the server's status by INTERNAL.
///
/// Red: explain it (`answer::explain(&mut response, Code::Internal)` where a status is judged in
/// `Pending::outcome`).
#[tokio::test(start_paused = true)]
async fn malformed_pushback_keeps_server_status() {
    for garbage in GARBAGE {
        let answer = busy().text("busy").pushback(garbage).metadata("who", "me");
        let mut rig = Rig::new(RETRY, [answer]);
        let told = rig.call().await;
        let status = told.status();
        assert_eq!((status.code(), status.message()), (Code::Unavailable, "busy"), "{garbage:?}");
        assert_eq!(status.metadata().get("who").unwrap(), "me");
    }
}

/// In grpcio 1.85 it also spoils the calls that come after it on the same channel.
///
/// Red: let it drain the throttle (`left.saturating_sub(1_000_000)` in `TokenBucket::failed`).
#[tokio::test(start_paused = true)]
async fn malformed_pushback_next_call_ok() {
    let script = [busy().pushback("abc"), busy().pushback("5"), Answer::echo()];
    let mut rig = Rig::new(RETRY, script);
    assert_eq!(rig.call().await.code(), Code::Unavailable);
    let told = rig.call().await;
    assert_eq!((told.code(), told.starts()), (Code::Ok, vec![0, 5]));
}

/// grpc-js retries at once when it cannot read a pushback.
///
/// Red: take it for none (`_ => Pushback::None` in `Pushback::one`).
#[tokio::test(start_paused = true)]
async fn pushback_garbage_means_no_retry() {
    for garbage in GARBAGE.into_iter().chain(["-1", "-2147483649"]) {
        let mut rig = Rig::new(RETRY, [busy().pushback(garbage), Answer::echo()]);
        let told = rig.call().await;
        assert_eq!(
            (told.end().0, told.starts()),
            (StopReason::ServerRefused, vec![0]),
            "{garbage:?}"
        );
        assert_eq!(rig.tokens(), 9_000, "{garbage:?}");
    }
    let twice = busy().pushback("5").pushback("5");
    let mut rig = Rig::new(RETRY, [twice, Answer::echo()]);
    assert_eq!(rig.call().await.end().0, StopReason::ServerRefused);
}
