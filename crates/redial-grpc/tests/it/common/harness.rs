//! [`Harness`]: a generated client, the layer and a scripted server, connected by an in-memory pipe.
//!
//! [`CallOutcome`] combines what is known of a finished unary call: the result that the application
//! gets, the events of the call log and what the server received.
#![allow(dead_code, reason = "`checks/channel-only` uses a part of it")]

use std::error::Error;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use redial::testing::DrawsGuard;
use redial::{Event, StopReason};
use redial_core::Proof;
use redial_echo::echo_client::EchoClient;
use redial_echo::{EchoRequest, EchoResponse};
use redial_faults::grpc::{
    Answer, Connector, Handle, Pipe, Record, Script, Server, StatusNumber, StreamOutcome,
};
use redial_grpc::{
    CallOptions, CallReport, Control, RetryLayer, RetryLayerBuilder, RetryService, ServiceConfig,
    SharedCallLog,
};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Response, Status};
use tower::ServiceBuilder;

pub(crate) const UNARY: &str = "/redial.test.Echo/Unary";

pub(crate) const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// The `retryPolicy` of most tests. The harness fixes every random draw to 0.5, so the delays are 50
/// and 100 ms.
pub(crate) const RETRY: &str = r#""retryPolicy": { "maxAttempts": 3, "initialBackoff": "0.1s",
    "maxBackoff": "1s", "backoffMultiplier": 2, "retryableStatusCodes": ["UNAVAILABLE"] }"#;

/// Three attempts, 20 ms apart.
pub(crate) const HEDGE: &str = r#""hedgingPolicy": { "maxAttempts": 3, "hedgingDelay": "0.02s",
    "nonFatalStatusCodes": ["UNAVAILABLE"] }"#;

/// A config with these fields for every method, and a throttle with ten tokens.
pub(crate) fn config(fields: &str) -> ServiceConfig {
    ServiceConfig::parse(&config_text(fields)).unwrap()
}

pub(crate) fn config_text(fields: &str) -> String {
    let comma = if fields.is_empty() { "" } else { "," };
    format!(
        r#"{{ "methodConfig": [{{ "name": [{{}}] {comma} {fields} }}],
            "retryThrottling": {{ "maxTokens": 10, "tokenRatio": 0.1 }} }}"#
    )
}

pub(crate) fn layer(fields: &str) -> RetryLayerBuilder {
    RetryLayer::builder().config(config(fields))
}

type TestClient = EchoClient<RetryService<Channel>>;

/// A channel over in-memory pipes.
pub(crate) fn channel(endpoint: &Endpoint, connector: &Connector) -> Channel {
    let connector = connector.clone();
    endpoint.connect_with_connector_lazy(tower::service_fn(move |_| {
        let connector = connector.clone();
        async move { connector.connect().await.map(TokioIo::new) }
    }))
}

pub(crate) fn endpoint() -> Endpoint {
    Endpoint::from_static("http://pipe")
}

/// A client with the layer, and its server.
pub(crate) struct Harness {
    pub(crate) server: Handle<Pipe>,
    pub(crate) layer: RetryLayer,
    pub(crate) control: Control,
    pub(crate) client: TestClient,
    /// Fixes every random draw to 0.5 while it lives.
    _draws: DrawsGuard,
}

impl Harness {
    /// A client with these method config fields, and a server that follows this script.
    pub(crate) fn new(fields: &str, script: impl Into<Script>) -> Harness {
        Harness::with_layer(layer(fields).build(), Server::new(script))
    }

    pub(crate) fn with_layer(layer: RetryLayer, server: Server) -> Harness {
        Harness::with_endpoint(&endpoint(), layer, server)
    }

    pub(crate) fn with_endpoint(endpoint: &Endpoint, layer: RetryLayer, server: Server) -> Harness {
        let server = server.on_pipe();
        let channel = channel(endpoint, &server.connector());
        let control = layer.control();
        let client = EchoClient::new(ServiceBuilder::new().layer(layer.clone()).service(channel));
        Harness { server, layer, control, client, _draws: redial::testing::draws([0.5]) }
    }

    /// Makes a unary call.
    pub(crate) async fn call(&mut self) -> CallOutcome {
        self.call_with(Request::new(message("x"))).await
    }

    /// Makes a unary call with this request.
    pub(crate) async fn call_with(&mut self, mut request: Request<EchoRequest>) -> CallOutcome {
        let call_log = SharedCallLog::new();
        let options = request.extensions_mut().get_or_insert_default::<CallOptions>();
        *options = options.clone().call_log(&call_log);
        let result = self.client.unary(request).await;
        self.outcome(&call_log, result)
    }

    /// The outcome of a finished call.
    pub(crate) fn outcome(&self, call_log: &SharedCallLog, result: CallResult) -> CallOutcome {
        CallOutcome {
            result,
            events: call_log.read().events().to_vec(),
            record: self.server.record(),
        }
    }

    /// Retries made, retries failed and transparent retries, of all methods.
    pub(crate) fn statistics(&self) -> (u64, u64, u64) {
        self.control.statistics().values().fold((0, 0, 0), |sum, it| {
            let it = it.retries;
            (sum.0 + it.retries, sum.1 + it.failed, sum.2 + it.transparent)
        })
    }

    /// The tokens that are left, in thousandths.
    pub(crate) fn tokens(&self) -> u64 {
        (self.control.tokens().unwrap() * 1000.0).round() as u64
    }
}

pub(crate) fn message(payload: &str) -> EchoRequest {
    EchoRequest { payload: payload.to_owned().into(), ..EchoRequest::default() }
}

pub(crate) type CallResult = Result<Response<EchoResponse>, Status>;

/// The outcome of a finished call.
#[derive(Debug)]
pub(crate) struct CallOutcome {
    pub(crate) result: CallResult,
    pub(crate) events: Vec<(u64, Event)>,
    pub(crate) record: Record,
}

impl CallOutcome {
    /// The status code that the application gets.
    pub(crate) fn code(&self) -> Code {
        self.result.as_ref().map_or_else(Status::code, |_| Code::Ok)
    }

    pub(crate) fn status(&self) -> &Status {
        self.result.as_ref().unwrap_err()
    }

    /// `grpc-previous-rpc-attempts` in the request headers of each stream at the server.
    pub(crate) fn previous(&self) -> Vec<Option<u64>> {
        self.record
            .streams
            .iter()
            .map(redial_faults::grpc::StreamRecord::previous_attempts)
            .collect()
    }

    /// `grpc-previous-rpc-attempts` in the metadata that the application gets.
    pub(crate) fn previous_attempts_header(&self) -> Option<String> {
        let metadata = match &self.result {
            Ok(response) => response.metadata(),
            Err(status) => status.metadata(),
        };
        metadata.get("grpc-previous-rpc-attempts").map(|it| it.to_str().unwrap().to_owned())
    }

    /// When attempts started, in ms since the call began.
    pub(crate) fn starts(&self) -> Vec<u64> {
        let began = self.events[0].0;
        let started =
            self.events.iter().filter(|(_, event)| matches!(event, Event::AttemptStarted { .. }));
        started.map(|(at, _)| (at - began) / 1_000_000).collect()
    }

    /// The number of attempts without transparent retries.
    pub(crate) fn attempts(&self) -> u32 {
        let numbers = self.events.iter().filter_map(|(_, event)| match event {
            Event::AttemptStarted { number, .. } => Some(*number),
            _ => None,
        });
        numbers.max().unwrap_or(0)
    }

    /// The proof that each attempt's outcome gave that the server did not process it.
    pub(crate) fn proofs(&self) -> Vec<Option<Proof>> {
        let proofs = self.events.iter().filter_map(|(_, event)| match event {
            Event::AttemptOutcome { classification, .. } => Some(classification.proof),
            _ => None,
        });
        proofs.collect()
    }

    /// The stop reason, and the time of the end in ms since the call began.
    pub(crate) fn end(&self) -> (StopReason, u64) {
        let (began, &(at, last)) = (self.events[0].0, self.events.last().unwrap());
        match last {
            Event::CallEnded { stop_reason, .. } => (stop_reason, (at - began) / 1_000_000),
            other => panic!("the call has not ended: {other:?}"),
        }
    }

    /// The report in the status.
    pub(crate) fn report(&self) -> &CallReport {
        CallReport::of_status(self.status()).expect("a failed call has a report")
    }

    /// The sources of the status, by type.
    pub(crate) fn chain(&self) -> Vec<String> {
        match &self.result {
            Ok(_) => Vec::new(),
            Err(status) => source_chain(status),
        }
    }
}

/// The sources of a status, by type. The layer derives its proofs from these types, so a hyper or h2
/// version with other types than the layer's fails the tests that compare them. Statuses are skipped
/// because tonic's features decide whether they are in the chain, and so is the report of the call.
pub(crate) fn source_chain(status: &Status) -> Vec<String> {
    let mut chain = Vec::new();
    let mut next = status.source();
    while let Some(error) = next {
        if !error.is::<Status>() && !error.is::<CallReport>() {
            chain.push(source_name(error));
        }
        next = error.source();
    }
    chain
}

fn source_name(error: &(dyn Error + 'static)) -> String {
    let named = |kind: &str, flags: &[(bool, &str)]| {
        let flags = flags.iter().filter(|(set, _)| *set).map(|(_, name)| *name);
        [kind].into_iter().chain(flags).collect::<Vec<_>>().join(" ")
    };
    if let Some(error) = error.downcast_ref::<hyper::Error>() {
        let flags = [
            (error.is_canceled(), "canceled"),
            (error.is_user(), "user"),
            (error.is_timeout(), "timeout"),
        ];
        return named("hyper", &flags);
    }
    if let Some(error) = error.downcast_ref::<h2::Error>() {
        let reason = error.reason().map(|it| format!("{it:?}")).unwrap_or_default();
        let flags = [
            (error.is_reset(), "reset"),
            (error.is_go_away(), "goaway"),
            (error.is_io(), "io"),
            (error.is_remote(), "remote"),
            (!reason.is_empty(), &*reason),
        ];
        return named("h2", &flags);
    }
    if let Some(error) = error.downcast_ref::<std::io::Error>() {
        return format!("io {:?}", error.kind());
    }
    if error.is::<tonic::ConnectError>() {
        return "tonic::ConnectError".to_owned();
    }
    if error.is::<tonic::TimeoutExpired>() {
        return "tonic::TimeoutExpired".to_owned();
    }
    if error.is::<tonic::transport::Error>() {
        return "tonic::transport::Error".to_owned();
    }
    error.to_string()
}

impl Harness {
    /// The channel with the layer, without a generated client.
    pub(crate) fn service(&self) -> RetryService<Channel> {
        let channel = channel(&endpoint(), &self.server.connector());
        ServiceBuilder::new().layer(self.layer.clone()).service(channel)
    }
}

/// A unary request with one message of these bytes, as a generated client sends it.
pub(crate) fn raw_request(payload: &'static [u8]) -> http::Request<tonic::body::Body> {
    raw_request_with_body(tonic::body::Body::new(http_body_util::Full::new(framed(payload))))
}

/// A request with this body.
pub(crate) fn raw_request_with_body<B>(body: B) -> http::Request<B> {
    http::Request::post("http://pipe/redial.test.Echo/Unary")
        .version(http::Version::HTTP_2)
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(body)
        .unwrap()
}

/// A message with its length prefix.
pub(crate) fn framed(payload: &[u8]) -> bytes::Bytes {
    let length = u32::try_from(payload.len()).unwrap();
    [&[0][..], &length.to_be_bytes(), payload].concat().into()
}

/// A failure with UNAVAILABLE before any response headers.
pub(crate) fn busy() -> Answer {
    Answer::trailers_only(StatusNumber::UNAVAILABLE)
}

/// A unary request with this deadline.
pub(crate) fn within(deadline: Duration) -> Request<EchoRequest> {
    let mut request = Request::new(message("x"));
    request.set_timeout(deadline);
    request
}

/// The `grpc-timeout` that the server received with each stream.
pub(crate) fn sent_timeouts(harness: &Harness) -> Vec<Option<Duration>> {
    harness.server.record().streams.iter().map(redial_faults::grpc::StreamRecord::timeout).collect()
}

/// How each stream ended, and when.
pub(crate) async fn stream_ends(harness: &Harness) -> Vec<(StreamOutcome, Duration)> {
    tokio::time::timeout(ms(1), harness.server.idle()).await.expect("every stream has ended");
    harness
        .server
        .record()
        .streams
        .iter()
        .map(|it| it.end.unwrap())
        .map(|it| (it.outcome, it.at))
        .collect()
}
