//! After C-core's `test/core/end2end/tests/retry_*`.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use redial_core::StopReason;
use redial_echo::echo_client::EchoClient;
use redial_faults::grpc::{
    Answer, Close, LastStream, Once, Reason, Script, Server, StatusNumber as Said,
};
use redial_grpc::{ClientOptions, Retries, RetryLayer, ServiceConfig};
use tonic::{Code, Status};
use tower::{ServiceBuilder, ServiceExt as _};

use super::rig::*;

/// What nearly all of their tests use.
fn aborted(attempts: u32) -> String {
    config(&retry(attempts, "1s", "120s", 1.6, "ABORTED"))
}

fn busy() -> Answer {
    fails(Said::ABORTED)
}

#[tokio::test(start_paused = true)]
async fn retry_once_and_succeed() {
    let rig = rig(&aborted(3), [busy(), replies("bar")]);
    let heard = rig.unary("foo").await;
    assert_eq!((heard.code, &*heard.text, heard.previous), (Code::Ok, "bar", Some(1)));
    let record = rig.finish().await;
    assert_eq!((starts(&record), previous(&record)), (vec![0, 1000], vec![None, Some(1)]));
}

#[tokio::test(start_paused = true)]
async fn retry_too_many_attempts_ends_with_the_last_failure() {
    let rig = rig(&aborted(3), [busy(), busy(), busy().text("xyz")]);
    let (heard, stop_reason) = rig.told("foo").await;
    assert_eq!(
        (heard.code, &*heard.text, stop_reason),
        (Code::Aborted, "xyz", StopReason::AttemptsExhausted)
    );
    assert_eq!(starts(&rig.finish().await), [0, 1000, 2600]);
}

#[tokio::test(start_paused = true)]
async fn retry_non_retriable_status_is_handed_on() {
    let rig = rig(&aborted(2), fails(Said::INVALID_ARGUMENT).text("xyz"));
    let (heard, stop_reason) = rig.told("foo").await;
    assert_eq!(
        (heard.code, &*heard.text, stop_reason),
        (Code::InvalidArgument, "xyz", StopReason::NotRetryable)
    );
    rig.finish().await;
}

#[tokio::test(start_paused = true)]
async fn retry_non_retriable_status_that_is_there_before_the_application_asks() {
    let rig = rig(&aborted(2), fails(Said::INVALID_ARGUMENT).text("xyz"));
    let mut client = rig.client.clone();
    let mut call = pin!(client.unary(request("foo")));
    let begun = poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx).is_pending())).await;
    assert!(begun);
    patiently(rig.server.until_counts(|it| it.streams == 1 && it.streams_open == 0)).await;
    rig.settle().await;
    let status = patiently(call).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::InvalidArgument, "xyz"));
    rig.finish().await;
}

#[tokio::test(start_paused = true)]
async fn retry_disabled_makes_one_attempt() {
    let rig = rig_of(exact(&aborted(2)).retries(Retries::Off), Server::new(busy().text("xyz")));
    let heard = rig.unary("foo").await;
    assert_eq!((heard.code, &*heard.text, heard.previous), (Code::Aborted, "xyz", None));
    rig.finish().await;
}

#[tokio::test(start_paused = true)]
async fn retry_throttled_by_the_first_failure() {
    let policy = retry(3, "1s", "120s", 1.6, "ABORTED");
    let rig = rig(&throttled(&policy, 2, 1.0), busy().text("xyz"));
    let (heard, stop_reason) = rig.told("foo").await;
    assert_eq!(
        (heard.code, &*heard.text, stop_reason),
        (Code::Aborted, "xyz", StopReason::Throttled)
    );
    assert_eq!(rig.control.tokens(), Some(1.0));
    rig.finish().await;
}

#[tokio::test(start_paused = true)]
async fn retry_server_pushback_delays_the_retry() {
    let rig = rig(&aborted(3), [busy().pushback("2000"), replies("bar")]);
    assert_eq!(rig.unary("foo").await.text, "bar");
    assert_eq!(starts(&rig.finish().await), [0, 2000]);
}

#[tokio::test(start_paused = true)]
async fn retry_server_pushback_disables_the_next_retry() {
    let rig = rig(&aborted(3), [busy(), busy().pushback("-1").text("xyz")]);
    let (heard, stop_reason) = rig.told("foo").await;
    assert_eq!(
        (heard.code, &*heard.text, stop_reason),
        (Code::Aborted, "xyz", StopReason::ServerRefused)
    );
    rig.finish().await;
}

#[tokio::test(start_paused = true)]
async fn retry_cancellation_of_the_second_attempt() {
    let rig = rig(&aborted(3), [busy(), Answer::hang()]);
    let call = rig.spawn("foo");
    at(&rig, s(2)).await;
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    assert_eq!(cancels(&rig.finish().await), [None, Some(2000)]);
}

#[tokio::test(start_paused = true)]
async fn retry_deadline_of_the_second_attempt() {
    let rig = rig(&aborted(3), [busy(), Answer::hang()]);
    let heard = rig.within(s(5), "foo").await;
    assert_eq!((heard.code, heard.previous), (Code::DeadlineExceeded, Some(1)));
    assert_eq!(rig.elapsed(), s(5));
    let record = rig.finish().await;
    assert_eq!(cancels(&record), [None, Some(5000)]);
    let timeouts: Vec<_> = record.streams.iter().map(|it| it.timeout().unwrap()).collect();
    assert_eq!(timeouts, [s(5), s(4)]);
}

#[tokio::test(start_paused = true)]
async fn retry_cancel_during_delay_makes_no_second_attempt() {
    let rig = rig(&config(&retry(3, "10s", "120s", 1.6, "ABORTED")), busy());
    let call = rig.spawn("foo");
    at(&rig, s(5)).await;
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    at(&rig, s(20)).await;
    assert_eq!(starts(&rig.finish().await), [0]);
}

#[tokio::test(start_paused = true)]
async fn retry_deadline_during_delay_makes_no_second_attempt() {
    let rig = rig(&config(&retry(3, "10s", "120s", 1.6, "ABORTED")), busy());
    let heard = rig.within(s(5), "foo").await;
    assert_eq!((heard.code, rig.elapsed()), (Code::DeadlineExceeded, s(5)));
    at(&rig, s(20)).await;
    assert_eq!(starts(&rig.finish().await), [0]);
}

#[tokio::test(start_paused = true)]
async fn retry_cancel_after_first_attempt_starts_leaks_nothing() {
    let rig = rig(&aborted(3), Answer::hang());
    let call = rig.spawn("foo");
    patiently(rig.server.until_counts(|counts| counts.streams == 1)).await;
    assert_eq!(rig.control.bytes_kept(), counted("foo"));
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    assert_eq!(rig.control.bytes_kept(), 0);
    assert_eq!(cancels(&rig.finish().await), [Some(0)]);
}

/// Several messages, which the server fails to take; the next attempt is far away.
async fn several_messages_then(deadline: Option<std::time::Duration>) -> (Rig, Talk) {
    let policy = retry(2, "5s", "120s", 1.6, "ABORTED");
    let rig = rig(&config(&policy), busy().accepts(0).once(Once::Headers));
    let mut talk = rig.bidi_with(deadline);
    talk.write(&["foo"]);
    rig.settle().await;
    talk.write(&["bar"]);
    talk.half_close();
    rig.settle().await;
    (rig, talk)
}

#[tokio::test(start_paused = true)]
async fn retry_cancel_with_multiple_messages_ends_all_of_them() {
    let (rig, talk) = several_messages_then(None).await;
    assert_eq!(stop_reason(&talk.cancel().await), StopReason::Cancelled);
    at(&rig, s(20)).await;
    assert_eq!(starts(&rig.finish().await), [0]);
}

#[tokio::test(start_paused = true)]
async fn retry_deadline_with_multiple_messages_ends_all_of_them() {
    let (rig, mut talk) = several_messages_then(Some(s(3))).await;
    assert_eq!(talk.head().await.unwrap_err().code(), Code::DeadlineExceeded);
    assert_eq!((talk.stop_reason(), rig.elapsed()), (StopReason::Deadline, s(3)));
    at(&rig, s(20)).await;
    assert_eq!(starts(&rig.finish().await), [0]);
}

/// As much as their tests send.
const LARGE: usize = 100 * 1024;

#[tokio::test(start_paused = true)]
async fn retry_exceeds_buffer_size_with_the_first_message() {
    let layer = exact(&aborted(3)).per_rpc_buffer_limit_in_bytes(2);
    let rig = rig_of(layer, Server::new(busy().text("xyz")));
    let (heard, stop_reason) = rig.told(&"a".repeat(LARGE)).await;
    assert_eq!(
        (heard.code, &*heard.text, stop_reason),
        (Code::Aborted, "xyz", StopReason::Committed)
    );
    assert_eq!(rig.statistics("Unary").buffers_full, 1);
    let record = rig.finish().await;
    assert_eq!((record.streams.len(), record.streams[0].messages), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn retry_exceeds_buffer_size_with_a_later_message() {
    let layer = exact(&aborted(3)).per_rpc_buffer_limit_in_bytes(LARGE as u64);
    let rig = rig_of(layer, Server::new(busy().text("xyz").once(Once::Request)));
    let mut talk = rig.bidi();
    talk.write(&["small"]);
    rig.settle().await;
    assert_eq!(rig.control.bytes_kept(), counted("small"));
    talk.write(&[&"a".repeat(LARGE)]);
    talk.half_close();
    let status = talk.head().await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::Aborted, "xyz"));
    assert_eq!(talk.stop_reason(), StopReason::Committed);
    rig.finish().await;
}

#[tokio::test(start_paused = true)]
async fn retry_exceeds_buffer_size_in_delay_and_the_retry_is_the_last() {
    let policy = retry(3, "2s", "120s", 1.6, "ABORTED");
    let layer = exact(&config(&policy)).per_rpc_buffer_limit_in_bytes(LARGE as u64);
    let script = [busy(), busy().text("xyz").once(Once::Request)];
    let rig = rig_of(layer, Server::new(script));
    let mut talk = rig.bidi();
    at(&rig, s(1)).await;
    talk.write(&[&"a".repeat(LARGE)]);
    talk.half_close();
    let status = talk.head().await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::Aborted, "xyz"));
    assert_eq!(talk.stop_reason(), StopReason::Committed);
    assert_eq!(starts(&rig.finish().await), [0, 2000]);
}

#[tokio::test(start_paused = true)]
async fn retry_a_connection_that_cannot_be_made_goes_to_the_policy() {
    // What a failed pick is to them, a connection that is refused is here (G28).
    let config = config(&retry(2, "1s", "120s", 1.6, "UNAVAILABLE"));
    let rig = rig(&config, vec![Answer::unconnected(); 2]);
    let (heard, stop_reason) = rig.told("foo").await;
    assert_eq!(
        (heard.code, heard.previous, stop_reason),
        (Code::Unavailable, Some(1), StopReason::AttemptsExhausted)
    );
    let record = rig.finish().await;
    let opened: Vec<_> = record.connections.iter().map(|it| it.opened.as_millis()).collect();
    assert_eq!((opened, record.streams.len()), (vec![0, 1000], 0));
}

#[tokio::test(start_paused = true)]
async fn retry_is_over_once_initial_metadata_was_received() {
    let answer = Answer::headers().metadata("key1", "val1").trailers(Said::ABORTED).text("xyz");
    let rig = rig(&aborted(3), answer);
    let (heard, stop_reason) = rig.told("foo").await;
    assert_eq!(
        (heard.code, &*heard.text, stop_reason),
        (Code::Aborted, "xyz", StopReason::Committed)
    );
    rig.finish().await;
}

#[tokio::test(start_paused = true)]
async fn retry_is_over_once_a_message_was_received() {
    let answer = Answer::headers().message(message("bar")).trailers(Said::ABORTED).text("xyz");
    let rig = rig(&aborted(3), answer);
    let mut talk = rig.bidi();
    talk.write(&["foo"]);
    talk.half_close();
    assert_eq!(talk.all().await, (vec!["bar".to_owned()], Code::Aborted));
    assert_eq!(talk.stop_reason(), StopReason::Committed);
    rig.finish().await;
}

#[tokio::test(start_paused = true)]
async fn retry_after_an_attempt_that_failed_below_before_the_wire() {
    let server = Server::new(busy().text("xyz")).on_pipe();
    let first = Arc::new(AtomicBool::new(true));
    let channel = channel(server.connector());
    let failing_once = tower::service_fn(move |request: http::Request<tonic::body::Body>| {
        let (channel, fails) = (channel.clone(), first.swap(false, Ordering::Relaxed));
        async move {
            if fails {
                return Err(redial_grpc::BoxError::from(Status::aborted("failed below")));
            }
            channel.oneshot(request).await.map_err(redial_grpc::BoxError::from)
        }
    });
    let layer = exact(&aborted(2)).build();
    let service = ServiceBuilder::new().layer(layer.clone()).service(failing_once);
    let result = patiently(EchoClient::new(service).unary(request("foo"))).await;
    let heard = Heard::of(result);
    assert_eq!((heard.code, &*heard.text, heard.previous), (Code::Aborted, "xyz", Some(1)));
    patiently(server.idle()).await;
    let record = server.record();
    assert_eq!(previous(&record), [Some(1)]);
    assert_eq!((starts(&record), layer.control().bytes_kept()), (vec![1000], 0));
}

#[tokio::test(start_paused = true)]
async fn retry_heeds_a_status_that_was_changed_below() {
    let server = Server::new(busy()).on_pipe();
    let service = ServiceBuilder::new()
        .layer(exact(&aborted(2)).build())
        .map_response(|mut response: http::Response<tonic::body::Body>| {
            response.headers_mut().insert("grpc-status", http::HeaderValue::from_static("3"));
            response
        })
        .service(channel(server.connector()));
    let status = patiently(EchoClient::new(service).unary(request("foo"))).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert_eq!(server.counts().streams, 1);
}

#[tokio::test(start_paused = true)]
async fn retry_sends_the_initial_metadata_again_though_the_caller_let_go_of_it() {
    let rig = rig(&aborted(3), [busy(), replies("bar")]);
    let long = "y".repeat(1000);
    let mut asked = tonic::Request::new(request("foo"));
    asked.metadata_mut().insert("foo", "bar".parse().unwrap());
    asked.metadata_mut().insert("x-long", long.parse().unwrap());
    asked.metadata_mut().insert_bin("x-bin", tonic::metadata::MetadataValue::from_bytes(&[0, 255]));
    assert_eq!(rig.ask(asked).await.text, "bar");
    let record = rig.finish().await;
    for stream in &record.streams {
        assert_eq!(stream.headers["foo"], "bar");
        assert_eq!(stream.headers["x-long"], *long);
        assert_eq!(stream.headers["x-bin"], "AP8");
    }
    assert_eq!(record.streams.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn retry_streaming_replays_every_message() {
    let script = [
        busy().once(Once::Messages(3)),
        Answer::headers().message(message("quux")).trailers(Said::OK).once(Once::Request),
    ];
    let rig = rig(&aborted(3), script);
    let mut talk = rig.bidi();
    for text in ["foo", "bar", "baz"] {
        talk.write(&[text]);
        rig.settle().await;
    }
    at(&rig, s(2)).await;
    talk.write(&["quux"]);
    talk.half_close();
    assert_eq!(talk.all().await, (vec!["quux".to_owned()], Code::Ok));
    let record = rig.finish().await;
    assert_eq!(payloads(&record.streams[0]), ["foo", "bar", "baz"]);
    assert_eq!(payloads(&record.streams[1]), ["foo", "bar", "baz", "quux"]);
    assert_eq!(previous(&record), [None, Some(1)]);
}

#[tokio::test(start_paused = true)]
async fn retry_streaming_goes_on_in_both_directions_after_the_commit() {
    let answer = Answer::headers().echo_one().echo_one().trailers(Said::ABORTED);
    let rig = rig(&aborted(3), answer.once(Once::Messages(1)));
    let mut talk = rig.bidi();
    talk.write(&["foo"]);
    let mut stream = talk.head().await.unwrap().into_inner();
    assert_eq!(text(&patiently(stream.message()).await.unwrap().unwrap()), "foo");
    talk.write(&["bar"]);
    talk.half_close();
    assert_eq!(text(&patiently(stream.message()).await.unwrap().unwrap()), "bar");
    let status = patiently(stream.message()).await.unwrap_err();
    assert_eq!((status.code(), talk.stop_reason()), (Code::Aborted, StopReason::Committed));
    rig.finish().await;
}

#[tokio::test(start_paused = true)]
async fn retry_streaming_that_ends_before_its_replay_is_over_cleans_up() {
    let answer = Answer::headers().message(message("quux")).trailers(Said::ABORTED);
    let script = [busy().once(Once::Messages(3)), answer.accepts(1).once(Once::Messages(1))];
    let rig = rig(&aborted(3), script);
    let mut talk = rig.bidi();
    for text in ["foo", "bar", "baz"] {
        talk.write(&[text]);
        rig.settle().await;
    }
    assert_eq!(talk.all().await, (vec!["quux".to_owned()], Code::Aborted));
    assert_eq!(talk.stop_reason(), StopReason::Committed);
    rig.settle().await;
    assert!(talk.is_unread());
    let record = rig.finish().await;
    assert_eq!(payloads(&record.streams[0]), ["foo", "bar", "baz"]);
    assert_eq!(payloads(&record.streams[1]), ["foo"]);
}

#[tokio::test(start_paused = true)]
async fn retry_transparent_after_a_goaway_below_the_stream() {
    // Without any policy.
    let script = [Answer::go_away(LastStream::Below, Reason::NO_ERROR), replies("bar")];
    let rig = rig_of(RetryLayer::builder(), Server::new(script));
    let heard = rig.unary("foo").await;
    assert_eq!((&*heard.text, heard.previous), ("bar", None));
    let record = rig.finish().await;
    assert_eq!((previous(&record), starts(&record)), (vec![None, None], vec![0, 0]));
    let connections: Vec<_> = record.streams.iter().map(|stream| stream.connection).collect();
    assert_eq!(connections, [1, 2]);
}

#[tokio::test(start_paused = true)]
async fn retry_transparent_while_waiting_for_a_stream_as_far_as_hyper_proves_it() {
    // One stream is open. The next request waits inside hyper for its turn, the last one in hyper's
    // queue. Of the latter hyper says that it was never sent; of the former it does not.
    let ends = Answer::go_away(LastStream::This, Reason::NO_ERROR).after(s(1));
    let ends = ends.then_headers().message(message("baz")).trailers(Said::OK);
    let script =
        Script::new().attempts([ends.then_close(Close::Orderly)]).otherwise(replies("qux"));
    let rig = rig_of(RetryLayer::builder(), Server::new(script).concurrent_streams(1));
    let mut calls = Vec::new();
    for text in ["foo", "bar", "bar"] {
        calls.push(rig.spawn(text));
        rig.settle().await;
    }
    let mut heard = Vec::new();
    for call in calls {
        let Heard { code, text, previous } = patiently(call).await.unwrap();
        heard.push((code, previous, text));
    }
    assert_eq!(heard[0], (Code::Ok, None, "baz".to_owned()));
    assert_eq!((heard[1].0, heard[1].1), (Code::Unavailable, None));
    assert_eq!(heard[2], (Code::Ok, None, "qux".to_owned()));
    assert_eq!(rig.statistics("Unary").retries.transparent, 1);
    assert_eq!(rig.attempts(), 2);
}

#[tokio::test(start_paused = true)]
async fn retry_transparent_as_often_as_nothing_was_sent_on_the_wire() {
    let mut script = vec![Answer::unsent(); 10];
    script.push(replies("bar"));
    let rig = rig_of(RetryLayer::builder(), Server::new(script));
    let heard = rig.unary("foo").await;
    assert_eq!((&*heard.text, heard.previous), ("bar", None));
    assert_eq!(rig.statistics("Unary").retries.transparent, 10);
    let record = rig.finish().await;
    assert_eq!((previous(&record), record.counts.connections), (vec![None], 11));
}

#[tokio::test(start_paused = true)]
async fn retry_per_attempt_recv_timeout_is_an_unknown_field_with_a_warning() {
    let known = aborted(3);
    let text = known.replace(r#""maxAttempts""#, r#""perAttemptRecvTimeout": "2s", "maxAttempts""#);
    let config = ServiceConfig::parse(&text).unwrap();
    let warned =
        config.warnings().iter().any(|it| it.to_string().contains("perAttemptRecvTimeout"));
    assert!(warned, "{:?}", config.warnings());
    let layer = RetryLayer::builder().client_options(ClientOptions::default()).config(config);
    // An attempt that takes longer is left alone.
    let rig = rig_of(layer, Server::new(replies_at(s(10), "bar")));
    assert_eq!((&*rig.unary("foo").await.text, rig.elapsed()), ("bar", s(10)));
    rig.finish().await;
}

/// A call that is polled once, and then dropped once the server has answered.
async fn dropped_unheard(answer: Answer) {
    let rig = rig(&aborted(3), answer);
    let mut client = rig.client.clone();
    {
        let mut call = pin!(client.unary(request("foo")));
        let begun = poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx).is_pending())).await;
        assert!(begun);
        rig.settle().await;
        rig.settle().await;
        assert_eq!(rig.attempts(), 1);
    }
    rig.settle().await;
    assert_eq!(rig.attempts(), 1, "nobody asked for a retry");
    rig.finish().await;
}

#[tokio::test(start_paused = true)]
async fn retry_a_call_dropped_before_its_status_was_asked_for_leaks_nothing() {
    dropped_unheard(fails(Said::FAILED_PRECONDITION)).await;
    dropped_unheard(busy()).await;
}

#[tokio::test(start_paused = true)]
async fn retry_a_call_dropped_before_its_message_was_received_leaks_nothing() {
    dropped_unheard(replies("bar")).await;
    dropped_unheard(Answer::headers().message(message("bar"))).await;
}
