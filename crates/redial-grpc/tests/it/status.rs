//! The final status: Trailers-Only, status after headers, and responses that are not gRPC (decisions G3, G6,
//! G7 and G10).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::StatusCode;
use redial::StopReason;
use redial_echo::echo_client::EchoClient;
use redial_faults::grpc::{Answer, Close, Reason, Server, StatusNumber};
use redial_grpc::Retries;
use tonic::{Code, Status};
use tower::{Layer as _, Service};

use crate::common::harness::{Harness, RETRY, busy, layer, message, ms, within};

/// hyper reports `RST_STREAM(NO_ERROR)` as a regular end of the body. Without a status the call has failed.
#[tokio::test(start_paused = true)]
async fn status_missing_after_rst_no_error_is_a_failure() {
    let cut = Answer::headers().message("").then_reset(Reason::NO_ERROR);
    let mut harness =
        Harness::new(RETRY, [Answer::trailers_only(StatusNumber::UNAVAILABLE), cut.clone()]);
    let outcome = harness.call().await;
    assert_eq!((outcome.code(), outcome.end().0), (Code::Unknown, StopReason::NotRetryable));
    assert_eq!(harness.tokens(), 9_000, "a success would have added a token");
    let mut harness = Harness::new(RETRY, [cut]);
    let mut stream = harness.client.server_stream(message("x")).await.unwrap().into_inner();
    assert!(stream.message().await.unwrap().is_some());
    assert_eq!(stream.message().await.unwrap_err().code(), Code::Unknown);
}

/// A policy with this list of codes.
fn listing(codes: &str) -> String {
    RETRY.replace(r#"["UNAVAILABLE"]"#, codes)
}

#[tokio::test(start_paused = true)]
async fn status_of_the_last_failure_is_unchanged() {
    let last = busy()
        .text("100 % busy\u{e9}")
        .metadata("who", "me")
        .metadata("who", "and I")
        .metadata("raw-bin", "AAEC")
        .metadata("grpc-status-details-bin", "CAM");
    let mut harness = Harness::new(RETRY, [busy().text("first"), busy().text("second"), last]);
    let outcome = harness.call().await;
    let status = outcome.status();
    assert_eq!((status.code(), status.message()), (Code::Unavailable, "100 % busy\u{e9}"));
    let who: Vec<_> = status.metadata().get_all("who").iter().collect();
    assert_eq!(who, ["me", "and I"]);
    let raw = status.metadata().get_bin("raw-bin").unwrap().to_bytes().unwrap();
    assert_eq!(raw, &[0_u8, 1, 2][..]);
    assert_eq!(status.details(), [8, 3]);
    assert_eq!(outcome.previous_attempts_header().as_deref(), Some("2"));
    assert_eq!(
        (outcome.end().0, outcome.starts()),
        (StopReason::AttemptsExhausted, vec![0, 50, 150])
    );
}

#[tokio::test(start_paused = true)]
async fn status_in_headers_is_trailers_only_without_end_stream_too() {
    let open = busy().without_end_stream();
    let mut harness = Harness::new(RETRY, [open.clone(), open.clone(), open.text("third")]);
    let outcome = harness.call().await;
    assert_eq!((outcome.code(), outcome.status().message()), (Code::Unavailable, "third"));
    assert_eq!((outcome.starts(), harness.tokens()), (vec![0, 50, 150], 7_000));
    harness.server.idle().await;
    // Failed streams are reset as soon as they are classified, not at the end of the call.
    let resets =
        harness.server.record().streams.iter().map(|it| it.reset.unwrap().at).collect::<Vec<_>>();
    assert_eq!(resets, [ms(0), ms(50), ms(150)]);
}

/// tonic panics on details that are not base64, so the layer drops them. With retries disabled and no call
/// log the response passes through unchanged.
#[tokio::test(start_paused = true)]
async fn status_details_that_do_not_decode_are_dropped() {
    const DETAILS: &str = "grpc-status-details-bin";
    let begun = || Answer::headers().message("").trailers(StatusNumber::ABORTED);
    let ok = || Answer::headers().message("").trailers(StatusNumber::OK);
    let open = || Answer::trailers_only(StatusNumber::ABORTED).without_end_stream();
    let answers = [Answer::trailers_only(StatusNumber::ABORTED), open(), begun(), ok()];
    for answer in answers {
        for retries in [Retries::All, Retries::Transparent, Retries::Off] {
            for fields in [RETRY, ""] {
                for (details, kept) in [("CAM", &[8, 3][..]), ("CAM=", &[8, 3]), ("!garbage!", &[])]
                {
                    let answer = answer.clone().metadata(DETAILS, details).metadata("who", "me");
                    let layer = layer(fields).retries(retries).build();
                    // With a call log the layer reads the response even without retries.
                    let outcome = Harness::with_layer(layer, Server::new([answer])).call().await;
                    let Err(status) = outcome.result else { continue };
                    assert_eq!((status.code(), status.details()), (Code::Aborted, kept));
                    assert_eq!(status.metadata().get("who").unwrap(), "me");
                }
            }
        }
    }
}

/// The application gets the status that the layer used to classify the call; tonic alone would try to
/// decode the body.
#[tokio::test(start_paused = true)]
async fn status_of_non_grpc_response_follows_http_mapping() {
    let html =
        |status| Answer::http(StatusCode::from_u16(status).unwrap(), "text/html", "<h1>no</h1>");
    let table = [
        (html(400), Code::Internal, "INTERNAL"),
        (html(401), Code::Unauthenticated, "UNAUTHENTICATED"),
        (html(403), Code::PermissionDenied, "PERMISSION_DENIED"),
        (html(404), Code::Unimplemented, "UNIMPLEMENTED"),
        (html(429), Code::Unavailable, "UNAVAILABLE"),
        (html(502), Code::Unavailable, "UNAVAILABLE"),
        (html(503), Code::Unavailable, "UNAVAILABLE"),
        (html(504), Code::Unavailable, "UNAVAILABLE"),
        (html(500), Code::Unknown, "UNKNOWN"),
        (html(200), Code::Unknown, "UNKNOWN"),
        (Answer::http_empty(StatusCode::NOT_FOUND), Code::Unimplemented, "UNIMPLEMENTED"),
        (Answer::http_empty(StatusCode::OK), Code::Unknown, "UNKNOWN"),
        (
            Answer::headers().without("content-type").message("").trailers(StatusNumber::OK),
            Code::Unknown,
            "UNKNOWN",
        ),
    ];
    for (answer, code, name) in table {
        let mut harness =
            Harness::new(&listing(r#"["ABORTED"]"#), [answer.clone().metadata("via", "proxy")]);
        let outcome = harness.call().await;
        assert_eq!(
            (outcome.code(), outcome.end().0),
            (code, StopReason::NotRetryable),
            "{answer:?}"
        );
        let text = outcome.status().message();
        assert!(text.starts_with("not a gRPC response: HTTP "), "{text}");
        assert_eq!((harness.tokens(), outcome.starts()), (10_000, vec![0]), "{answer:?}");

        let listed = listing(&format!(r#"["{name}"]"#));
        let mut harness = Harness::new(&listed, [answer.clone(), answer.clone(), answer.clone()]);
        let outcome = harness.call().await;
        assert_eq!(
            (outcome.code(), outcome.end().0),
            (code, StopReason::AttemptsExhausted),
            "{answer:?}"
        );
        assert_eq!(outcome.previous(), [None, Some(1), Some(2)], "{answer:?}");
        assert_eq!((harness.tokens(), harness.statistics()), (7_000, (2, 2, 0)), "{answer:?}");
        assert_eq!(outcome.previous_attempts_header().as_deref(), Some("2"));
    }
}

#[tokio::test(start_paused = true)]
async fn status_of_non_grpc_response_has_its_headers() {
    let answer =
        Answer::http_empty(StatusCode::SERVICE_UNAVAILABLE).metadata("server", "proxy/1.0");
    let mut harness = Harness::new("", [answer]);
    let outcome = harness.call().await;
    assert_eq!(outcome.status().metadata().get("server").unwrap(), "proxy/1.0");
    let text = "not a gRPC response: HTTP 503 with no content type";
    assert_eq!(outcome.status().message(), text);
}

#[tokio::test(start_paused = true)]
async fn status_header_wins_over_http_status_and_content_type() {
    let answer = |code: StatusNumber| {
        let fields = Answer::http_empty(StatusCode::INTERNAL_SERVER_ERROR);
        fields.metadata("grpc-status", code.0.to_string()).metadata("content-type", "text/html")
    };
    let mut harness =
        Harness::new(RETRY, [answer(StatusNumber::UNAVAILABLE), answer(StatusNumber::ABORTED)]);
    let outcome = harness.call().await;
    assert_eq!((outcome.code(), outcome.starts()), (Code::Aborted, vec![0, 50]));
}

#[tokio::test(start_paused = true)]
async fn status_missing_is_unknown_and_commits() {
    let unknown = listing(r#"["UNKNOWN"]"#);
    for answer in [
        Answer::headers().message("").trailers(StatusNumber::OK).without("grpc-status"),
        Answer::headers().message("").then_end_stream(),
        Answer::headers().then_end_stream(),
        Answer::headers().message("").then_reset(Reason::NO_ERROR),
    ] {
        let mut harness = Harness::new(&unknown, [answer.clone()]);
        let outcome = harness.call().await;
        assert_eq!(
            (outcome.code(), outcome.end().0),
            (Code::Unknown, StopReason::Committed),
            "{answer:?}"
        );
        assert_eq!((outcome.starts(), harness.tokens()), (vec![0], 9_000), "{answer:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn status_is_the_same_with_and_without_call_log() {
    let html =
        |status| Answer::http(StatusCode::from_u16(status).unwrap(), "text/html", "<h1>no</h1>");
    let begun = || Answer::headers().message("");
    let answers = [
        html(200),
        html(400),
        html(404),
        html(429),
        html(500),
        html(503),
        Answer::http_empty(StatusCode::OK),
        Answer::http_empty(StatusCode::BAD_GATEWAY),
        Answer::headers().without("content-type").message("").trailers(StatusNumber::OK),
        Answer::headers().then_end_stream(),
        begun().then_end_stream(),
        begun().trailers(StatusNumber::OK).without("grpc-status"),
        begun().trailers(StatusNumber::ABORTED).text("late"),
        busy().text("busy").metadata("who", "me"),
        busy().without_end_stream(),
        Answer::trailers_only(StatusNumber(99)),
        begun().trailers(StatusNumber(-1)),
        Answer::reset(Reason::CANCEL),
        Answer::reset(Reason::INTERNAL_ERROR),
        Answer::reset(Reason::ENHANCE_YOUR_CALM),
        begun().then_reset(Reason::REFUSED_STREAM),
        begun().then_reset(Reason::CANCEL),
        begun().then_reset(Reason::NO_ERROR),
        begun().then_reset(Reason::ENHANCE_YOUR_CALM),
        begun().then_reset(Reason::INADEQUATE_SECURITY),
        begun().then_close(Close::Graceful),
    ];
    for answer in answers {
        for retries in [Retries::Transparent, Retries::Off] {
            let layer = layer("").retries(retries).build();
            let mut harness =
                Harness::with_layer(layer, Server::new([answer.clone(), answer.clone()]));
            let watched = harness.call().await;
            let unwatched = harness.client.unary(message("")).await.expect_err("it failed");
            let look = |status: &Status| {
                let metadata: Vec<_> =
                    status.metadata().clone().into_headers().into_iter().collect();
                (status.code(), status.message().to_owned(), format!("{metadata:?}"))
            };
            assert_eq!(look(watched.status()), look(&unwatched), "{retries:?} {answer:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn status_after_headers_is_returned_and_counted() {
    let after = |code| Answer::headers().message("").trailers(code);
    for (code, stop_reason, tokens) in [
        (StatusNumber::UNAVAILABLE, StopReason::Committed, 9_000),
        (StatusNumber::ABORTED, StopReason::NotRetryable, 10_000),
    ] {
        let mut harness = Harness::new(RETRY, [after(code).text("late")]);
        let outcome = harness.call().await;
        assert_eq!((outcome.end().0, harness.tokens()), (stop_reason, tokens));
        assert_eq!((outcome.status().message(), outcome.starts()), ("late", vec![0]));
    }
}

#[tokio::test(start_paused = true)]
async fn status_ok_in_trailers_only_counts_as_success() {
    let mut harness = Harness::new(RETRY, [busy(), Answer::trailers_only(StatusNumber::OK)]);
    let answer = harness.client.server_stream(message("x")).await.unwrap();
    assert_eq!(answer.metadata().get("grpc-previous-rpc-attempts").unwrap(), "1");
    assert_eq!(answer.into_inner().message().await.unwrap(), None);
    assert_eq!(harness.tokens(), 9_100);
}

/// An inner service whose error is a status.
#[derive(Clone)]
struct Refusing(Status, Arc<AtomicU32>);

impl Service<http::Request<tonic::body::Body>> for Refusing {
    type Response = http::Response<tonic::body::Body>;
    type Error = Status;
    type Future = std::future::Ready<Result<http::Response<tonic::body::Body>, Status>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _request: http::Request<tonic::body::Body>) -> Self::Future {
        self.1.fetch_add(1, Ordering::Relaxed);
        std::future::ready(Err(self.0.clone()))
    }
}

/// Decision G3 also applies to a status that the inner service returns as its error.
#[tokio::test(start_paused = true)]
async fn status_returned_as_service_error_is_classified_and_unchanged() {
    for (code, attempts) in [(Code::Unavailable, 3), (Code::Aborted, 1)] {
        let mut status = Status::with_details(code, "no way", Bytes::from_static(&[1, 2]));
        status.metadata_mut().insert("who", "me".parse().unwrap());
        let calls = Arc::new(AtomicU32::new(0));
        let layer = layer(RETRY).build();
        let mut client = EchoClient::new(layer.layer(Refusing(status, calls.clone())));
        let seen = client.unary(message("x")).await.unwrap_err();
        assert_eq!(calls.load(Ordering::Relaxed), attempts);
        assert_eq!((seen.code(), seen.message(), seen.details()), (code, "no way", &[1, 2][..]));
        assert_eq!(seen.metadata().get("who").unwrap(), "me");
        let previous = seen.metadata().get("grpc-previous-rpc-attempts");
        assert_eq!(previous.map(|it| it.to_str().unwrap()), (attempts > 1).then_some("2"));
    }
}

/// Messages after such headers reach the application, and the call ends with the status of the headers
/// unless the trailers have one.
#[tokio::test(start_paused = true)]
async fn status_ok_in_headers_counts_when_the_stream_ends() {
    let open = || Answer::trailers_only(StatusNumber::OK).without_end_stream().message("");
    let unsaid = || open().trailers(StatusNumber::OK).without("grpc-status").metadata("who", "me");
    for (answer, code, tokens) in [
        (open().then_end_stream(), Code::Ok, 9_100),
        (unsaid(), Code::Ok, 9_100),
        (open().trailers(StatusNumber::OK), Code::Ok, 9_100),
        (open().trailers(StatusNumber::ABORTED), Code::Aborted, 9_000),
    ] {
        let what = format!("{answer:?}");
        let mut harness = Harness::new(RETRY, [busy(), answer]);
        let outcome = harness.call_with(within(ms(1_000))).await;
        assert_eq!(
            (outcome.code(), outcome.previous_attempts_header().as_deref()),
            (code, Some("1")),
            "{what}"
        );
        assert_eq!(harness.tokens(), tokens, "{what}");
    }
}
