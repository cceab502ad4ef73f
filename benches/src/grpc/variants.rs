//! The same calls through a plain channel, a hand-written loop, and the layer in several
//! configurations.

use std::time::Duration;

use redial_echo::EchoRequest;
use redial_echo::echo_client::EchoClient;
use redial_grpc::{Retries, RetryLayer, ServiceConfig};
use tonic::body::Body;
use tonic::client::GrpcService;
use tonic::transport::Endpoint;
use tower::Layer;

use crate::count;

/// The first is the baseline; the second repeats it to show the noise.
pub const VARIANTS: &[&str] = &[
    "plain",
    "plain again",
    "hand-written loop",
    "layer, retries disabled",
    "layer, no policy",
    "layer, retry policy and throttle",
    "layer, hedging policy and throttle",
];

/// How many calls run concurrently.
const CONCURRENT: u64 = 16;
const PAYLOAD: usize = 100;
const MESSAGES: usize = 1000;

#[derive(Clone, Copy, PartialEq)]
pub enum Shape {
    Unary,
    Stream,
    Bytes,
}

impl Shape {
    pub fn named(name: &str) -> Shape {
        match name {
            "unary" => Shape::Unary,
            "stream" => Shape::Stream,
            "bytes" => Shape::Bytes,
            other => panic!("no shape {other}"),
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Shape::Unary => "unary",
            Shape::Stream => "stream",
            Shape::Bytes => "bytes",
        }
    }

    pub fn title(self) -> String {
        match self {
            Shape::Unary => format!("a unary call of {PAYLOAD} bytes, {CONCURRENT} at once"),
            Shape::Stream => format!("a client stream of {MESSAGES} messages of {PAYLOAD} bytes"),
            Shape::Bytes => "bytes".to_owned(),
        }
    }

    /// The two counts of calls whose difference is measured.
    pub fn counts(self) -> (u64, u64) {
        match self {
            Shape::Unary => (400, 2000),
            Shape::Stream => (4, 24),
            Shape::Bytes => (0, 1000),
        }
    }
}

/// Makes the calls, and returns how many allocations they took (or bytes they hold, for `Bytes`).
pub fn run(shape: Shape, variant: &str, calls: u64, address: &str) -> i64 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("one");
    runtime.block_on(async {
        let channel = Endpoint::from_shared(address.to_owned())
            .expect("an address")
            .initial_stream_window_size(1 << 20)
            .initial_connection_window_size(1 << 24)
            .connect()
            .await
            .expect("the server is there");
        match variant {
            "plain" | "plain again" => calls_of(shape, channel, calls, false).await,
            "hand-written loop" => calls_of(shape, channel, calls, true).await,
            layered => calls_of(shape, layer(layered).layer(channel), calls, false).await,
        }
    })
}

fn layer(variant: &str) -> RetryLayer {
    let policy = match variant {
        "layer, hedging policy and throttle" => {
            r#""hedgingPolicy": { "maxAttempts": 3, "hedgingDelay": "10s",
                                  "nonFatalStatusCodes": ["UNAVAILABLE"] }"#
        }
        _ => {
            r#""retryPolicy": { "maxAttempts": 4, "initialBackoff": "0.1s", "maxBackoff": "1s",
                                "backoffMultiplier": 2, "retryableStatusCodes": ["UNAVAILABLE"] }"#
        }
    };
    let config = format!(
        r#"{{ "methodConfig": [{{ "name": [{{ "service": "redial.test.Echo" }}], {policy} }}],
             "retryThrottling": {{ "maxTokens": 100, "tokenRatio": 0.1 }} }}"#
    );
    let builder = match variant {
        "layer, no policy" => RetryLayer::builder(),
        "layer, retries disabled" => RetryLayer::builder().retries(Retries::Off),
        _ => RetryLayer::builder().config(ServiceConfig::parse(&config).expect("a config")),
    };
    builder.build()
}

async fn calls_of<S>(shape: Shape, service: S, calls: u64, by_hand: bool) -> i64
where
    S: GrpcService<Body> + Clone + 'static,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    S::ResponseBody: tonic::codegen::Body<Data = tonic::codegen::Bytes> + Send + 'static,
    <S::ResponseBody as tonic::codegen::Body>::Error:
        Into<Box<dyn std::error::Error + Send + Sync>> + Send,
{
    let client = EchoClient::new(service);
    let set = tokio::task::LocalSet::new();
    // Warm-up for one-time costs.
    set.run_until(one(shape, client.clone(), by_hand)).await;
    if shape == Shape::Bytes {
        return held(client, calls, &set).await;
    }
    let before = count::allocations();
    set.run_until(async {
        let tasks: Vec<_> = (0..CONCURRENT)
            .map(|task| {
                let client = client.clone();
                tokio::task::spawn_local(async move {
                    for _ in (task..calls).step_by(CONCURRENT as usize) {
                        one(shape, client.clone(), by_hand).await;
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.expect("a call");
        }
    })
    .await;
    (count::allocations() - before) as i64
}

/// The heap bytes that calls hold while they wait for their responses.
async fn held<S>(client: EchoClient<S>, calls: u64, set: &tokio::task::LocalSet) -> i64
where
    S: GrpcService<Body> + Clone + 'static,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    S::ResponseBody: tonic::codegen::Body<Data = tonic::codegen::Bytes> + Send + 'static,
    <S::ResponseBody as tonic::codegen::Body>::Error:
        Into<Box<dyn std::error::Error + Send + Sync>> + Send,
{
    let before = count::live();
    set.run_until(async {
        for _ in 0..calls {
            let mut client = client.clone();
            tokio::task::spawn_local(async move {
                let payload = vec![7; 1024].into();
                let request = EchoRequest { payload, delay_ms: 60_000, ..EchoRequest::default() };
                client.unary(request).await.expect("an answer");
            });
        }
        tokio::time::sleep(Duration::from_millis(1500)).await;
    })
    .await;
    (count::live() - before) / calls as i64
}

async fn one<S>(shape: Shape, mut client: EchoClient<S>, by_hand: bool)
where
    S: GrpcService<Body>,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    S::ResponseBody: tonic::codegen::Body<Data = tonic::codegen::Bytes> + Send + 'static,
    <S::ResponseBody as tonic::codegen::Body>::Error:
        Into<Box<dyn std::error::Error + Send + Sync>> + Send,
{
    let request = || EchoRequest { payload: vec![7; PAYLOAD].into(), ..EchoRequest::default() };
    if shape == Shape::Stream {
        let messages: Vec<_> = (0..MESSAGES).map(|_| request()).collect();
        client.client_stream(tokio_stream::iter(messages)).await.expect("an answer");
        return;
    }
    let attempts = if by_hand { 4 } else { 1 };
    for attempt in 1..=attempts {
        match client.unary(request()).await {
            Ok(_) => return,
            Err(status) if attempt < attempts && status.code() == tonic::Code::Unavailable => {}
            Err(status) => panic!("{status}"),
        }
    }
}

