//! What may be repeated.

use std::time::Duration;

use redial::testing::{Clock, block_on};
use redial::{Failure, Policy, Stage, StopReason, ms, s};

use crate::stage::{Fails, exact, run_one};

/// Elsewhere a POST is repeated after a time-out, a reset or an incomplete answer, because that is
/// said to be safe.
///
/// Red: take "in flight" for proof (`Stage::Unsent | Stage::InFlight` in
/// `Failure::proves_not_run`).
#[test]
fn what_must_not_run_twice_is_not_repeated_once_it_may_have_run() {
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

/// The machine's own timeout of an attempt proves nothing either.
///
/// Red: say that a timeout was unsent (`Stage::Unsent` in `Failure::timeout`).
#[test]
fn an_attempt_timeout_does_not_repeat_what_must_not_run_twice() {
    let policy = exact(Policy::constant(ms(10)).attempt_timeout(s(1)));
    let call = policy.retry(std::future::pending::<Result<(), ()>>).when(|()| true);
    let call = call.not_idempotent().sleeping_on(Clock);
    let error = block_on(call.into_future()).expect_err("nothing ever comes");
    assert_eq!(
        (error.attempts(), error.stop_reason(), error.elapsed()),
        (1, StopReason::NotIdempotent, s(1))
    );
}

/// Elsewhere errors are repeated unless somebody says no.
///
/// Red: turn the word around (`if !self` in `IntoDirective for bool`).
#[test]
fn nothing_is_repeated_that_nobody_accepted() {
    let policy = exact(Policy::constant(ms(10)));
    let call = policy.retry(|| async { Err::<(), _>("gone") }).when(|error| *error == "busy");
    let error = block_on(call.sleeping_on(Clock).into_future()).expect_err("it fails");
    assert_eq!((error.attempts(), error.stop_reason()), (1, StopReason::NotRetryable));
    let blocking = policy.retry(|| Err::<(), _>("gone")).when(|error| *error == "busy").call();
    assert_eq!(blocking.expect_err("it fails").attempts(), 1);
}

/// Elsewhere a request is cloned once more than it is sent, or built ahead of a retry that never
/// comes.
///
/// Red: start each retry twice (a second `operation.start(..)` in `Driver::again`, or in the
/// machine's `Command::Start`).
#[test]
fn the_operation_is_called_once_for_each_attempt_and_not_once_more() {
    for attempts in 1..=4 {
        let policy = exact(Policy::constant(ms(10)).attempts(attempts));
        let became = run_one(&policy, Fails::AT_ONCE, None);
        assert_eq!(
            (became.starts.len(), became.stop_reason),
            (attempts as usize, StopReason::AttemptsExhausted)
        );
        let policy = exact(Policy::constant(ms(10)).attempts(attempts).deadline(s(1)));
        let became = run_one(&policy, Fails(Duration::ZERO, Failure::server()), None);
        assert_eq!(
            (became.starts.len(), became.stop_reason),
            (attempts as usize, StopReason::AttemptsExhausted)
        );
    }
}
