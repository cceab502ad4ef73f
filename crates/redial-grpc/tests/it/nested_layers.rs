//! A retry layer around another one, as around a balanced channel with its built-in layer.

use redial::StopReason;
use redial_echo::echo_client::EchoClient;
use redial_faults::grpc::{Answer, Server, StatusNumber};
use redial_grpc::{CallOptions, Event, RetryLayer, SharedCallLog};
use tonic::{Code, Request, Status};
use tower::ServiceBuilder;

use crate::common::harness::{RETRY, UNARY, channel, endpoint, layer, message, ms};

/// Makes a call through two layers. Returns the status, and from the call log of the outer layer the number
/// of attempts and the stop reason.
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
        panic!("the call log has no end")
    };
    (status, started.count(), *stop_reason)
}

/// The status of the inner layer has its last connection error as a source, which the outer layer must not
/// take for a connection failure.
#[tokio::test(start_paused = true)]
async fn nested_layers_do_not_retry_the_inner_deadline() {
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

/// Each layer classifies the result of the inner one; the application gets the attempt count of the outer.
#[tokio::test(start_paused = true)]
async fn nested_layers_retry_their_own_codes() {
    let busy = Answer::trailers_only(StatusNumber::UNAVAILABLE).text("busy");
    let (inner, outer) = (layer(RETRY).build(), layer(RETRY).build());
    let (status, started, stop_reason) = call(&outer, &inner, Server::new(vec![busy; 9])).await;
    assert_eq!((status.code(), status.message()), (Code::Unavailable, "busy"));
    assert_eq!((started, stop_reason), (3, StopReason::AttemptsExhausted));
    let retries = |layer: &RetryLayer| layer.control().statistics()[UNARY].retries.retries;
    // The inner throttle has ten tokens; the fifth failure leaves half of them.
    assert_eq!((retries(&outer), retries(&inner)), (2, 3));
}

/// By default the inner layer turns a failed response into an error, which still counts as a response of
/// the server.
#[tokio::test(start_paused = true)]
async fn nested_layers_classify_a_reported_failure_by_its_status() {
    let listed = RETRY.replace("UNAVAILABLE", "DEADLINE_EXCEEDED");
    let late =
        Answer::trailers_only(StatusNumber::DEADLINE_EXCEEDED).text("upstream").pushback("70");
    let server = Server::new([late, Answer::echo()]).on_pipe();
    let channel = channel(&endpoint(), &server.connector());
    let (outer, inner) = (layer(&listed).build(), layer("").build());
    let service = ServiceBuilder::new().layer(outer).layer(inner).service(channel);
    let began = tokio::time::Instant::now();
    EchoClient::new(service).unary(message("x")).await.unwrap();
    assert_eq!(began.elapsed(), ms(70), "the server's pushback is kept");
}
