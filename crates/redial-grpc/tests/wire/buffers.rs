//! What is kept for repetition: what counts, what is too much, and when it is free again (decisions
//! G23 to G25).

use prost::Message;
use redial::StopReason;
use redial_echo::EchoRequest;
use redial_faults::grpc::{Answer, Close, How, Once, Reason, Script, Server, StatusNumber as Peer};
use redial_grpc::{CallOptions, Retries, RetryLayer, SharedCallLog};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request};
use tower_service::Service as _;

use super::rig::{HEDGE, RETRY, Rig, Told, UNARY, layer, message, ms, raw_request};

/// How many bytes of the wire a message takes.
fn counted(message: &EchoRequest) -> u64 {
    5 + message.encoded_len() as u64
}

/// A message that takes so many bytes of the wire.
fn of_size(bytes: u64) -> EchoRequest {
    let payload = usize::try_from(bytes).unwrap() - 7;
    let message = message(&"m".repeat(payload));
    assert_eq!(counted(&message), bytes);
    message
}

fn limited(fields: &str, call: u64, channel: u64) -> RetryLayer {
    let layer = layer(fields).per_rpc_buffer_limit_in_bytes(call);
    layer.retry_buffer_size_in_bytes(channel).build()
}

/// Messages that a test writes.
fn stream() -> (mpsc::Sender<EchoRequest>, ReceiverStream<EchoRequest>) {
    let (send, receive) = mpsc::channel(16);
    (send, ReceiverStream::new(receive))
}

/// Makes a call with a stream of these messages, 10 ms apart.
async fn stream_call(rig: &mut Rig, messages: Vec<EchoRequest>) -> Told {
    let (send, receive) = stream();
    let call_log = SharedCallLog::new();
    let mut request = Request::new(receive);
    request.extensions_mut().insert(CallOptions::new().call_log(&call_log));
    let writing = tokio::spawn(async move {
        for message in messages {
            if send.send(message).await.is_err() {
                return;
            }
            tokio::time::sleep(ms(10)).await;
        }
    });
    let result = rig.client.client_stream(request).await;
    writing.abort();
    rig.told(&call_log, result)
}

#[tokio::test(start_paused = true)]
async fn a_message_counts_with_its_prefix_as_long_as_it_may_be_repeated() {
    for policy in [RETRY, HEDGE, ""] {
        let mut rig = Rig::new(policy, Script::new().otherwise(Answer::hang()));
        let request = of_size(100);
        let control = rig.control.clone();
        let mut call = Box::pin(rig.client.unary(request));
        assert!(tokio::time::timeout(ms(100), &mut call).await.is_err());
        assert_eq!(control.bytes_kept(), 100, "once, however many attempts: {policy}");
        drop(call);
        assert_eq!(control.bytes_kept(), 0, "dropped");
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_counts_after_the_commit() {
    let busy = Answer::trailers_only(Peer::UNAVAILABLE).after(ms(10));
    let served = Answer::headers().after(ms(10)).message("").after(ms(30)).trailers(Peer::OK);
    let mut rig = Rig::new(RETRY, [busy, served]);
    let control = rig.control.clone();
    let watch = async {
        let began = Instant::now();
        let mut kept = Vec::new();
        for at in [5, 30, 65, 75] {
            tokio::time::sleep_until(began + ms(at)).await;
            kept.push(control.bytes_kept());
        }
        kept
    };
    let call = async {
        let mut stream = rig.client.server_stream(of_size(100)).await.unwrap().into_inner();
        stream.message().await.unwrap().unwrap();
    };
    let (kept, ()) = tokio::join!(watch, call);
    // In flight, in backoff, in flight again; the response's headers come at 70 ms.
    assert_eq!(kept, [100, 100, 100, 0]);
    assert_eq!(control.bytes_kept(), 0);
}

/// The limits may be reached and not passed; what does not fit is sent, and never again.
#[tokio::test(start_paused = true)]
async fn what_exactly_fits_is_kept_and_a_byte_more_is_sent_once() {
    let script =
        || Script::new().attempts([Answer::trailers_only(Peer::UNAVAILABLE), Answer::echo()]);
    for policy in [RETRY, HEDGE] {
        for (call, channel, fits) in
            [(100, 1000, true), (99, 1000, false), (1000, 100, true), (1000, 99, false)]
        {
            let mut rig = Rig::of(limited(policy, call, channel), Server::new(script()));
            let told = rig.call_with(Request::new(of_size(100))).await;
            let full = rig.control.statistics()[UNARY].buffers_full;
            if fits {
                assert_eq!((told.code(), told.starts().len(), full), (Code::Ok, 2, 0));
            } else {
                assert_eq!((told.code(), told.end().0), (Code::Unavailable, StopReason::Committed));
                assert_eq!((told.starts().len(), full), (1, 1));
                assert_eq!(rig.tokens(), 9_000, "it failed with a listed status all the same");
            }
            assert_eq!(rig.control.bytes_kept(), 0);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_does_not_fit_is_not_even_replaced() {
    let script = [Answer::reset(Reason::REFUSED_STREAM), Answer::echo()];
    let mut rig = Rig::of(limited("", 99, 1000), Server::new(script));
    let told = rig.call_with(Request::new(of_size(100))).await;
    assert_eq!((told.code(), told.starts().len()), (Code::Unavailable, 1));
}

#[tokio::test(start_paused = true)]
async fn calls_without_a_policy_are_kept_for_their_replacement() {
    let refused = Answer::reset(Reason::REFUSED_STREAM).once(Once::Messages(2)).after(ms(15));
    let mut rig = Rig::new("", [refused, Answer::echo()]);
    let told = stream_call(&mut rig, vec![message("a"), message("b"), message("c")]).await;
    let streams = &told.record.streams;
    assert_eq!((streams[0].messages, streams[1].messages), (2, 3));
    assert_eq!(streams[0].payloads, streams[1].payloads[..2]);
    assert_eq!(rig.control.bytes_kept(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_message_over_the_limit_commits_the_attempt_in_flight() {
    // Two messages of 100 bytes fit, the third does not.
    let fails = Answer::trailers_only(Peer::UNAVAILABLE).once(Once::Request);
    let mut rig = Rig::of(limited(RETRY, 200, 1000), Server::new([fails]));
    let told = stream_call(&mut rig, vec![of_size(100); 4]).await;
    assert_eq!((told.code(), told.end().0), (Code::Unavailable, StopReason::Committed));
    let stream = &told.record.streams[0];
    assert_eq!((told.record.streams.len(), stream.messages), (1, 4), "all of it was sent");
    assert_eq!((stream.bytes, rig.control.bytes_kept()), (400, 0));

    let fails = Answer::trailers_only(Peer::UNAVAILABLE).once(Once::Request);
    let served = Answer::echo().once(Once::Request);
    let mut rig = Rig::of(limited(RETRY, 400, 1000), Server::new([fails, served]));
    let told = stream_call(&mut rig, vec![of_size(100); 4]).await;
    assert_eq!(told.record.streams.len(), 2, "exactly at the limit it is repeated");
    assert_eq!(told.record.streams[0].digest, told.record.streams[1].digest);
}

#[tokio::test(start_paused = true)]
async fn of_hedges_the_one_that_was_sent_most_is_kept_and_the_others_are_reset() {
    // The first attempt's window stays shut after one message; the second takes all.
    let script =
        [Answer::hang().accepts(1), Answer::echo().once(Once::Request), Answer::hang().accepts(0)];
    let mut rig = Rig::of(limited(HEDGE, 300, 10_000), Server::new(script));
    let told = stream_call(&mut rig, vec![of_size(100); 5]).await;
    assert_eq!(told.starts()[..2], [0, 20]);
    let record = told.record;
    assert_eq!((record.streams[1].messages, record.streams[1].bytes), (5, 500));
    assert_eq!(record.streams[0].end.unwrap().how, How::ResetByClient(Reason::CANCEL));
    assert_eq!(rig.control.statistics()["/redial.test.Echo/ClientStream"].buffers_full, 1);
    assert_eq!(rig.control.bytes_kept(), 0);
}

/// Red: `it.next` in place of `it.written` in `Tape::signal`.
#[tokio::test(start_paused = true)]
async fn hedging_over_the_buffer_limit_cancels_the_stalled_attempt() {
    let twice = HEDGE.replace(r#""maxAttempts": 3"#, r#""maxAttempts": 2"#);
    // The first attempt's window stays shut after so many messages, and hyper takes one more for it.
    // The second attempt takes all. One message more than that does not fit.
    for (accepts, limit) in [(0, 40), (1, 100)] {
        let script = [Answer::hang().accepts(accepts), Answer::echo().once(Once::Request)];
        let mut rig = Rig::of(limited(&twice, limit, 10_000), Server::new(script));
        let (send, receive) = stream();
        tokio::spawn(async move {
            for at in [0, 50, 100, 10] {
                tokio::time::sleep(ms(at)).await;
                send.send(of_size(40)).await.unwrap();
            }
        });
        let call = rig.client.client_stream(receive);
        let answer = tokio::time::timeout(ms(10_000), call).await.expect("it does not hang");
        assert!(answer.is_ok(), "{answer:?}");
        let streams = rig.server.record().streams;
        assert_eq!((streams[0].messages, streams[1].messages), (accepts, 4));
    }
}

#[tokio::test(start_paused = true)]
async fn the_channels_room_is_shared_by_its_calls() {
    let script = Script::new().otherwise(Answer::trailers_only(Peer::UNAVAILABLE).after(ms(10)));
    let twice = RETRY.replace(r#""maxAttempts": 3"#, r#""maxAttempts": 2"#);
    let rig = Rig::of(limited(&twice, 1000, 150), Server::new(script));
    let call = |at| {
        let mut client = rig.client.clone();
        async move {
            tokio::time::sleep(ms(at)).await;
            client.unary(of_size(100)).await.unwrap_err()
        }
    };
    let kept = async {
        tokio::time::sleep(ms(5)).await;
        rig.control.bytes_kept()
    };
    let (first, second, kept) = tokio::join!(call(0), call(2), kept);
    assert_eq!(kept, 100);
    assert_eq!(first.metadata().get("grpc-previous-rpc-attempts").unwrap(), "1");
    assert!(!second.metadata().contains_key("grpc-previous-rpc-attempts"), "it did not fit");
    // The room of the first is free again.
    let third = call(0).await;
    assert_eq!(third.metadata().get("grpc-previous-rpc-attempts").unwrap(), "1");
    assert_eq!(rig.control.bytes_kept(), 0);
}

#[tokio::test(start_paused = true)]
async fn with_retries_disabled_nothing_is_kept() {
    let layer = layer(RETRY).retries(Retries::Off).build();
    let mut rig = Rig::of(layer, Server::new(Answer::hang()));
    let control = rig.control.clone();
    let mut call = Box::pin(rig.client.unary(of_size(100)));
    assert!(tokio::time::timeout(ms(10), &mut call).await.is_err());
    assert_eq!(control.bytes_kept(), 0);
}

/// The future of a call may outlive its end in the hands of whoever polls it.
#[tokio::test(start_paused = true)]
async fn a_call_that_has_ended_keeps_nothing_though_its_future_is_still_there() {
    let rig = Rig::new(RETRY, vec![Answer::close(Close::Orderly); 3]);
    let mut service = rig.service();
    std::future::poll_fn(|cx| service.poll_ready(cx)).await.unwrap();
    let mut call = Box::pin(service.call(raw_request(b"0123456789")));
    let control = rig.control.clone();
    let watched = async {
        tokio::time::sleep(ms(10)).await;
        control.bytes_kept()
    };
    let (result, kept) = tokio::join!(&mut call, watched);
    assert!(result.is_err());
    assert_eq!((kept, control.bytes_kept()), (15, 0));
    drop(call);
}
