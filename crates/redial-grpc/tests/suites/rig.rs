//! A client with the layer in front of a scripted server, and the words in which the suites are
//! written.
//!
//! Rule: nothing waits for ever. What does not come within [`PATIENCE`] of virtual time fails its
//! test.

use std::time::Duration;

use hyper_util::rt::TokioIo;
use prost::Message as _;
use redial_core::{Event, StopReason};
use redial_echo::echo_client::EchoClient;
use redial_echo::{EchoRequest, EchoResponse};
use redial_faults::grpc::{
    Answer, Connector, Handle, Once, Pipe, Reason, Record, StatusNumber as Said,
};
use redial_faults::grpc::{Script, Server, Stream};
use redial_grpc::{
    CallOptions, Control, Jitter, RetryLayer, RetryLayerBuilder, RetryService, ServiceConfig,
    SharedCallLog,
};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Response, Status, Streaming};
use tower::{ServiceBuilder, service_fn};

/// Longer than any delay of a test.
const PATIENCE: Duration = Duration::from_secs(30 * 24 * 60 * 60);

pub(crate) type ClientOptions = EchoClient<RetryService<Channel>>;

pub(crate) const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

pub(crate) const fn s(s: u64) -> Duration {
    Duration::from_secs(s)
}

/// Comes with what it is given, which must come.
pub(crate) async fn patiently<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(PATIENCE, future).await.expect("it comes at some time")
}

/// Until that moment of the test.
pub(crate) async fn at(rig: &Rig, moment: Duration) {
    tokio::time::sleep_until(rig.began + moment).await;
}

// Configs

/// `retryPolicy` with these backoffs; the codes are separated by blanks.
pub(crate) fn retry(attempts: u32, initial: &str, max: &str, factor: f64, codes: &str) -> String {
    let codes = list(codes);
    format!(
        r#""retryPolicy": {{ "maxAttempts": {attempts}, "initialBackoff": "{initial}",
            "maxBackoff": "{max}", "backoffMultiplier": {factor}, "retryableStatusCodes": {codes} }}"#
    )
}

/// `hedgingPolicy`.
pub(crate) fn hedging(attempts: u32, delay: &str, codes: &str) -> String {
    let codes = list(codes);
    format!(
        r#""hedgingPolicy": {{ "maxAttempts": {attempts}, "hedgingDelay": "{delay}",
            "nonFatalStatusCodes": {codes} }}"#
    )
}

fn list(codes: &str) -> String {
    format!("{:?}", codes.split(' ').collect::<Vec<_>>())
}

/// A config in which the policy is that of the whole service.
pub(crate) fn config(policy: &str) -> String {
    format!(
        r#"{{ "methodConfig": [{{ "name": [{{ "service": "redial.test.Echo" }}], {policy} }}] }}"#
    )
}

/// The same with a throttle.
pub(crate) fn throttled(policy: &str, max_tokens: u32, token_ratio: f64) -> String {
    let throttling = format!(
        r#"{{ "retryThrottling": {{ "maxTokens": {max_tokens}, "tokenRatio": {token_ratio} }},"#
    );
    config(policy).replacen('{', &throttling, 1)
}

/// A layer whose delays have no randomness.
pub(crate) fn exact(config: &str) -> RetryLayerBuilder {
    let config = ServiceConfig::parse(config).expect("a config of ours is right");
    RetryLayer::builder().config(config).jitter(Jitter::None)
}

// Answers

/// A failure before any response.
pub(crate) fn fails(code: Said) -> Answer {
    Answer::trailers_only(code).text("from the script")
}

/// One message and OK.
pub(crate) fn replies(text: &str) -> Answer {
    Answer::headers().message(message(text)).trailers(Said::OK)
}

/// The same that long after the attempt arrived.
pub(crate) fn replies_at(after: Duration, text: &str) -> Answer {
    let answer = Answer::headers().after(after).message(message(text)).trailers(Said::OK);
    answer.once(Once::Headers)
}

/// A message of the server.
pub(crate) fn message(text: &str) -> Vec<u8> {
    let payload = text.to_owned().into();
    EchoResponse { payload, ..EchoResponse::default() }.encode_to_vec()
}

/// A message of the client.
pub(crate) fn request(text: &str) -> EchoRequest {
    EchoRequest { payload: text.to_owned().into(), ..EchoRequest::default() }
}

/// What a message of the client counts against the limits (decision G23).
pub(crate) fn counted(text: &str) -> u64 {
    5 + request(text).encoded_len() as u64
}

// The rig

/// A client, the layer, and the server that it calls.
pub(crate) struct Rig {
    pub(crate) server: Handle<Pipe>,
    pub(crate) control: Control,
    pub(crate) client: ClientOptions,
    began: tokio::time::Instant,
}

/// A rig with this config, whose delays have no randomness.
pub(crate) fn rig(config: &str, script: impl Into<Script>) -> Rig {
    rig_of(exact(config), Server::new(script))
}

pub(crate) fn rig_of(layer: RetryLayerBuilder, server: Server) -> Rig {
    let layer = layer.build();
    let server = server.on_pipe();
    let channel = ServiceBuilder::new().layer(layer.clone()).service(channel(server.connector()));
    Rig {
        server,
        control: layer.control(),
        client: EchoClient::new(channel),
        began: tokio::time::Instant::now(),
    }
}

pub(crate) fn channel(connector: Connector) -> Channel {
    let endpoint = Endpoint::from_static("http://pipe");
    endpoint.connect_with_connector_lazy(service_fn(move |_| {
        let connector = connector.clone();
        async move { connector.connect().await.map(TokioIo::new) }
    }))
}

/// What the application hears of a call.
#[derive(Debug, PartialEq)]
pub(crate) struct Heard {
    pub(crate) code: Code,
    /// The payload of the response, or the message of the status.
    pub(crate) text: String,
    /// `grpc-previous-rpc-attempts`.
    pub(crate) previous: Option<u32>,
}

impl Heard {
    pub(crate) fn of(result: Result<Response<EchoResponse>, Status>) -> Heard {
        let (code, text, metadata) = match result {
            Ok(response) => {
                let (metadata, response, _) = response.into_parts();
                let text = String::from_utf8(response.payload.to_vec()).expect("payloads are text");
                (Code::Ok, text, metadata)
            }
            Err(status) => (status.code(), status.message().to_owned(), status.metadata().clone()),
        };
        let previous = metadata.get("grpc-previous-rpc-attempts");
        let previous = previous.map(|it| it.to_str().unwrap().parse().expect("it is a number"));
        Heard { code, text, previous }
    }
}

impl Rig {
    /// How long the test has run.
    pub(crate) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// A unary call.
    pub(crate) async fn unary(&self, text: &str) -> Heard {
        self.ask(Request::new(request(text))).await
    }

    /// A unary call, and why it ended.
    pub(crate) async fn told(&self, text: &str) -> (Heard, StopReason) {
        let call_log = SharedCallLog::new();
        let heard = self.ask(with_diary(request(text), &call_log)).await;
        (heard, stop_reason(&call_log))
    }

    /// A unary call with this deadline.
    pub(crate) async fn within(&self, deadline: Duration, text: &str) -> Heard {
        let mut request = Request::new(request(text));
        request.set_timeout(deadline);
        self.ask(request).await
    }

    /// A unary call with this request.
    pub(crate) async fn ask(&self, request: Request<EchoRequest>) -> Heard {
        Heard::of(patiently(self.client.clone().unary(request)).await)
    }

    /// A unary call in a task of its own.
    pub(crate) fn spawn(&self, text: &str) -> JoinHandle<Heard> {
        let (mut client, request) = (self.client.clone(), request(text));
        tokio::spawn(async move { Heard::of(client.unary(request).await) })
    }

    /// A call with streams in both directions, in a task of its own.
    pub(crate) fn bidi(&self) -> Talk {
        self.bidi_with(None)
    }

    /// The same with a deadline.
    pub(crate) fn bidi_with(&self, deadline: Option<Duration>) -> Talk {
        let (writer, written) = mpsc::unbounded_channel();
        let call_log = SharedCallLog::new();
        let mut request = with_diary(UnboundedReceiverStream::new(written), &call_log);
        if let Some(deadline) = deadline {
            request.set_timeout(deadline);
        }
        let mut client = self.client.clone();
        let call = tokio::spawn(async move { client.bidi(request).await });
        Talk { writer: Some(writer), call: Some(call), call_log }
    }

    /// Lets everything happen that happens in this moment, and the next millisecond.
    pub(crate) async fn settle(&self) {
        tokio::time::sleep(ms(1)).await;
    }

    /// How many streams the server has seen.
    pub(crate) fn attempts(&self) -> u64 {
        self.server.counts().streams
    }

    /// The statistics of a method.
    pub(crate) fn statistics(&self, method: &str) -> redial_grpc::MethodStatistics {
        self.control.statistics()[&*format!("/redial.test.Echo/{method}")]
    }

    /// What the server saw, once no stream is open. Nothing is left behind.
    pub(crate) async fn finish(self) -> Record {
        patiently(self.server.idle()).await;
        let record = self.server.record();
        assert_eq!(self.control.bytes_kept(), 0, "everything that was kept is freed");
        assert_eq!(record.counts.streams_unscripted, 0, "no attempt too many: {record:#?}");
        record
    }
}

fn with_diary<T>(message: T, call_log: &SharedCallLog) -> Request<T> {
    let mut request = Request::new(message);
    request.extensions_mut().insert(CallOptions::new().call_log(call_log));
    request
}

/// Why the call ended; it did so once.
pub(crate) fn stop_reason(call_log: &SharedCallLog) -> StopReason {
    let call_log = call_log.read();
    let mut ends = call_log.events().iter().filter_map(|(_, event)| match event {
        Event::CallEnded { stop_reason, .. } => Some(*stop_reason),
        _ => None,
    });
    let stop_reason = ends.next().expect("the call has ended");
    assert_eq!(ends.next(), None, "a call ends once");
    stop_reason
}

/// A call with streams in both directions.
pub(crate) struct Talk {
    writer: Option<mpsc::UnboundedSender<EchoRequest>>,
    call: Option<JoinHandle<Result<Response<Streaming<EchoResponse>>, Status>>>,
    pub(crate) call_log: SharedCallLog,
}

impl Talk {
    /// The application writes these messages.
    pub(crate) fn write(&self, texts: &[&str]) {
        for text in texts {
            // Whether somebody still reads is the layer's business.
            let _ = self.writer.as_ref().expect("before the half-close").send(request(text));
        }
    }

    /// The application has written everything.
    pub(crate) fn half_close(&mut self) {
        self.writer = None;
    }

    /// Whether nobody reads what the application writes.
    pub(crate) fn is_unread(&self) -> bool {
        self.writer.as_ref().is_none_or(mpsc::UnboundedSender::is_closed)
    }

    /// The response's head, or the status instead of one.
    pub(crate) async fn head(&mut self) -> Result<Response<Streaming<EchoResponse>>, Status> {
        let call = self.call.take().expect("a call has one response");
        patiently(call).await.expect("the call's task ends by itself")
    }

    /// All messages of the response, and the status: the server's OK has no text.
    pub(crate) async fn all(&mut self) -> (Vec<String>, Code) {
        let response = match self.head().await {
            Ok(response) => response,
            Err(status) => return (Vec::new(), status.code()),
        };
        let mut stream = response.into_inner();
        let mut all = Vec::new();
        loop {
            match patiently(stream.message()).await {
                Ok(Some(message)) => all.push(text(&message)),
                Ok(None) => return (all, Code::Ok),
                Err(status) => return (all, status.code()),
            }
        }
    }

    /// Why the call ended.
    pub(crate) fn stop_reason(&self) -> StopReason {
        stop_reason(&self.call_log)
    }

    /// The application drops the call.
    pub(crate) async fn cancel(mut self) -> SharedCallLog {
        if let Some(call) = self.call.take() {
            call.abort();
            let ended = call.await;
            assert!(ended.is_err_and(|it| it.is_cancelled()), "the call was still running");
        }
        self.call_log
    }
}

pub(crate) fn text(message: &EchoResponse) -> String {
    String::from_utf8(message.payload.to_vec()).expect("payloads are text")
}

// What the server saw

/// When each attempt arrived, in milliseconds.
pub(crate) fn starts(record: &Record) -> Vec<u128> {
    record.streams.iter().map(|stream| stream.arrived.as_millis()).collect()
}

/// How many attempts each said came before it.
pub(crate) fn previous(record: &Record) -> Vec<Option<u64>> {
    record.streams.iter().map(Stream::previous_attempts).collect()
}

/// The messages of an attempt.
pub(crate) fn payloads(stream: &Stream) -> Vec<String> {
    let decode = |bytes: &bytes::Bytes| EchoRequest::decode(bytes.clone()).expect("a request");
    let texts = stream.payloads.iter().map(|bytes| decode(bytes).payload);
    texts.map(|text| String::from_utf8(text.to_vec()).expect("payloads are text")).collect()
}

/// When the client cancelled each attempt, in milliseconds; `None` where it did not.
pub(crate) fn cancels(record: &Record) -> Vec<Option<u128>> {
    let cancel = |stream: &Stream| {
        let reset = stream.reset.filter(|reset| reset.reason == Reason::CANCEL)?;
        Some(reset.at.as_millis())
    };
    record.streams.iter().map(cancel).collect()
}
