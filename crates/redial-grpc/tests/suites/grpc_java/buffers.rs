//! The limits on what is kept for a repetition, at them and one byte past them.

use redial_core::StopReason;
use redial_faults::grpc::{Answer, Once, Server, StatusNumber as Said};
use redial_grpc::RetryLayerBuilder;
use tonic::Code;

use super::retrying;
use crate::suites::rig::*;

/// Messages of one size.
const MESSAGES: [&str; 4] = ["1", "2", "3", "4"];

/// A call may keep two messages, and one byte more if that is said.
fn two_messages(more: u64) -> RetryLayerBuilder {
    exact(&retrying()).per_rpc_buffer_limit_in_bytes(2 * counted("1") + more)
}

/// A channel may keep three messages.
fn three_messages_together() -> RetryLayerBuilder {
    exact(&retrying()).retry_buffer_size_in_bytes(3 * counted("1"))
}

#[tokio::test(start_paused = true)]
async fn per_rpc_buffer_limit_may_be_reached() {
    let script = [fails(Said::UNAVAILABLE).after(s(1)), replies("a").once(Once::Messages(2))];
    let rig = rig_of(two_messages(0), Server::new(script));
    let mut talk = rig.bidi();
    for text in &MESSAGES[..2] {
        rig.settle().await;
        talk.write(&[text]);
    }
    rig.settle().await;
    assert_eq!(rig.control.bytes_kept(), 2 * counted("1"));
    assert_eq!(talk.all().await, (vec!["a".to_owned()], Code::Ok));
    assert_eq!(rig.statistics("Bidi").buffers_full, 0);
    rig.finish().await;
}

#[tokio::test(start_paused = true)]
async fn per_rpc_buffer_limit_exceeded_commits_to_the_attempt_in_flight() {
    let rig = rig_of(two_messages(0), Server::new(fails(Said::UNAVAILABLE).after(s(1))));
    let mut talk = rig.bidi();
    for text in &MESSAGES[..3] {
        rig.settle().await;
        talk.write(&[text]);
    }
    rig.settle().await;
    assert_eq!(rig.control.bytes_kept(), 0, "all of it is freed");
    assert_eq!(talk.all().await.1, Code::Unavailable);
    assert_eq!(
        (talk.stop_reason(), rig.statistics("Bidi").buffers_full),
        (StopReason::Committed, 1)
    );
    let record = rig.finish().await;
    assert_eq!(payloads(&record.streams[0]), MESSAGES[..3]);
}

#[tokio::test(start_paused = true)]
async fn per_rpc_buffer_limit_exceeded_during_backoff_makes_the_next_attempt_the_last() {
    // One byte more would be enough for the messages, but not for three of them.
    let script = [fails(Said::UNAVAILABLE), fails(Said::UNAVAILABLE).after(s(1))];
    let rig = rig_of(two_messages(1), Server::new(script));
    let mut talk = rig.bidi();
    talk.write(&["1"]);
    at(&rig, s(50)).await;
    talk.write(&["2", "3"]);
    at(&rig, s(51)).await;
    talk.write(&["4"]);
    let status = talk.head().await.unwrap_err();
    assert_eq!((status.code(), talk.stop_reason()), (Code::Unavailable, StopReason::Committed));
    assert_eq!(status.metadata().get("grpc-previous-rpc-attempts").unwrap(), "1");
    let record = rig.finish().await;
    assert_eq!(starts(&record), [0, 100_000]);
    assert_eq!(payloads(&record.streams[1]), MESSAGES);
}

#[tokio::test(start_paused = true)]
async fn channel_buffer_limit_exceeded_commits_who_exceeds_it() {
    let script = [Answer::hang(), fails(Said::UNAVAILABLE).after(s(1))];
    let rig = rig_of(three_messages_together(), Server::new(script));
    let other = rig.bidi();
    other.write(&MESSAGES[..2]);
    rig.settle().await;
    let mut talk = rig.bidi();
    talk.write(&["1"]);
    rig.settle().await;
    assert_eq!(rig.control.bytes_kept(), 3 * counted("1"));
    talk.write(&["2"]);
    rig.settle().await;
    assert_eq!(rig.control.bytes_kept(), 2 * counted("1"), "what the other one keeps");
    assert_eq!(talk.all().await.1, Code::Unavailable);
    assert_eq!(talk.stop_reason(), StopReason::Committed);
    other.cancel().await;
    let record = rig.finish().await;
    assert_eq!(payloads(&record.streams[1]), MESSAGES[..2]);
}
