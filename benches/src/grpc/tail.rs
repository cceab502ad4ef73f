//! The effect of hedging on tail latency: a server that answers in 2 ms, and one call in a hundred
//! in 200 ms, on virtual time over a pipe in memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use redial_core::Random;
use redial_echo::echo_client::EchoClient;
use redial_echo::echo_server::{Echo, EchoServer};
use redial_echo::{EchoRequest, EchoResponse, Responder};
use redial_grpc::{HedgeAt, RetryLayer, ServiceConfig};
use tokio::time::Instant;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Response, Status, Streaming};
use tower::{Layer, service_fn};

const CALLS: usize = 20_000;

pub fn table() {
    println!("\n## tail: {CALLS} calls, 2 ms, one answer in a hundred 200 ms");
    println!("| variant | p50 | p99 | p99.5 | p99.9 | requests |\n| --- | --- | --- | --- | --- | --- |");
    for variant in [Variant::Plain, Variant::Fixed, Variant::Quantile] {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .expect("a runtime");
        let (mut took, requests) = runtime.block_on(run(variant));
        took.sort_unstable();
        let at = |share: f64| took[((CALLS as f64 * share) as usize).min(CALLS - 1)].as_secs_f64() * 1e3;
        println!(
            "| {} | {:.1} ms | {:.1} ms | {:.1} ms | {:.1} ms | {:+.2} % |",
            variant.name(),
            at(0.5),
            at(0.99),
            at(0.995),
            at(0.999),
            (requests as f64 / CALLS as f64 - 1.0) * 100.0,
        );
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Variant {
    Plain,
    Fixed,
    /// With a config whose hedging delay is far too long.
    Quantile,
}

impl Variant {
    fn name(self) -> &'static str {
        match self {
            Variant::Plain => "plain",
            Variant::Fixed => "hedged after 10 ms",
            Variant::Quantile => "hedged at the 98th percentile",
        }
    }

    fn layer(self) -> RetryLayer {
        let delay = if self == Variant::Fixed { "0.01s" } else { "1s" };
        let config = format!(
            r#"{{ "methodConfig": [{{ "name": [{{}}], "hedgingPolicy": {{
                "maxAttempts": 2, "hedgingDelay": "{delay}",
                "nonFatalStatusCodes": ["UNAVAILABLE", "DEADLINE_EXCEEDED"] }} }}],
                "retryThrottling": {{ "maxTokens": 100, "tokenRatio": 0.1 }} }}"#
        );
        let config = if self == Variant::Plain { "{}" } else { &*config };
        let builder = RetryLayer::builder().config(ServiceConfig::parse(config).expect("a config"));
        match self {
            Variant::Quantile => builder.hedge_at(HedgeAt::quantile(0.98).build()).build(),
            _ => builder.build(),
        }
    }
}

async fn run(variant: Variant) -> (Vec<Duration>, u64) {
    let requests = Arc::new(AtomicU64::new(0));
    let channel = channel(Slow { requests: requests.clone() });
    let mut client = EchoClient::new(variant.layer().layer(channel));
    let mut took = Vec::with_capacity(CALLS);
    for _ in 0..CALLS {
        let began = Instant::now();
        client.unary(EchoRequest::default()).await.expect("an answer");
        took.push(began.elapsed());
    }
    (took, requests.load(Ordering::Relaxed))
}

fn channel(service: Slow) -> Channel {
    let (connections, accepted) = tokio::sync::mpsc::unbounded_channel::<std::io::Result<_>>();
    tokio::spawn(async move {
        let server = Server::builder().add_service(EchoServer::new(service));
        server.serve_with_incoming(UnboundedReceiverStream::new(accepted)).await
    });
    Endpoint::from_static("http://echo").connect_with_connector_lazy(service_fn(move |_| {
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        connections.send(Ok(theirs)).expect("the server runs");
        std::future::ready(Ok::<_, std::io::Error>(TokioIo::new(ours)))
    }))
}

/// Answers in 2 ms, and one call in a hundred in 200 ms.
struct Slow {
    requests: Arc<AtomicU64>,
}

#[tonic::async_trait]
impl Echo for Slow {
    async fn unary(&self, request: Request<EchoRequest>) -> Result<Response<EchoResponse>, Status> {
        let nth = self.requests.fetch_add(1, Ordering::Relaxed);
        let slow = Random::new(nth).draw() < 0.01;
        tokio::time::sleep(Duration::from_millis(if slow { 200 } else { 2 })).await;
        Responder.unary(request).await
    }

    async fn client_stream(
        &self,
        request: Request<Streaming<EchoRequest>>,
    ) -> Result<Response<EchoResponse>, Status> {
        Responder.client_stream(request).await
    }

    type ServerStreamStream = <Responder as Echo>::ServerStreamStream;

    async fn server_stream(
        &self,
        request: Request<EchoRequest>,
    ) -> Result<Response<Self::ServerStreamStream>, Status> {
        Responder.server_stream(request).await
    }

    type BidiStream = <Responder as Echo>::BidiStream;

    async fn bidi(
        &self,
        request: Request<Streaming<EchoRequest>>,
    ) -> Result<Response<Self::BidiStream>, Status> {
        Responder.bidi(request).await
    }
}
