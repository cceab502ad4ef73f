//! [`StreamingHarness`]: a client with the layer and a scripted server, for streaming calls and for
//! exact times, because its backoffs have no jitter.
//!
//! No test hangs: every wait is limited to [`HANG_LIMIT`] of virtual time (see [`no_hang`]).

use std::time::Duration;

use hyper_util::rt::TokioIo;
use prost::Message as _;
use redial_core::{Event, StopReason};
use redial_echo::echo_client::EchoClient;
use redial_echo::{EchoRequest, EchoResponse};
use redial_faults::grpc::{Answer, Connector, Handle, Pipe, Reason, Record, StatusNumber, WaitFor};
use redial_faults::grpc::{Script, Server, StreamRecord};
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

use super::harness::ms;

/// Longer than any delay of a test.
const HANG_LIMIT: Duration = Duration::from_secs(30 * 24 * 60 * 60);

pub(crate) type TestClient = EchoClient<RetryService<Channel>>;

pub(crate) const fn s(s: u64) -> Duration {
    Duration::from_secs(s)
}

/// Waits for the future, and fails the test if it does not complete.
pub(crate) async fn no_hang<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(HANG_LIMIT, future).await.expect("the future completes")
}

/// Sleeps until this time since the start of the test.
pub(crate) async fn sleep_until(harness: &StreamingHarness, moment: Duration) {
    tokio::time::sleep_until(harness.began + moment).await;
}

// Configs

/// A `retryPolicy` with these backoffs; the codes are separated by blanks.
pub(crate) fn retry_policy(
    attempts: u32,
    initial: &str,
    max: &str,
    factor: f64,
    codes: &str,
) -> String {
    let codes = json_list(codes);
    format!(
        r#""retryPolicy": {{ "maxAttempts": {attempts}, "initialBackoff": "{initial}",
            "maxBackoff": "{max}", "backoffMultiplier": {factor}, "retryableStatusCodes": {codes} }}"#
    )
}

/// A `hedgingPolicy`; the codes are separated by blanks.
pub(crate) fn hedging_policy(attempts: u32, delay: &str, codes: &str) -> String {
    let codes = json_list(codes);
    format!(
        r#""hedgingPolicy": {{ "maxAttempts": {attempts}, "hedgingDelay": "{delay}",
            "nonFatalStatusCodes": {codes} }}"#
    )
}

fn json_list(codes: &str) -> String {
    format!("{:?}", codes.split(' ').collect::<Vec<_>>())
}

/// A config with this policy for the whole service.
pub(crate) fn config_json(policy: &str) -> String {
    format!(
        r#"{{ "methodConfig": [{{ "name": [{{ "service": "redial.test.Echo" }}], {policy} }}] }}"#
    )
}

/// The same with a throttle.
pub(crate) fn throttled_config(policy: &str, max_tokens: u32, token_ratio: f64) -> String {
    let throttling = format!(
        r#"{{ "retryThrottling": {{ "maxTokens": {max_tokens}, "tokenRatio": {token_ratio} }},"#
    );
    config_json(policy).replacen('{', &throttling, 1)
}

/// A layer whose backoffs have no jitter.
pub(crate) fn without_jitter(config: &str) -> RetryLayerBuilder {
    let config = ServiceConfig::parse(config).expect("the config is valid");
    RetryLayer::builder().config(config).jitter(Jitter::None)
}

// Answers

/// A failure before any response headers.
pub(crate) fn fails(code: StatusNumber) -> Answer {
    Answer::trailers_only(code).text("from the script")
}

/// One message and OK.
pub(crate) fn replies(text: &str) -> Answer {
    Answer::headers().message(response_bytes(text)).trailers(StatusNumber::OK)
}

/// The same, this long after the attempt arrived at the server.
pub(crate) fn replies_at(after: Duration, text: &str) -> Answer {
    let answer =
        Answer::headers().after(after).message(response_bytes(text)).trailers(StatusNumber::OK);
    answer.wait_for(WaitFor::Headers)
}

/// An encoded response message.
pub(crate) fn response_bytes(text: &str) -> Vec<u8> {
    let payload = text.to_owned().into();
    EchoResponse { payload, ..EchoResponse::default() }.encode_to_vec()
}

/// A request message.
pub(crate) fn request(text: &str) -> EchoRequest {
    EchoRequest { payload: text.to_owned().into(), ..EchoRequest::default() }
}

/// The bytes that a request message takes in the replay buffer (decision G23).
pub(crate) fn buffered_size(text: &str) -> u64 {
    5 + request(text).encoded_len() as u64
}

// The harness

/// A client with the layer, and its server.
pub(crate) struct StreamingHarness {
    pub(crate) server: Handle<Pipe>,
    pub(crate) control: Control,
    pub(crate) client: TestClient,
    began: tokio::time::Instant,
}

/// A harness with this config and backoffs without jitter.
pub(crate) fn harness(config: &str, script: impl Into<Script>) -> StreamingHarness {
    harness_with(without_jitter(config), Server::new(script))
}

pub(crate) fn harness_with(layer: RetryLayerBuilder, server: Server) -> StreamingHarness {
    let layer = layer.build();
    let server = server.on_pipe();
    let channel =
        ServiceBuilder::new().layer(layer.clone()).service(pipe_channel(server.connector()));
    StreamingHarness {
        server,
        control: layer.control(),
        client: EchoClient::new(channel),
        began: tokio::time::Instant::now(),
    }
}

pub(crate) fn pipe_channel(connector: Connector) -> Channel {
    let endpoint = Endpoint::from_static("http://pipe");
    endpoint.connect_with_connector_lazy(service_fn(move |_| {
        let connector = connector.clone();
        async move { connector.connect().await.map(TokioIo::new) }
    }))
}

/// What the application gets from a unary call.
#[derive(Debug, PartialEq)]
pub(crate) struct UnaryOutcome {
    pub(crate) code: Code,
    /// The payload of the response, or the message of the status.
    pub(crate) text: String,
    /// `grpc-previous-rpc-attempts`.
    pub(crate) previous: Option<u32>,
}

impl UnaryOutcome {
    pub(crate) fn from_result(result: Result<Response<EchoResponse>, Status>) -> UnaryOutcome {
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
        UnaryOutcome { code, text, previous }
    }
}

impl StreamingHarness {
    /// The time since the start of the test.
    pub(crate) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// A unary call.
    pub(crate) async fn unary(&self, text: &str) -> UnaryOutcome {
        self.unary_request(Request::new(request(text))).await
    }

    /// A unary call, with its stop reason.
    pub(crate) async fn unary_with_stop_reason(&self, text: &str) -> (UnaryOutcome, StopReason) {
        let call_log = SharedCallLog::new();
        let outcome = self.unary_request(with_call_log(request(text), &call_log)).await;
        (outcome, stop_reason(&call_log))
    }

    /// A unary call with this deadline.
    pub(crate) async fn unary_with_deadline(&self, deadline: Duration, text: &str) -> UnaryOutcome {
        let mut request = Request::new(request(text));
        request.set_timeout(deadline);
        self.unary_request(request).await
    }

    /// A unary call with this request.
    pub(crate) async fn unary_request(&self, request: Request<EchoRequest>) -> UnaryOutcome {
        UnaryOutcome::from_result(no_hang(self.client.clone().unary(request)).await)
    }

    /// A unary call in a task of its own.
    pub(crate) fn spawn(&self, text: &str) -> JoinHandle<UnaryOutcome> {
        let (mut client, request) = (self.client.clone(), request(text));
        tokio::spawn(async move { UnaryOutcome::from_result(client.unary(request).await) })
    }

    /// A call with streams in both directions, in a task of its own.
    pub(crate) fn bidi(&self) -> BidiCall {
        self.bidi_with(None)
    }

    /// The same with a deadline.
    pub(crate) fn bidi_with(&self, deadline: Option<Duration>) -> BidiCall {
        let (writer, messages) = mpsc::unbounded_channel();
        let call_log = SharedCallLog::new();
        let mut request = with_call_log(UnboundedReceiverStream::new(messages), &call_log);
        if let Some(deadline) = deadline {
            request.set_timeout(deadline);
        }
        let mut client = self.client.clone();
        let call = tokio::spawn(async move { client.bidi(request).await });
        BidiCall { writer: Some(writer), call: Some(call), call_log }
    }

    /// Lets all pending work run, for a millisecond of virtual time.
    pub(crate) async fn settle(&self) {
        tokio::time::sleep(ms(1)).await;
    }

    /// The number of streams that arrived at the server.
    pub(crate) fn attempts(&self) -> u64 {
        self.server.counts().streams
    }

    /// The statistics of a method.
    pub(crate) fn statistics(&self, method: &str) -> redial_grpc::MethodStatistics {
        self.control.statistics()[&*format!("/redial.test.Echo/{method}")]
    }

    /// What the server received, once no stream is open; checks that the replay buffer is empty.
    pub(crate) async fn finish(self) -> Record {
        no_hang(self.server.idle()).await;
        let record = self.server.record();
        assert_eq!(self.control.bytes_kept(), 0, "the replay buffer is empty");
        assert_eq!(
            record.counts.streams_unscripted, 0,
            "the server received no unexpected attempt: {record:#?}"
        );
        record
    }
}

fn with_call_log<T>(message: T, call_log: &SharedCallLog) -> Request<T> {
    let mut request = Request::new(message);
    request.extensions_mut().insert(CallOptions::new().call_log(call_log));
    request
}

/// The stop reason of a finished call.
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
pub(crate) struct BidiCall {
    writer: Option<mpsc::UnboundedSender<EchoRequest>>,
    call: Option<JoinHandle<Result<Response<Streaming<EchoResponse>>, Status>>>,
    pub(crate) call_log: SharedCallLog,
}

impl BidiCall {
    /// Sends these request messages.
    pub(crate) fn write(&self, texts: &[&str]) {
        for text in texts {
            // The layer drops the receiver when the call no longer needs the request.
            let _ = self.writer.as_ref().expect("before the half-close").send(request(text));
        }
    }

    /// Ends the request stream.
    pub(crate) fn half_close(&mut self) {
        self.writer = None;
    }

    /// Whether the layer has dropped the request stream.
    pub(crate) fn is_request_dropped(&self) -> bool {
        self.writer.as_ref().is_none_or(mpsc::UnboundedSender::is_closed)
    }

    /// The response headers, or the status.
    pub(crate) async fn response(&mut self) -> Result<Response<Streaming<EchoResponse>>, Status> {
        let call = self.call.take().expect("a call has one response");
        no_hang(call).await.expect("the task of the call does not panic")
    }

    /// All response messages, and the final status code.
    pub(crate) async fn collect(&mut self) -> (Vec<String>, Code) {
        let response = match self.response().await {
            Ok(response) => response,
            Err(status) => return (Vec::new(), status.code()),
        };
        let mut stream = response.into_inner();
        let mut all = Vec::new();
        loop {
            match no_hang(stream.message()).await {
                Ok(Some(message)) => all.push(text(&message)),
                Ok(None) => return (all, Code::Ok),
                Err(status) => return (all, status.code()),
            }
        }
    }

    /// The stop reason.
    pub(crate) fn stop_reason(&self) -> StopReason {
        stop_reason(&self.call_log)
    }

    /// Cancels the call by dropping its future.
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

// What the server received

/// When each attempt arrived, in milliseconds.
pub(crate) fn starts(record: &Record) -> Vec<u128> {
    record.streams.iter().map(|stream| stream.arrived.as_millis()).collect()
}

/// `grpc-previous-rpc-attempts` of each attempt.
pub(crate) fn previous(record: &Record) -> Vec<Option<u64>> {
    record.streams.iter().map(StreamRecord::previous_attempts).collect()
}

/// The payloads of the request messages of an attempt.
pub(crate) fn payloads(stream: &StreamRecord) -> Vec<String> {
    let decode = |bytes: &bytes::Bytes| EchoRequest::decode(bytes.clone()).expect("a request");
    let texts = stream.payloads.iter().map(|bytes| decode(bytes).payload);
    texts.map(|text| String::from_utf8(text.to_vec()).expect("payloads are text")).collect()
}

/// When the client cancelled each attempt, in milliseconds; `None` where it did not.
pub(crate) fn cancels(record: &Record) -> Vec<Option<u128>> {
    let cancel = |stream: &StreamRecord| {
        let reset = stream.reset.filter(|reset| reset.reason == Reason::CANCEL)?;
        Some(reset.at.as_millis())
    };
    record.streams.iter().map(cancel).collect()
}

// Policies and calls of the test suites of other libraries

/// The policy of grpc-java's retry tests.
pub(crate) fn six_attempts_policy() -> String {
    retry_policy(6, "100s", "700s", 2.0, "UNAVAILABLE DATA_LOSS")
}

pub(crate) fn six_attempts_config() -> String {
    config_json(&six_attempts_policy())
}

/// The config of C-core's retry tests.
pub(crate) fn aborted_config(attempts: u32) -> String {
    config_json(&retry_policy(attempts, "1s", "120s", 1.6, "ABORTED"))
}

/// The config of grpc-go's streaming tests.
pub(crate) fn four_attempts_config() -> String {
    config_json(&retry_policy(4, "0.01s", "0.01s", 1.0, "UNAVAILABLE"))
}

/// A failure after the server has read this many messages.
pub(crate) fn fails_after(messages: u64, code: StatusNumber) -> Answer {
    fails(code).wait_for(WaitFor::Messages(messages))
}

/// One message and OK after the server has read this many messages.
pub(crate) fn replies_after(messages: u64, text: &str) -> Answer {
    replies(text).wait_for(WaitFor::Messages(messages))
}

/// A stream with several messages that the server did not read, in a long backoff.
pub(crate) async fn several_messages_then(
    deadline: Option<std::time::Duration>,
) -> (StreamingHarness, BidiCall) {
    let policy = retry_policy(2, "5s", "120s", 1.6, "ABORTED");
    let harness = harness(
        &config_json(&policy),
        fails(StatusNumber::ABORTED).accepts(0).wait_for(WaitFor::Headers),
    );
    let mut bidi = harness.bidi_with(deadline);
    bidi.write(&["foo"]);
    harness.settle().await;
    bidi.write(&["bar"]);
    bidi.half_close();
    harness.settle().await;
    (harness, bidi)
}

/// A call whose first attempts fail with this code.
pub(crate) async fn failing_call(
    layer: RetryLayerBuilder,
    failures: u32,
    code: Code,
) -> UnaryOutcome {
    let code = u32::try_from(i32::from(code)).unwrap();
    let request = EchoRequest { payload: "x".into(), failures, code, ..EchoRequest::default() };
    UnaryOutcome::from_result(no_hang(super::echo(&layer.build()).unary(request)).await)
}

pub(crate) fn expected_outcome(code: Code, text: &str, previous: Option<u32>) -> UnaryOutcome {
    UnaryOutcome { code, text: text.to_owned(), previous }
}

/// A status number above those of gRPC is UNKNOWN and not retried.
pub(crate) async fn check_unknown_status_is_fatal(
    layer: RetryLayerBuilder,
    attempts: &[Option<u64>],
) {
    let strange =
        fails(StatusNumber::UNKNOWN).without("grpc-status").metadata("grpc-status", "300");
    let harness = harness_with(layer, Server::new(vec![strange; attempts.len()]));
    let (failed, stop_reason) = harness.unary_with_stop_reason("x").await;
    assert_eq!((failed.code, &*failed.text), (Code::Unknown, "from the script"));
    assert_eq!(stop_reason, redial_core::StopReason::NotRetryable);
    assert_eq!(previous(&harness.finish().await), attempts);
}
