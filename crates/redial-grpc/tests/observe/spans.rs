//! Goal: a call is a span, its attempts are spans below it, and what runs for either runs inside it.
//! Method: real calls over a pipe on a paused clock, and a subscriber that keeps the tree.

use std::pin::Pin;
use std::task::{Context, Poll};

use super::plays::{METHOD, Play, TARGET};
use super::recorder::Recorder;
use crate::common::{echo_channel, hedge_config, retry_config};
use bytes::Bytes;
use http_body::{Body, Frame};
use redial_echo::EchoRequest;
use redial_echo::echo_client::EchoClient;
use redial_grpc::RetryLayer;
use tower::{Layer, Service};
use tracing::Level;

const STORY: &[&str] = &[
    "previous-rpc-attempts",
    "transparent-retry",
    "why",
    "attempts",
    "rpc.response.status_code",
    "otel.status_code",
];

/// What a call of this kind leaves behind at this level.
async fn told(play: Play, level: Level) -> Vec<String> {
    let (recorder, _guard) = Recorder::start(level);
    play.play(RetryLayer::builder()).await;
    // Attempts that were cancelled are dropped by the connection's task.
    tokio::time::sleep(std::time::Duration::from_secs(10)).await;
    assert!(recorder.all_closed(), "{play:?}");
    recorder.lines(STORY)
}

fn attempt(previous: u32, transparent: bool, end: &str) -> String {
    format!(
        "  [grpc.attempt] previous-rpc-attempts={previous} transparent-retry={transparent} \
         rpc.response.status_code={end}"
    )
}

const FAILED: &str = "UNAVAILABLE otel.status_code=ERROR";

#[tokio::test(start_paused = true)]
async fn each_attempt_is_a_span_below_its_call() {
    let call = |stop_reason: &str, attempts: u32, end: &str| {
        format!("[grpc.call] why={stop_reason} attempts={attempts} rpc.response.status_code={end}")
    };
    let late = "DEADLINE_EXCEEDED otel.status_code=ERROR";
    let gave_up = || "  gave up".to_owned();
    for play in Play::ALL {
        let expected = match play {
            Play::Retried => vec![
                call("succeeded", 3, "OK"),
                attempt(0, false, FAILED),
                attempt(1, false, FAILED),
                attempt(2, false, "OK"),
            ],
            Play::Hedged => vec![
                call("succeeded", 3, "OK"),
                attempt(0, false, FAILED),
                attempt(1, false, "OK"),
                attempt(2, false, "CANCELLED"),
            ],
            Play::Replaced => {
                vec![call("succeeded", 1, "OK"), attempt(0, false, FAILED), attempt(0, true, "OK")]
            }
            Play::DeadlineAction => {
                vec![call("deadline", 1, late), gave_up(), attempt(0, false, late)]
            }
            Play::LateBetween => {
                vec![call("deadline", 1, late), gave_up(), attempt(0, false, FAILED)]
            }
            Play::Throttled => {
                vec![call("throttled", 1, FAILED), gave_up(), attempt(0, false, FAILED)]
            }
            Play::Sealed => {
                vec![call("committed", 1, FAILED), gave_up(), attempt(0, false, FAILED)]
            }
            Play::Dropped => {
                vec![call("cancelled", 1, "CANCELLED"), attempt(0, false, "CANCELLED")]
            }
            Play::Off => vec![call("fatal", 1, FAILED), attempt(0, false, FAILED)],
            Play::TooLarge => {
                let end = "RESOURCE_EXHAUSTED otel.status_code=ERROR";
                vec![call("cancelled", 0, end)]
            }
        };
        let mut lines = told(play, Level::INFO).await;
        // Whether an event or a span came first is not the matter here.
        lines[1..].sort_by_key(|line| line.contains('['));
        assert_eq!(lines, expected, "{play:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn spans_have_the_names_that_grpc_gives_them() {
    let (recorder, _guard) = Recorder::start(Level::INFO);
    Play::Retried.play(RetryLayer::builder()).await;
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
async fn events_of_a_call_are_those_of_every_call_and_in_its_span() {
    let lines = told(Play::Retried, Level::TRACE).await;
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
    let lines = told(Play::TooLarge, Level::TRACE).await;
    assert_eq!(lines[1..], ["  call ended"], "a call that starts nothing ends, too");
    assert!(told(Play::Retried, Level::ERROR).await.is_empty(), "nobody listens, nothing is told");
    assert_eq!(told(Play::Throttled, Level::WARN).await, ["gave up"], "without a span");
}

/// A subscriber at WARN has no spans, so the event itself says which call it is and how it failed.
#[tokio::test(start_paused = true)]
async fn gave_up_event_names_method_target_status_and_message() {
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

/// Says which span it is in whenever it is called or polled.
#[derive(Clone)]
struct Below<S>(S);

struct BelowFuture<F>(Pin<Box<F>>);

struct BelowBody<B>(Pin<Box<B>>);

impl<S, T, B> Service<T> for Below<S>
where
    S: Service<T, Response = http::Response<B>>,
    S::Future: Send + 'static,
{
    type Response = http::Response<BelowBody<B>>;
    type Error = S::Error;
    type Future = BelowFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: T) -> Self::Future {
        tracing::info!(target: "below", "called");
        BelowFuture(Box::pin(self.0.call(request)))
    }
}

impl<F, B, E> Future for BelowFuture<F>
where
    F: Future<Output = Result<http::Response<B>, E>>,
{
    type Output = Result<http::Response<BelowBody<B>>, E>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        tracing::info!(target: "below", "polled");
        let response = std::task::ready!(self.0.as_mut().poll(cx))?;
        Poll::Ready(Ok(response.map(|body| BelowBody(Box::pin(body)))))
    }
}

impl<B: Body<Data = Bytes>> Body for BelowBody<B> {
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

/// The tree, each run of equal lines once.
async fn nested(config: &str, request: EchoRequest) -> Vec<String> {
    let (recorder, _guard) = Recorder::start(Level::INFO);
    let layer = RetryLayer::from_json(config).unwrap();
    let mut client = EchoClient::new(layer.layer(Below(echo_channel())));
    let outer = tracing::info_span!(target: "below", "outer");
    let call = tracing::Instrument::instrument(client.unary(request), outer);
    call.await.unwrap();
    let mut lines = recorder.lines(&["previous-rpc-attempts"]);
    lines.dedup();
    lines
}

#[tokio::test(start_paused = true)]
async fn what_is_below_runs_in_the_span_of_its_attempt_and_the_body_in_that_of_the_call() {
    let request = EchoRequest { failures: 1, ..EchoRequest::default() };
    assert_eq!(
        nested(&retry_config(2), request).await,
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
async fn hedges_are_siblings() {
    let request = EchoRequest { delay_ms: 50, ..EchoRequest::default() };
    assert_eq!(
        nested(&hedge_config(3, "0.01s"), request).await,
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
async fn a_config_file_that_changes_is_an_event() {
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
