//! After `RetryTest` of the interop suite.

use redial_core::{Event, StopReason};
use redial_faults::grpc::{Answer, Once, Reason, Server, StatusNumber as Said};
use redial_grpc::RetryLayer;
use tonic::Code;

use crate::suites::rig::*;

/// What their tests use.
fn ten_seconds() -> String {
    config(&retry(4, "10s", "10s", 1.0, "UNAVAILABLE"))
}

#[tokio::test(start_paused = true)]
async fn retries_go_on_until_the_buffer_limit_is_exceeded() {
    let text = "String of length 20.";
    let layer = exact(&ten_seconds()).per_rpc_buffer_limit_in_bytes(2 * counted(text) - 1);
    let script = [
        fails(Said::UNAVAILABLE).text("original attempt failed").after(s(1)),
        fails(Said::UNAVAILABLE).text("2nd attempt failed").once(Once::Messages(2)),
    ];
    let rig = rig_of(layer, Server::new(script));
    let mut talk = rig.bidi();
    talk.write(&[text]);
    at(&rig, s(12)).await;
    talk.write(&[text]);
    let status = talk.head().await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::Unavailable, "2nd attempt failed"));
    assert_eq!(talk.stop_reason(), StopReason::Committed);
    assert_eq!(starts(&rig.finish().await), [0, 11_000]);
}

/// The moments of a call's notes that matter to statistics, in seconds since it began.
fn story(talk: &Talk) -> Vec<(u64, String)> {
    let call_log = talk.call_log.read();
    let began = call_log.events()[0].0;
    let told = call_log.events().iter().filter_map(|(at, event)| {
        let said = match *event {
            Event::AttemptStarted { attempt, .. } => format!("{attempt} started"),
            Event::AttemptOutcome { attempt, .. } => format!("{attempt} ended"),
            Event::RetryScheduled { after, .. } => format!("retry in {}", after / 1_000_000_000),
            Event::CallEnded { stop_reason, .. } => format!("{stop_reason}"),
            _ => return None,
        };
        Some(((at - began) / 1_000_000_000, said))
    });
    told.collect()
}

#[tokio::test(start_paused = true)]
async fn stats_of_retries_are_recorded() {
    let answer = Answer::headers().after(s(2)).message(message("a")).trailers(Said::OK);
    let rig = rig(&ten_seconds(), [fails(Said::UNAVAILABLE).after(s(1)), answer]);
    let mut talk = rig.bidi();
    talk.write(&["String of length 20."]);
    at(&rig, s(12)).await;
    talk.write(&["new message"]);
    talk.half_close();
    assert_eq!(talk.all().await, (vec!["a".to_owned()], Code::Ok));
    let expected = [
        (0, "1 started"),
        (1, "1 ended"),
        (1, "retry in 10"),
        (11, "2 started"),
        (13, "2 ended"),
        (13, "succeeded"),
    ];
    assert_eq!(story(&talk), expected.map(|(at, said)| (at, said.to_owned())));
    let statistics = rig.statistics("Bidi").retries;
    assert_eq!((statistics.retries, statistics.failed, statistics.transparent), (1, 0, 0));
    let record = rig.finish().await;
    let messages: Vec<_> = record.streams.iter().map(|stream| stream.messages).collect();
    assert_eq!(messages, [1, 2]);
}

#[tokio::test(start_paused = true)]
async fn stats_of_a_call_that_is_cancelled_before_the_commit_are_recorded() {
    let rig = rig(&ten_seconds(), [fails(Said::UNAVAILABLE).after(s(1)), Answer::hang()]);
    let talk = rig.bidi();
    talk.write(&["String of length 20."]);
    at(&rig, s(18)).await;
    let call_log = talk.cancel().await;
    assert_eq!(stop_reason(&call_log), StopReason::Cancelled);
    // It was made, and has neither succeeded nor failed (G31).
    let statistics = rig.statistics("Bidi").retries;
    assert_eq!((statistics.retries, statistics.failed), (1, 0));
    assert_eq!(cancels(&rig.finish().await), [None, Some(18_000)]);
}

#[tokio::test(start_paused = true)]
async fn server_cancels_and_the_clients_deadline_is_exceeded() {
    // A server that heeds its deadline tells of it a moment too late.
    let late =
        [fails(Said::CANCELLED).after(ms(10_001)), Answer::reset(Reason::CANCEL).after(ms(10_001))];
    for answer in late {
        let rig = rig_of(RetryLayer::builder(), Server::new(answer));
        let heard = rig.within(s(10), "x").await;
        assert_eq!((heard.code, heard.previous), (Code::DeadlineExceeded, None));
        assert_eq!(rig.elapsed(), s(10));
        let record = rig.finish().await;
        assert_eq!(cancels(&record), [Some(10_000)]);
        assert_eq!(record.streams[0].timeout(), Some(s(10)));
    }
}

#[tokio::test(start_paused = true)]
async fn stats_of_transparent_retries_are_recorded() {
    let script = [Answer::reset(Reason::REFUSED_STREAM), Answer::hang()];
    let rig = rig_of(RetryLayer::builder(), Server::new(script));
    let talk = rig.bidi();
    patiently(rig.server.until_counts(|counts| counts.streams == 2)).await;
    talk.cancel().await;
    let statistics = rig.statistics("Bidi").retries;
    assert_eq!((statistics.retries, statistics.failed, statistics.transparent), (0, 0, 1));
    rig.finish().await;
}
