//! The record of streams and connections.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use h2::Reason;
use redial_faults::grpc::{
    Answer, CALLS_MAX, Script, Server, StatusNumber, StreamOutcome, WaitFor,
};

use super::raw::{Client, message, ms, serve};

#[tokio::test(start_paused = true)]
async fn record_has_everything_the_client_sent() {
    let server = serve(Script::new().default_answer(Answer::reply("x").wait_for(WaitFor::Request)));
    tokio::time::sleep(ms(40)).await;
    let mut client = Client::of(&server).await;
    let fields = [
        ("grpc-previous-rpc-attempts", "2"),
        ("grpc-timeout", "1500m"),
        ("te", "trailers"),
        ("x-redial-call", "seven"),
        ("detail", "a"),
        ("detail", "b"),
    ];
    let mut call = client.begin(&fields, false).await.unwrap();
    tokio::time::sleep(ms(1)).await;
    call.request.send_data(message("ab"), false).unwrap();
    call.request.send_data(message("c"), true).unwrap();
    call.seen().await;
    let record = server.record();
    let [stream] = &record.streams[..] else { panic!("{record:?}") };
    assert_eq!((stream.messages, stream.bytes), (2, 13));
    assert_eq!(stream.payloads, ["ab", "c"]);
    assert_eq!(stream.half_closed, Some(ms(41)));
    assert_eq!((stream.number, stream.connection, stream.id), (1, 1, 1));
    assert_eq!((stream.call.as_deref(), stream.attempt), (Some("seven"), Some(1)));
    assert_eq!((stream.arrived, stream.path.as_str()), (ms(40), "/echo.Echo/Get"));
    assert_eq!(stream.previous_attempts(), Some(2));
    assert_eq!(stream.timeout(), Some(ms(1500)));
    assert_eq!(stream.headers.get_all("detail").iter().collect::<Vec<_>>(), ["a", "b"]);
    assert!(!stream.scripted, "the call has a name that the script does not know");
    assert_eq!(stream.reset, None);
    assert_eq!((record.connections[0].opened, record.connections[0].closed), (ms(40), None));
}

#[test]
fn record_parses_grpc_timeout_and_attempt_headers() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        let cases = [
            ("99999999H", Some(Duration::from_secs(99_999_999 * 3600))),
            ("2M", Some(Duration::from_secs(120))),
            ("3S", Some(Duration::from_secs(3))),
            ("4m", Some(ms(4))),
            ("5u", Some(Duration::from_micros(5))),
            ("6n", Some(Duration::from_nanos(6))),
            ("100000000n", None),
            ("5", None),
            ("m", None),
            ("+5m", None),
            ("5 m", None),
            ("5s", None),
        ];
        let server = serve(Script::new().default_answer(Answer::trailers_only(StatusNumber::OK)));
        let mut client = Client::of(&server).await;
        for (text, _) in cases {
            client
                .unary_with(&[("grpc-timeout", text), ("grpc-previous-rpc-attempts", text)], "")
                .await;
        }
        client.unary_with(&[("grpc-timeout", "1S"), ("grpc-timeout", "2S")], "").await;
        let record = server.shutdown().await;
        for (stream, (text, expected)) in record.streams.iter().zip(cases) {
            assert_eq!(stream.timeout(), expected, "{text}");
            assert_eq!(stream.previous_attempts(), text.parse().ok().filter(|_| text == "5"));
        }
        assert_eq!(record.streams.last().unwrap().timeout(), None, "it is there twice");
    });
}

#[tokio::test(start_paused = true)]
async fn record_half_close_has_its_time() {
    let server = serve(Answer::reply("x").after(ms(100)));
    let mut client = Client::of(&server).await;
    let mut call = client.begin(&[], false).await.unwrap();
    call.request.send_data(message("a"), false).unwrap();
    tokio::time::sleep(ms(30)).await;
    assert_eq!(server.record().streams[0].half_closed, None);
    call.request.send_data(Bytes::new(), true).unwrap();
    call.seen().await;
    assert_eq!(server.record().streams[0].half_closed, Some(ms(30)));
}

#[tokio::test(start_paused = true)]
async fn record_client_reset_has_code_and_time() {
    let server = serve([Answer::reply("x").after(ms(100)), Answer::headers().after(ms(1))]);
    let mut client = Client::of(&server).await;
    for (start, code) in [(0, Reason::CANCEL), (20, Reason::from(77))] {
        let mut call = client.begin(&[], false).await.unwrap();
        call.request.send_data(message("a"), false).unwrap();
        tokio::time::sleep(ms(20)).await;
        call.request.send_reset(code);
        server.idle().await;
        let record = server.record();
        let stream = record.streams.last().unwrap();
        let reset = stream.reset.unwrap();
        assert_eq!((reset.at, reset.reason), (ms(start + 20), code));
        assert_eq!((stream.messages, stream.half_closed), (1, None));
        assert_eq!(stream.end.unwrap().outcome, StreamOutcome::ResetByClient(code));
    }
}

#[tokio::test(start_paused = true)]
async fn record_client_disconnect_ends_its_streams() {
    let server = serve(Answer::hang());
    let mut client = Client::of(&server).await;
    let call = client.begin(&[], true).await.unwrap();
    server.until(|record| record.counts.streams_open == 1).await;
    tokio::time::sleep(ms(9)).await;
    client.connection.abort();
    server.idle().await;
    drop(call);
    let record = server.until(|record| record.counts.connections_open == 0).await;
    assert_eq!(record.streams[0].end.unwrap().outcome, StreamOutcome::ClosedByClient);
    assert_eq!(record.connections[0].closed, Some(ms(9)));
}

#[tokio::test(start_paused = true)]
async fn script_named_calls_use_their_own_answers() {
    let status = |code| Answer::trailers_only(code);
    let script = Script::new()
        .attempts([status(StatusNumber(1)), status(StatusNumber(2))])
        .call("a", [status(StatusNumber(3)), status(StatusNumber(4))])
        .call("ü b", [status(StatusNumber(5))])
        .default_answer(status(StatusNumber(9)));
    let server = serve(script);
    let mut client = Client::of(&server).await;
    let mut statuses = Vec::new();
    for call in [None, Some("a"), Some("ü b"), Some("a"), None, Some("a"), None, Some("new")] {
        let fields: Vec<_> = call.map(|name| ("x-redial-call", name)).into_iter().collect();
        let seen = client.unary_with(&fields, "").await;
        statuses.push(seen.header("grpc-status").unwrap().to_owned());
    }
    assert_eq!(statuses, ["1", "3", "5", "4", "2", "9", "9", "9"]);
    let record = server.shutdown().await;
    let scripted: Vec<_> =
        record.streams.iter().map(|it| (it.attempt.unwrap(), it.scripted)).collect();
    let expected =
        [(1, true), (1, true), (1, true), (2, true), (2, true), (3, false), (3, false), (1, false)];
    assert_eq!(scripted, expected);
    assert_eq!(record.counts.streams_unscripted, 3);
}

#[tokio::test(start_paused = true)]
async fn script_answers_can_be_added_at_run_time() {
    let server = serve(Script::new());
    let mut client = Client::of(&server).await;
    assert_eq!(client.unary("x").await.header("grpc-message"), Some("unscripted attempt"));
    server.attempts([Answer::trailers_only(StatusNumber::ABORTED)]);
    assert_eq!(client.unary("x").await.header("grpc-status"), Some("10"));
}

#[tokio::test(start_paused = true)]
async fn script_names_over_the_limit_share_one_count() {
    let mut script = Script::new().default_answer(Answer::trailers_only(StatusNumber::OK));
    for number in 0..CALLS_MAX - 1 {
        script = script.call(&number.to_string(), []);
    }
    let server = serve(script);
    let mut client = Client::of(&server).await;
    for name in ["last", "over", "last", "more"] {
        client.unary_with(&[("x-redial-call", name)], "").await;
    }
    let record = server.shutdown().await;
    let attempts: Vec<_> = record.streams.iter().map(|it| it.attempt.unwrap()).collect();
    assert_eq!(attempts, [1, 1, 2, 2]);
}

#[tokio::test(start_paused = true)]
async fn record_drops_the_oldest_ended_streams() {
    let script = Script::new()
        .attempts([Answer::hang()])
        .default_answer(Answer::trailers_only(StatusNumber::OK));
    let server = Server::new(script).streams_kept(3).on_pipe();
    let mut client = Client::of(&server).await;
    let hanging = client.begin(&[], true).await.unwrap();
    for _ in 0..2 {
        client.unary("x").await;
    }
    assert_eq!(server.record().streams.len(), 3);
    client.unary("x").await;
    let record = server.record();
    let numbers: Vec<_> = record.streams.iter().map(|it| it.number).collect();
    assert_eq!(numbers, [1, 3, 4], "what is open stays");
    assert_eq!((record.counts.streams, record.counts.streams_open), (4, 1));
    drop(hanging);
}

#[tokio::test(start_paused = true)]
async fn record_drops_the_oldest_closed_connections() {
    let server = Server::new(Script::new()).streams_kept(2).on_pipe();
    let open = server.connect().await.unwrap();
    for number in 2..5 {
        drop(server.connect().await.unwrap());
        server.until_counts(|counts| counts.connections_open == 1).await;
        let numbers: Vec<_> = server.record().connections.iter().map(|it| it.number).collect();
        assert_eq!(numbers, [1, number], "what is open stays");
    }
    assert_eq!(server.counts().connections, 4);
    drop(open);
}

#[tokio::test(start_paused = true)]
async fn record_digest_covers_payloads_over_the_limit() {
    let script = Script::new().default_answer(Answer::trailers_only(StatusNumber::OK));
    let server = Server::new(script).payload_bytes_kept(4).on_pipe();
    let mut client = Client::of(&server).await;
    for payload in ["1234", "12345", "12345", "12346"] {
        client.unary(payload).await;
    }
    let record = server.shutdown().await;
    let kept: Vec<_> = record.streams.iter().map(|it| it.payloads.len()).collect();
    assert_eq!(kept, [1, 0, 0, 0]);
    assert_eq!(record.streams[1].digest, record.streams[2].digest);
    assert_ne!(record.streams[2].digest, record.streams[3].digest);
}

#[tokio::test(start_paused = true)]
async fn record_callback_runs_for_each_ended_stream() {
    let reported = Arc::new(Mutex::new(Vec::new()));
    let sink = reported.clone();
    let server = Server::new([Answer::hang(), Answer::reply("x")])
        .on_end(move |stream| {
            sink.lock().unwrap().push((stream.number, stream.end.unwrap().outcome));
        })
        .on_pipe();
    let mut client = Client::of(&server).await;
    let hanging = client.begin(&[], true).await.unwrap();
    client.unary("x").await;
    drop(hanging);
    server.idle().await;
    let expected = [
        (2, StreamOutcome::Answered(Some(StatusNumber::OK))),
        (1, StreamOutcome::ResetByClient(Reason::CANCEL)),
    ];
    assert_eq!(*reported.lock().unwrap(), expected);
}

#[tokio::test(start_paused = true)]
async fn record_counts_are_exact_under_load() {
    let server = serve(Script::new().default_answer(Answer::reply("x").after(ms(7))));
    let mut client = Client::of(&server).await;
    for _ in 0..1000 {
        assert_eq!(client.unary("x").await.ended, ms(7));
    }
    let mut calls = Vec::new();
    for _ in 0..50 {
        let mut call = client.begin(&[], false).await.unwrap();
        call.request.send_data(message("x"), true).unwrap();
        calls.push(tokio::spawn(call.seen()));
    }
    for call in calls {
        assert_eq!(call.await.unwrap().ended, ms(7));
    }
    server.idle().await;
    let record = server.shutdown().await;
    assert_eq!(record.counts.streams, 1050);
    assert!(record.streams.iter().all(|it| it.messages == 1 && it.half_closed == Some(it.arrived)));
}
