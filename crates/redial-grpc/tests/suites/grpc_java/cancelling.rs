//! The application drops a call: nothing goes on, and nothing is counted.

use redial_core::StopReason;
use redial_faults::grpc::{Answer, Once, StatusNumber as Said};
use tonic::Code;

use super::retrying;
use crate::suites::rig::*;

/// A failure that is retried after 100 s.
fn busy() -> Answer {
    fails(Said::UNAVAILABLE)
}

#[tokio::test(start_paused = true)]
async fn headers_read_then_cancelled_resets_the_stream() {
    let rig = rig(&retrying(), Answer::headers());
    let mut talk = rig.bidi();
    talk.write(&["1"]);
    let response = talk.head().await.unwrap();
    at(&rig, s(1)).await;
    drop(response);
    rig.settle().await;
    assert!(talk.is_unread());
    assert_eq!(talk.stop_reason(), StopReason::Cancelled);
    assert_eq!(cancels(&rig.finish().await), [Some(1000)]);
}

#[tokio::test(start_paused = true)]
async fn headers_read_then_cancelled_by_the_deadline_resets_the_stream() {
    let rig = rig(&retrying(), Answer::headers());
    let mut talk = rig.bidi_with(Some(s(5)));
    talk.write(&["1"]);
    let mut stream = talk.head().await.unwrap().into_inner();
    let status = patiently(stream.message()).await.unwrap_err();
    assert_eq!((status.code(), talk.stop_reason()), (Code::DeadlineExceeded, StopReason::Deadline));
    rig.settle().await;
    assert!(talk.is_unread());
    assert_eq!(cancels(&rig.finish().await), [Some(5000)]);
}

#[tokio::test(start_paused = true)]
async fn retry_headers_read_then_cancelled_resets_the_stream() {
    let rig = rig(&retrying(), [busy(), Answer::headers()]);
    let mut talk = rig.bidi();
    talk.write(&["1"]);
    let response = talk.head().await.unwrap();
    at(&rig, s(101)).await;
    drop(response);
    assert_eq!(talk.stop_reason(), StopReason::Cancelled);
    assert_eq!(cancels(&rig.finish().await), [None, Some(101_000)]);
}

#[tokio::test(start_paused = true)]
async fn cancelled_then_closed_with_a_retryable_code_is_not_retried() {
    let rig = rig(&retrying(), busy().after(s(2)));
    let talk = rig.bidi();
    at(&rig, s(1)).await;
    assert_eq!(stop_reason(&talk.cancel().await), StopReason::Cancelled);
    at(&rig, s(1000)).await;
    assert_eq!(cancels(&rig.finish().await), [Some(1000)]);
}

#[tokio::test(start_paused = true)]
async fn retry_cancelled_then_closed_is_not_retried() {
    let rig = rig(&retrying(), [busy(), fails(Said::INTERNAL).after(s(2))]);
    let talk = rig.bidi();
    at(&rig, s(101)).await;
    assert_eq!(stop_reason(&talk.cancel().await), StopReason::Cancelled);
    at(&rig, s(1000)).await;
    assert_eq!(cancels(&rig.finish().await), [None, Some(101_000)]);
}

#[tokio::test(start_paused = true)]
async fn closed_with_another_code_then_cancelled_ends_once() {
    let rig = rig(&retrying(), fails(Said::INTERNAL));
    let mut talk = rig.bidi();
    talk.write(&["1"]);
    assert_eq!(talk.head().await.unwrap_err().code(), Code::Internal);
    let call_log = talk.cancel().await;
    assert_eq!(stop_reason(&call_log), StopReason::NotRetryable);
    assert_eq!(cancels(&rig.finish().await), [None]);
}

#[tokio::test(start_paused = true)]
async fn retry_closed_with_another_code_then_cancelled_ends_once() {
    let rig = rig(&retrying(), [busy(), fails(Said::INTERNAL)]);
    let mut talk = rig.bidi();
    talk.write(&["1"]);
    assert_eq!(talk.head().await.unwrap_err().code(), Code::Internal);
    let call_log = talk.cancel().await;
    assert_eq!(stop_reason(&call_log), StopReason::NotRetryable);
    assert_eq!(cancels(&rig.finish().await), [None, None]);
}

#[tokio::test(start_paused = true)]
async fn retry_cancelled_while_backing_off_starts_nothing_more() {
    let rig = rig(&retrying(), busy());
    let talk = rig.bidi();
    talk.write(&["1"]);
    at(&rig, s(50)).await;
    assert_eq!(rig.control.bytes_kept(), counted("1"));
    assert_eq!(stop_reason(&talk.cancel().await), StopReason::Cancelled);
    assert_eq!(rig.control.bytes_kept(), 0);
    at(&rig, s(1000)).await;
    assert_eq!(cancels(&rig.finish().await), [None]);
}

#[tokio::test(start_paused = true)]
async fn cancelled_while_draining_resets_the_stream() {
    let rig = rig(&retrying(), [busy().once(Once::Messages(3)), Answer::hang().accepts(1)]);
    let talk = rig.bidi();
    talk.write(&["1", "2", "3"]);
    at(&rig, s(101)).await;
    assert_eq!(stop_reason(&talk.cancel().await), StopReason::Cancelled);
    let record = rig.finish().await;
    assert_eq!(cancels(&record), [None, Some(101_000)]);
    assert_eq!(payloads(&record.streams[1]), ["1"]);
}

#[tokio::test(start_paused = true)]
async fn cancelled_in_the_moment_of_a_retrys_start_leaves_nothing() {
    let rig = rig(&retrying(), [busy(), Answer::hang()]);
    let talk = rig.bidi();
    talk.write(&["1"]);
    // As soon as the server sees it; no time passes in between.
    patiently(rig.server.until_counts(|counts| counts.streams == 2)).await;
    assert_eq!(stop_reason(&talk.cancel().await), StopReason::Cancelled);
    assert_eq!(cancels(&rig.finish().await), [None, Some(100_000)]);
}

#[tokio::test(start_paused = true)]
async fn committed_and_cancelled_while_draining_resets_the_stream() {
    let headers = Answer::headers().accepts(1).once(Once::Messages(1));
    let rig = rig(&retrying(), [busy().once(Once::Messages(3)), headers]);
    let mut talk = rig.bidi();
    talk.write(&["1", "2", "3"]);
    let response = talk.head().await.unwrap();
    assert_eq!(rig.control.bytes_kept(), 0);
    drop(response);
    rig.settle().await;
    assert_eq!(talk.stop_reason(), StopReason::Cancelled);
    assert!(talk.is_unread());
    let record = rig.finish().await;
    assert_eq!(cancels(&record), [None, Some(100_000)]);
    assert_eq!(payloads(&record.streams[1]), ["1"]);
}

#[tokio::test(start_paused = true)]
async fn inbound_messages_that_nobody_read_are_gone_after_a_cancel() {
    let answer = Answer::headers().message(message("a")).message(message("b"));
    let rig = rig(&retrying(), answer);
    let mut talk = rig.bidi();
    let mut stream = talk.head().await.unwrap().into_inner();
    assert_eq!(text(&stream.message().await.unwrap().unwrap()), "a");
    rig.settle().await;
    drop(stream);
    assert_eq!(talk.stop_reason(), StopReason::Cancelled);
    assert_eq!(cancels(&rig.finish().await), [Some(1)]);
}
