//! Streams pass unchanged, and so does what is too long to be kept.

use redial_faults::grpc::{Answer, WaitFor};
use redial_milvus::Options;
use redial_milvus::layer::STREAMING_METHODS;
use tonic::Request;

use super::*;

#[tokio::test(start_paused = true)]
async fn layer_streaming_methods_pass_as_they_come() {
    let layer = interceptor(Options::DEFAULT).layer().streaming("Own");
    for method in STREAMING_METHODS.into_iter().chain(["Own"]) {
        let (mut client, server) = client_of(layer.clone(), [Answer::echo(), Answer::echo()]);
        client.ready().await.unwrap();
        let (sender, receiver) = tokio::sync::mpsc::channel::<Bytes>(1);
        let stream = tokio_stream::wrappers::ReceiverStream::new(receiver);
        let path = format!("{SERVICE}{method}").parse().unwrap();
        sender.send("first".into()).await.unwrap();
        let response = client.streaming(Request::new(stream), path, Raw).await.unwrap();
        let mut messages = response.into_inner();
        assert_eq!(messages.message().await.unwrap().unwrap(), "first");
        // The request goes on after the response has begun.
        sender.send("second".into()).await.unwrap();
        assert_eq!(messages.message().await.unwrap().unwrap(), "second");
        drop(sender);
        assert_eq!(messages.message().await.unwrap(), None);
        assert_eq!(server.counts().streams, 1);
    }
    let (mut client, server) = client_of(layer, [busy(), Answer::echo()]);
    let status = unary(&mut client, "DumpMessages", Request::new("x".into())).await.unwrap_err();
    assert_eq!((status.message(), server.counts().streams), ("busy", 1));
}

#[tokio::test(start_paused = true)]
async fn layer_request_over_the_limit_is_sent_once() {
    // Five bytes are the prefix of a gRPC message.
    for (bytes, streams) in [(95, 2), (96, 1)] {
        let layer = interceptor(Options::DEFAULT).layer().request_bytes_max(100);
        let script = [busy().wait_for(WaitFor::Request), Answer::echo()];
        let (mut client, server) = client_of(layer, script);
        let request = Request::new(Bytes::from(vec![7; bytes]));
        let result = unary(&mut client, "Search", request).await;
        assert_eq!(server.counts().streams, streams);
        assert_eq!(result.is_ok(), streams == 2, "{result:?}");
        assert_eq!(server.record().streams[0].payloads[0].len(), bytes);
    }
}

#[tokio::test(start_paused = true)]
async fn layer_response_over_the_limit_is_passed_on_unjudged() {
    for (bytes, streams) in [(95, 2), (96, 1)] {
        let layer = interceptor(Options::DEFAULT)
            .layer()
            .response_bytes_max(100)
            .invalid_when(|answer| answer.message().is_some_and(|it| it.first() == Some(&7)));
        let script = [Answer::reply(vec![7; bytes]), Answer::reply("ok")];
        let (mut client, server) = client_of(layer, script);
        let message = search(&mut client).await.unwrap();
        assert_eq!(server.counts().streams, streams);
        assert_eq!(message.len(), if streams == 2 { 2 } else { bytes });
    }
}
