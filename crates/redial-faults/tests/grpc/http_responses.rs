//! HTTP responses that are not gRPC, as from proxies and misconfigured servers.

use http::StatusCode;
use redial_faults::grpc::{Answer, Reason, StatusNumber, StreamOutcome};

use super::raw::{Client, message, ms, serve};

#[tokio::test(start_paused = true)]
async fn http_response_has_status_type_and_body() {
    for status in [404, 503, 200, 429, 302] {
        let status = StatusCode::from_u16(status).unwrap();
        let server = serve(Answer::http(status, "text/html", "<h1>no</h1>").after(ms(4)));
        let seen = Client::of(&server).await.unary("x").await;
        assert_eq!(seen.headers.as_ref().unwrap().1, status);
        assert_eq!(seen.header("content-type"), Some("text/html"));
        assert_eq!(seen.header("grpc-status"), None);
        assert_eq!(seen.data, "<h1>no</h1>");
        assert!(seen.trailers.is_none() && seen.error.is_none());
        assert_eq!(seen.ended, ms(4));
        assert_eq!(server.record().streams[0].end.unwrap().outcome, StreamOutcome::Answered(None));
    }
}

#[tokio::test(start_paused = true)]
async fn http_response_can_be_headers_only_without_a_type() {
    let server = serve(Answer::http_empty(StatusCode::BAD_GATEWAY));
    let seen = Client::of(&server).await.unary("x").await;
    assert_eq!(seen.headers.as_ref().unwrap().1, StatusCode::BAD_GATEWAY);
    assert_eq!((seen.only, seen.header("content-type")), (true, None));
}

#[tokio::test(start_paused = true)]
async fn http_content_type_can_be_missing_or_different() {
    let server = serve([
        Answer::trailers_only(StatusNumber::OK).without("content-type"),
        Answer::headers()
            .without("content-type")
            .metadata("content-type", "application/json")
            .trailers(StatusNumber::OK),
    ]);
    let mut client = Client::of(&server).await;
    assert_eq!(client.unary("x").await.header("content-type"), None);
    assert_eq!(client.unary("x").await.header("content-type"), Some("application/json"));
}

#[tokio::test(start_paused = true)]
async fn http_trailers_status_can_be_missing_or_invalid() {
    let server = serve([
        Answer::headers().message("x").trailers(StatusNumber::OK).without("grpc-status"),
        Answer::headers()
            .trailers(StatusNumber::OK)
            .without("grpc-status")
            .metadata("grpc-status", "many"),
        Answer::headers().trailers(StatusNumber(99)),
        Answer::headers().message("x").then_end_stream(),
    ]);
    let mut client = Client::of(&server).await;
    let seen = client.unary("x").await;
    assert!(seen.trailers.is_none_or(|trailers| trailers.is_empty()));
    assert_eq!(seen.data, message("x"));
    assert_eq!(client.unary("x").await.trailer("grpc-status"), Some("many"));
    assert_eq!(client.unary("x").await.trailer("grpc-status"), Some("99"));
    let seen = client.unary("x").await;
    assert!(seen.trailers.is_none() && seen.error.is_none() && !seen.data.is_empty());
    let record = server.shutdown().await;
    let ends: Vec<_> = record.streams.iter().map(|stream| stream.end.unwrap().outcome).collect();
    let answered = |code| StreamOutcome::Answered(code);
    assert_eq!(
        ends,
        [answered(None), answered(None), answered(Some(StatusNumber(99))), answered(None)]
    );
}

#[tokio::test(start_paused = true)]
async fn http_reset_no_error_can_replace_trailers() {
    let server = serve(Answer::headers().message("x").then_reset(Reason::NO_ERROR));
    let seen = Client::of(&server).await.unary("x").await;
    assert_eq!(seen.data, message("x"));
    assert_eq!((seen.reason(), seen.trailers), (Some(Reason::NO_ERROR), None));
}
