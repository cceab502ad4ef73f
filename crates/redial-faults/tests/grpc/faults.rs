//! Faults of streams and connections: `RST_STREAM`, GOAWAY, close, hang.

use bytes::Bytes;
use h2::Reason;
use redial_faults::grpc::{
    Answer, Close, LastStream, Server, StatusNumber, StreamOutcome, WaitFor,
};

use super::raw::{Client, frames, message, ms, recorded, serve, stuck};

#[tokio::test(start_paused = true)]
async fn reset_is_sent_with_any_code_at_its_time() {
    let codes = [
        Reason::NO_ERROR,
        Reason::REFUSED_STREAM,
        Reason::CANCEL,
        Reason::ENHANCE_YOUR_CALM,
        Reason::from(0xdead_beef),
    ];
    let server = serve(codes.map(|code| Answer::reset(code).after(ms(3))).to_vec());
    let mut client = Client::of(&server).await;
    for code in codes {
        let seen = client.unary("x").await;
        let error = seen.error.as_ref().unwrap();
        assert!(error.is_reset() && error.is_remote(), "{error:?}");
        assert_eq!((seen.reason(), seen.ended), (Some(code), ms(3)));
        assert!(seen.headers.is_none());
    }
    let record = server.shutdown().await;
    for (stream, code) in record.streams.iter().zip(codes) {
        assert_eq!(stream.end.unwrap().outcome, StreamOutcome::Reset(code));
        assert_eq!(stream.reset, None, "the client did not");
    }
    assert_eq!(record.connections.len(), 1, "a reset leaves the connection alone");
}

#[tokio::test(start_paused = true)]
async fn reset_does_not_overtake_earlier_frames() {
    let large = Bytes::from(vec![7; 300_000]);
    let server = serve([
        Answer::headers().then_reset(Reason::INTERNAL_ERROR),
        Answer::headers().message(large.clone()).then_reset(Reason::NO_ERROR),
    ]);
    let mut client = Client::of(&server).await;
    let seen = client.unary("x").await;
    assert_eq!(seen.headers.as_ref().map(|(at, ..)| *at), Some(ms(0)));
    assert_eq!(seen.reason(), Some(Reason::INTERNAL_ERROR));
    let seen = client.unary("x").await;
    assert_eq!(seen.data, message(&large), "more than a window, and all of it");
    assert_eq!(seen.reason(), Some(Reason::NO_ERROR));
    assert!(seen.trailers.is_none());
}

#[tokio::test(start_paused = true)]
async fn goaway_below_the_stream_marks_it_unprocessed() {
    for reason in [Reason::NO_ERROR, Reason::ENHANCE_YOUR_CALM] {
        let server = serve([
            Answer::reply("first").after(ms(20)),
            Answer::go_away(LastStream::Below, reason).after(ms(4)),
        ]);
        let mut client = Client::of(&server).await;
        let mut first = client.begin(&[], false).await.unwrap();
        first.request.send_data(message("x"), true).unwrap();
        let first = tokio::spawn(first.seen());
        let seen = client.unary("y").await;
        let error = seen.error.as_ref().unwrap();
        assert!(error.is_go_away() && error.is_remote(), "{error:?}");
        assert_eq!((seen.reason(), seen.ended), (Some(reason), ms(4)));
        // The stream below it goes on.
        let first = first.await.unwrap();
        assert_eq!((first.trailer("grpc-status"), first.ended), (Some("0"), ms(20)));
        // No new stream is opened on this connection.
        assert!(client.begin(&[], true).await.is_err());
        let record = server.shutdown().await;
        assert_eq!(
            record.streams[0].end.unwrap().outcome,
            StreamOutcome::Answered(Some(StatusNumber::OK))
        );
        assert_eq!(record.streams[1].end.unwrap().outcome, StreamOutcome::GoneAway(reason));
        assert_eq!(record.streams[1].end.unwrap().at, ms(4));
    }
}

#[tokio::test(start_paused = true)]
async fn goaway_below_ends_every_stream_above() {
    let server = serve([
        Answer::hang(),
        Answer::hang(),
        Answer::go_away(LastStream::Id(1), Reason::NO_ERROR).after(ms(1)),
    ]);
    let mut client = Client::of(&server).await;
    let mut calls = Vec::new();
    for _ in 0..3 {
        calls.push(tokio::spawn(client.begin(&[], true).await.unwrap().seen()));
    }
    for call in calls.drain(1..) {
        assert!(call.await.unwrap().error.unwrap().is_go_away());
    }
    let record = server.until(|record| record.counts.streams_open == 1).await;
    assert_eq!(record.streams[0].end, None);
    assert_eq!(record.streams[1].end.unwrap().outcome, StreamOutcome::GoneAway(Reason::NO_ERROR));
    assert_eq!(record.streams[2].end.unwrap().outcome, StreamOutcome::GoneAway(Reason::NO_ERROR));
}

#[tokio::test(start_paused = true)]
async fn goaway_at_or_above_the_stream_lets_it_finish() {
    for last in [LastStream::This, LastStream::Above, LastStream::Id(77)] {
        let answer = Answer::go_away(last, Reason::NO_ERROR);
        let answer = answer.then_headers().trailers(StatusNumber::OK).after(ms(5));
        let server = serve(answer);
        let mut client = Client::of(&server).await;
        let seen = client.unary("x").await;
        assert_eq!((seen.trailer("grpc-status"), seen.ended), (Some("0"), ms(5)), "{last:?}");
        assert!(client.begin(&[], true).await.is_err(), "{last:?}");
        // A client that may open no more streams disconnects.
        assert!(client.connection.await.unwrap().is_ok());
        server.until(|record| record.counts.connections_open == 0).await;
    }
}

#[tokio::test(start_paused = true)]
async fn goaway_arrives_before_the_connection_closes() {
    for close in [Close::Graceful, Close::Abrupt] {
        for (last, proof) in [(LastStream::Below, true), (LastStream::This, false)] {
            let server = serve(Answer::go_away(last, Reason::NO_ERROR).then_close(close));
            let seen = Client::of(&server).await.unary("x").await;
            let error = seen.error.unwrap();
            assert_eq!(error.is_go_away(), proof, "{last:?} {close:?}: {error:?}");
            assert_eq!(error.is_io(), !proof, "{last:?} {close:?}: {error:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn goaway_debug_data_arrives() {
    let server = serve(
        Answer::go_away(LastStream::Below, Reason::ENHANCE_YOUR_CALM).debug("too_many_pings"),
    );
    let seen = Client::of(&server).await.unary("x").await;
    assert!(seen.error.unwrap().to_string().contains("too_many_pings"));
}

#[tokio::test(start_paused = true)]
async fn close_before_the_request_is_read() {
    for close in [Close::Graceful, Close::Abrupt] {
        let server = serve(Answer::close(close).wait_for(WaitFor::Headers).after(ms(0)));
        let mut client = Client::of(&server).await;
        let mut call = client.begin(&[], false).await.unwrap();
        call.request.send_data(message("x"), true).unwrap();
        let seen = call.seen().await;
        assert!(seen.error.as_ref().unwrap().is_io(), "{seen:?}");
        let record = server.shutdown().await;
        let stream = &record.streams[0];
        assert_eq!((stream.messages, stream.half_closed), (0, None));
        assert_eq!(stream.end.unwrap().outcome, StreamOutcome::Closed);
        assert_eq!(record.connections[0].closed, Some(ms(0)));
    }
}

#[tokio::test(start_paused = true)]
async fn close_during_the_request() {
    let server = serve(Answer::close(Close::Graceful).wait_for(WaitFor::Messages(2)));
    let mut client = Client::of(&server).await;
    let mut call = client.begin(&[], false).await.unwrap();
    for _ in 0..2 {
        tokio::time::sleep(ms(10)).await;
        assert_eq!(server.counts().streams_open, 1);
        call.request.send_data(message("x"), false).unwrap();
    }
    let seen = call.seen().await;
    assert!(seen.error.unwrap().is_io());
    let record = server.shutdown().await;
    assert_eq!((record.streams[0].messages, record.streams[0].half_closed), (2, None));
    assert_eq!(record.streams[0].end.unwrap().at, ms(20));
}

#[tokio::test(start_paused = true)]
async fn close_after_the_request() {
    let server = serve(Answer::close(Close::Graceful).wait_for(WaitFor::Request).after(ms(5)));
    let mut client = Client::of(&server).await;
    let seen = client.unary("x").await;
    assert!(seen.error.as_ref().unwrap().is_io(), "{seen:?}");
    assert_eq!(seen.ended, ms(5));
    let record = server.shutdown().await;
    assert_eq!((record.streams[0].messages, record.streams[0].half_closed), (1, Some(ms(0))));
}

#[tokio::test(start_paused = true)]
async fn close_after_response_headers_during_a_message() {
    let half = message("abcdef").slice(..7);
    for close in [Close::Graceful, Close::Abrupt] {
        let server = serve([
            Answer::headers().then_close(close).after(ms(2)),
            Answer::headers().data(half.clone()).then_close(close).after(ms(3)),
        ]);
        let seen = Client::of(&server).await.unary("x").await;
        assert_eq!(seen.headers.as_ref().unwrap().0, ms(0));
        assert!(seen.error.unwrap().is_io());
        let seen = Client::of(&server).await.unary("x").await;
        assert_eq!((seen.data, seen.ended), (half.clone(), ms(3)));
        assert!(seen.error.unwrap().is_io());
    }
}

#[tokio::test(start_paused = true)]
async fn hang_ends_on_a_client_reset() {
    let server = serve([Answer::hang(), Answer::headers()]);
    let mut client = Client::of(&server).await;
    for (sent_headers, moment) in [(false, ms(30)), (true, ms(60))] {
        let mut call = client.begin(&[], false).await.unwrap();
        call.request.send_data(message("x"), true).unwrap();
        let early = tokio::time::timeout(ms(30), call.seen()).await;
        assert!(early.is_err(), "nothing ends it: {sent_headers}");
        server.idle().await;
        let record = server.record();
        let stream = record.streams.last().unwrap();
        // Dropping everything that a client holds of a stream resets it.
        assert_eq!(stream.reset.unwrap().reason, Reason::CANCEL);
        assert_eq!(stream.reset.unwrap().at, moment);
        assert_eq!(stream.end.unwrap().outcome, StreamOutcome::ResetByClient(Reason::CANCEL));
    }
}

#[tokio::test(start_paused = true)]
async fn early_answer_stops_the_client_without_an_error() {
    let server = serve(Answer::trailers_only(StatusNumber::ABORTED).wait_for(WaitFor::Headers));
    let mut client = Client::of(&server).await;
    let mut call = client.begin(&[], false).await.unwrap();
    let response = call.response.await.unwrap();
    assert_eq!(response.headers()["grpc-status"], "10");
    let reset = std::future::poll_fn(|cx| call.request.poll_reset(cx)).await;
    assert_eq!(reset.unwrap(), Reason::NO_ERROR);
    let record = server.shutdown().await;
    assert_eq!(
        record.streams[0].end.unwrap().outcome,
        StreamOutcome::Answered(Some(StatusNumber::ABORTED))
    );
    assert_eq!(record.streams[0].half_closed, None);
}

#[tokio::test(start_paused = true)]
async fn goaway_above_own_stream_still_allows_an_answer() {
    let answer = Answer::go_away(LastStream::Below, Reason::NO_ERROR);
    let server =
        serve([Answer::hang(), answer.then_headers().trailers(StatusNumber::OK).after(ms(5))]);
    let mut client = Client::of(&server).await;
    // It keeps the connection open.
    let below = client.begin(&[], true).await.unwrap();
    assert!(client.unary("x").await.error.unwrap().is_go_away());
    let record = server.until(|record| record.streams[1].end.is_some()).await;
    let unknown = StreamOutcome::ResetByClient(Reason::STREAM_CLOSED);
    assert_eq!(record.streams[1].end.unwrap().outcome, unknown, "the headers came");
    drop(below);
}

#[tokio::test(start_paused = true)]
async fn goaway_stream_does_not_outlive_its_connection() {
    let answer = Answer::go_away(LastStream::Below, Reason::NO_ERROR);
    let server = serve(answer.then_headers().trailers(StatusNumber::OK).after(ms(5)));
    let mut client = Client::of(&server).await;
    assert!(client.unary("x").await.error.unwrap().is_go_away());
    // Without a stream the client disconnects.
    server.idle().await;
    assert_eq!(
        server.record().streams[0].end.unwrap().outcome,
        StreamOutcome::GoneAway(Reason::NO_ERROR)
    );
    assert_eq!(server.record().streams[0].end.unwrap().at, ms(0));
}

#[tokio::test(start_paused = true)]
async fn step_after_the_end_of_time_never_runs() {
    let server = serve(Answer::trailers_only(StatusNumber::OK).after(std::time::Duration::MAX));
    let mut client = Client::of(&server).await;
    let call = client.unary("x");
    assert!(tokio::time::timeout(ms(1 << 40), call).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn shutdown_does_not_wait_for_a_client_that_stops_reading() {
    let server = Server::new([Answer::reply(vec![1; 50_000])]).pipe_bytes(256).on_pipe();
    let mut client = Client::over(stuck(server.connect().await.unwrap(), 1000)).await;
    let mut call = client.begin(&[], false).await.unwrap();
    call.request.send_data(message("x"), true).unwrap();
    let call = tokio::spawn(call.seen());
    server.until(|record| record.streams.first().is_some_and(|it| it.half_closed.is_some())).await;
    let record = tokio::time::timeout(ms(10_000), server.shutdown()).await.unwrap();
    assert_eq!(record.streams[0].end.unwrap().outcome, StreamOutcome::Closed);
    assert!(!call.is_finished());
}

#[tokio::test(start_paused = true)]
async fn goaway_is_not_followed_by_frames_of_its_stream() {
    let below = Answer::go_away(LastStream::Below, Reason::NO_ERROR).after(ms(1));
    let server = serve([Answer::hang(), below]);
    let (pipe, sent) = recorded(server.connect().await.unwrap());
    let mut client = Client::over(pipe).await;
    let hanging = client.begin(&[], true).await.unwrap();
    let gone = client.begin(&[], false).await.unwrap();
    assert!(gone.seen().await.error.unwrap().is_go_away());
    tokio::time::sleep(ms(10)).await;
    let (window_update, goaway) = (8, 7);
    let frames = frames(&sent);
    let of_it: Vec<_> = frames.iter().filter(|(_, stream)| *stream == 3).collect();
    assert_eq!(of_it, [&(window_update, 3)], "no reset: {frames:?}");
    assert_eq!(frames.iter().filter(|(kind, _)| *kind == goaway).count(), 1);
    drop(hanging);
}
