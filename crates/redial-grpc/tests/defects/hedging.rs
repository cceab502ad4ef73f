//! Hedges, and what they do to each other.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::{Request, Response};
use redial::StopReason;
use redial_echo::EchoRequest;
use redial_faults::grpc::{Answer, How, Once, Reason, Script, Server, StatusNumber as Peer};
use redial_grpc::{RetryLayer, RetryService, ServiceConfig};
use tokio_stream::wrappers::ReceiverStream;
use tonic::body::Body;
use tonic::{Code, Status};
use tower::{Layer as _, Service};

use super::rig::{HEDGE, Rig, message, ms, raw_request};

fn busy() -> Answer {
    Answer::trailers_only(Peer::UNAVAILABLE)
}

/// Hedges with this delay, and a throttle of so many tokens.
fn hedges(delay: &str, attempts: u32, tokens: u32) -> RetryLayer {
    let text = format!(
        r#"{{ "methodConfig": [{{ "name": [{{}}], "hedgingPolicy": {{ "maxAttempts": {attempts},
            "hedgingDelay": "{delay}", "nonFatalStatusCodes": ["UNAVAILABLE"] }} }}],
            "retryThrottling": {{ "maxTokens": {tokens}, "tokenRatio": 0.1 }} }}"#
    );
    RetryLayer::builder().config(ServiceConfig::parse(&text).unwrap()).build()
}

/// In grpc-java a call hangs whose own failure makes the throttle refuse its next hedge (#7222).
///
/// Red: forget to end it (no `self.finish(..)` in `Call::end_if_nothing_is_left`).
#[tokio::test(start_paused = true)]
async fn hedging_throttled_by_own_failure_returns_failure() {
    let server = Server::new([busy().text("the only one").after(ms(5))]);
    let mut rig = Rig::of(hedges("1s", 3, 2), server);
    let told = tokio::time::timeout(ms(5_000), rig.call()).await.expect("it ends");
    assert_eq!((told.code(), told.status().message()), (Code::Unavailable, "the only one"));
    assert_eq!((told.end(), told.starts()), ((StopReason::Throttled, 5), vec![0]));
}

/// In grpc-java a failure that is not fatal does not send the next hedge at once (#10145).
///
/// Red: arm the timer again (`self.schedule_hedge(now, env)` in place of `self.hedge(..)` in
/// `Call::hedge_failed`).
#[tokio::test(start_paused = true)]
async fn hedging_nonfatal_sends_next_immediately() {
    let server = Server::new([busy().after(ms(5)), busy().after(ms(5)), Answer::echo()]);
    let mut rig = Rig::of(hedges("1s", 3, 10), server);
    let told = rig.call().await;
    assert_eq!((told.code(), told.starts()), (Code::Ok, vec![0, 5, 10]));
}

/// What mended that in grpc-java made every pushback 0 (#10293); in grpc-js the timer that was
/// pending before the pushback still fires.
///
/// Red: keep that timer (no `self.at = at` under `Hint::After` in `Call::hedge_failed`).
#[tokio::test(start_paused = true)]
async fn hedging_positive_pushback_is_waited() {
    let server = Server::new([busy().pushback("300").after(ms(5)), Answer::hang(), Answer::echo()]);
    let mut rig = Rig::of(hedges("0.02s", 3, 10), server);
    let told = rig.call().await;
    assert_eq!(
        (told.code(), told.starts()),
        (Code::Ok, vec![0, 305, 325]),
        "then the usual rhythm"
    );
}

/// grpc-js never asks the throttle before it sends a hedge.
///
/// Red: grant always (`true` in place of the comparison in `TokenBucket::take`).
#[tokio::test(start_paused = true)]
async fn hedging_respects_throttle() {
    let script = Script::new().attempts([busy()]).otherwise(Answer::echo().after(ms(100)));
    let mut rig = Rig::of(hedges("0.02s", 3, 2), Server::new(script));
    assert_eq!(rig.call().await.end().0, StopReason::Throttled);
    // Half of the tokens are left: the first is always sent, and nothing else.
    let told = rig.call().await;
    assert_eq!((told.code(), told.starts()), (Code::Ok, vec![0]));
    assert_eq!(rig.tokens(), 1_100);
}

/// In grpc-js "do not retry" cancels the hedges that are outstanding, the winner among them.
///
/// Red: end the call with it (`self.finish(StopReason::ServerRefused, self.failed, now, env)` under
/// `Hint::Stop` in `Call::hedge_failed`).
#[tokio::test(start_paused = true)]
async fn hedging_negative_pushback_keeps_outstanding() {
    let slow = Answer::headers().after(ms(100)).message("").trailers(Peer::OK);
    let server = Server::new([slow, busy().pushback("-1")]);
    let mut rig = Rig::of(hedges("0.02s", 3, 10), server);
    let told = rig.call().await;
    assert_eq!((told.code(), told.starts()), (Code::Ok, vec![0, 20]), "no third");
    assert_eq!((told.end(), told.previous_told()), ((StopReason::Succeeded, 100), None));
}

/// A service without a connection. Each attempt pends for ever but the last, which answers; an
/// attempt that is dropped makes another call of its own.
#[derive(Clone)]
struct Reentrant {
    layered: Arc<std::sync::OnceLock<RetryService<Reentrant>>>,
    calls: Arc<AtomicU32>,
}

struct Attempt {
    service: Reentrant,
    answers: bool,
}

impl Service<Request<Body>> for Reentrant {
    type Response = Response<Body>;
    type Error = Status;
    type Future = Attempt;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _request: Request<Body>) -> Attempt {
        let number = self.calls.fetch_add(1, Ordering::SeqCst) + 1;
        Attempt { service: self.clone(), answers: number == 3 }
    }
}

impl Future for Attempt {
    type Output = Result<Response<Body>, Status>;

    fn poll(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<Self::Output> {
        if !self.answers {
            return Poll::Pending;
        }
        let response = Response::builder().header("content-type", "application/grpc");
        Poll::Ready(Ok(response.body(Body::empty()).unwrap()))
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        // Of those that lose only, or it would go on for ever.
        if self.answers || self.service.calls.load(Ordering::SeqCst) > 3 {
            return;
        }
        let Some(layered) = self.service.layered.get() else { return };
        let mut call = Box::pin(layered.clone().call(raw_request(b"again")));
        let _ = call.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    }
}

/// grpc-java deadlocks when losers are cancelled while a hedge is being made (#10314).
///
/// Red: hold the lock around the channel (`let _held = lock(&self.spare);` in
/// `Pending::drop_attempt`).
#[test]
fn cancel_losers_while_starting_hedge() {
    let (done, over) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let made = runtime.block_on(async {
            let calls = Arc::new(AtomicU32::new(0));
            let service = Reentrant { layered: Arc::default(), calls: calls.clone() };
            // Without a delay all start in the same moment.
            let mut layered = hedges("0s", 3, 10).layer(service.clone());
            service.layered.set(layered.clone()).ok().unwrap();
            layered.call(raw_request(b"first")).await.unwrap();
            calls.load(Ordering::SeqCst)
        });
        done.send(made).unwrap();
    });
    // In real time, since a deadlock holds up the clock too.
    let made = over.recv_timeout(Duration::from_secs(30)).expect("a deadlock");
    thread.join().unwrap();
    assert!(made > 3, "the call that was made while losers were cancelled has started: {made}");
}

/// The application's messages, 10 ms apart.
fn messages(count: u32) -> ReceiverStream<EchoRequest> {
    let (send, receive) = tokio::sync::mpsc::channel(1);
    tokio::spawn(async move {
        for number in 0..count {
            if send.send(message(&number.to_string())).await.is_err() {
                return;
            }
            tokio::time::sleep(ms(10)).await;
        }
    });
    ReceiverStream::new(receive)
}

/// grpc-java fails with a null pointer when one hedge commits before another has been sent all that
/// was written (#9185).
///
/// Red: free more than the winner was sent (`inner.free_below(*next + 1)` in `Tape::choose`).
#[tokio::test(start_paused = true)]
async fn commit_while_other_hedge_replays() {
    // The first hedge's window is shut after one message, the second commits after three.
    let bidi = Answer::echo().once(Once::Messages(3));
    let mut rig = Rig::new(HEDGE, [Answer::hang().accepts(1), bidi, Answer::hang().accepts(0)]);
    let mut stream = rig.client.bidi(messages(6)).await.unwrap().into_inner();
    for number in 0..6 {
        let echoed = stream.message().await.unwrap().unwrap();
        assert_eq!(echoed.payload, number.to_string(), "in order, and none is missing");
    }
    assert_eq!(stream.message().await.unwrap(), None);
    rig.server.idle().await;
    let streams = rig.server.record().streams;
    assert_eq!((streams[0].messages, streams[1].messages), (1, 6));
    assert_eq!(streams[0].end.unwrap().how, How::ResetByClient(Reason::CANCEL));
    assert_eq!(rig.control.bytes_kept(), 0);
}

/// In grpc-java it is open whether the slowest or the fastest hedge holds the application back
/// (#7089). Here nobody is asked for more than the fastest can take, so that what is kept is bounded
/// by what somebody needed.
///
/// Red: ask twice (`let _ = inner.pull(cx, &mut after);` before `inner.pull` in `Tape::read`).
#[tokio::test(start_paused = true)]
async fn hedging_backpressure_follows_slowest_needed() {
    let script = [Answer::hang().accepts(2), Answer::hang().accepts(6), Answer::hang().accepts(1)];
    let mut rig = Rig::new(HEDGE, script);
    let asked = Arc::new(AtomicU32::new(0));
    let counted = asked.clone();
    let endless = tokio_stream::iter(std::iter::repeat_with(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        message(&"m".repeat(40_000))
    }));
    let call = rig.client.client_stream(endless);
    assert!(tokio::time::timeout(ms(1_000), call).await.is_err());
    let streams = rig.server.record().streams;
    let messages: Vec<_> = streams.iter().map(|it| it.messages).collect();
    assert_eq!(messages, [2, 6, 1]);
    // What the fastest took, and what waits for its window.
    assert_eq!(asked.load(Ordering::Relaxed), 7);
}
