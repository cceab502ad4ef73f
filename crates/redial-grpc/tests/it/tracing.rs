//! Spans and events: each call is a span with one child span per attempt, and the inner service runs
//! inside the span of its attempt. A subscriber records the tree of spans.

mod recorder;

use std::pin::Pin;
use std::task::{Context, Poll};

use crate::common::sample_calls::{METHOD, SampleCall, TARGET};
use crate::common::{echo_channel, hedge_config, retry_config};
use bytes::Bytes;
use http_body::{Body, Frame};
use recorder::Recorder;
use redial_echo::EchoRequest;
use redial_echo::echo_client::EchoClient;
use redial_grpc::RetryLayer;
use tower::{Layer, Service};
use tracing::Level;

const FIELDS: &[&str] = &[
    "previous-rpc-attempts",
    "transparent-retry",
    "why",
    "attempts",
    "rpc.response.status_code",
    "otel.status_code",
];

/// The spans and events of a call of this kind at this level.
async fn recorded(sample: SampleCall, level: Level) -> Vec<String> {
    let (recorder, _guard) = Recorder::start(level);
    sample.make(RetryLayer::builder()).await;
    // The task of the connection drops cancelled attempts.
    tokio::time::sleep(std::time::Duration::from_secs(10)).await;
    assert!(recorder.all_closed(), "{sample:?}");
    recorder.lines(FIELDS)
}

fn attempt(previous: u32, transparent: bool, end: &str) -> String {
    format!(
        "  [grpc.attempt] previous-rpc-attempts={previous} transparent-retry={transparent} \
         rpc.response.status_code={end}"
    )
}

const FAILED: &str = "UNAVAILABLE otel.status_code=ERROR";

#[tokio::test(start_paused = true)]
async fn tracing_attempt_spans_are_children_of_the_call_span() {
    let call = |stop_reason: &str, attempts: u32, end: &str| {
        format!("[grpc.call] why={stop_reason} attempts={attempts} rpc.response.status_code={end}")
    };
    let late = "DEADLINE_EXCEEDED otel.status_code=ERROR";
    let gave_up = || "  gave up".to_owned();
    for sample in SampleCall::ALL {
        let expected = match sample {
            SampleCall::Retried => vec![
                call("succeeded", 3, "OK"),
                attempt(0, false, FAILED),
                attempt(1, false, FAILED),
                attempt(2, false, "OK"),
            ],
            SampleCall::Hedged => vec![
                call("succeeded", 3, "OK"),
                attempt(0, false, FAILED),
                attempt(1, false, "OK"),
                attempt(2, false, "CANCELLED"),
            ],
            SampleCall::TransparentlyRetried => {
                vec![call("succeeded", 1, "OK"), attempt(0, false, FAILED), attempt(0, true, "OK")]
            }
            SampleCall::DeadlineInAttempt => {
                vec![call("deadline", 1, late), gave_up(), attempt(0, false, late)]
            }
            SampleCall::DeadlineInBackoff => {
                vec![call("deadline", 1, late), gave_up(), attempt(0, false, FAILED)]
            }
            SampleCall::Throttled => {
                vec![call("throttled", 1, FAILED), gave_up(), attempt(0, false, FAILED)]
            }
            SampleCall::BufferFull => {
                vec![call("committed", 1, FAILED), gave_up(), attempt(0, false, FAILED)]
            }
            SampleCall::Cancelled => {
                vec![call("cancelled", 1, "CANCELLED"), attempt(0, false, "CANCELLED")]
            }
            SampleCall::RetriesOff => vec![call("fatal", 1, FAILED), attempt(0, false, FAILED)],
            SampleCall::TooLarge => {
                let end = "RESOURCE_EXHAUSTED otel.status_code=ERROR";
                vec![call("cancelled", 0, end)]
            }
        };
        let mut lines = recorded(sample, Level::INFO).await;
        // The order of events and spans is not part of this test.
        lines[1..].sort_by_key(|line| line.contains('['));
        assert_eq!(lines, expected, "{sample:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn tracing_span_fields_follow_grpc_conventions() {
    let (recorder, _guard) = Recorder::start(Level::INFO);
    SampleCall::Retried.make(RetryLayer::builder()).await;
    let table = [
        ("grpc.call", "otel.name", Some("Sent.redial.test.Echo.Unary")),
        ("grpc.call", "rpc.method", Some(METHOD)),
        ("grpc.call", "rpc.system.name", Some("grpc")),
        ("grpc.call", "otel.kind", None),
        ("grpc.attempt", "otel.name", Some("Attempt.redial.test.Echo.Unary")),
        ("grpc.attempt", "rpc.method", Some(METHOD)),
        ("grpc.attempt", "rpc.system.name", Some("grpc")),
        ("grpc.attempt", "otel.kind", Some("client")),
    ];
    for (span, field, value) in table {
        assert_eq!(recorder.field(span, field).as_deref(), value, "{span} {field}");
    }
    assert!(recorder.field("grpc.call", "grpc.target").unwrap().starts_with(TARGET));
}

#[tokio::test(start_paused = true)]
async fn tracing_events_are_in_the_call_span() {
    let lines = recorded(SampleCall::Retried, Level::TRACE).await;
    let events: Vec<_> = lines.iter().filter(|line| !line.contains('[')).collect();
    assert_eq!(
        events,
        [
            "  attempt started",
            "  attempt failed",
            "  retrying",
            "  attempt started",
            "  attempt failed",
            "  retrying",
            "  attempt started",
            "  call ended"
        ]
    );
    let lines = recorded(SampleCall::TooLarge, Level::TRACE).await;
    assert_eq!(lines[1..], ["  call ended"], "a call without attempts ends, too");
    assert!(
        recorded(SampleCall::Retried, Level::ERROR).await.is_empty(),
        "no output without a subscriber at this level"
    );
    assert_eq!(recorded(SampleCall::Throttled, Level::WARN).await, ["gave up"], "without a span");
}

/// A subscriber at WARN has no spans, so the event itself names the call and its failure.
#[tokio::test(start_paused = true)]
async fn tracing_gave_up_event_names_method_target_and_status() {
    let (recorder, _guard) = Recorder::start(Level::WARN);
    let throttled = retry_config(4).replacen(
        '{',
        r#"{ "retryThrottling": { "maxTokens": 2, "tokenRatio": 0.1 },"#,
        1,
    );
    let config = redial_grpc::ServiceConfig::parse(&throttled).unwrap();
    let layer = RetryLayer::builder().config(config).for_server("gave-up-event");
    let layer = layer.redact_messages(|text| text.replace("fails", "***")).build();
    let mut client = EchoClient::new(layer.layer(echo_channel()));
    let request = EchoRequest { failures: 9, delay_ms: 3, ..EchoRequest::default() };
    let status = client.unary(request).await.unwrap_err();
    let message = status.message().replace("fails", "***");
    let events = recorder.events("gave up");
    let expected = [
        ("why", "throttled"),
        ("rpc.method", "redial.test.Echo/Unary"),
        ("grpc.target", "gave-up-event"),
        ("rpc.response.status_code", "UNAVAILABLE"),
        ("error", &*message),
        ("attempts", "1"),
    ];
    let expected = expected.map(|(name, value)| (name, value.to_owned()));
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!(events[0][..6], expected);
    assert!(events[0][6].0 == "elapsed_ms" && events[0][6].1.parse::<f64>().unwrap() >= 3.0);
}

/// An inner service that records an event whenever it is called or polled.
#[derive(Clone)]
struct InnerService<S>(S);

struct InnerFuture<F>(Pin<Box<F>>);

struct InnerBody<B>(Pin<Box<B>>);

impl<S, T, B> Service<T> for InnerService<S>
where
    S: Service<T, Response = http::Response<B>>,
    S::Future: Send + 'static,
{
    type Response = http::Response<InnerBody<B>>;
    type Error = S::Error;
    type Future = InnerFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: T) -> Self::Future {
        tracing::info!(target: "below", "called");
        InnerFuture(Box::pin(self.0.call(request)))
    }
}

impl<F, B, E> Future for InnerFuture<F>
where
    F: Future<Output = Result<http::Response<B>, E>>,
{
    type Output = Result<http::Response<InnerBody<B>>, E>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        tracing::info!(target: "below", "polled");
        let response = std::task::ready!(self.0.as_mut().poll(cx))?;
        Poll::Ready(Ok(response.map(|body| InnerBody(Box::pin(body)))))
    }
}

impl<B: Body<Data = Bytes>> Body for InnerBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        tracing::info!(target: "below", "body polled");
        self.0.as_mut().poll_frame(cx)
    }
}

/// The recorded tree without repeated lines.
async fn recorded_tree(config: &str, request: EchoRequest) -> Vec<String> {
    let (recorder, _guard) = Recorder::start(Level::INFO);
    let layer = RetryLayer::from_json(config).unwrap();
    let mut client = EchoClient::new(layer.layer(InnerService(echo_channel())));
    let outer = tracing::info_span!(target: "below", "outer");
    let call = tracing::Instrument::instrument(client.unary(request), outer);
    call.await.unwrap();
    let mut lines = recorder.lines(&["previous-rpc-attempts"]);
    lines.dedup();
    lines
}

#[tokio::test(start_paused = true)]
async fn tracing_inner_service_runs_in_the_attempt_span() {
    let request = EchoRequest { failures: 1, ..EchoRequest::default() };
    assert_eq!(
        recorded_tree(&retry_config(2), request).await,
        [
            "[outer]",
            "  [grpc.call]",
            "    [grpc.attempt] previous-rpc-attempts=0",
            "      called",
            "      polled",
            "    [grpc.attempt] previous-rpc-attempts=1",
            "      called",
            "      polled",
            "    body polled",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn tracing_spans_of_hedges_are_siblings() {
    let request = EchoRequest { delay_ms: 50, ..EchoRequest::default() };
    assert_eq!(
        recorded_tree(&hedge_config(3, "0.01s"), request).await,
        [
            "[outer]",
            "  [grpc.call]",
            "    [grpc.attempt] previous-rpc-attempts=0",
            "      called",
            "      polled",
            "    [grpc.attempt] previous-rpc-attempts=1",
            "      called",
            "      polled",
            "    [grpc.attempt] previous-rpc-attempts=2",
            "      called",
            "      polled",
            "    body polled",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn tracing_reports_config_file_changes() {
    let (recorder, _guard) = Recorder::start(Level::INFO);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.json");
    let layer = RetryLayer::builder().build();
    let mut watch = layer.control().watch_file(&path, std::time::Duration::from_secs(1));
    assert!(watch.changed().await.unwrap().is_err());
    std::fs::write(&path, retry_config(2)).unwrap();
    assert!(watch.changed().await.unwrap().is_ok());
    std::fs::write(&path, "{").unwrap();
    assert!(watch.changed().await.unwrap().is_err());
    assert_eq!(recorder.lines(&[]), ["config refused", "config in force", "config refused"]);
}
