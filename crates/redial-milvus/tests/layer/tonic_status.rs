//! Calls that are wrapped one by one, with tonic's own status.

use std::error::Error as _;

use redial_faults::grpc::{Answer, OnConnect, Script};
use redial_milvus::{Code, GrpcStatus, Options, WriteRetries};
use tonic::Request;
use tonic::metadata::MetadataMap;

use super::*;

/// A client without the layer.
async fn plain(channel: Channel) -> Result<Bytes, Status> {
    let mut client = Grpc::new(channel);
    client.ready().await.map_err(|error| Status::from_error(error.into()))?;
    let path = format!("{SERVICE}Insert").parse().unwrap();
    let request = Request::new(Bytes::from_static(b"rows"));
    client.unary(request, path, Raw).await.map(tonic::Response::into_inner)
}

#[tokio::test(start_paused = true)]
async fn tonic_status_needs_no_newtype() {
    let server = Server::new([busy(), busy(), Answer::echo()]).on_pipe();
    let channel = channel(&server);
    let interceptor = interceptor(Options::DEFAULT);
    let call = || plain(channel.clone());
    assert_eq!(interceptor.call("Insert", call).send().await.unwrap(), "rows");
    server.attempts([busy(), busy(), busy(), busy()]);
    let error = interceptor.call("Insert", call).send().await.unwrap_err();
    assert_eq!(error.message(), "busy (retried 3 times, 140ms)");
    let status = error.into_status().unwrap();
    assert_eq!(status.code(), tonic::Code::Unavailable);
}

#[tokio::test(start_paused = true)]
async fn tonic_status_refused_connection_proves_that_nothing_ran() {
    let script = Script::new().on_connect(OnConnect::Refuse, ms(0)).attempts([Answer::echo()]);
    let server = Server::new(script).on_pipe();
    let channel = channel(&server);
    let options = Options::DEFAULT.write_retries(WriteRetries::OnlyIfNotRun);
    let interceptor = interceptor(options);
    let call = || plain(channel.clone());
    assert_eq!(interceptor.call("Insert", call).send().await.unwrap(), "rows");
    server.attempts([busy()]);
    let error = interceptor.call("Insert", call).send().await.unwrap_err();
    assert_eq!((error.message(), error.report().attempts), ("busy", 1));
}

#[test]
fn tonic_status_with_message_keeps_everything_else() {
    let mut metadata = MetadataMap::new();
    metadata.insert("a", "b".parse().unwrap());
    let details = Bytes::from_static(b"details");
    let code = tonic::Code::Aborted;
    let status = Status::with_details_and_metadata(code, "text", details, metadata);
    let status = status.with_message("longer text".to_owned());
    assert_eq!((status.code(), status.message()), (tonic::Code::Aborted, "longer text"));
    assert_eq!((status.details(), status.metadata().len()), (&b"details"[..], 1));
    assert_eq!(status.source().unwrap().downcast_ref::<Status>().unwrap().message(), "text");
    assert_eq!(GrpcStatus::code(&status), Code::Aborted);
}

#[tokio::test(start_paused = true)]
async fn tonic_status_of_the_channel_timer_is_deadline_exceeded() {
    let server = Server::new([Answer::hang(), Answer::echo()]).on_pipe();
    let channel = channel(&server);
    let call = || {
        let channel = channel.clone();
        async move {
            let mut client = Grpc::new(channel);
            client.ready().await.unwrap();
            let path = format!("{SERVICE}Search").parse().unwrap();
            let mut request = Request::new(Bytes::from_static(b"x"));
            request.set_timeout(ms(30));
            client.unary(request, path, Raw).await.map(tonic::Response::into_inner)
        }
    };
    let error = interceptor(Options::DEFAULT).call("Search", call).send().await.unwrap_err();
    assert_eq!((error.code(), error.report().attempts), (Code::DeadlineExceeded, 1));
}
