//! Answers as a gRPC server gives them: Trailers-Only, headers first, messages, trailers.

use http::StatusCode;
use redial_faults::grpc::{Answer, StatusNumber, StreamOutcome};

use super::raw::{Client, message, ms, serve};

#[tokio::test(start_paused = true)]
async fn answer_trailers_only_is_one_headers_frame() {
    let answer = Answer::trailers_only(StatusNumber::UNAVAILABLE)
        .text("100 % of it\nis ü")
        .metadata("detail", "a")
        .metadata("detail", "b")
        .pushback("50")
        .after(ms(5));
    let server = serve(answer);
    let seen = Client::of(&server).await.unary("x").await;
    let (at, status, fields) = seen.headers.as_ref().unwrap();
    assert_eq!((*at, *status, seen.only), (ms(5), StatusCode::OK, true));
    assert_eq!(seen.header("content-type"), Some("application/grpc"));
    assert_eq!(seen.header("grpc-status"), Some("14"));
    assert_eq!(seen.header("grpc-message"), Some("100 %25 of it%0Ais %C3%BC"));
    assert_eq!(seen.header("grpc-retry-pushback-ms"), Some("50"));
    assert_eq!(fields.get_all("detail").iter().collect::<Vec<_>>(), ["a", "b"]);
    assert!(seen.error.is_none() && seen.trailers.is_none() && seen.data.is_empty());
    let record = server.shutdown().await;
    let [stream] = &record.streams[..] else { panic!("{record:?}") };
    assert_eq!((stream.messages, stream.bytes), (1, 6));
    assert_eq!(
        stream.end.unwrap().outcome,
        StreamOutcome::Answered(Some(StatusNumber::UNAVAILABLE))
    );
    assert_eq!(stream.end.unwrap().at, ms(5));
}

#[tokio::test(start_paused = true)]
async fn answer_steps_are_sent_at_their_times() {
    let answer = Answer::headers()
        .after(ms(2))
        .message("abc")
        .after(ms(3))
        .message("")
        .trailers(StatusNumber::INTERNAL)
        .text("late")
        .pushback("7")
        .after(ms(9));
    let server = serve(answer);
    let seen = Client::of(&server).await.unary("x").await;
    assert_eq!(seen.headers.as_ref().unwrap().0, ms(2));
    assert!(!seen.only);
    assert_eq!(seen.header("grpc-status"), None);
    assert_eq!(seen.data, [message("abc"), message("")].concat());
    assert_eq!(seen.trailer("grpc-status"), Some("13"));
    assert_eq!(seen.trailer("grpc-message"), Some("late"));
    assert_eq!(seen.trailer("grpc-retry-pushback-ms"), Some("7"));
    assert_eq!(seen.ended, ms(9));
}

#[tokio::test(start_paused = true)]
async fn answer_echo_returns_each_message_at_once() {
    let server = serve(Answer::echo());
    let mut client = Client::of(&server).await;
    let mut call = client.begin(&[], false).await.unwrap();
    for payload in ["one", "", "three"] {
        call.request.send_data(message(payload), false).unwrap();
    }
    call.request.send_data(bytes::Bytes::new(), true).unwrap();
    let seen = call.seen().await;
    assert_eq!(seen.data, [message("one"), message(""), message("three")].concat());
    assert_eq!(seen.trailer("grpc-status"), Some("0"));
    let record = server.record();
    assert_eq!(record.streams[0].payloads, [&b"one"[..], b"", b"three"]);
}

#[test]
#[should_panic(expected = "the stream has ended already")]
fn answer_invalid_script_does_not_start_a_server() {
    let _ =
        redial_faults::grpc::Server::new([Answer::trailers_only(StatusNumber::OK).message("x")]);
}

#[tokio::test]
#[should_panic(expected = "response headers come before messages and trailers")]
async fn answer_invalid_steps_are_not_added() {
    serve(redial_faults::grpc::Script::new()).attempts([Answer::hang().message("x")]);
}

#[test]
#[should_panic(expected = "a header value has no control characters")]
fn answer_invalid_metadata_is_refused() {
    let _ = Answer::trailers_only(StatusNumber::OK).pushback("a\nb");
}

#[tokio::test(start_paused = true)]
async fn answer_echo_of_a_large_message_is_resource_exhausted() {
    let server = serve([Answer::echo(), Answer::headers().echo_one().trailers(StatusNumber::OK)]);
    let mut client = Client::of(&server).await;
    let largest = "x".repeat(4 * 1024 * 1024);
    assert_eq!(client.unary(&largest).await.trailer("grpc-status"), Some("0"));
    let seen = client.unary(&format!("{largest}x")).await;
    assert_eq!(seen.trailer("grpc-status"), Some("8"));
    assert_eq!(seen.trailer("grpc-message"), Some("more than an echo can hold"));
    let record = server.shutdown().await;
    let how = StreamOutcome::Answered(Some(StatusNumber::RESOURCE_EXHAUSTED));
    assert_eq!(
        record.streams[1].end.unwrap().outcome,
        how,
        "the script's own trailers do not follow"
    );
}

#[tokio::test(start_paused = true)]
async fn answer_without_delay_follows_the_request_of_that_instant() {
    let server = serve(vec![Answer::trailers_only(StatusNumber::ABORTED); 2]);
    let mut client = Client::of(&server).await;
    assert_eq!(client.unary("whole").await.ended, ms(0));
    let mut call = client.begin(&[], false).await.unwrap();
    for payload in ["one", "two"] {
        call.request.send_data(message(payload), false).unwrap();
    }
    assert_eq!(call.seen().await.ended, ms(0), "a request that has not ended is not waited for");
    let record = server.shutdown().await;
    assert_eq!(
        (&record.streams[0].payloads[..], record.streams[0].half_closed),
        (&["whole".into()][..], Some(ms(0)))
    );
    assert_eq!((record.streams[1].messages, record.streams[1].half_closed), (2, None));
}
