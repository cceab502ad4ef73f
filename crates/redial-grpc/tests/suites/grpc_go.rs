//! After grpc-go's `test/retry_test.go`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redial_core::{Event, Proof, StopReason};
use redial_echo::echo_client::EchoClient;
use redial_faults::grpc::{Answer, LastStream, Once, Reason, Server, StatusNumber as Said};
use redial_grpc::Retries;
use tonic::Code;
use tower::ServiceBuilder;

use super::rig::*;

/// What all of their streaming cases use.
fn four_attempts() -> String {
    config(&retry(4, "0.01s", "0.01s", 1.0, "UNAVAILABLE"))
}

/// An attempt that fails once it has read that many messages.
fn fails_after(messages: u64, code: Said) -> Answer {
    fails(code).once(Once::Messages(messages))
}

/// One message and OK, once that many messages were read.
fn replies_after(messages: u64, text: &str) -> Answer {
    replies(text).once(Once::Messages(messages))
}

#[tokio::test(start_paused = true)]
async fn retry_unary_stops_at_success_at_another_code_and_at_the_last_attempt() {
    let (busy, fatal) = (|| fails(Said::ALREADY_EXISTS), || fails(Said::INTERNAL));
    let ok = || replies("x");
    let script = [
        vec![ok(), busy(), ok(), busy(), busy(), ok()],
        vec![fatal(), busy(), fatal(), busy(), busy(), fatal()],
        vec![busy(), busy(), busy(), busy()],
    ]
    .concat();
    let rig = rig(&config(&retry(4, "0.01s", "0.01s", 1.0, "ALREADY_EXISTS")), script);
    let expected = [
        (Code::Ok, 1),
        (Code::Ok, 3),
        (Code::Ok, 6),
        (Code::Internal, 7),
        (Code::Internal, 9),
        (Code::Internal, 12),
        (Code::AlreadyExists, 16),
    ];
    for (place, expected) in expected.into_iter().enumerate() {
        let code = rig.unary("x").await.code;
        assert_eq!((code, rig.attempts()), expected, "call {place}");
    }
    rig.finish().await;
}

#[tokio::test(start_paused = true)]
async fn retry_throttling_counts_failures_and_successes_of_all_calls() {
    let (busy, ok) = (|| fails(Said::UNAVAILABLE), || replies("x"));
    let script = [
        vec![ok(), busy(), busy(), ok(), busy(), busy(), ok()],
        vec![busy(), busy(), busy(), ok(), ok(), ok(), ok(), ok()],
        vec![busy(), ok(), busy()],
    ]
    .concat();
    let policy = retry(4, "0.01s", "0.01s", 1.0, "UNAVAILABLE");
    let rig = rig(&throttled(&policy, 10, 0.5), script);
    let expected = [
        (Code::Ok, 1, 10.0),
        (Code::Ok, 4, 8.5),
        (Code::Ok, 7, 7.0),
        (Code::Unavailable, 9, 5.0),
        (Code::Unavailable, 10, 4.0),
        (Code::Ok, 11, 4.5),
        (Code::Ok, 12, 5.0),
        (Code::Ok, 13, 5.5),
        (Code::Ok, 14, 6.0),
        (Code::Ok, 15, 6.5),
        (Code::Ok, 17, 6.0),
        (Code::Unavailable, 18, 5.0),
    ];
    for (place, expected) in expected.into_iter().enumerate() {
        let code = rig.unary("x").await.code;
        let tokens = rig.control.tokens().unwrap();
        assert_eq!((code, rig.attempts(), tokens), expected, "call {place}");
    }
    rig.finish().await;
}

#[tokio::test(start_paused = true)]
async fn streaming_a_code_that_is_not_retryable_ends_the_call() {
    let rig = rig(&four_attempts(), fails_after(1, Said::INTERNAL));
    let mut talk = rig.bidi();
    talk.write(&["1"]);
    let status = talk.head().await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::Internal, "from the script"));
    assert_eq!(talk.stop_reason(), StopReason::NotRetryable);
    assert_eq!(previous(&rig.finish().await), [None]);
}

#[tokio::test(start_paused = true)]
async fn streaming_one_retry_is_enough() {
    let rig = rig(&four_attempts(), [fails_after(1, Said::UNAVAILABLE), replies_after(1, "a")]);
    let mut talk = rig.bidi();
    talk.write(&["1"]);
    assert_eq!(talk.all().await, (vec!["a".to_owned()], Code::Ok));
    let record = rig.finish().await;
    assert_eq!(previous(&record), [None, Some(1)]);
    assert!(record.streams.iter().all(|stream| payloads(stream) == ["1"]));
}

#[tokio::test(start_paused = true)]
async fn streaming_attempts_run_out_and_the_server_reads_their_numbers() {
    let rig = rig(&four_attempts(), vec![fails_after(1, Said::UNAVAILABLE); 4]);
    let mut talk = rig.bidi();
    talk.write(&["1"]);
    let status = talk.head().await.unwrap_err();
    // Theirs says in the message that retries are exhausted; ours is the server's own (G3).
    assert_eq!((status.code(), status.message()), (Code::Unavailable, "from the script"));
    assert_eq!(status.metadata().get("grpc-previous-rpc-attempts").unwrap(), "3");
    assert_eq!(talk.stop_reason(), StopReason::AttemptsExhausted);
    let record = rig.finish().await;
    assert_eq!(previous(&record), [None, Some(1), Some(2), Some(3)]);
    assert!(record.streams.iter().all(|stream| payloads(stream) == ["1"]));
}

#[tokio::test(start_paused = true)]
async fn streaming_several_requests_are_replayed() {
    let rig = rig(&four_attempts(), [fails_after(2, Said::UNAVAILABLE), replies_after(2, "a")]);
    let mut talk = rig.bidi();
    talk.write(&["1"]);
    rig.settle().await;
    talk.write(&["2"]);
    assert_eq!(talk.all().await, (vec!["a".to_owned()], Code::Ok));
    let record = rig.finish().await;
    let sent: Vec<_> = record.streams.iter().map(payloads).collect();
    assert_eq!(sent, [["1", "2"], ["1", "2"]]);
}

#[tokio::test(start_paused = true)]
async fn streaming_requests_that_come_one_by_one_are_replayed_as_far_as_they_came() {
    let script = [
        fails_after(1, Said::UNAVAILABLE),
        fails_after(2, Said::UNAVAILABLE),
        replies_after(3, "a"),
    ];
    let rig = rig(&four_attempts(), script);
    let mut talk = rig.bidi();
    for (text, attempts) in [("1", 2), ("2", 3), ("3", 3)] {
        talk.write(&[text]);
        patiently(rig.server.until_counts(|counts| counts.streams == attempts)).await;
    }
    assert_eq!(talk.all().await, (vec!["a".to_owned()], Code::Ok));
    let record = rig.finish().await;
    let sent: Vec<_> = record.streams.iter().map(payloads).collect();
    assert_eq!(sent, [vec!["1"], vec!["1", "2"], vec!["1", "2", "3"]]);
}

#[tokio::test(start_paused = true)]
async fn streaming_there_is_no_retry_after_a_message_was_received() {
    let committed = Answer::headers().message(message("a")).trailers(Said::UNAVAILABLE);
    let rig = rig(
        &four_attempts(),
        [fails_after(1, Said::UNAVAILABLE), committed.once(Once::Messages(1))],
    );
    let mut talk = rig.bidi();
    talk.write(&["1"]);
    assert_eq!(talk.all().await, (vec!["a".to_owned()], Code::Unavailable));
    assert_eq!(talk.stop_reason(), StopReason::Committed);
    assert_eq!(previous(&rig.finish().await), [None, Some(1)]);
}

#[tokio::test(start_paused = true)]
async fn streaming_waiting_for_headers_is_enough_to_retry() {
    let ok = Answer::trailers_only(Said::OK).once(Once::Messages(1));
    let rig = rig(&four_attempts(), [fails_after(1, Said::UNAVAILABLE), ok]);
    let mut talk = rig.bidi();
    talk.write(&["1"]);
    let response = talk.head().await.unwrap();
    assert_eq!(response.metadata().get("grpc-previous-rpc-attempts").unwrap(), "1");
    assert_eq!(response.into_inner().message().await.unwrap(), None);
    assert_eq!(previous(&rig.finish().await), [None, Some(1)]);
}

#[tokio::test(start_paused = true)]
async fn streaming_there_is_no_retry_after_headers() {
    let answer = Answer::headers().metadata("test_header", "test_value");
    let answer = answer.trailers(Said::UNAVAILABLE).once(Once::Messages(1));
    let rig = rig(&four_attempts(), answer);
    let mut talk = rig.bidi();
    talk.write(&["1"]);
    let response = talk.head().await.unwrap();
    assert_eq!(response.metadata().get("test_header").unwrap(), "test_value");
    let status = response.into_inner().message().await.unwrap_err();
    assert_eq!((status.code(), talk.stop_reason()), (Code::Unavailable, StopReason::Committed));
    assert_eq!(previous(&rig.finish().await), [None]);
}

#[tokio::test(start_paused = true)]
async fn streaming_the_half_close_is_replayed() {
    let answer = Answer::headers().message(message("a")).message(message("b")).trailers(Said::OK);
    let script = [fails(Said::UNAVAILABLE).once(Once::Request), answer.once(Once::Request)];
    let rig = rig(&four_attempts(), script);
    let mut talk = rig.bidi();
    talk.write(&["1", "2"]);
    rig.settle().await;
    talk.half_close();
    assert_eq!(talk.all().await, (vec!["a".to_owned(), "b".to_owned()], Code::Ok));
    let record = rig.finish().await;
    for stream in &record.streams {
        assert_eq!(payloads(stream), ["1", "2"]);
        assert!(stream.half_closed.is_some());
    }
    assert_eq!(record.streams.len(), 2);
}

async fn is_not_retried_with_pushback(values: &[&str]) {
    let answer = fails_after(1, Said::UNAVAILABLE);
    let rig =
        rig(&four_attempts(), values.iter().fold(answer, |answer, value| answer.pushback(value)));
    let mut talk = rig.bidi();
    talk.write(&["1"]);
    let status = talk.head().await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::Unavailable, "from the script"));
    assert_eq!(talk.stop_reason(), StopReason::ServerRefused);
    assert_eq!(starts(&rig.finish().await), [0]);
}

#[tokio::test(start_paused = true)]
async fn streaming_a_negative_pushback_means_no_retry() {
    is_not_retried_with_pushback(&["-1"]).await;
}

#[tokio::test(start_paused = true)]
async fn streaming_a_pushback_that_is_no_number_means_no_retry() {
    is_not_retried_with_pushback(&["xxx"]).await;
}

#[tokio::test(start_paused = true)]
async fn streaming_several_pushbacks_mean_no_retry() {
    is_not_retried_with_pushback(&["100", "10"]).await;
}

#[tokio::test(start_paused = true)]
async fn streaming_a_pushback_of_one_second_delays_the_retry() {
    let script = [fails_after(1, Said::UNAVAILABLE).pushback("1000"), replies_after(1, "a")];
    let rig = rig(&four_attempts(), script);
    let mut talk = rig.bidi();
    talk.write(&["1"]);
    assert_eq!(talk.all().await, (vec!["a".to_owned()], Code::Ok));
    assert_eq!(starts(&rig.finish().await), [0, 1000]);
}

#[tokio::test(start_paused = true)]
async fn streaming_an_overflowing_buffer_means_no_retry() {
    let large = "x".repeat(500);
    let layer = exact(&four_attempts()).per_rpc_buffer_limit_in_bytes(200);
    let rig = rig_of(layer, Server::new(fails_after(1, Said::UNAVAILABLE)));
    let mut talk = rig.bidi();
    rig.settle().await;
    talk.write(&[&large]);
    let status = talk.head().await.unwrap_err();
    assert_eq!((status.code(), talk.stop_reason()), (Code::Unavailable, StopReason::Committed));
    assert_eq!(rig.statistics("Bidi").buffers_full, 1);
    let record = rig.finish().await;
    assert_eq!(record.streams.len(), 1);
    assert_eq!(payloads(&record.streams[0]), [large]);
}

#[tokio::test(start_paused = true)]
async fn max_call_attempts_is_the_smaller_of_config_and_client() {
    let cases = [
        (9, Some(4), 4),
        (9, Some(7), 7),
        (3, Some(10), 3),
        (8, None, 5),
        (3, None, 3),
        (9, Some(1), 1),
    ];
    for (service, client, expected) in cases {
        let mut layer = exact(&config(&retry(service, "0.01s", "0.01s", 1.0, "UNAVAILABLE")));
        if let Some(cap) = client {
            layer = layer.attempts_cap(cap);
        }
        let script = vec![fails(Said::UNAVAILABLE); 2 * expected];
        let rig = rig_of(layer, Server::new(script));
        let mut talk = rig.bidi();
        talk.half_close();
        assert_eq!(talk.all().await.1, Code::Unavailable);
        assert_eq!(rig.attempts(), expected as u64, "{service} {client:?}");
        assert_eq!(rig.unary("x").await.code, Code::Unavailable);
        assert_eq!(rig.attempts(), 2 * expected as u64, "{service} {client:?}");
        rig.finish().await;
    }
}

#[tokio::test(start_paused = true)]
async fn retry_stats_tell_transparent_retries_from_others() {
    let script = [
        Answer::reset(Reason::REFUSED_STREAM).once(Once::Request),
        fails(Said::UNAVAILABLE).pushback("10").once(Once::Request),
        replies("a").once(Once::Request),
    ];
    let rig = rig(&four_attempts(), script);
    let mut talk = rig.bidi();
    talk.write(&["x"]);
    talk.half_close();
    assert_eq!(talk.all().await, (vec!["a".to_owned()], Code::Ok));

    let call_log = talk.call_log.take();
    let began = call_log.events()[0].0;
    let story: Vec<_> = call_log
        .events()
        .iter()
        .filter_map(|(at, event)| {
            let said = match *event {
                Event::AttemptStarted { attempt, number } => {
                    format!("{attempt} starts as {number}")
                }
                Event::TransparentRetryScheduled { attempt, proof: Proof::Unprocessed, .. } => {
                    format!("{attempt} is replaced")
                }
                Event::RetryScheduled { .. } => "a retry follows".to_owned(),
                Event::Committed { attempt } => format!("it belongs to {attempt}"),
                Event::CallEnded { stop_reason, .. } => format!("it ends: {stop_reason}"),
                _ => return None,
            };
            Some(((at - began) / 1_000_000, said))
        })
        .collect();
    let expected = [
        (0, "1 starts as 1"),
        (0, "1 is replaced"),
        (0, "2 starts as 1"),
        (0, "a retry follows"),
        (10, "3 starts as 2"),
        (10, "it belongs to 3"),
        (10, "it ends: succeeded"),
    ];
    assert_eq!(story, expected.map(|(at, said)| (at, said.to_owned())));

    let statistics = rig.statistics("Bidi").retries;
    assert_eq!((statistics.retries, statistics.failed, statistics.transparent), (1, 0, 1));
    assert_eq!(statistics.histogram, [1, 0, 0, 0, 0, 0, 0, 0]);
    let record = rig.finish().await;
    assert_eq!(previous(&record), [None, None, Some(1)]);
    assert_eq!(starts(&record), [0, 0, 10]);
}

#[tokio::test(start_paused = true)]
async fn a_retry_that_waits_for_a_free_stream_can_be_cancelled() {
    let policy = retry(2, "0.1s", "0.1s", 1.0, "ALREADY_EXISTS");
    let script = [fails(Said::ALREADY_EXISTS), Answer::hang(), Answer::hang()];
    let server = Server::new(script).concurrent_streams(1);
    let rig = rig_of(exact(&config(&policy)), server);
    let waiting = rig.bidi();
    patiently(rig.server.until_counts(|it| it.streams == 1 && it.streams_open == 0)).await;
    let blocking = rig.bidi();
    patiently(rig.server.until_counts(|counts| counts.streams == 2)).await;
    at(&rig, ms(200)).await;
    waiting.write(&["nobody reads it"]);
    let call_log = waiting.cancel().await;
    assert_eq!(stop_reason(&call_log), StopReason::Cancelled);
    rig.settle().await;
    assert_eq!(rig.attempts(), 2, "the retry has not left");
    blocking.cancel().await;
    rig.settle().await;
    let record = rig.finish().await;
    // hyper opens the stream that waited when there is room, only to reset it.
    assert_eq!((record.streams.len(), record.streams[2].bytes), (3, 0));
    assert_eq!(cancels(&record), [None, Some(201), Some(201)]);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_replaced_after_the_commit() {
    let gone = |reason| Answer::headers().then_go_away(LastStream::Below, reason);
    let lost = [
        (
            Answer::headers().then_reset(Reason::REFUSED_STREAM),
            Code::Unavailable,
            StopReason::Committed,
        ),
        (gone(Reason::ENHANCE_YOUR_CALM), Code::Unavailable, StopReason::Committed),
        // hyper takes this one for the end of the body, which then lacks its status.
        (gone(Reason::NO_ERROR), Code::Unknown, StopReason::NotRetryable),
    ];
    for (answer, code, expected) in lost {
        let rig = rig(&four_attempts(), answer.once(Once::Messages(1)));
        let mut talk = rig.bidi();
        talk.write(&["1"]);
        let (messages, heard) = talk.all().await;
        assert_eq!((messages.len(), heard, talk.stop_reason()), (0, code, expected));
        let transparent = rig.statistics("Bidi").retries.transparent;
        assert_eq!((transparent, rig.attempts()), (0, 1));
        rig.finish().await;
    }
}

#[tokio::test(start_paused = true)]
async fn with_retries_disabled_what_is_retryable_is_not_retried() {
    for retries in [Retries::Transparent, Retries::Off] {
        let rig =
            rig_of(exact(&four_attempts()).retries(retries), Server::new(fails(Said::UNAVAILABLE)));
        let heard = rig.unary("x").await;
        assert_eq!((heard.code, heard.previous), (Code::Unavailable, None));
        rig.finish().await;
    }
    // As theirs, which still replaces what no server has processed.
    let script = || [Answer::reset(Reason::REFUSED_STREAM), replies("a")];
    let layer = exact(&four_attempts()).retries(Retries::Transparent);
    let transparent = rig_of(layer, Server::new(script()));
    assert_eq!(transparent.unary("x").await.text, "a");
    transparent.finish().await;
    let layer = exact(&four_attempts()).retries(Retries::Off);
    let off = rig_of(layer, Server::new(script()));
    assert_eq!((off.unary("x").await.code, off.attempts()), (Code::Unavailable, 1));
    off.finish().await;
}

#[tokio::test(start_paused = true)]
async fn what_was_added_below_to_one_attempt_is_not_carried_over_to_the_next() {
    let server = Server::new([fails(Said::UNAVAILABLE), replies("a")]).on_pipe();
    let first = Arc::new(AtomicBool::new(true));
    let channel = ServiceBuilder::new()
        .layer(exact(&four_attempts()).build())
        .map_request(move |mut request: http::Request<tonic::body::Body>| {
            if first.swap(false, Ordering::Relaxed) {
                let headers = request.headers_mut();
                headers.insert("x-picked", "the first backend".parse().unwrap());
                headers.insert("x-own", "changed below".parse().unwrap());
            }
            request
        })
        .service(channel(server.connector()));
    let mut client = EchoClient::new(channel);
    let mut asked = tonic::Request::new(request("x"));
    asked.metadata_mut().insert("x-own", "the application's".parse().unwrap());
    let heard = Heard::of(patiently(client.unary(asked)).await);
    assert_eq!((heard.code, heard.previous), (Code::Ok, Some(1)));
    patiently(server.idle()).await;
    let record = server.record();
    let headers = |stream: usize, name| record.streams[stream].headers.get(name).cloned();
    assert_eq!(headers(0, "x-picked").unwrap(), "the first backend");
    assert_eq!(headers(0, "x-own").unwrap(), "changed below");
    assert_eq!(headers(1, "x-picked"), None);
    assert_eq!(headers(1, "x-own").unwrap(), "the application's");
    assert_eq!(record.streams[0].path, record.streams[1].path);
}
