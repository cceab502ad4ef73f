//! Flow control, and the limit on concurrent streams.

use bytes::Bytes;
use h2::Reason;
use redial_faults::grpc::{
    Answer, STREAMS_OPEN_MAX, Script, Server, StatusNumber, StreamOutcome, WaitFor,
};

use super::raw::{Client, late, message, ms, serve};

#[tokio::test(start_paused = true)]
async fn window_accepts_exactly_the_listed_messages() {
    for accepts in [0, 1, 2, 5] {
        let server =
            serve(Answer::trailers_only(StatusNumber::ABORTED).accepts(accepts).after(ms(50)));
        let mut client = Client::of(&server).await;
        let mut call = client.begin(&[], false).await.unwrap();
        for size in [10, 0, 100_000, 3, 0, 70_000] {
            call.request.send_data(message(vec![1; size]), false).unwrap();
        }
        call.request.send_data(Bytes::new(), true).unwrap();
        tokio::time::sleep(ms(40)).await;
        let record = server.record();
        let stream = &record.streams[0];
        let sizes = [10, 0, 100_000, 3, 0];
        let bytes: u64 = sizes.iter().take(accepts as usize).map(|size| size + 5).sum();
        assert_eq!((stream.messages, stream.bytes), (accepts, bytes), "accepts {accepts}");
        assert_eq!(stream.half_closed, None);
        let seen = call.seen().await;
        assert_eq!((seen.header("grpc-status"), seen.ended), (Some("10"), ms(50)));
        assert_eq!(server.shutdown().await.streams[0].bytes, bytes, "accepts {accepts}");
    }
}

#[tokio::test(start_paused = true)]
async fn window_limit_affects_one_stream_only() {
    let server = serve([Answer::hang().accepts(0), Answer::echo()]);
    let mut client = Client::of(&server).await;
    let mut shut = client.begin(&[], false).await.unwrap();
    shut.request.send_data(message("never"), true).unwrap();
    let payload = "x".repeat(3_000_000);
    let seen = client.unary(&payload).await;
    assert_eq!(seen.data, message(&payload));
    let record = server.record();
    assert_eq!((record.streams[0].bytes, record.streams[0].half_closed), (0, None));
    assert_eq!((record.streams[1].messages, record.streams[1].bytes), (1, 3_000_005));
}

#[tokio::test(start_paused = true)]
async fn window_limit_above_the_request_has_no_effect() {
    let server = serve(Answer::reply("x").accepts(3).wait_for(WaitFor::Request));
    let mut client = Client::of(&server).await;
    let seen = client.unary("abc").await;
    assert_eq!(seen.trailer("grpc-status"), Some("0"));
    let record = server.shutdown().await;
    assert_eq!((record.streams[0].messages, record.streams[0].half_closed), (1, Some(ms(0))));
}

#[tokio::test(start_paused = true)]
async fn window_large_message_passes_a_small_pipe() {
    let server =
        Server::new([Answer::echo(), Answer::echo().accepts(1)]).pipe_bytes(1024).on_pipe();
    let mut client = Client::of(&server).await;
    let payload = "y".repeat(1_000_000);
    assert_eq!(client.unary(&payload).await.data, message(&payload));
    assert_eq!(client.unary(&payload).await.data, message(&payload), "window opened by hand");
}

#[tokio::test(start_paused = true)]
async fn window_larger_message_is_accepted_in_parts() {
    let server = serve(Answer::trailers_only(StatusNumber::ABORTED).accepts(2).after(ms(50)));
    let mut client = Client::of(&server).await;
    let mut call = client.begin(&[], false).await.unwrap();
    for size in [10_000_000, 3_000_000, 3_000_000] {
        call.request.send_data(message(vec![1; size]), false).unwrap();
    }
    assert_eq!(call.seen().await.header("grpc-status"), Some("10"));
    let record = server.shutdown().await;
    assert_eq!((record.streams[0].messages, record.streams[0].bytes), (2, 13_000_010));
}

#[tokio::test(start_paused = true)]
async fn window_settings_announce_max_concurrent_streams() {
    let server =
        Server::new(vec![Answer::reply("x").after(ms(10)); 3]).concurrent_streams(1).on_pipe();
    let mut client = Client::of(&server).await;
    // The client has read the settings before it opens its first stream.
    client.settle().await;
    let mut calls = Vec::new();
    for _ in 0..3 {
        let mut call = client.begin_unready(&[], false).unwrap();
        call.request.send_data(message("x"), true).unwrap();
        calls.push(tokio::spawn(call.seen()));
    }
    for (place, call) in (1..).zip(calls) {
        assert_eq!(call.await.unwrap().ended, ms(10 * place), "one after the other");
    }
    let record = server.shutdown().await;
    let arrived: Vec<_> = record.streams.iter().map(|it| it.arrived).collect();
    assert_eq!(arrived, [ms(0), ms(10), ms(20)]);
}

#[tokio::test(start_paused = true)]
async fn stream_over_the_limit_is_refused_without_using_an_answer() {
    let script = Script::new().attempts([Answer::hang(), Answer::reply("x")]);
    let server = Server::new(script).concurrent_streams(1).on_pipe();
    // A client that has not seen the settings yet.
    let mut client = Client::over(late(server.connect().await.unwrap())).await;
    let first = tokio::spawn(client.begin_unready(&[], true).unwrap().seen());
    let second = client.begin_unready(&[], true).unwrap().seen().await;
    let error = second.error.as_ref().unwrap();
    assert!(error.is_reset() && error.is_remote());
    assert_eq!(second.reason(), Some(Reason::REFUSED_STREAM));
    first.abort();
    let _ = first.await;
    server.idle().await;
    let seen = client.unary("x").await;
    assert_eq!(seen.trailer("grpc-status"), Some("0"));
    let record = server.shutdown().await;
    assert_eq!(record.streams[1].end.unwrap().outcome, StreamOutcome::TooManyStreams);
    assert_eq!((record.streams[1].attempt, record.streams[1].scripted), (None, false));
    assert_eq!(record.streams[2].attempt, Some(2));
    assert_eq!(record.counts.streams_unscripted, 0);
}

#[tokio::test(start_paused = true)]
async fn stream_limit_applies_by_default() {
    let server = serve(Script::new().default_answer(Answer::hang()));
    let mut client = Client::of(&server).await;
    let mut calls = Vec::new();
    for _ in 0..STREAMS_OPEN_MAX {
        calls.push(client.begin(&[], true).await.unwrap());
    }
    server.until_counts(|counts| counts.streams == u64::from(STREAMS_OPEN_MAX)).await;
    assert_eq!(server.counts().streams_open, u64::from(STREAMS_OPEN_MAX));
    let seen = client.begin(&[], true).await.unwrap().seen().await;
    assert_eq!(seen.reason(), Some(Reason::REFUSED_STREAM));
    assert_eq!(server.counts().streams_open, u64::from(STREAMS_OPEN_MAX));
    drop(calls);
    server.idle().await;
}
