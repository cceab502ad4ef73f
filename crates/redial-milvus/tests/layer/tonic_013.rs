//! The layer around a channel of tonic 0.13, whose errors are types of their own.

use std::io;

use hyper_util::rt::TokioIo;
use redial_faults::grpc::{Answer, Close, WaitFor};
use redial_milvus::layer::Tonic013;
use redial_milvus::{Code, GrpcStatus, Options, WriteRetries};
use tonic::codegen::http;
use tonic_0_13::body::Body;
use tonic_0_13::transport::{Channel, Endpoint};
use tower::ServiceExt as _;

use super::*;

const PROTECTED: Options = Options::DEFAULT.write_retries(WriteRetries::OnlyIfNotRun);

type Layered = InterceptorService<Channel, Tonic013>;

fn layered(server: &Handle<Pipe>, options: Options, endpoint: &Endpoint) -> Layered {
    let connector = server.connector();
    let connect = tower::service_fn(move |_| {
        let connector = connector.clone();
        async move { connector.connect().await.map(TokioIo::new) }
    });
    let channel = endpoint.connect_with_connector_lazy(connect);
    ServiceBuilder::new().layer(interceptor(options).layer_0_13()).service(channel)
}

fn endpoint() -> Endpoint {
    Endpoint::from_static("http://pipe")
}

/// Sends an empty message; the status of the response, if it has one in its head.
async fn insert(
    service: Layered,
) -> Result<Option<String>, Box<dyn std::error::Error + Send + Sync>> {
    let request = http::Request::post(format!("http://pipe{SERVICE}Insert"));
    let request = request.header("content-type", "application/grpc");
    let response = service.oneshot(request.body(Body::empty()).unwrap()).await?;
    let status = response.headers().get("grpc-status");
    Ok(status.map(|status| status.to_str().unwrap().to_owned()))
}

/// Shorter than the option: the channel's own timer ends the attempt.
#[tokio::test(start_paused = true)]
async fn layer_0_13_timeout_of_the_channel_is_final() {
    let server = Server::new([Answer::hang(), Answer::echo()]).on_pipe();
    let service = layered(&server, Options::DEFAULT, &endpoint().timeout(ms(30)));
    let start = tokio::time::Instant::now();
    assert_eq!(insert(service).await.unwrap().as_deref(), Some("4"), "DEADLINE_EXCEEDED");
    assert_eq!((start.elapsed(), server.counts().streams), (ms(30), 1));
}

#[tokio::test(start_paused = true)]
async fn layer_0_13_failed_connection_proves_that_nothing_ran() {
    let server = Server::new([Answer::echo()]).on_pipe();
    let connector = server.connector();
    let attempts = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = attempts.clone();
    let connect = tower::service_fn(move |_| {
        let connector = connector.clone();
        let number = counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        async move {
            // Not a refused connection: a proxy that has no route, for example.
            match number {
                0 => Err(io::Error::other("no tunnel")),
                _ => connector.connect().await.map(TokioIo::new),
            }
        }
    });
    let channel = endpoint().connect_with_connector_lazy(connect);
    let layer = interceptor(PROTECTED).layer_0_13();
    insert(ServiceBuilder::new().layer(layer).service(channel)).await.unwrap();
    assert_eq!(
        (server.counts().streams, attempts.load(std::sync::atomic::Ordering::Relaxed)),
        (1, 2)
    );
}

#[tokio::test(start_paused = true)]
async fn layer_0_13_lost_connection_proves_nothing() {
    let lost = Answer::close(Close::Graceful).wait_for(WaitFor::Request);
    let server = Server::new([lost, Answer::echo()]).on_pipe();
    let _ended = insert(layered(&server, PROTECTED, &endpoint())).await;
    assert_eq!(server.counts().streams, 1);
}

#[test]
fn layer_0_13_status_of_a_timer_is_deadline_exceeded() {
    let status = tonic_0_13::Status::from_error(Box::new(tonic_0_13::TimeoutExpired(())));
    assert_eq!((GrpcStatus::code(&status), status.is_unsent()), (Code::DeadlineExceeded, false));
}
