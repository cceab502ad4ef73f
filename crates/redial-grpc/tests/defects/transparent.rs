//! Replacements of what provably did not run.

use redial::StopReason;
use redial_core::Proof;
use redial_faults::grpc::{Answer, Close, LastStream, Reason};
use tonic::Code;

use super::rig::{HEDGE, RETRY, Rig};

fn refused() -> Answer {
    Answer::reset(Reason::REFUSED_STREAM)
}

/// In grpc-java it is open whether a refused stream is replaced once for a call or once for each
/// hedge (#5075). Here: for a call.
///
/// Red: replace each (no `Proof::Unprocessed if self.unprocessed` in `Call::replace`).
#[tokio::test(start_paused = true)]
async fn transparent_once_per_call() {
    let mut rig = Rig::new(HEDGE, [refused(), Answer::hang(), refused(), Answer::echo()]);
    let told = rig.call().await;
    // The first is replaced; the second refusal counts as a failure, and sends the third at once.
    assert_eq!((told.code(), told.starts()), (Code::Ok, vec![0, 0, 20, 20]));
    assert_eq!(told.previous(), [None, None, Some(1), Some(2)]);
    assert_eq!((rig.statistics(), rig.tokens()), ((2, 1, 1), 9_100));
}

/// In grpc-java a stream that a GOAWAY turns away is not always told from one that failed (#8394,
/// #10533).
///
/// Red: look at resets alone (no `error.is_go_away() && remote` in `evidence::of_h2`).
#[tokio::test(start_paused = true)]
async fn goaway_unsent_stream_transparent() {
    for reason in [Reason::NO_ERROR, Reason::ENHANCE_YOUR_CALM] {
        let gone = Answer::go_away(LastStream::Below, reason);
        for answer in [gone.clone(), gone.then_close(Close::Abrupt)] {
            let mut rig = Rig::new("", [answer, Answer::echo()]);
            let told = rig.call().await;
            assert_eq!((told.code(), told.starts()), (Code::Ok, vec![0, 0]), "{reason:?}");
            assert_eq!(told.proofs()[0], Some(Proof::Unprocessed));
        }
    }
}

/// In grpc-go the permission for a transparent retry outlived the attempt that had earned it, and
/// the call went round until its context ended (#5503).
///
/// Red: take any failure for one that was never sent (`let proof = proof.unwrap_or(Proof::Unsent);`
/// in `Call::replace`).
#[tokio::test(start_paused = true)]
async fn transparent_flag_not_sticky() {
    let script = [refused(), Answer::close(Close::Orderly), Answer::echo()];
    let mut rig = Rig::new("", script);
    let told = rig.call().await;
    assert_eq!((told.code(), told.end().0), (Code::Unavailable, StopReason::NotRetryable));
    assert_eq!((told.starts(), told.proofs()), (vec![0, 0], vec![Some(Proof::Unprocessed), None]));
    assert_eq!(rig.statistics(), (0, 0, 1));
}

/// Users of grpc-go expect a refused connection to be retried for them (#8417). It is not, unless a
/// policy or `waitForReady` asks for it: it would hide a wrong address for ever.
///
/// Red: take it for what was never sent (`let proof = Some(Proof::Unsent);` in
/// `Plan::unconnected`).
#[tokio::test(start_paused = true)]
async fn connect_refused_without_policy_not_retried() {
    let mut rig = Rig::new("", [Answer::unconnected(), Answer::echo()]);
    let told = rig.call().await;
    assert_eq!((told.code(), told.starts()), (Code::Unavailable, vec![0]));
    assert_eq!(told.chain().last().unwrap(), "io ConnectionRefused");
    let mut rig = Rig::new(RETRY, [Answer::unconnected(), Answer::echo()]);
    assert_eq!(rig.call().await.starts(), [0, 50], "with one it is");
}
