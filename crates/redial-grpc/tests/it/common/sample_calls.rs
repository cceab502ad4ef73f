//! Calls of every kind, for the tests of metrics and spans: each sink must report them the same way.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use prost::Message;
use redial_echo::echo_client::EchoClient;
use redial_echo::{EchoRequest, EchoResponse};
use redial_faults::grpc::{Answer, Reason, Script, Server};
use redial_grpc::{Retries, RetryLayer, RetryLayerBuilder, ServiceConfig};
use tonic::transport::Endpoint;
use tonic::{Code, Request};
use tower::{ServiceBuilder, service_fn};

use crate::common::{echo, hedge_config, retry_config};

/// The prefix of all server names, and the method that is called.
pub(crate) const TARGET: &str = "dns:///echo.example/";
pub(crate) const METHOD: &str = "redial.test.Echo/Unary";

/// A kind of call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SampleCall {
    /// Two attempts fail, the third succeeds; the server wants 50 ms between them.
    Retried,
    /// The first of three fails after 100 ms, the second succeeds, the third is cancelled.
    Hedged,
    /// The server refuses the stream, and answers the transparent retry.
    TransparentlyRetried,
    /// The deadline passes while the first attempt runs.
    DeadlineInAttempt,
    /// The deadline passes during a backoff.
    DeadlineInBackoff,
    /// The first failure leaves too few tokens for a retry.
    Throttled,
    /// The request is larger than the replay buffer.
    BufferFull,
    /// The application drops the future of the call.
    Cancelled,
    /// Retries are off, so the replay buffer is not used and cannot overflow.
    RetriesOff,
    /// The message is larger than the config allows.
    TooLarge,
}

impl SampleCall {
    pub(crate) const ALL: [SampleCall; 10] = [
        SampleCall::Retried,
        SampleCall::Hedged,
        SampleCall::TransparentlyRetried,
        SampleCall::DeadlineInAttempt,
        SampleCall::DeadlineInBackoff,
        SampleCall::Throttled,
        SampleCall::BufferFull,
        SampleCall::Cancelled,
        SampleCall::RetriesOff,
        SampleCall::TooLarge,
    ];

    /// Makes the call with a layer from this builder.
    pub(crate) async fn make(self, builder: RetryLayerBuilder) {
        // Layers with the same name share a throttle, and tests run in parallel.
        static NAMES: AtomicU32 = AtomicU32::new(0);
        let name = format!("{TARGET}{}", NAMES.fetch_add(1, Ordering::Relaxed));
        let builder = builder.for_server(name).config(self.config());
        let layer = match self {
            SampleCall::BufferFull => builder.per_rpc_buffer_limit_in_bytes(4),
            SampleCall::RetriesOff => {
                builder.retries(Retries::Off).per_rpc_buffer_limit_in_bytes(4)
            }
            _ => builder,
        }
        .build();
        let mut request = Request::new(self.request());
        if matches!(self, SampleCall::DeadlineInAttempt | SampleCall::DeadlineInBackoff) {
            request.set_timeout(Duration::from_millis(100));
        }
        let (code, previous) = match self {
            SampleCall::TransparentlyRetried => {
                (transparently_retried(&layer, request).await, None)
            }
            SampleCall::Cancelled => {
                let mut client = echo(&layer);
                let call = tokio::time::timeout(Duration::from_millis(30), client.unary(request));
                assert!(call.await.is_err(), "the call ended within 30 ms");
                return;
            }
            _ => match echo(&layer).unary(request).await {
                Ok(answer) => (Code::Ok, Some(answer.into_inner().previous_attempts)),
                Err(status) => (status.code(), None),
            },
        };
        let expected = match self {
            SampleCall::Retried => (Code::Ok, Some(2)),
            SampleCall::Hedged => (Code::Ok, Some(1)),
            SampleCall::TransparentlyRetried => (Code::Ok, None),
            SampleCall::DeadlineInAttempt | SampleCall::DeadlineInBackoff => {
                (Code::DeadlineExceeded, None)
            }
            SampleCall::TooLarge => (Code::ResourceExhausted, None),
            SampleCall::Throttled | SampleCall::BufferFull | SampleCall::RetriesOff => {
                (Code::Unavailable, None)
            }
            SampleCall::Cancelled => unreachable!("returned above"),
        };
        assert_eq!((code, previous), expected, "{self:?}");
    }

    fn config(self) -> ServiceConfig {
        let text = match self {
            SampleCall::Hedged => hedge_config(3, "0.01s"),
            SampleCall::Throttled => retry_config(4).replacen(
                '{',
                r#"{ "retryThrottling": { "maxTokens": 2, "tokenRatio": 0.1 },"#,
                1,
            ),
            SampleCall::TooLarge => {
                r#"{ "methodConfig": [{ "name": [{}], "maxRequestMessageBytes": 1 }] }"#.to_owned()
            }
            _ => retry_config(4),
        };
        ServiceConfig::parse(&text).unwrap()
    }

    pub(crate) fn request(self) -> EchoRequest {
        let (failures, delay_ms, pushback_ms) = match self {
            SampleCall::Retried => (2, 0, Some(50)),
            SampleCall::Hedged => (1, 100, None),
            SampleCall::TransparentlyRetried | SampleCall::TooLarge => (0, 0, None),
            SampleCall::DeadlineInAttempt | SampleCall::Cancelled => (0, 1000, None),
            SampleCall::DeadlineInBackoff => (1, 0, Some(5000)),
            SampleCall::Throttled | SampleCall::BufferFull | SampleCall::RetriesOff => {
                (1, 20, None)
            }
        };
        let payload = "payload".into();
        EchoRequest { payload, failures, delay_ms, pushback_ms, ..EchoRequest::default() }
    }

    pub(crate) fn response(self) -> EchoResponse {
        let previous_attempts = match self {
            SampleCall::Retried => 2,
            SampleCall::Hedged => 1,
            _ => 0,
        };
        EchoResponse { payload: "payload".into(), previous_attempts, received: 1 }
    }
}

async fn transparently_retried(layer: &RetryLayer, request: Request<EchoRequest>) -> Code {
    let reply = SampleCall::TransparentlyRetried.response().encode_to_vec();
    let script =
        Script::new().attempts([Answer::reset(Reason::REFUSED_STREAM), Answer::reply(reply)]);
    let server = Server::new(script).on_pipe();
    let connector = server.connector();
    let endpoint = Endpoint::from_static("http://pipe");
    let channel = endpoint.connect_with_connector_lazy(service_fn(move |_| {
        let connector = connector.clone();
        async move { connector.connect().await.map(TokioIo::new) }
    }));
    let channel = ServiceBuilder::new().layer(layer.clone()).service(channel);
    match EchoClient::new(channel).unary(request).await {
        Ok(_) => Code::Ok,
        Err(status) => status.code(),
    }
}
