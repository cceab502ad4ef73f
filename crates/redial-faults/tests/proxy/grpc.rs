//! gRPC through the proxy: a tonic client, and the scripted gRPC server behind it.

use bytes::Bytes;
use http::uri::PathAndQuery;
use redial_faults::grpc::{Answer, Handle as Server, Server as GrpcServer, StatusNumber, Tcp};
use redial_faults::proxy::{ExchangeOutcome, Fault, Handle, Proxy, ProxyRule, Script};
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};

/// Messages are their bytes.
#[derive(Clone, Copy, Default)]
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Raw;
    type Decoder = Raw;
    fn encoder(&mut self) -> Raw {
        Raw
    }
    fn decoder(&mut self) -> Raw {
        Raw
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;
    fn encode(&mut self, item: Bytes, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        bytes::BufMut::put(to, item);
        Ok(())
    }
    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::default()
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;
    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        let length = bytes::Buf::remaining(from);
        Ok(Some(bytes::Buf::copy_to_bytes(from, length)))
    }
    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::default()
    }
}

async fn call(channel: &Channel, path: &'static str) -> Result<Bytes, Status> {
    let mut grpc = tonic::client::Grpc::new(channel.clone());
    grpc.ready().await.map_err(|error| Status::unknown(error.to_string()))?;
    let path = PathAndQuery::from_static(path);
    let request = Request::new(Bytes::from_static(b"hello"));
    grpc.unary(request, path, Raw).await.map(tonic::Response::into_inner)
}

async fn chain(script: impl Into<Script>) -> (Server<Tcp>, Handle, Channel) {
    let server = GrpcServer::new(redial_faults::grpc::Script::new().default_answer(Answer::echo()));
    let server = server.listen("127.0.0.1:0").await.unwrap();
    let proxy = Proxy::http(server.addr()).script(script).listen("127.0.0.1:0").await.unwrap();
    let channel = Endpoint::from_shared(proxy.url()).unwrap().connect_lazy();
    (server, proxy, channel)
}

#[tokio::test]
async fn grpc_calls_pass_with_message_status_and_trailers() {
    let (server, proxy, channel) = chain(Script::new()).await;
    assert_eq!(call(&channel, "/a.B/C").await.unwrap(), "hello");
    server.attempts([Answer::trailers_only(StatusNumber::ABORTED).text("no")]);
    let status = call(&channel, "/a.B/C").await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::Aborted, "no"));
    let record = proxy.shutdown().await;
    assert_eq!(record.counts.connections, 1);
    assert_eq!(record.exchanges[0].version, http::Version::HTTP_2);
    for exchange in &record.exchanges {
        assert_eq!(exchange.end.unwrap().outcome, ExchangeOutcome::Answered);
    }
}

#[tokio::test]
async fn grpc_status_fault_comes_before_or_after_the_server() {
    let unavailable = Fault::grpc_status(StatusNumber::UNAVAILABLE).message("100 % busy");
    let script = Script::new()
        .rule(ProxyRule::new(unavailable.clone()).path("/a.B/Before"))
        .rule(ProxyRule::new(unavailable.after_upstream()).path("/a.B/After"));
    let (server, proxy, channel) = chain(script).await;
    for (path, streams) in [("/a.B/Before", 0), ("/a.B/After", 1)] {
        let status = call(&channel, path).await.unwrap_err();
        assert_eq!((status.code(), status.message()), (Code::Unavailable, "100 % busy"));
        assert_eq!(server.counts().streams, streams);
    }
    assert_eq!(proxy.counts().connections, 1);
}

#[tokio::test]
async fn grpc_http_status_and_broken_connections_reach_the_client() {
    let script = [Fault::status(503), Fault::reset(), Fault::close().at_response_bytes(3)];
    let (server, _proxy, channel) = chain(script).await;
    let status = call(&channel, "/a.B/C").await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
    for _ in 0..2 {
        let status = call(&channel, "/a.B/C").await.unwrap_err();
        assert!(matches!(status.code(), Code::Unknown | Code::Unavailable), "{status:?}");
    }
    // The next call opens a new connection.
    assert_eq!(call(&channel, "/a.B/C").await.unwrap(), "hello");
    assert_eq!(server.counts().streams, 2);
}

#[tokio::test]
async fn grpc_stall_leaves_other_streams_of_the_connection_alone() {
    let (_server, proxy, channel) = chain(Fault::stall()).await;
    let stalled = tokio::spawn({
        let channel = channel.clone();
        async move { call(&channel, "/a.B/C").await }
    });
    proxy.until(|record| record.counts.exchanges == 1).await;
    assert_eq!(call(&channel, "/a.B/C").await.unwrap(), "hello");
    stalled.abort();
    proxy.idle().await;
    let record = proxy.record();
    assert_eq!(record.counts.connections, 1);
    assert_eq!(record.exchanges[0].end.unwrap().outcome, ExchangeOutcome::ClientGone);
}
