//! What a server asks for.

use std::time::{Duration, Instant};

use redial::{CallLog, Event, Failure, Hint, Policy, StopReason, Throttle, ms, s};

use crate::common::{Fails, announced, exact, run, run_one};

/// Elsewhere a hint is accepted, told to the hook, and then the series' own delay is slept: two hints
/// of a minute, 20 ms slept.
///
/// Red: return the base delay for an exact hint (`(rules.backoff.base(number), true)` in `delay`).
#[test]
fn hint_delay_is_waited_for() {
    let became = run(
        &exact(Policy::constant(ms(10))),
        Fails(Duration::ZERO, Failure::throttling().retry_after(s(60))),
    );
    assert_eq!(became.starts, [s(0), s(60), s(120)]);
}

/// Elsewhere a server can send a client to sleep for as long as it likes.
///
/// Red: forget the cap of hints (`ns(wish)` without `.min(..)` in `delay`).
#[test]
fn hint_delay_is_capped_by_hint_max() {
    let hint = Fails(Duration::ZERO, Failure::throttling().retry_after(s(3600)));
    let became = run(&exact(Policy::constant(ms(10)).hint_max(s(5))), hint);
    assert_eq!(became.delays(), [s(5), s(5)]);
}

/// Elsewhere only the async retry can follow a hint.
///
/// Red: do not park the thread (`engine.wake(at)` in place of `thread::park_timeout(..)` in the
/// blocking driver).
#[test]
fn hint_delay_is_waited_for_in_a_blocking_call() {
    static QUICK: Policy = Policy::immediate().attempts(3).throttle(Throttle::none()).build();
    let hint = Failure::throttling().retry_after(ms(2));
    let start = Instant::now();
    let call = QUICK.retry(|| Err::<(), _>(())).when(|()| Some(hint));
    let error = call.call().expect_err("it fails for ever");
    assert!(start.elapsed() >= ms(4) && error.elapsed() >= ms(4), "{error:?}");
    let stop = Failure::throttling().hint(Hint::Stop);
    let error = QUICK.retry(|| Err::<(), _>(())).when(|()| Some(stop)).call();
    assert_eq!(error.expect_err("it fails").stop_reason(), StopReason::ServerRefused);
}

/// Elsewhere the hook is told the sum of the delays before this one: 0, 10, 20, 30 ms for a delay of
/// 10 ms; and once more when no retry follows.
///
/// Red: note the sum (`after: counters.waited` in the last note of `decide.rs`).
#[test]
fn hook_receives_the_delay_only_if_a_retry_follows() {
    let mut call_log = CallLog::new();
    let policy = exact(Policy::arithmetic(ms(10), ms(5)).attempts(4));
    let became = run_one(&policy, Fails::AT_ONCE, Some(&mut call_log));
    assert_eq!(announced(&call_log), [ms(10), ms(15), ms(20)]);
    assert_eq!(announced(&call_log), became.delays());
    for failure in [Failure::server().stop(), Failure::server().retry_after(s(9))] {
        let mut call_log = CallLog::new();
        let policy = exact(Policy::constant(ms(10)).deadline(s(1)));
        run_one(&policy, Fails(Duration::ZERO, failure), Some(&mut call_log));
        assert_eq!(announced(&call_log), [], "{failure:?}");
        assert!(matches!(call_log.events().last(), Some((_, Event::CallEnded { .. }))));
    }
}
