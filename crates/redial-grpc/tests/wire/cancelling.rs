//! What is dropped is reset, what is over is gone, and nothing is spawned.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response};
use redial::StopReason;
use redial_echo::echo_client::EchoClient;
use redial_faults::grpc::{Answer, How, Reason, Script, StatusNumber as Peer};
use redial_grpc::{CallOptions, RetryLayer, SharedCallLog};
use tokio::runtime::Handle;
use tonic::Status;
use tonic::body::Body;
use tower::{Service, ServiceBuilder};

use super::rig::{HEDGE, RETRY, Rig, layer, message, ms};

const CANCELLED: How = How::ResetByClient(Reason::CANCEL);

/// How each stream ended, and when.
async fn ends(rig: &Rig) -> Vec<(How, Duration)> {
    tokio::time::timeout(ms(1), rig.server.idle()).await.expect("every stream has ended");
    rig.server.record().streams.iter().map(|it| it.end.unwrap()).map(|it| (it.how, it.at)).collect()
}

#[tokio::test(start_paused = true)]
async fn losers_are_reset_with_cancel_when_another_wins() {
    let wins = Answer::headers().message("").after(ms(5)).trailers(Peer::OK).after(ms(50));
    let mut rig = Rig::new(HEDGE, [Answer::hang(), Answer::hang(), wins]);
    let told = rig.call().await;
    assert_eq!(told.previous_told().as_deref(), Some("2"));
    let answered = How::Answered(Some(Peer::OK));
    // At the headers, not at the end of the call.
    assert_eq!(ends(&rig).await, [(CANCELLED, ms(40)), (CANCELLED, ms(40)), (answered, ms(90))]);
    assert_eq!(rig.control.statistics()[super::rig::UNARY].hedges_won, 1);
    assert_eq!(rig.tokens(), 10_000, "losing is no failure");
}

/// Red: `it != self.first` as `it > 1` in `CallTally::event`.
#[tokio::test(start_paused = true)]
async fn what_replaces_a_first_attempt_is_no_hedge_that_won() {
    let mut rig = Rig::new(HEDGE, [Answer::reset(Reason::REFUSED_STREAM), Answer::echo()]);
    let told = rig.call().await;
    assert_eq!((told.attempts(), rig.statistics()), (1, (0, 0, 1)));
    assert_eq!(rig.control.statistics()[super::rig::UNARY].hedges_won, 0);
}

#[tokio::test(start_paused = true)]
async fn dropping_the_calls_future_resets_every_attempt() {
    for (policy, streams) in [(RETRY, 1), (HEDGE, 3)] {
        let mut rig = Rig::new(policy, Script::new().otherwise(Answer::hang()));
        let call_log = SharedCallLog::new();
        let mut request = tonic::Request::new(message("x"));
        request.extensions_mut().insert(CallOptions::new().call_log(&call_log));
        assert!(tokio::time::timeout(ms(100), rig.client.unary(request)).await.is_err());
        assert_eq!(ends(&rig).await, vec![(CANCELLED, ms(100)); streams]);
        let last = call_log.read().events().last().unwrap().1;
        assert_eq!(
            last,
            redial::Event::CallEnded { stop_reason: StopReason::Cancelled, attempt: None }
        );
        assert_eq!((rig.tokens(), rig.control.bytes_kept()), (10_000, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn dropping_the_call_in_backoff_starts_nothing_any_more() {
    let busy = Answer::trailers_only(Peer::UNAVAILABLE);
    let mut rig = Rig::new(RETRY, Script::new().otherwise(busy));
    assert!(tokio::time::timeout(ms(20), rig.client.unary(message("x"))).await.is_err());
    tokio::time::sleep(ms(1000)).await;
    assert_eq!((rig.server.counts().streams, rig.control.bytes_kept()), (1, 0));
    assert_eq!((rig.statistics(), rig.tokens()), ((0, 0, 0), 9_000));
}

#[tokio::test(start_paused = true)]
async fn dropping_the_responses_stream_resets_it_and_counts_nothing() {
    let answer = Answer::headers().message("").message("").after(ms(1000));
    let mut rig = Rig::new(RETRY, [answer]);
    let mut stream = rig.client.server_stream(message("x")).await.unwrap().into_inner();
    stream.message().await.unwrap().unwrap();
    tokio::time::sleep(ms(10)).await;
    drop(stream);
    assert_eq!(ends(&rig).await, [(CANCELLED, ms(10))]);
    assert_eq!((rig.tokens(), rig.statistics()), (10_000, (0, 0, 0)));
}

/// The connection's own tasks are hyper's. What a call adds to them is gone when it is over,
/// however it ended.
#[tokio::test(start_paused = true)]
async fn no_task_is_left_when_calls_are_over() {
    let slow = || Answer::hang();
    let script = Script::new()
        .attempts([Answer::echo()])
        .attempts([slow(), slow(), Answer::echo()])
        .attempts([Answer::trailers_only(Peer::ABORTED)])
        .attempts([slow(), slow(), slow()]);
    let mut rig = Rig::new(HEDGE, script);
    rig.client.unary(message("warm")).await.unwrap();
    let settled = async || {
        tokio::time::sleep(ms(1)).await;
        Handle::current().metrics().num_alive_tasks()
    };
    let before = settled().await;
    rig.client.unary(message("won")).await.unwrap();
    assert_eq!(settled().await, before, "after a hedge won");
    rig.client.unary(message("failed")).await.unwrap_err();
    assert_eq!(settled().await, before, "after a failure");
    assert!(tokio::time::timeout(ms(100), rig.client.unary(message("x"))).await.is_err());
    assert_eq!(settled().await, before, "after it was dropped");
}

/// A service without a connection: each attempt waits 10 ms and fails.
#[derive(Clone)]
struct Failing;

impl Service<Request<Body>> for Failing {
    type Response = Response<Body>;
    type Error = Status;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Status>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _request: Request<Body>) -> Self::Future {
        Box::pin(async {
            tokio::time::sleep(ms(10)).await;
            Err(Status::unavailable("down"))
        })
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_spawned() {
    for policy in [RETRY, HEDGE] {
        let layer: RetryLayer = layer(policy).build();
        let mut client =
            EchoClient::new(ServiceBuilder::new().layer(layer.clone()).service(Failing));
        let metrics = Handle::current().metrics();
        let before = metrics.num_alive_tasks();
        let watch = async {
            let mut most = 0;
            for _ in 0..200 {
                tokio::time::sleep(ms(1)).await;
                most = most.max(metrics.num_alive_tasks());
            }
            most
        };
        let (result, most) = tokio::join!(client.unary(message("x")), watch);
        assert_eq!(result.unwrap_err().message(), "down");
        assert_eq!((most, metrics.num_alive_tasks()), (before, before));
        let made = layer.control().statistics()[super::rig::UNARY].retries.retries;
        assert_eq!(made, 2, "{policy}");
    }
}
