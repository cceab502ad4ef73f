//! Which results are retried.

use redial::classify::ClassifyRule;
use redial::tower::{RetryLayer, last_response};
use redial::{Directive, Failure, Policy, StopReason, Throttle, Transient, ms};
use tower::{Layer, ServiceBuilder, ServiceExt, service_fn};

use crate::common::{Answer, Failed, Scripted, always};

static THRICE: Policy = Policy::constant(ms(10)).attempts(3).throttle(Throttle::none()).build();

#[tokio::test(start_paused = true)]
async fn tower_error_that_is_not_accepted_ends_the_request() {
    let service = RetryLayer::new(&THRICE)
        .when(|error: &Failed| *error != Failed::Busy)
        .layer(Scripted::answers(&[Err(Failed::Busy)]));
    let error = service.oneshot(1).await.unwrap_err();
    assert_eq!((error.stop_reason(), error.attempts()), (StopReason::NotRetryable, 1));
}

#[tokio::test(start_paused = true)]
async fn tower_transient_errors_need_no_classification() {
    #[derive(Debug)]
    struct Overloaded;
    impl Transient for Overloaded {
        fn failure(&self) -> Option<Failure> {
            Some(Failure::throttling())
        }
    }
    let inner = service_fn(|_: u32| async { Err::<u32, _>(Overloaded) });
    let error = RetryLayer::new(&THRICE).layer(inner).oneshot(1).await.unwrap_err();
    assert_eq!(error.attempts(), 3);
}

#[tokio::test(start_paused = true)]
async fn tower_until_retries_responses_and_keeps_the_last() {
    let inner = Scripted::answers(&[Ok(1), Err(Failed::Busy), Ok(3)]);
    let service = RetryLayer::new(&THRICE).until(|value: &u32| *value > 5).when(always);
    let error = service.layer(inner).oneshot(1).await.unwrap_err();
    assert_eq!((error.stop_reason(), error.attempts()), (StopReason::AttemptsExhausted, 3));
    assert_eq!(error.into_last_value(), Some(3));
    let inner = Scripted::answers(&[Ok(1), Err(Failed::Busy), Ok(9)]);
    let service = RetryLayer::new(&THRICE).when(always).until(|value: &u32| *value > 5);
    assert_eq!(service.layer(inner).oneshot(1).await.unwrap(), 9);
}

fn by_value(answer: &Answer) -> Option<Directive> {
    (*answer.as_ref().ok()? == 503).then_some(Directive::Retry(Failure::server()))
}

fn by_error(answer: &Answer) -> Option<Directive> {
    answer.as_ref().err().map(|_| Directive::Retry(Failure::client()))
}

#[tokio::test(start_paused = true)]
async fn tower_classify_retries_responses_and_errors() {
    let inner = Scripted::answers(&[Ok(503), Err(Failed::Busy), Ok(200)]);
    let service = RetryLayer::new(&THRICE).classify(by_value.or(by_error)).layer(inner);
    assert_eq!(service.oneshot(1).await.unwrap(), 200);
}

#[tokio::test(start_paused = true)]
async fn tower_rejected_response_can_be_returned_as_a_response() {
    let inner = Scripted::answers(&[Ok(503)]);
    let service = ServiceBuilder::new()
        .map_result(last_response)
        .layer(RetryLayer::new(&THRICE).classify(by_value))
        .service(inner);
    assert_eq!(service.oneshot(1).await.unwrap(), 503);
}
