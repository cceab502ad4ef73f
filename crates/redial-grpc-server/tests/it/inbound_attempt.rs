//! The inbound attempt in the calls that a handler makes.

use std::sync::{Arc, Mutex};

use http::Request;
use redial_echo::echo_client::EchoClient;
use redial_echo::echo_server::EchoServer;
use redial_echo::{EchoRequest, Responder};
use redial_grpc_server::{InboundAttempt, InboundAttemptLayer, previous_attempts};
use tokio_stream::StreamExt as _;
use tonic::Response;
use tonic::transport::Server;
use tower::{Service as _, ServiceExt as _};

use super::support::{FrameClient, Handlers, response, serve};

fn previous() -> Option<u32> {
    InboundAttempt::current().map(InboundAttempt::previous_attempts)
}

#[tokio::test(start_paused = true)]
async fn inbound_attempt_is_known_to_handler_stream_and_tasks() {
    let handlers = Handlers::server_stream(|request| {
        let serving = InboundAttempt::of(&request);
        let in_handler = previous();
        assert_eq!(previous_attempts(&request), serving.previous_attempts());
        let propagated = tokio::spawn(serving.scope(async { previous() }));
        let untold = tokio::spawn(async { previous() });
        let stream = tokio_stream::iter([propagated, untold]).then(move |task| async move {
            let text = format!("{in_handler:?} {:?} {:?}", previous(), task.await.unwrap());
            Ok(response(text))
        });
        Ok(Response::new(Box::pin(stream)))
    });
    let pipe = serve(|incoming| {
        let mut server = Server::builder().layer(InboundAttemptLayer::new());
        server.add_service(EchoServer::new(handlers)).serve_with_incoming(incoming)
    });
    let mut raw = FrameClient::over(pipe).await;
    let retry = [("grpc-previous-rpc-attempts", "2")];
    let cases = [(&retry[..], "Some(2) Some(2) "), (&[], "Some(0) Some(0) ")];
    for (headers, expected) in cases {
        let answer = raw.call("ServerStream", headers, &EchoRequest::default()).await;
        let propagated = expected.split_whitespace().next().unwrap();
        let texts: Vec<_> = answer.messages.iter().map(|message| &message.payload[..]).collect();
        assert_eq!(texts[0], format!("{expected}{propagated}").as_bytes());
        assert_eq!(texts[1], format!("{expected}None").as_bytes());
    }
}

#[tokio::test(start_paused = true)]
async fn inbound_attempt_reaches_the_client_layer_of_a_handler() {
    let below = EchoServer::new(Responder);
    let seen: Arc<Mutex<Vec<_>>> = Arc::default();
    let saw = Arc::clone(&seen);
    // In the position of a client layer: it sees the request's extensions, and runs in the
    // handler's task.
    let layer = tower::service_fn(move |request: Request<tonic::body::Body>| {
        let propagated = request.extensions().get::<InboundAttempt>().copied();
        saw.lock().unwrap().push((propagated.map(InboundAttempt::previous_attempts), previous()));
        below.clone().oneshot(request)
    });

    let handler = tower::service_fn(move |incoming: Request<()>| {
        let mut client = EchoClient::new(layer.clone());
        async move {
            client.unary(EchoRequest::default()).await.unwrap();
            let mut by_hand = tonic::Request::new(EchoRequest::default());
            by_hand.extensions_mut().insert(InboundAttempt::of(&incoming));
            client.unary(by_hand).await.unwrap();
            Ok::<_, std::convert::Infallible>(http::Response::new(String::new()))
        }
    });
    let retry = || Request::builder().header("grpc-previous-rpc-attempts", "1").body(()).unwrap();
    let mut service =
        tower::ServiceBuilder::new().layer(InboundAttemptLayer::new()).service(handler.clone());
    service.ready().await.unwrap().call(retry()).await.unwrap();
    assert_eq!(*seen.lock().unwrap(), [(None, Some(1)), (Some(1), Some(1))]);

    seen.lock().unwrap().clear();
    handler.oneshot(retry()).await.unwrap();
    assert_eq!(*seen.lock().unwrap(), [(None, None), (Some(1), None)]);
}
