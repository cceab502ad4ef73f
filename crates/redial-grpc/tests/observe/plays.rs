//! Calls that are worth telling.

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

/// What the names of all servers begin with, and the method that is called.
pub(crate) const TARGET: &str = "dns:///echo.example/";
pub(crate) const METHOD: &str = "redial.test.Echo/Unary";

/// A call, or a few.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Play {
    /// Two attempts fail, the third succeeds; the server wants 50 ms between them.
    Retried,
    /// The first of three fails after 100 ms, the second succeeds, the third is cancelled.
    Hedged,
    /// The server refuses the stream, and answers the replacement.
    Replaced,
    /// The deadline passes while the first attempt runs.
    DeadlineAction,
    /// The deadline passes during a backoff.
    LateBetween,
    /// The first failure leaves too few tokens for a retry.
    Throttled,
    /// What is sent is larger than what may be kept.
    Sealed,
    /// The application drops the call.
    Dropped,
    /// Retries are off, so that nothing is kept and nothing can be too much to keep.
    Off,
    /// The message is larger than the config allows.
    TooLarge,
}

impl Play {
    pub(crate) const ALL: [Play; 10] = [
        Play::Retried,
        Play::Hedged,
        Play::Replaced,
        Play::DeadlineAction,
        Play::LateBetween,
        Play::Throttled,
        Play::Sealed,
        Play::Dropped,
        Play::Off,
        Play::TooLarge,
    ];

    /// Plays it with a layer of this making.
    pub(crate) async fn play(self, builder: RetryLayerBuilder) {
        // One name is one throttle, and tests run at once.
        static NAMES: AtomicU32 = AtomicU32::new(0);
        let name = format!("{TARGET}{}", NAMES.fetch_add(1, Ordering::Relaxed));
        let builder = builder.for_server(name).config(self.config());
        let layer = match self {
            Play::Sealed => builder.per_rpc_buffer_limit_in_bytes(4),
            Play::Off => builder.retries(Retries::Off).per_rpc_buffer_limit_in_bytes(4),
            _ => builder,
        }
        .build();
        let mut request = Request::new(self.request());
        if matches!(self, Play::DeadlineAction | Play::LateBetween) {
            request.set_timeout(Duration::from_millis(100));
        }
        let (code, previous) = match self {
            Play::Replaced => (replaced(&layer, request).await, None),
            Play::Dropped => {
                let mut client = echo(&layer);
                let call = tokio::time::timeout(Duration::from_millis(30), client.unary(request));
                assert!(call.await.is_err(), "it took less than 30 ms");
                return;
            }
            _ => match echo(&layer).unary(request).await {
                Ok(answer) => (Code::Ok, Some(answer.into_inner().previous_attempts)),
                Err(status) => (status.code(), None),
            },
        };
        let expected = match self {
            Play::Retried => (Code::Ok, Some(2)),
            Play::Hedged => (Code::Ok, Some(1)),
            Play::Replaced => (Code::Ok, None),
            Play::DeadlineAction | Play::LateBetween => (Code::DeadlineExceeded, None),
            Play::TooLarge => (Code::ResourceExhausted, None),
            Play::Throttled | Play::Sealed | Play::Off => (Code::Unavailable, None),
            Play::Dropped => unreachable!("it returned"),
        };
        assert_eq!((code, previous), expected, "{self:?}");
    }

    fn config(self) -> ServiceConfig {
        let text = match self {
            Play::Hedged => hedge_config(3, "0.01s"),
            Play::Throttled => retry_config(4).replacen(
                '{',
                r#"{ "retryThrottling": { "maxTokens": 2, "tokenRatio": 0.1 },"#,
                1,
            ),
            Play::TooLarge => {
                r#"{ "methodConfig": [{ "name": [{}], "maxRequestMessageBytes": 1 }] }"#.to_owned()
            }
            _ => retry_config(4),
        };
        ServiceConfig::parse(&text).unwrap()
    }

    pub(crate) fn request(self) -> EchoRequest {
        let (failures, delay_ms, pushback_ms) = match self {
            Play::Retried => (2, 0, Some(50)),
            Play::Hedged => (1, 100, None),
            Play::Replaced | Play::TooLarge => (0, 0, None),
            Play::DeadlineAction | Play::Dropped => (0, 1000, None),
            Play::LateBetween => (1, 0, Some(5000)),
            Play::Throttled | Play::Sealed | Play::Off => (1, 20, None),
        };
        let payload = "payload".into();
        EchoRequest { payload, failures, delay_ms, pushback_ms, ..EchoRequest::default() }
    }

    pub(crate) fn response(self) -> EchoResponse {
        let previous_attempts = match self {
            Play::Retried => 2,
            Play::Hedged => 1,
            _ => 0,
        };
        EchoResponse { payload: "payload".into(), previous_attempts, received: 1 }
    }
}

async fn replaced(layer: &RetryLayer, request: Request<EchoRequest>) -> Code {
    let reply = Play::Replaced.response().encode_to_vec();
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
