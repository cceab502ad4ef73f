//! Status codes, delays, texts, saved requests and log lines.

use std::sync::{Arc, Mutex};

use redial_faults::grpc::{Answer, Reason, StatusNumber, StreamOutcome};
use redial_milvus::{Code, IGNORED_CODES, Options};
use tonic::Request;
use tonic::codegen::http::StatusCode;
use tonic::metadata::MetadataValue;

use super::*;

#[tokio::test(start_paused = true)]
async fn layer_waits_20_40_80_ms_and_reports_exhausted_retries() {
    let (mut client, server) = client(Options::DEFAULT, [busy(), busy(), busy(), busy()]);
    let status = search(&mut client).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::Unavailable);
    assert_eq!(status.message(), "busy (retried 3 times, 140ms)");
    assert_eq!(arrivals(&server), [0, 20, 60, 140]);
}

#[tokio::test(start_paused = true)]
async fn layer_sends_message_and_metadata_unchanged() {
    let answer = Answer::echo();
    let (mut client, server) = client(Options::DEFAULT, [busy(), busy(), answer]);
    let mut request = Request::new(Bytes::from_static(b"rows"));
    request.metadata_mut().insert("dbname", "default".parse().unwrap());
    let unixmsec = "1700000000000".parse().unwrap();
    request.metadata_mut().insert("client-request-unixmsec", unixmsec);
    let binary = MetadataValue::from_bytes(&[0, 255]);
    request.metadata_mut().insert_bin("token-bin", binary);
    assert_eq!(unary(&mut client, "Query", request).await.unwrap(), "rows");
    let record = server.record();
    assert_eq!(record.streams.len(), 3);
    for stream in &record.streams {
        assert_eq!(stream.payloads, ["rows"]);
        assert_eq!(stream.path, "/milvus.proto.milvus.MilvusService/Query");
        assert!(stream.half_closed.is_some());
        assert_eq!(stream.headers, record.streams[0].headers);
        assert_eq!(stream.headers["client-request-unixmsec"], "1700000000000");
    }
}

#[tokio::test(start_paused = true)]
async fn layer_retries_exactly_the_codes_outside_the_ignore_list() {
    for code in Code::ALL {
        if code == Code::Ok {
            continue;
        }
        let failure = Answer::trailers_only(StatusNumber::from(code)).text("boom");
        let (mut client, server) = client(Options::DEFAULT, [failure, Answer::echo()]);
        let result = search(&mut client).await;
        if IGNORED_CODES.contains(&code) {
            let status = result.unwrap_err();
            assert_eq!(status.message(), "boom");
            assert_eq!(i64::from(status.code() as i32), i64::from(code.number()));
            assert_eq!(server.counts().streams, 1, "{code}");
        } else {
            assert_eq!(result.unwrap(), "query", "{code}");
            assert_eq!(server.counts().streams, 2, "{code}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn layer_returns_the_server_status_with_metadata_and_details() {
    let failure = || {
        Answer::trailers_only(StatusNumber::ABORTED)
            .text("100 % \u{fc}")
            .metadata("x-node", "7")
            .metadata("grpc-status-details-bin", "AAE")
    };
    let failures = [failure(), failure()];
    let (mut client, _server) = client(Options::DEFAULT.max_retries(1), failures);
    let status = search(&mut client).await.unwrap_err();
    assert_eq!(status.message(), "100 % \u{fc} (retried 1 times, 20ms)");
    assert_eq!(status.metadata().get("x-node").unwrap(), "7");
    assert_eq!(status.details(), [0, 1]);
}

#[tokio::test(start_paused = true)]
async fn layer_retries_a_status_in_the_trailers() {
    let late = || Answer::headers().message("half").trailers(StatusNumber::DATA_LOSS).text("lost");
    let (mut client_ok, server) = client(Options::DEFAULT, [late(), Answer::echo()]);
    assert_eq!(search(&mut client_ok).await.unwrap(), "query");
    assert_eq!(server.counts().streams, 2);
    let (mut client_failed, _server) = client(Options::DEFAULT.max_retries(1), [late(), late()]);
    let status = search(&mut client_failed).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::DataLoss);
    assert_eq!(status.message(), "lost (retried 1 times, 20ms)");
}

#[tokio::test(start_paused = true)]
async fn layer_leaves_the_text_alone_without_retries() {
    let (mut client, server) = client(Options::DEFAULT.max_retries(0), busy());
    let status = search(&mut client).await.unwrap_err();
    assert_eq!((status.message(), server.counts().streams), ("busy", 1));
    // A retry that ends with a code of the ignore list has no suffix either.
    let denied = Answer::trailers_only(StatusNumber::PERMISSION_DENIED).text("no");
    let (mut client, _server) = super::client(Options::DEFAULT, [busy(), denied]);
    assert_eq!(search(&mut client).await.unwrap_err().message(), "no");
}

#[tokio::test(start_paused = true)]
async fn layer_retries_transport_failures_and_http_errors() {
    let reset = Answer::reset(Reason::INTERNAL_ERROR);
    let unavailable = Answer::http_empty(StatusCode::SERVICE_UNAVAILABLE);
    let (mut client_ok, server) =
        client(Options::DEFAULT, [reset.clone(), unavailable, Answer::echo()]);
    assert_eq!(search(&mut client_ok).await.unwrap(), "query");
    assert_eq!(server.counts().streams, 3);
    let (mut client_failed, _server) =
        client(Options::DEFAULT.max_retries(1), [reset.clone(), reset]);
    let status = search(&mut client_failed).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::Internal);
    assert!(status.message().ends_with(" (retried 1 times, 20ms)"), "{status:?}");
    let (mut client_http, _server) = client(
        Options::DEFAULT.max_retries(1),
        [
            Answer::http_empty(StatusCode::SERVICE_UNAVAILABLE),
            Answer::http_empty(StatusCode::SERVICE_UNAVAILABLE),
        ],
    );
    let status = search(&mut client_http).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::Unavailable);
    let text = "HTTP status 503 Service Unavailable (retried 1 times, 20ms)";
    assert_eq!(status.message(), text);
}

#[tokio::test(start_paused = true)]
async fn layer_passes_the_channel_error_unchanged_without_retries() {
    let reset = Answer::reset(Reason::PROTOCOL_ERROR);
    let (mut with_layer, _server) = client(Options::DEFAULT.max_retries(0), reset.clone());
    let with_layer = search(&mut with_layer).await.unwrap_err();
    let server = Server::new(reset).on_pipe();
    let mut plain = Grpc::new(channel(&server));
    plain.ready().await.unwrap();
    let path = format!("{SERVICE}Search").parse().unwrap();
    let plain = plain.unary(Request::new(Bytes::from_static(b"query")), path, Raw).await;
    let plain = plain.unwrap_err();
    assert_eq!((with_layer.code(), with_layer.message()), (plain.code(), plain.message()));
    assert!(std::error::Error::source(&with_layer).is_some());
}

#[tokio::test(start_paused = true)]
async fn layer_dropped_call_is_cancelled_and_never_retried() {
    let (mut client, server) = client(Options::DEFAULT, [Answer::hang(), Answer::echo()]);
    let call = tokio::time::timeout(ms(5), search(&mut client)).await;
    assert!(call.is_err());
    server.idle().await;
    tokio::time::sleep(ms(1000)).await;
    let record = server.record();
    assert_eq!(record.streams.len(), 1);
    let outcome = record.streams[0].end.unwrap().outcome;
    assert!(matches!(outcome, StreamOutcome::ResetByClient(_)), "{outcome:?}");
    // The same between two attempts.
    let (mut client, server) = super::client(Options::DEFAULT, [busy(), Answer::echo()]);
    assert!(tokio::time::timeout(ms(5), search(&mut client)).await.is_err());
    tokio::time::sleep(ms(1000)).await;
    assert_eq!(server.counts().streams, 1);
}

#[tokio::test(start_paused = true)]
async fn layer_logs_the_lines_of_every_call() {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let sink = lines.clone();
    let interceptor = interceptor(Options::DEFAULT.max_retries(1))
        .log(move |line| sink.lock().unwrap().push(line.to_string()));
    let (mut client, _server) = client_of(interceptor.layer(), [busy(), busy()]);
    search(&mut client).await.unwrap_err();
    let lines = lines.lock().unwrap();
    let expected = [
        "[Request] Search (timeout 15000ms)",
        "[Response(0ms)] Search: UNAVAILABLE",
        "[Retry Delay 20ms] Search: after UNAVAILABLE",
        "[Retry Attempt 1/1] Search: will be sent again in 20ms",
        "[Retry Executing 1/1] Search: sent again",
        "[Response(0ms)] Search: UNAVAILABLE",
        "[Failed after retries(20ms)] Search: 1 retries made",
    ];
    assert_eq!(*lines, expected);
}
