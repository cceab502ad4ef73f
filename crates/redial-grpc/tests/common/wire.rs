//! A scripted server, the layer and a generated client, over a pipe in memory on a paused clock; and
//! what is known of a call when it is over.
#![allow(dead_code, reason = "each suite uses what it needs")]

use std::error::Error;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use redial::testing::Given;
use redial::{Event, StopReason};
use redial_core::Proof;
use redial_echo::echo_client::EchoClient;
use redial_echo::{EchoRequest, EchoResponse};
use redial_faults::grpc::{Connector, Handle, Pipe, Record, Script, Server};
use redial_grpc::{
    CallOptions, CallReport, Control, RetryLayer, RetryLayerBuilder, RetryService, ServiceConfig,
    SharedCallLog,
};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Response, Status};
use tower::ServiceBuilder;

pub(crate) const UNARY: &str = "/redial.test.Echo/Unary";

pub(crate) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// The `retryPolicy` of most tests: every draw is 0.5, so that delays are 50 and 100 ms.
pub(crate) const RETRY: &str = r#""retryPolicy": { "maxAttempts": 3, "initialBackoff": "0.1s",
    "maxBackoff": "1s", "backoffMultiplier": 2, "retryableStatusCodes": ["UNAVAILABLE"] }"#;

/// Three hedges, 20 ms apart.
pub(crate) const HEDGE: &str = r#""hedgingPolicy": { "maxAttempts": 3, "hedgingDelay": "0.02s",
    "nonFatalStatusCodes": ["UNAVAILABLE"] }"#;

/// A config with these fields for every method, and ten tokens.
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

pub(crate) type ClientOptions = EchoClient<RetryService<Channel>>;

/// A channel over pipes.
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

/// A server, a layer and a client.
pub(crate) struct Rig {
    pub(crate) server: Handle<Pipe>,
    pub(crate) layer: RetryLayer,
    pub(crate) control: Control,
    pub(crate) client: ClientOptions,
    /// Every draw is 0.5 as long as this is there.
    _draws: Given,
}

impl Rig {
    /// A client with this policy, and a server that plays this.
    pub(crate) fn new(fields: &str, script: impl Into<Script>) -> Rig {
        Rig::of(layer(fields).build(), Server::new(script))
    }

    pub(crate) fn of(layer: RetryLayer, server: Server) -> Rig {
        Rig::over(&endpoint(), layer, server)
    }

    pub(crate) fn over(endpoint: &Endpoint, layer: RetryLayer, server: Server) -> Rig {
        let server = server.on_pipe();
        let channel = channel(endpoint, &server.connector());
        let control = layer.control();
        let client = EchoClient::new(ServiceBuilder::new().layer(layer.clone()).service(channel));
        Rig { server, layer, control, client, _draws: redial::testing::draws([0.5]) }
    }

    /// Makes a unary call.
    pub(crate) async fn call(&mut self) -> Told {
        self.call_with(Request::new(message("x"))).await
    }

    /// Makes a unary call of this request.
    pub(crate) async fn call_with(&mut self, mut request: Request<EchoRequest>) -> Told {
        let call_log = SharedCallLog::new();
        let options = request.extensions_mut().get_or_insert_default::<CallOptions>();
        *options = options.clone().call_log(&call_log);
        let result = self.client.unary(request).await;
        self.told(&call_log, result)
    }

    /// What is known of a call that is over.
    pub(crate) fn told(&self, call_log: &SharedCallLog, result: Answer) -> Told {
        Told { result, events: call_log.read().events().to_vec(), record: self.server.record() }
    }

    /// Retries made, retries failed and replacements of all methods.
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

pub(crate) type Answer = Result<Response<EchoResponse>, Status>;

/// What is known of a call that is over.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) result: Answer,
    pub(crate) events: Vec<(u64, Event)>,
    pub(crate) record: Record,
}

impl Told {
    /// The status that the application sees.
    pub(crate) fn code(&self) -> Code {
        self.result.as_ref().map_or_else(Status::code, |_| Code::Ok)
    }

    pub(crate) fn status(&self) -> &Status {
        self.result.as_ref().unwrap_err()
    }

    /// `grpc-previous-rpc-attempts` of each stream that arrived.
    pub(crate) fn previous(&self) -> Vec<Option<u64>> {
        self.record.streams.iter().map(redial_faults::grpc::Stream::previous_attempts).collect()
    }

    /// What the application finds of it.
    pub(crate) fn previous_told(&self) -> Option<String> {
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

    /// How many attempts started, replacements aside.
    pub(crate) fn attempts(&self) -> u32 {
        let numbers = self.events.iter().filter_map(|(_, event)| match event {
            Event::AttemptStarted { number, .. } => Some(*number),
            _ => None,
        });
        numbers.max().unwrap_or(0)
    }

    /// What each outcome proved.
    pub(crate) fn proofs(&self) -> Vec<Option<Proof>> {
        let proofs = self.events.iter().filter_map(|(_, event)| match event {
            Event::AttemptOutcome { classification, .. } => Some(classification.proof),
            _ => None,
        });
        proofs.collect()
    }

    /// Why it ended, and when, in ms since it began.
    pub(crate) fn end(&self) -> (StopReason, u64) {
        let (began, &(at, last)) = (self.events[0].0, self.events.last().unwrap());
        match last {
            Event::CallEnded { stop_reason, .. } => (stop_reason, (at - began) / 1_000_000),
            other => panic!("it has not ended: {other:?}"),
        }
    }

    /// The report that the application finds in the status.
    pub(crate) fn report(&self) -> &CallReport {
        CallReport::of_status(self.status()).expect("a failed call has a report")
    }

    /// The chain of sources that the application finds, by type.
    pub(crate) fn chain(&self) -> Vec<String> {
        match &self.result {
            Ok(_) => Vec::new(),
            Err(status) => chain(status),
        }
    }
}

/// The sources of a status, by type. It is what evidence is read from, so that a version of hyper or
/// h2 whose types are others than ours shows here. Whether a status of tonic's is among them depends
/// on its features: it is passed over, and so is the report of the call.
pub(crate) fn chain(status: &Status) -> Vec<String> {
    let mut chain = Vec::new();
    let mut next = status.source();
    while let Some(error) = next {
        if !error.is::<Status>() && !error.is::<CallReport>() {
            chain.push(link(error));
        }
        next = error.source();
    }
    chain
}

fn link(error: &(dyn Error + 'static)) -> String {
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

impl Rig {
    /// The layered channel itself.
    pub(crate) fn service(&self) -> RetryService<Channel> {
        let channel = channel(&endpoint(), &self.server.connector());
        ServiceBuilder::new().layer(self.layer.clone()).service(channel)
    }
}

/// A unary request with one message of these bytes, as clients make it.
pub(crate) fn raw_request(payload: &'static [u8]) -> http::Request<tonic::body::Body> {
    raw_of(tonic::body::Body::new(http_body_util::Full::new(framed(payload))))
}

/// A request with this body.
pub(crate) fn raw_of<B>(body: B) -> http::Request<B> {
    http::Request::post("http://pipe/redial.test.Echo/Unary")
        .version(http::Version::HTTP_2)
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(body)
        .unwrap()
}

/// A message with its prefix.
pub(crate) fn framed(payload: &[u8]) -> bytes::Bytes {
    let length = u32::try_from(payload.len()).unwrap();
    [&[0][..], &length.to_be_bytes(), payload].concat().into()
}
