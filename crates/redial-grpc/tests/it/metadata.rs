//! Metadata: `grpc-previous-rpc-attempts` (decision G30), and the headers that all attempts share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use redial_echo::echo_client::EchoClient;
use redial_faults::grpc::{Answer, Close, Reason, Server, StatusNumber};
use redial_grpc::{Attempts, CallOptions, Retries};
use tonic::metadata::MetadataValue;
use tonic::service::interceptor::InterceptedService;
use tonic::{Code, Request};
use tower::{Layer as _, ServiceBuilder};

use crate::common::harness::{HEDGE, Harness, RETRY, busy, channel, endpoint, layer, message, ms};
use crate::common::streaming::{
    UnaryOutcome, aborted_config, fails, four_attempts_config, harness, no_hang, pipe_channel,
    previous, replies, request, response_bytes, six_attempts_config, without_jitter,
};

// Peer test: grpc-java: updateHeaders.
#[tokio::test(start_paused = true)]
async fn metadata_of_the_application_is_unchanged_in_retries() {
    let harness = harness(&six_attempts_config(), [fails(StatusNumber::UNAVAILABLE), replies("a")]);
    let mut request = tonic::Request::new(request("x"));
    request.metadata_mut().insert("own", "1".parse().unwrap());
    request.metadata_mut().append("own", "2".parse().unwrap());
    // Only this layer may set it (G30).
    request.metadata_mut().insert("grpc-previous-rpc-attempts", "345".parse().unwrap());
    assert_eq!(harness.unary_request(request).await.code, Code::Ok);
    let record = harness.finish().await;
    assert_eq!(previous(&record), [None, Some(1)]);
    for stream in &record.streams {
        let own: Vec<_> = stream.headers.get_all("own").iter().collect();
        assert_eq!(own, ["1", "2"]);
        let all = stream.headers.get_all("grpc-previous-rpc-attempts").iter().count();
        assert_eq!(all, usize::from(stream.previous_attempts().is_some()));
    }
}

// Peer test: grpc-java: notAdd0PrevRetryAttemptsToRespHeaders.
#[tokio::test(start_paused = true)]
async fn metadata_has_no_previous_attempts_after_first_attempt() {
    let harness = harness(&six_attempts_config(), replies("a"));
    assert_eq!(harness.unary("x").await.previous, None);
    harness.finish().await;
}

// Peer test: grpc-java: addPrevRetryAttemptsToRespHeaders.
#[tokio::test(start_paused = true)]
async fn metadata_of_response_has_our_previous_attempts() {
    // The layer replaces a header of this name from the server.
    let answer = Answer::headers().metadata("grpc-previous-rpc-attempts", "3");
    let answer = answer.message(response_bytes("a")).trailers(StatusNumber::OK);
    let harness = harness(&six_attempts_config(), [fails(StatusNumber::UNAVAILABLE), answer]);
    assert_eq!(harness.unary("x").await.previous, Some(1));
    harness.finish().await;
}

// Peer test: C-core: retry_send_initial_metadata_refs.
#[tokio::test(start_paused = true)]
async fn metadata_of_the_request_is_sent_again_in_retries() {
    let harness = harness(&aborted_config(3), [fails(StatusNumber::ABORTED), replies("bar")]);
    let long = "y".repeat(1000);
    let mut request = tonic::Request::new(request("foo"));
    request.metadata_mut().insert("foo", "bar".parse().unwrap());
    request.metadata_mut().insert("x-long", long.parse().unwrap());
    request
        .metadata_mut()
        .insert_bin("x-bin", tonic::metadata::MetadataValue::from_bytes(&[0, 255]));
    assert_eq!(harness.unary_request(request).await.text, "bar");
    let record = harness.finish().await;
    for stream in &record.streams {
        assert_eq!(stream.headers["foo"], "bar");
        assert_eq!(stream.headers["x-long"], *long);
        assert_eq!(stream.headers["x-bin"], "AP8");
    }
    assert_eq!(record.streams.len(), 2);
}

// Peer test: grpc-go: TestAuthorityOverrideNotReusedAcrossAttempts.
#[tokio::test(start_paused = true)]
async fn metadata_added_below_the_layer_stays_in_its_attempt() {
    let server = Server::new([fails(StatusNumber::UNAVAILABLE), replies("a")]).on_pipe();
    let first = Arc::new(AtomicBool::new(true));
    let channel = ServiceBuilder::new()
        .layer(without_jitter(&four_attempts_config()).build())
        .map_request(move |mut request: http::Request<tonic::body::Body>| {
            if first.swap(false, Ordering::Relaxed) {
                let headers = request.headers_mut();
                headers.insert("x-picked", "the first backend".parse().unwrap());
                headers.insert("x-own", "changed below".parse().unwrap());
            }
            request
        })
        .service(pipe_channel(server.connector()));
    let mut client = EchoClient::new(channel);
    let mut request = tonic::Request::new(request("x"));
    request.metadata_mut().insert("x-own", "the application's".parse().unwrap());
    let outcome = UnaryOutcome::from_result(no_hang(client.unary(request)).await);
    assert_eq!((outcome.code, outcome.previous), (Code::Ok, Some(1)));
    no_hang(server.idle()).await;
    let record = server.record();
    let headers = |stream: usize, name| record.streams[stream].headers.get(name).cloned();
    assert_eq!(headers(0, "x-picked").unwrap(), "the first backend");
    assert_eq!(headers(0, "x-own").unwrap(), "changed below");
    assert_eq!(headers(1, "x-picked"), None);
    assert_eq!(headers(1, "x-own").unwrap(), "the application's");
    assert_eq!(record.streams[0].path, record.streams[1].path);
}

/// grpc-go: `TestAuthorityOverrideNotReusedAcrossAttempts`, values of one attempt leaked into the next.
#[tokio::test(start_paused = true)]
async fn metadata_of_one_attempt_is_not_carried_over() {
    let busy = Answer::trailers_only(StatusNumber::UNAVAILABLE);
    let script = [busy.clone(), Answer::reset(Reason::REFUSED_STREAM), busy, Answer::echo()];
    let harness = Harness::new(RETRY, script);
    let attempts = Arc::new(AtomicU32::new(0));
    let stamped = InterceptedService::new(
        channel(&endpoint(), &harness.server.connector()),
        move |mut request: Request<()>| {
            let number = attempts.fetch_add(1, Ordering::Relaxed);
            request.metadata_mut().append("stamp", number.into());
            Ok(request)
        },
    );
    let mut client = EchoClient::new(harness.layer.layer(stamped));
    let mut request = Request::new(message("x"));
    request.set_timeout(ms(10_000));
    client.unary(request).await.unwrap();
    let streams = harness.server.record().streams;
    let all = |name: &str| -> Vec<Vec<String>> {
        let values = streams.iter().map(|it| it.headers.get_all(name).iter());
        values.map(|it| it.map(|it| it.to_str().unwrap().to_owned()).collect()).collect()
    };
    assert_eq!(all("stamp"), [["0"], ["1"], ["2"], ["3"]], "each attempt has its own value");
    let previous = all("grpc-previous-rpc-attempts");
    assert_eq!(previous, [vec![], vec!["1"], vec!["1"], vec!["2"]]);
    assert!(all("grpc-timeout").iter().all(|it| it.len() == 1));
    let timeouts: Vec<_> = streams.iter().map(|it| it.timeout().unwrap()).collect();
    assert_eq!(timeouts, [ms(10_000), ms(9_950), ms(9_950), ms(9_850)]);
}

#[tokio::test(start_paused = true)]
async fn metadata_previous_attempts_in_status_after_headers() {
    let busy = Answer::trailers_only(StatusNumber::UNAVAILABLE);
    let mut harness =
        Harness::new(RETRY, [busy, Answer::headers().message("").trailers(StatusNumber::ABORTED)]);
    let mut stream = harness.client.server_stream(message("x")).await.unwrap().into_inner();
    stream.message().await.unwrap().unwrap();
    let status = stream.message().await.unwrap_err();
    assert_eq!(status.code(), Code::Aborted);
    let number = status.metadata().get("grpc-previous-rpc-attempts").map(|it| it.to_str().unwrap());
    assert_eq!(number, Some("1"));
}

/// The stream is lost after the headers, without a status from the server.
#[tokio::test(start_paused = true)]
async fn metadata_previous_attempts_in_status_of_lost_stream() {
    let lost = Answer::headers().message("").then_reset(Reason::INTERNAL_ERROR);
    let closed = Answer::headers().message("").then_close(Close::Graceful);
    for (answer, code) in [(lost, Code::Internal), (closed, Code::Unavailable)] {
        let busy = Answer::trailers_only(StatusNumber::UNAVAILABLE);
        let mut harness = Harness::new(RETRY, [busy, answer.clone(), answer]);
        for expected in [Some("1"), None] {
            let mut stream = harness.client.server_stream(message("x")).await.unwrap().into_inner();
            stream.message().await.unwrap().unwrap();
            let status = stream.message().await.unwrap_err();
            assert_eq!(status.code(), code);
            let number = status.metadata().get("grpc-previous-rpc-attempts");
            assert_eq!(number.map(|it| it.to_str().unwrap()), expected, "{code:?}");
        }
    }
}

/// The inner service fails with an error that is not a connection error.
#[tokio::test(start_paused = true)]
async fn metadata_previous_attempts_in_status_of_service_error() {
    let policy = RETRY.replace("UNAVAILABLE", "UNKNOWN");
    let layer = layer(&policy).build();
    let failing = tower::service_fn(|_: http::Request<tonic::body::Body>| async {
        Err::<http::Response<tonic::body::Body>, _>("broken")
    });
    let failing = ServiceBuilder::new()
        .map_err(|text: &str| Box::<dyn std::error::Error + Send + Sync>::from(text))
        .service(failing);
    let mut client = EchoClient::new(ServiceBuilder::new().layer(layer).service(failing));
    let status = client.unary(message("x")).await.unwrap_err();
    let number = status.metadata().get("grpc-previous-rpc-attempts").map(|it| it.to_str().unwrap());
    assert_eq!(number, Some("2"));
}

const PREVIOUS: &str = "grpc-previous-rpc-attempts";

/// A request in which the application set `grpc-previous-rpc-attempts`.
fn forged() -> Request<redial_echo::EchoRequest> {
    let mut request = Request::new(message("x"));
    request.metadata_mut().insert(PREVIOUS, "9".parse().unwrap());
    request.metadata_mut().append(PREVIOUS, "10".parse().unwrap());
    request
}

#[tokio::test(start_paused = true)]
async fn metadata_previous_attempts_set_by_application_is_removed() {
    let mut harness = Harness::new(RETRY, [busy(), busy(), Answer::echo()]);
    let outcome = harness.call_with(forged()).await;
    assert_eq!(outcome.previous(), [None, Some(1), Some(2)]);
    assert_eq!(outcome.previous_attempts_header().as_deref(), Some("2"));
    for stream in &outcome.record.streams {
        assert!(stream.headers.get_all(PREVIOUS).iter().count() <= 1);
    }
    let refused = Answer::reset(Reason::REFUSED_STREAM);
    let mut harness = Harness::new("", [refused, Answer::echo()]);
    let outcome = harness.call_with(forged()).await;
    assert_eq!((outcome.previous(), outcome.previous_attempts_header()), (vec![None, None], None));
    let off = layer("").retries(Retries::Off).build();
    let mut harness = Harness::with_layer(off, Server::new(Answer::echo()));
    harness.client.unary(forged()).await.unwrap();
    assert!(
        !harness.server.record().streams[0].headers.contains_key(PREVIOUS),
        "even with retries off"
    );
}

#[tokio::test(start_paused = true)]
async fn metadata_previous_attempts_in_response_and_status() {
    let mut harness = Harness::new(RETRY, [busy(), Answer::echo()]);
    let outcome = harness.call().await;
    assert_eq!(outcome.previous_attempts_header().as_deref(), Some("1"));
    assert_eq!(outcome.result.unwrap().extensions().get(), Some(&Attempts(2)));

    let mut harness = Harness::new(RETRY, [busy(), Answer::trailers_only(StatusNumber::ABORTED)]);
    let outcome = harness.call().await;
    assert_eq!(
        (outcome.code(), outcome.previous_attempts_header().as_deref()),
        (Code::Aborted, Some("1"))
    );

    let mut harness = Harness::new(RETRY, [Answer::echo()]);
    let outcome = harness.call().await;
    assert_eq!(outcome.previous_attempts_header(), None, "0 is not set");
    assert_eq!(outcome.result.unwrap().extensions().get::<Attempts>(), None);

    // The status of the committed attempt arrives later, in the trailers.
    let late = Answer::headers().message("").trailers(StatusNumber::ABORTED);
    let mut harness = Harness::new(RETRY, [busy(), late]);
    let mut stream = {
        let response = harness.client.server_stream(message("x")).await.unwrap();
        assert_eq!(response.metadata().get(PREVIOUS).unwrap(), "1");
        response.into_inner()
    };
    stream.message().await.unwrap();
    assert_eq!(stream.message().await.unwrap_err().code(), Code::Aborted);
}

#[tokio::test(start_paused = true)]
async fn metadata_previous_attempts_of_hedges_and_transparent_retries() {
    let refused = Answer::reset(Reason::REFUSED_STREAM);
    let mut harness =
        Harness::new(HEDGE, [Answer::hang(), refused, Answer::hang(), Answer::echo()]);
    let outcome = harness.call().await;
    assert_eq!(outcome.previous(), [None, Some(1), Some(1), Some(2)]);
    assert_eq!(outcome.starts(), [0, 20, 20, 40]);
    assert_eq!(outcome.previous_attempts_header().as_deref(), Some("2"));
    assert_eq!(harness.statistics(), (2, 0, 1));
}

#[tokio::test(start_paused = true)]
async fn metadata_previous_attempts_of_winner_after_deadline() {
    // The first attempt sends its headers after the second has started.
    let mut harness = Harness::new(HEDGE, [Answer::headers().after(ms(30)), Answer::hang()]);
    let mut request = Request::new(message("x"));
    request.set_timeout(ms(60));
    let response = harness.client.server_stream(request).await.unwrap();
    assert_eq!(response.metadata().get(PREVIOUS), None);
    let status = response.into_inner().message().await.unwrap_err();
    assert_eq!((status.code(), status.metadata().get(PREVIOUS)), (Code::DeadlineExceeded, None));
    assert_eq!(harness.server.record().streams.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn metadata_of_all_attempts_is_otherwise_equal() {
    let mut harness =
        Harness::new(RETRY, [busy(), Answer::reset(Reason::REFUSED_STREAM), Answer::echo()]);
    let mut request = Request::new(message("payload"));
    request.metadata_mut().append("a", "1".parse().unwrap());
    request.metadata_mut().append("a", "2".parse().unwrap());
    request.metadata_mut().insert_bin("b-bin", MetadataValue::from_bytes(&[0, 1, 255]));
    let outcome = harness.call_with(request).await;
    assert_eq!(outcome.code(), Code::Ok);
    let heads = outcome.record.streams.iter().map(|stream| {
        let mut headers = stream.headers.clone();
        headers.remove(PREVIOUS);
        (stream.path.clone(), headers, stream.bytes, stream.digest)
    });
    let heads: Vec<_> = heads.collect();
    assert_eq!(heads.len(), 3);
    assert!(heads.iter().all(|head| *head == heads[0]), "{heads:#?}");
    let a: Vec<_> = heads[0].1.get_all("a").iter().collect();
    assert_eq!(a, ["1", "2"]);
}

/// The layer consumes `CallOptions`; all other extensions reach each attempt.
#[tokio::test(start_paused = true)]
async fn metadata_extensions_reach_every_attempt() {
    use std::sync::{Arc, Mutex};
    use tower::ServiceExt as _;
    #[derive(Clone, Debug, PartialEq)]
    struct Mine(u32);
    let harness = Harness::new(RETRY, [busy(), Answer::echo()]);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let inner = {
        let seen = seen.clone();
        channel(&endpoint(), &harness.server.connector()).map_request(
            move |request: http::Request<tonic::body::Body>| {
                let mine = request.extensions().get::<Mine>().cloned();
                let options = request.extensions().get::<CallOptions>().is_some();
                seen.lock().unwrap().push((mine, options));
                request
            },
        )
    };
    let layered = tower::ServiceBuilder::new().layer(harness.layer.clone()).service(inner);
    let mut client = redial_echo::echo_client::EchoClient::new(layered);
    let mut request = Request::new(message("x"));
    request.extensions_mut().insert(Mine(7));
    request.extensions_mut().insert(CallOptions::new());
    client.unary(request).await.unwrap();
    assert_eq!(*seen.lock().unwrap(), vec![(Some(Mine(7)), false); 2]);
}
