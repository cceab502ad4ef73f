//! Idempotency.

use std::time::Duration;

use redial::testing::{Clock, block_on};
use redial::{Failure, Policy, Stage, StopReason, ms, s};

use crate::common::{Fails, exact, run_one};

/// In another library, a POST is retried after a timeout, a reset or an incomplete response, although
/// it may have run.
#[test]
fn not_idempotent_call_is_not_retried_once_in_flight() {
    let policy = exact(Policy::constant(ms(10)));
    let attempts = |failure: Failure| {
        let call = policy.retry(|| async { Err::<(), _>(()) }).when(move |()| Some(failure));
        let call = call.not_idempotent().sleeping_on(Clock);
        let error = block_on(call.into_future()).expect_err("it fails");
        (error.attempts(), error.stop_reason())
    };
    for failure in [Failure::timeout(), Failure::client().at(Stage::InFlight), Failure::server()] {
        assert_eq!(attempts(failure), (1, StopReason::NotIdempotent), "{failure:?}");
    }
    assert_eq!(attempts(Failure::client().at(Stage::Unsent)), (3, StopReason::AttemptsExhausted));
}

/// An attempt timeout does not prove that the operation did not run.
#[test]
fn not_idempotent_call_is_not_retried_after_attempt_timeout() {
    let policy = exact(Policy::constant(ms(10)).attempt_timeout(s(1)).retry_timeouts());
    let call = policy.retry(std::future::pending::<Result<(), ()>>).when(|()| true);
    let call = call.not_idempotent().sleeping_on(Clock);
    let error = block_on(call.into_future()).expect_err("nothing ever comes");
    assert_eq!(
        (error.attempts(), error.stop_reason(), error.elapsed()),
        (1, StopReason::NotIdempotent, s(1))
    );
}

/// In another library, errors are retried by default.
#[test]
fn retry_needs_an_explicit_classification() {
    let policy = exact(Policy::constant(ms(10)));
    let call = policy.retry(|| async { Err::<(), _>("gone") }).when(|error| *error == "busy");
    let error = block_on(call.sleeping_on(Clock).into_future()).expect_err("it fails");
    assert_eq!((error.attempts(), error.stop_reason()), (1, StopReason::NotRetryable));
    let blocking = policy.retry(|| Err::<(), _>("gone")).when(|error| *error == "busy").call();
    assert_eq!(blocking.expect_err("it fails").attempts(), 1);
}

/// In another library, a request is cloned once more than it is sent, or built for a retry that does
/// not happen.
#[test]
fn attempt_calls_the_operation_exactly_once() {
    for attempts in 1..=4 {
        let policy = exact(Policy::constant(ms(10)).attempts(attempts));
        let result_of_call = run_one(&policy, Fails::AT_ONCE, None);
        assert_eq!(
            (result_of_call.starts.len(), result_of_call.stop_reason),
            (attempts as usize, StopReason::AttemptsExhausted)
        );
        let policy = exact(Policy::constant(ms(10)).attempts(attempts).deadline(s(1)));
        let result_of_call = run_one(&policy, Fails(Duration::ZERO, Failure::server()), None);
        assert_eq!(
            (result_of_call.starts.len(), result_of_call.stop_reason),
            (attempts as usize, StopReason::AttemptsExhausted)
        );
    }
}
