//! Timers and hints while the body of a response is read (decisions H3 and H5). Time is virtual: the service
//! answers in this process, with bodies that stall.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use redial::classify::Hint;
use redial::report::AttemptEnd;
use redial::rules::DeadlineAction;
use redial::{Policy, Report, StopReason, Throttle, ms, s};
use redial_http::RetryLayer;
use redial_http::parts::{DRAIN_TIME_MAX, ResponseBody};
use tokio::time::Instant;
use tower::{Layer, Service, service_fn};

/// One byte, and nothing more until the end of the test.
struct StalledBody(Option<Bytes>);

impl Body for StalledBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.take().map_or(Poll::Pending, |byte| Poll::Ready(Some(Ok(Frame::data(byte)))))
    }
}

/// The time of an answer, its status and its `Retry-After`.
type Answer = (Duration, u16, Option<u64>);

/// Answers the n-th request as the n-th of these says; the last repeats.
#[derive(Clone)]
struct Stalling {
    answers: Arc<[Answer]>,
    requests: Arc<AtomicUsize>,
}

impl Stalling {
    fn new(answers: impl Into<Arc<[Answer]>>) -> Self {
        Stalling { answers: answers.into(), requests: Arc::default() }
    }

    /// Sends a GET with these retries.
    async fn get(
        &self,
        retries: RetryLayer,
    ) -> Result<Response<ResponseBody<StalledBody>>, redial_http::Error<Infallible>> {
        let this = self.clone();
        let service = service_fn(move |_: Request<()>| {
            let n = this.requests.fetch_add(1, Ordering::Relaxed).min(this.answers.len() - 1);
            let (after, status, retry_after) = this.answers[n];
            async move {
                tokio::time::sleep(after).await;
                let mut response = Response::builder().status(status);
                if let Some(secs) = retry_after {
                    response = response.header("retry-after", secs);
                }
                Ok::<_, Infallible>(response.body(StalledBody(Some(Bytes::from("x")))).unwrap())
            }
        });
        retries.policy_throttle().layer(service).call(Request::new(())).await
    }
}

fn report(response: &Response<ResponseBody<StalledBody>>) -> &Report {
    response.extensions().get().unwrap()
}

#[tokio::test(start_paused = true)]
async fn attempt_timeout_during_a_drain_keeps_response_and_hint() {
    let policy =
        Policy::constant(ms(1)).attempt_timeout(ms(300)).throttle(Throttle::none()).build();
    let server = Stalling::new([(ms(100), 429, Some(5)), (ms(1), 200, None)]);
    let response = server.get(RetryLayer::new(&policy)).await.unwrap();
    assert_eq!(response.status(), 200);
    let history = &report(&response).history;
    let AttemptEnd::Failed(failure) = history[0].end else { panic!("{history:?}") };
    assert_eq!(failure.hint, Hint::After(s(5)));
    assert!((ms(200)..ms(210)).contains(&history[0].ended), "half of the time left: {history:?}");
    assert!(history[1].started - history[0].ended >= s(5), "{history:?}");
}

// To the millisecond, which is the resolution of tokio's timers.
#[tokio::test(start_paused = true)]
async fn attempt_timeout_never_fires_once_a_response_has_arrived() {
    let policy = Policy::constant(ms(1)).attempt_timeout(ms(20)).throttle(Throttle::none()).build();
    for arrival in 0..20 {
        let server = Stalling::new([(ms(arrival), 503, None), (ms(0), 200, None)]);
        let response = server.get(RetryLayer::new(&policy)).await.unwrap();
        let history = &report(&response).history;
        assert!(matches!(history[0].end, AttemptEnd::Failed(_)), "{arrival} ms: {history:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn deadline_during_the_drain_returns_the_response() {
    let policy = Policy::constant(s(1)).deadline(ms(400)).throttle(Throttle::none()).build();
    let server = Stalling::new([(ms(100), 503, None)]);
    let mut response = server.get(RetryLayer::new(&policy)).await.unwrap();
    assert_eq!((response.status().as_u16(), report(&response).attempts), (503, 1));
    assert_eq!(report(&response).stop_reason, StopReason::Deadline);
    let first = response.frame().await.unwrap().unwrap();
    assert_eq!(first.into_data().unwrap(), "x", "the response is whole");
}

#[tokio::test(start_paused = true)]
async fn deadline_after_a_drain_states_the_status_of_the_response() {
    let policy = Policy::constant(ms(1)).deadline(ms(400)).throttle(Throttle::none()).build();
    let server = Stalling::new([(ms(100), 503, None), (s(30), 200, None)]);
    let error = server.get(RetryLayer::new(&policy)).await.err().unwrap();
    assert_eq!((error.attempts(), error.last_status().unwrap().as_u16()), (2, 503));
}

#[tokio::test(start_paused = true)]
async fn deadline_that_is_waited_for_keeps_an_unread_response() {
    let policy = Policy::constant(s(10))
        .deadline(s(3))
        .deadline_action(DeadlineAction::WaitForDeadline)
        .throttle(Throttle::none())
        .build();
    let server = Stalling::new([(ms(100), 503, None)]);
    let start = Instant::now();
    let response = server.get(RetryLayer::new(&policy)).await.unwrap();
    assert_eq!((response.status().as_u16(), report(&response).attempts), (503, 1));
    assert_eq!(report(&response).stop_reason, StopReason::Deadline);
    assert!(start.elapsed() >= s(3));
}

#[tokio::test(start_paused = true)]
async fn retry_after_too_long_does_not_wait_for_body() {
    let far = Policy::constant(ms(1)).throttle(Throttle::none()).build();
    let near = Policy::constant(ms(1)).deadline(s(20)).throttle(Throttle::none()).build();
    for (policy, answer, reason) in [
        (far, (ms(100), 429, Some(61)), StopReason::HintTooLong),
        (near, (ms(100), 429, Some(30)), StopReason::Deadline),
    ] {
        let server = Stalling::new([answer]);
        let start = Instant::now();
        let response = server.get(RetryLayer::new(&policy)).await.unwrap();
        assert!((ms(100)..ms(110)).contains(&start.elapsed()), "{:?}", start.elapsed());
        assert_eq!((response.status().as_u16(), report(&response).stop_reason), (429, reason));
    }
}

#[tokio::test(start_paused = true)]
async fn retry_after_of_a_hedged_get_counts_during_the_drain() {
    let reads = Policy::hedged(ms(200)).attempts(2).throttle(Throttle::none()).build();
    let server = Stalling::new([(ms(50), 429, Some(5)), (ms(1), 200, None)]);
    let response = server.get(RetryLayer::standard().hedge_reads(&reads)).await.unwrap();
    assert_eq!(response.status(), 200);
    let history = &report(&response).history;
    assert!(history[0].ended < ms(200), "before the hedge would start: {history:?}");
    assert!(history[1].started >= s(5), "{history:?}");
}

#[tokio::test(start_paused = true)]
async fn drain_without_a_timer_takes_its_whole_time() {
    let policy = Policy::constant(ms(1)).attempts(2).throttle(Throttle::none()).build();
    let server = Stalling::new([(ms(100), 503, None), (ms(1), 200, None)]);
    let start = Instant::now();
    server.get(RetryLayer::new(&policy)).await.unwrap();
    let expected = ms(100) + DRAIN_TIME_MAX;
    assert!((expected..expected + ms(10)).contains(&start.elapsed()), "{:?}", start.elapsed());
}
