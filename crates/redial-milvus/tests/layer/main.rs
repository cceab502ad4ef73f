//! Goal: section M of the decisions holds for a real gRPC client: what each attempt sends, when it is
//! sent, and what the caller gets. Method: tonic's client and channel through the layer to a scripted
//! server in memory, on a paused clock, so that times are exact.

#[path = "../../../redial-faults/tests/grpc/codec.rs"]
mod codec;

mod deadlines;
mod invalid_messages;
mod limits;
mod log;
mod retries;
#[cfg(feature = "tonic-0-13")]
mod tonic_013;
mod tonic_status;
mod writes;

use std::time::Duration;

use bytes::Bytes;
use codec::Raw;
use hyper_util::rt::TokioIo;
use redial_faults::grpc::{Answer, Handle, Pipe, Script, Server, StatusNumber};
use redial_milvus::layer::{InterceptorLayer, InterceptorService, Tonic};
use redial_milvus::{Interceptor, Options};
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};
use tower::ServiceBuilder;

pub(crate) type Client = Grpc<InterceptorService<Channel, Tonic>>;

pub(crate) const SERVICE: &str = "/milvus.proto.milvus.MilvusService/";

pub(crate) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

pub(crate) fn channel(server: &Handle<Pipe>) -> Channel {
    channel_of(server, &Endpoint::from_static("http://pipe"))
}

pub(crate) fn channel_of(server: &Handle<Pipe>, endpoint: &Endpoint) -> Channel {
    let connector = server.connector();
    let connect = tower::service_fn(move |_| {
        let connector = connector.clone();
        async move { connector.connect().await.map(TokioIo::new) }
    });
    endpoint.connect_with_connector_lazy(connect)
}

/// A client whose channel has the layer, and the server.
pub(crate) fn client_of(
    layer: InterceptorLayer<Tonic>,
    script: impl Into<Script>,
) -> (Client, Handle<Pipe>) {
    let server = Server::new(script).on_pipe();
    let channel = channel(&server);
    (Grpc::new(ServiceBuilder::new().layer(layer).service(channel)), server)
}

pub(crate) fn client(options: Options, script: impl Into<Script>) -> (Client, Handle<Pipe>) {
    client_of(interceptor(options).layer(), script)
}

pub(crate) fn interceptor(options: Options) -> Interceptor {
    options.interceptor().unwrap()
}

pub(crate) async fn unary(
    client: &mut Client,
    method: &str,
    request: Request<Bytes>,
) -> Result<Bytes, Status> {
    client.ready().await.map_err(|error| Status::unknown(error.to_string()))?;
    let path = format!("{SERVICE}{method}").parse().unwrap();
    client.unary(request, path, Raw).await.map(tonic::Response::into_inner)
}

pub(crate) async fn search(client: &mut Client) -> Result<Bytes, Status> {
    unary(client, "Search", Request::new("query".into())).await
}

pub(crate) fn busy() -> Answer {
    Answer::trailers_only(StatusNumber::UNAVAILABLE).text("busy")
}

/// When each stream arrived, in milliseconds since the first.
pub(crate) fn arrivals(server: &Handle<Pipe>) -> Vec<u128> {
    let record = server.record();
    let first = record.streams.first().map_or(Duration::ZERO, |it| it.arrived);
    record.streams.iter().map(|it| (it.arrived - first).as_millis()).collect()
}
