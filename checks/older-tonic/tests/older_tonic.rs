//! Goal: clients generated for an older tonic work through the layer. Method: tonic 0.13's own
//! client and channel over a pipe to a fault server, on a paused clock, with a pass-through codec;
//! the layer is built without tonic.

#[path = "../../../crates/redial-faults/tests/grpc/codec.rs"]
mod codec;

use std::time::Duration;

use bytes::Bytes;
use codec::Raw;
use hyper_util::rt::TokioIo;
use redial_faults::grpc::{Answer, Handle, Pipe, Reason, Script, Server, StatusNumber as Peer};
use redial_grpc::{SharedCallLog, CallOptions, RetryLayer, RetryService, AdapterFn};
use tonic::body::Body;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};
use tower::ServiceBuilder;

const CONFIG: &str = r#"{ "methodConfig": [{ "name": [{}],
    "retryPolicy": { "maxAttempts": 3, "initialBackoff": "0.1s", "maxBackoff": "1s",
    "backoffMultiplier": 2, "retryableStatusCodes": ["UNAVAILABLE"] } }] }"#;

type Wrap = fn(redial_grpc::Replay<Body>) -> Body;
type Client = Grpc<RetryService<Channel, AdapterFn<Wrap>>>;

fn client(script: impl Into<Script>) -> (Client, Handle<Pipe>) {
    let server = Server::new(script).on_pipe();
    let connector = server.connector();
    let channel = Endpoint::from_static("http://pipe").connect_with_connector_lazy(
        tower::service_fn(move |_| {
            let connector = connector.clone();
            async move { connector.connect().await.map(TokioIo::new) }
        }),
    );
    let wrap: Wrap = Body::new;
    let layer = RetryLayer::from_json(CONFIG).unwrap().adapter(wrap);
    (Grpc::new(ServiceBuilder::new().layer(layer).service(channel)), server)
}

async fn unary(client: &mut Client, request: Request<Bytes>) -> Result<Bytes, Status> {
    client.ready().await.map_err(|error| Status::from_error(error))?;
    let path = "/a.B/C".parse().unwrap();
    client.unary(request, path, Raw).await.map(tonic::Response::into_inner)
}

fn busy() -> Answer {
    Answer::trailers_only(Peer::UNAVAILABLE).text("busy")
}

#[tokio::test(start_paused = true)]
async fn older_tonic_unary_retry_sends_the_same_message() {
    let (mut client, server) = client([busy(), Answer::echo()]);
    let answer = unary(&mut client, Request::new("hello".into())).await.unwrap();
    assert_eq!(answer, "hello");
    let record = server.record();
    assert_eq!(record.streams.len(), 2);
    assert_eq!(record.streams[0].digest, record.streams[1].digest);
    assert_eq!(record.streams[1].previous_attempts(), Some(1));
}

#[tokio::test(start_paused = true)]
async fn older_tonic_last_failure_is_returned_with_attempt_count() {
    let (mut client, _server) = client([busy(), busy(), busy()]);
    let status = unary(&mut client, Request::new("x".into())).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::Unavailable, "busy"));
    assert_eq!(status.metadata().get("grpc-previous-rpc-attempts").unwrap(), "2");
}

#[tokio::test(start_paused = true)]
async fn older_tonic_bidirectional_stream_is_replayed() {
    let (mut client, server) =
        client([busy().wait_for(redial_faults::grpc::WaitFor::Request), Answer::echo()]);
    client.ready().await.unwrap();
    let messages = ["a", "b", "c"].map(Bytes::from);
    let request = Request::new(tokio_stream::iter(messages.clone()));
    let response = client.streaming(request, "/a.B/C".parse().unwrap(), Raw).await.unwrap();
    let mut responses = response.into_inner();
    for expected in messages {
        assert_eq!(responses.message().await.unwrap(), Some(expected));
    }
    assert_eq!(responses.message().await.unwrap(), None);
    assert_eq!(server.record().streams.iter().map(|it| it.messages).collect::<Vec<_>>(), [3, 3]);
}

#[tokio::test(start_paused = true)]
async fn older_tonic_refused_stream_gets_a_transparent_retry() {
    let (mut client, server) = client([Answer::reset(Reason::REFUSED_STREAM), Answer::echo()]);
    let call_log = SharedCallLog::new();
    let mut request = Request::new(Bytes::from_static(b"x"));
    request.extensions_mut().insert(CallOptions::new().call_log(&call_log));
    assert_eq!(unary(&mut client, request).await.unwrap(), "x");
    assert_eq!(server.record().streams[1].previous_attempts(), None);
    assert!(!call_log.take().events().is_empty(), "options find their way through the older client");
}

#[tokio::test(start_paused = true)]
async fn older_tonic_deadline_is_enforced_by_the_layer() {
    let (mut client, _server) = client([busy(), Answer::hang()]);
    let mut request = Request::new(Bytes::from_static(b"x"));
    request.set_timeout(Duration::from_secs(1));
    let began = tokio::time::Instant::now();
    let status = unary(&mut client, request).await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
    assert_eq!(began.elapsed().as_millis(), 1000);
}

#[tokio::test(start_paused = true)]
async fn older_tonic_connect_error_is_unavailable_and_retried() {
    let (mut client, server) = client([Answer::unconnected(), Answer::echo()]);
    assert_eq!(unary(&mut client, Request::new("x".into())).await.unwrap(), "x");
    assert_eq!(server.record().connections.len(), 2);
}
