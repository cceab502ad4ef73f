//! A layer around a layer, as around a balanced channel, which has one built in.

use redial::StopReason;
use redial_echo::echo_client::EchoClient;
use redial_faults::grpc::{Answer, Server, StatusNumber as Peer};
use redial_grpc::{CallOptions, Event, RetryLayer, SharedCallLog};
use tonic::{Code, Request, Status};
use tower::ServiceBuilder;

use super::rig::{RETRY, channel, endpoint, layer, message};

/// Makes a call through two layers. What the application hears, and what the outer layer's diary says:
/// how many attempts it started, and why it ended.
async fn call(
    outer: &RetryLayer,
    inner: &RetryLayer,
    server: Server,
) -> (Status, usize, StopReason) {
    let server = server.on_pipe();
    let channel = channel(&endpoint(), &server.connector());
    let service = ServiceBuilder::new().layer(outer.clone()).layer(inner.clone()).service(channel);
    let call_log = SharedCallLog::new();
    let mut request = Request::new(message("x"));
    request.extensions_mut().insert(CallOptions::new().call_log(&call_log));
    let status = EchoClient::new(service).unary(request).await.unwrap_err();
    let events = call_log.take();
    let started =
        events.events().iter().filter(|(_, event)| matches!(event, Event::AttemptStarted { .. }));
    let Some((_, Event::CallEnded { stop_reason, .. })) = events.events().last() else {
        panic!("no end")
    };
    (status, started.count(), *stop_reason)
}

/// What the inner layer waited for when its time was over is in the sources of its status.
/// Red: leave out the condition on `status_of` in `of_tonic`.
#[tokio::test(start_paused = true)]
async fn the_deadline_of_an_inner_layer_is_a_deadline_and_never_retried() {
    let inner = layer(r#""timeout": "0.1s", "waitForReady": true"#).build();
    let listed = RETRY.replace(r#"["UNAVAILABLE"]"#, r#"["UNAVAILABLE", "DEADLINE_EXCEEDED"]"#);
    for answers in [vec![Answer::unconnected(); 200], vec![Answer::hang(); 3]] {
        for policy in ["", RETRY, &listed, r#""waitForReady": true"#] {
            let outer = layer(policy).build();
            let (status, started, stop_reason) =
                call(&outer, &inner, Server::new(answers.clone())).await;
            let text = status.message();
            assert_eq!(
                (status.code(), started, stop_reason),
                (Code::DeadlineExceeded, 1, StopReason::NotRetryable)
            );
            assert!(text.starts_with("the deadline passed (1 attempt)"), "{text}");
            assert_eq!(outer.control().tokens(), Some(10.0), "{policy}");
        }
    }
}

/// Each layer judges what the one below hands on, and the application hears of the outer's attempts.
#[tokio::test(start_paused = true)]
async fn both_layers_retry_what_they_list() {
    let busy = Answer::trailers_only(Peer::UNAVAILABLE).text("busy");
    let (inner, outer) = (layer(RETRY).build(), layer(RETRY).build());
    let (status, started, stop_reason) = call(&outer, &inner, Server::new(vec![busy; 9])).await;
    assert_eq!((status.code(), status.message()), (Code::Unavailable, "busy"));
    assert_eq!((started, stop_reason), (3, StopReason::AttemptsExhausted));
    let retries =
        |layer: &RetryLayer| layer.control().statistics()[super::rig::UNARY].retries.retries;
    // The inner throttle has ten tokens, and of those the fifth failure leaves no more than half.
    assert_eq!((retries(&outer), retries(&inner)), (2, 3));
}
