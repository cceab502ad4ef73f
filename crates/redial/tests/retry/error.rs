//! Errors and reports.

use std::error::Error as _;
use std::io;
use std::time::Duration;

use redial::testing::{Clock, block_on};
use redial::{
    Failure, Policy, StopReason, ms,
    rules::Limits,
    s,
    strategy::{Decision, Request},
};

use crate::common::{Fails, exact, run};

/// In another library, an error has neither the number of attempts nor the stop reason, and retries
/// that silently do not happen are hard to find.
#[test]
fn error_states_attempts_elapsed_and_stop_reason() {
    let limits = |soft, hard| Limits { soft, hard, ..Limits::NONE };
    let three = || Policy::constant(ms(600)).attempts(3);
    let after = |failure| Fails(ms(5), failure);
    let cases = [
        (
            exact(three()),
            after(Failure::server()),
            StopReason::AttemptsExhausted,
            "no attempt left",
            3,
        ),
        (
            exact(three()),
            after(Failure::server().stop()),
            StopReason::ServerRefused,
            "said not to retry",
            1,
        ),
        (
            exact(three().limits(limits(Some(ms(500)), None))),
            after(Failure::server()),
            StopReason::SoftLimit,
            "the soft limit was reached",
            2,
        ),
        (
            exact(three().limits(limits(None, Some(ms(500))))),
            after(Failure::server()),
            StopReason::HardLimit,
            "the hard limit would be passed",
            1,
        ),
        (
            exact(three().deadline(ms(700))),
            after(Failure::server()),
            StopReason::Deadline,
            "no time left before the deadline",
            2,
        ),
    ];
    for (policy, fails, stop_reason, text, attempts) in cases {
        let result_of_call = run(&policy, fails);
        assert_eq!(
            (result_of_call.stop_reason, result_of_call.starts.len()),
            (stop_reason, attempts)
        );
        let call = policy
            .retry(|| async {
                Clock.sleep(fails.0).await;
                Err::<(), _>(io::Error::other("busy"))
            })
            .when(|_| Some(fails.1))
            .sleeping_on(Clock);
        let error = block_on(call.into_future()).expect_err("it fails");
        let printed = error.to_string();
        let times = if attempts == 1 {
            "1 attempt in ".to_owned()
        } else {
            format!("{attempts} attempts in ")
        };
        assert!(printed.starts_with("busy (") && printed.contains(&times), "{printed}");
        assert!(printed.contains("gave up: ") && printed.contains(text), "{printed}");
        assert!(error.source().is_none(), "the text has the last error, which has no source");
        assert_eq!((error.stop_reason(), error.attempts() as usize), (stop_reason, attempts));
    }
    let policy = exact(three());
    let call = policy.retry(|| async { Err::<(), _>(io::Error::other("busy")) }).when(|_| true);
    let declines = |_: &Request<'_>| Decision::Decline;
    let error = block_on(call.strategy(declines).sleeping_on(Clock).into_future());
    let text = "busy (1 attempt in 0 ms; gave up: the strategy declined)";
    assert_eq!(error.expect_err("it declines").to_string(), text);
}

/// In another library, the reported time is the sum of the sleeps, and can overflow.
#[test]
fn error_elapsed_is_wall_time_not_total_delay() {
    let result_of_call = run(&exact(Policy::constant(ms(10))), Fails(s(30), Failure::server()));
    assert_eq!(result_of_call.elapsed, s(90) + ms(20));
    let result_of_call = run(&exact(Policy::constant(Duration::MAX).attempts(1)), Fails::AT_ONCE);
    assert_eq!(result_of_call.elapsed, Duration::ZERO);
}

/// In another library, a deadline is a timeout around the call, and the operation's error is lost.
#[test]
fn error_after_deadline_keeps_the_last_attempt_error() {
    let policy = exact(Policy::constant(ms(10)).attempts(9).deadline(ms(100)));
    let mut calls = 0;
    let call = policy.retry(|| {
        calls += 1;
        let hangs = calls == 3;
        async move {
            if hangs {
                std::future::pending::<()>().await;
            }
            Err::<(), _>("connection refused")
        }
    });
    let error = block_on(call.when(|_| true).sleeping_on(Clock).into_future());
    let error = error.expect_err("it hangs in the end");
    assert!(error.is_timeout());
    assert_eq!((error.attempts(), error.elapsed()), (3, ms(100)));
    assert_eq!(error.into_last(), Some("connection refused"));
}

/// In another library, `?` works only for error types that implement `Error`; for `Box<dyn Error>` and
/// `anyhow::Error` the user has to write a wrapper.
#[test]
fn error_boxed_can_be_returned_and_downcast() {
    type Any = Box<dyn std::error::Error + Send + Sync>;
    let policy = exact(Policy::constant(ms(10)));
    let call = || {
        let call = policy.retry(|| async { Err::<(), Any>(io::Error::other("busy").into()) });
        let call = call.when(|_| true).sleeping_on(Clock);
        block_on(call.into_future()).map_err(redial::Error::boxed)
    };
    let error = call().expect_err("always busy");
    assert_eq!((error.stop_reason(), error.attempts()), (StopReason::AttemptsExhausted, 3));
    assert!(error.last().expect("an error").downcast_ref::<io::Error>().is_some());
    let returned = || -> Result<(), Any> { Ok(call()?) };
    let returned = returned().expect_err("always busy");
    assert_eq!(
        returned.to_string(),
        "busy (3 attempts in at least 20 ms; gave up: no attempt left)"
    );
    let found =
        returned.downcast_ref::<redial::Error<redial::parts::AnyError>>().expect("its type");
    assert!(found.last().expect("an error").downcast_ref::<io::Error>().is_some());
    let inner = error.into_last().expect("an error").into_inner();
    assert!(inner.is::<io::Error>());

    let waits = policy.retry(|| async { Ok::<_, &str>(7) }).until(|_| false).when(|_| true);
    let error = block_on(waits.sleeping_on(Clock).into_future()).expect_err("never right");
    let error = error.map_last(str::len).map_last(|bytes| bytes.to_string()).boxed();
    assert_eq!((error.last_value(), error.source().is_none()), (Some(&7), true));
}

/// A printer of the whole chain, as anyhow's `{:#}`, prints every cause once.
#[test]
fn error_chain_has_every_cause_once() {
    #[derive(Debug)]
    struct Query(io::Error);
    impl std::fmt::Display for Query {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("query failed")
        }
    }
    impl std::error::Error for Query {
        fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
            Some(&self.0)
        }
    }
    fn chain(error: &dyn std::error::Error) -> String {
        let source = error.source().map(chain);
        source.map_or_else(|| error.to_string(), |source| format!("{error}: {source}"))
    }
    let policy = exact(Policy::constant(ms(10)));
    let query = || async { Err::<(), _>(Query(io::ErrorKind::ConnectionReset.into())) };
    let call = || policy.retry(query).when(|_| true).deadline(s(9)).sleeping_on(Clock);
    let error = block_on(call().into_future()).expect_err("it fails");
    let text = "query failed (3 attempts in 20 ms; gave up: no attempt left): connection reset";
    assert_eq!(chain(&error), text);
    assert!(error.source().expect("a cause").is::<io::Error>());
    let any = error.map_last(|error| -> redial::BoxError { error.into() }).boxed();
    assert_eq!(chain(&any), text);

    let broken = |_: &Request<'_>| Decision::Fail("the oracle is silent".into());
    let error = block_on(call().strategy(broken).into_future()).expect_err("it fails");
    let text = "the oracle is silent (1 attempt in 0 ms; gave up: the strategy declined): \
                query failed: connection reset";
    assert_eq!(chain(&error), text);
    assert_eq!(error.last().map(|error| error.0.kind()), Some(io::ErrorKind::ConnectionReset));
}

/// In another library, the caller cannot know how many attempts a success needed.
#[test]
fn report_of_a_success_counts_attempts() {
    for machine in [false, true] {
        let policy = exact(Policy::constant(ms(10)));
        let mut calls = 0;
        let call = policy.retry(|| {
            calls += 1;
            std::future::ready(if calls < 3 { Err(()) } else { Ok(calls) })
        });
        let call = call.when(|()| true).with_report().sleeping_on(Clock);
        let call = if machine { call.history() } else { call };
        let (value, report) = block_on(call.into_future()).expect("the third succeeds");
        assert_eq!((value, report.attempts, report.elapsed), (3, 3, ms(20)));
    }
}

#[test]
fn error_can_be_cloned_and_compared() {
    let policy = exact(Policy::constant(ms(10)));
    let call = || policy.retry(|| async { Err::<(), _>("busy") }).when(|_| true).sleeping_on(Clock);
    let error = block_on(call().into_future()).expect_err("always busy");
    assert_eq!(error.clone(), error);
    let once = policy.retry(|| async { Err::<(), _>("busy") }).when(|_| false).sleeping_on(Clock);
    assert_ne!(block_on(once.into_future()).expect_err("always busy"), error);
}

#[test]
fn error_value_can_be_converted() {
    let policy = exact(Policy::constant(ms(10)));
    let call = policy.retry(|| async { Ok::<_, &str>(7) }).until(|_| false).when(|_| true);
    let error = block_on(call.sleeping_on(Clock).into_future()).expect_err("never right");
    assert_eq!(error.map_value(|value| value.to_string()).last_value().unwrap(), "7");
}
