//! What further attempts are sent, and what the application hears of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use redial_core::StopReason;
use redial_echo::EchoRequest;
use redial_faults::grpc::{Answer, Once, Server, StatusNumber as Said};
use tokio_stream::Stream;
use tonic::Code;

use super::retrying;
use crate::suites::rig::*;

#[tokio::test(start_paused = true)]
async fn retry_everything_that_was_written_is_drained_in_order() {
    let script = [
        fails(Said::DATA_LOSS).after(s(10)),
        fails(Said::UNAVAILABLE).after(s(10)),
        fails(Said::INTERNAL).after(s(10)),
    ];
    let rig = rig(&retrying(), script);
    let mut talk = rig.bidi();
    talk.write(&["1", "2"]);
    rig.settle().await;
    talk.write(&["3"]);
    at(&rig, s(50)).await;
    talk.write(&["1 during backoff", "2 during backoff"]);
    at(&rig, s(115)).await;
    talk.write(&["1 after retry", "2 after retry"]);
    at(&rig, s(200)).await;
    talk.write(&["3 during backoff"]);
    let status = talk.head().await.unwrap_err();
    assert_eq!((status.code(), talk.stop_reason()), (Code::Internal, StopReason::NotRetryable));
    assert!(talk.is_unread());

    let record = rig.finish().await;
    assert_eq!(starts(&record), [0, 110_000, 320_000]);
    assert_eq!(previous(&record), [None, Some(1), Some(2)]);
    let all = [
        "1",
        "2",
        "3",
        "1 during backoff",
        "2 during backoff",
        "1 after retry",
        "2 after retry",
        "3 during backoff",
    ];
    let sent: Vec<_> = record.streams.iter().map(payloads).collect();
    assert_eq!(sent, [&all[..3], &all[..7], &all[..8]]);
}

#[tokio::test(start_paused = true)]
async fn headers_read_then_closed_hands_on_a_retryable_status() {
    let answer = Answer::headers().trailers(Said::UNAVAILABLE).text("late").after(s(1));
    let rig = rig(&retrying(), answer);
    let mut talk = rig.bidi();
    let status = talk.head().await.unwrap().into_inner().message().await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::Unavailable, "late"));
    assert_eq!(talk.stop_reason(), StopReason::Committed);
    rig.finish().await;
}

#[tokio::test(start_paused = true)]
async fn retry_headers_read_then_closed_hands_on_a_retryable_status() {
    let answer = Answer::headers().trailers(Said::UNAVAILABLE).text("late").after(s(1));
    let rig = rig(&retrying(), [fails(Said::UNAVAILABLE), answer]);
    let mut talk = rig.bidi();
    let status = talk.head().await.unwrap().into_inner().message().await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::Unavailable, "late"));
    assert_eq!(talk.stop_reason(), StopReason::Committed);
    assert_eq!(starts(&rig.finish().await), [0, 100_000]);
}

#[tokio::test(start_paused = true)]
async fn operations_while_draining_come_after_what_is_drained() {
    // The retry takes one message at a time, and the application goes on writing meanwhile.
    let answer = Answer::headers().after(s(10)).message(message("a")).trailers(Said::OK);
    let script = [fails(Said::UNAVAILABLE).once(Once::Messages(3)), answer.once(Once::Messages(2))];
    let rig = rig(&retrying(), script);
    let mut talk = rig.bidi();
    talk.write(&["1", "2", "3"]);
    at(&rig, s(50)).await;
    talk.write(&["4"]);
    at(&rig, s(105)).await;
    talk.write(&["5"]);
    let mut stream = talk.head().await.unwrap().into_inner();
    assert_eq!(rig.elapsed(), s(110));
    assert_eq!(text(&stream.message().await.unwrap().unwrap()), "a");
    assert_eq!(stream.message().await.unwrap(), None);
    let record = rig.finish().await;
    assert_eq!(payloads(&record.streams[0]), ["1", "2", "3"]);
    assert_eq!(payloads(&record.streams[1]), ["1", "2", "3", "4", "5"]);
}

#[tokio::test(start_paused = true)]
async fn operations_after_an_immediate_commit_pass_at_once() {
    let rig = rig(&retrying(), Answer::echo().once(Once::Headers));
    let mut talk = rig.bidi();
    let mut stream = talk.head().await.unwrap().into_inner();
    for number in 1..=3 {
        let written = format!("{number}");
        talk.write(&[&written]);
        let echo = patiently(stream.message()).await.unwrap().unwrap();
        assert_eq!((text(&echo), rig.control.bytes_kept()), (written, 0));
    }
    talk.half_close();
    assert_eq!(patiently(stream.message()).await.unwrap(), None);
    assert_eq!((talk.stop_reason(), rig.elapsed()), (StopReason::Succeeded, s(0)));
    rig.finish().await;
}

/// A stream of messages that says how many were asked for. Each is a frame of its own.
fn asked_for() -> (Arc<AtomicU32>, impl Stream<Item = EchoRequest>) {
    // As much as tonic puts into one frame before it lets it go.
    let large = "x".repeat(40 * 1024);
    let asked = Arc::new(AtomicU32::new(0));
    let counter = asked.clone();
    let messages = std::iter::repeat_with(move || {
        counter.fetch_add(1, Ordering::Relaxed);
        request(&large)
    });
    (asked, tokio_stream::iter(messages.take(100)))
}

#[tokio::test(start_paused = true)]
async fn is_ready_only_as_far_as_the_attempt_takes_messages() {
    let stalls = Answer::hang().accepts(2);
    let layer = exact(&retrying()).per_rpc_buffer_limit_in_bytes(100 << 20);
    let rig = rig_of(layer, Server::new(stalls));
    let (asked, messages) = asked_for();
    let mut client = rig.client.clone();
    let call = tokio::spawn(async move { client.client_stream(messages).await });
    rig.settle().await;
    let taken = rig.server.record().streams[0].messages;
    let asked = asked.load(Ordering::Relaxed);
    assert_eq!(taken, 2);
    assert!((2..=6).contains(&asked), "{asked} were asked for");
    call.abort();
    rig.finish().await;
}

#[tokio::test(start_paused = true)]
async fn is_ready_neither_during_a_backoff_nor_before_a_replay_is_over() {
    let script =
        [fails(Said::UNAVAILABLE).accepts(2).once(Once::Messages(2)), Answer::hang().accepts(1)];
    let layer = exact(&retrying()).per_rpc_buffer_limit_in_bytes(100 << 20);
    let rig = rig_of(layer, Server::new(script));
    let (asked, messages) = asked_for();
    let mut client = rig.client.clone();
    let call = tokio::spawn(async move { client.client_stream(messages).await });
    rig.settle().await;
    let before = asked.load(Ordering::Relaxed);
    at(&rig, s(99)).await;
    assert_eq!(asked.load(Ordering::Relaxed), before, "during the backoff");
    at(&rig, s(101)).await;
    assert_eq!(rig.server.record().streams[1].messages, 1);
    assert_eq!(asked.load(Ordering::Relaxed), before, "while the retry reads what is there");
    call.abort();
    rig.finish().await;
}

#[tokio::test(start_paused = true)]
async fn messages_are_available_to_the_application() {
    let answer = Answer::headers().message(message("a")).message(message("b")).trailers(Said::OK);
    let rig = rig(&retrying(), answer);
    let mut talk = rig.bidi();
    talk.half_close();
    assert_eq!(talk.all().await, (vec!["a".to_owned(), "b".to_owned()], Code::Ok));
    rig.finish().await;
}

#[tokio::test(start_paused = true)]
async fn closed_while_draining_leaves_everything_to_the_next_attempt() {
    let script = [
        fails(Said::UNAVAILABLE).once(Once::Messages(2)),
        // It fails with its headers, before it was sent anything.
        fails(Said::UNAVAILABLE).accepts(0).once(Once::Headers),
        replies("a").once(Once::Request),
    ];
    let rig = rig(&retrying(), script);
    let mut talk = rig.bidi();
    talk.write(&["1", "2"]);
    at(&rig, s(200)).await;
    talk.write(&["3"]);
    talk.half_close();
    assert_eq!(talk.all().await, (vec!["a".to_owned()], Code::Ok));
    let record = rig.finish().await;
    assert_eq!(starts(&record), [0, 100_000, 300_000]);
    let sent: Vec<_> = record.streams.iter().map(payloads).collect();
    assert_eq!(sent, [vec!["1", "2"], vec![], vec!["1", "2", "3"]]);
}

#[tokio::test(start_paused = true)]
async fn update_headers_leaves_the_applications_own_alone() {
    let rig = rig(&retrying(), [fails(Said::UNAVAILABLE), replies("a")]);
    let mut asked = tonic::Request::new(request("x"));
    asked.metadata_mut().insert("own", "1".parse().unwrap());
    asked.metadata_mut().append("own", "2".parse().unwrap());
    // Only this layer may say it (G30).
    asked.metadata_mut().insert("grpc-previous-rpc-attempts", "345".parse().unwrap());
    assert_eq!(rig.ask(asked).await.code, Code::Ok);
    let record = rig.finish().await;
    assert_eq!(previous(&record), [None, Some(1)]);
    for stream in &record.streams {
        let own: Vec<_> = stream.headers.get_all("own").iter().collect();
        assert_eq!(own, ["1", "2"]);
        let all = stream.headers.get_all("grpc-previous-rpc-attempts").iter().count();
        assert_eq!(all, usize::from(stream.previous_attempts().is_some()));
    }
}

#[tokio::test(start_paused = true)]
async fn zero_previous_attempts_are_not_added_to_response_headers() {
    let rig = rig(&retrying(), replies("a"));
    assert_eq!(rig.unary("x").await.previous, None);
    rig.finish().await;
}

#[tokio::test(start_paused = true)]
async fn previous_attempts_are_added_to_response_headers() {
    // What a server says under that name is not ours.
    let answer = Answer::headers().metadata("grpc-previous-rpc-attempts", "3");
    let answer = answer.message(message("a")).trailers(Said::OK);
    let rig = rig(&retrying(), [fails(Said::UNAVAILABLE), answer]);
    assert_eq!(rig.unary("x").await.previous, Some(1));
    rig.finish().await;
}
