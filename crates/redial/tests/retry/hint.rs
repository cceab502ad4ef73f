//! Hints: delays that the server asks for.

use std::time::{Duration, Instant};

use redial::classify::Hint;
use redial::testing::{draws, fails, fails_with, play, succeeds};
use redial::{CallLog, Event, Failure, Policy, StopReason, Throttle, ms, s};

use crate::common::{Fails, announced, exact, run, run_one};

/// In another library, a hint is accepted and passed to the hook, and then the backoff delay is used:
/// two hints of a minute, 20 ms of sleep.
#[test]
fn hint_delay_is_waited_for() {
    let result_of_call = run(
        &exact(Policy::constant(ms(10))),
        Fails(Duration::ZERO, Failure::throttling().retry_after(s(60))),
    );
    assert_eq!(result_of_call.starts, [s(0), s(60), s(120)]);
}

/// In another library, a server can delay a client without a bound.
#[test]
fn hint_delay_above_a_minute_ends_the_call() {
    let hint = |span| Fails(Duration::ZERO, Failure::throttling().retry_after(span));
    let policy = exact(Policy::constant(ms(10)));
    assert_eq!(run(&policy, hint(s(60))).delays(), [s(60), s(60)]);
    for span in [s(60) + Duration::from_nanos(1), s(365 * 86_400), Duration::MAX] {
        let result_of_call = run(&policy, hint(span));
        assert_eq!(result_of_call.starts, [s(0)]);
        assert_eq!(result_of_call.stop_reason, StopReason::HintTooLong);
    }
    let shorter = exact(Policy::constant(ms(10)).hint_max(s(5)));
    assert_eq!(run(&shorter, hint(s(5))).delays(), [s(5), s(5)]);
    assert_eq!(run(&shorter, hint(s(6))).stop_reason, StopReason::HintTooLong);
}

#[test]
fn hint_delay_can_be_clamped_or_waited_for() {
    let hint = Fails(Duration::ZERO, Failure::throttling().retry_after(s(3600)));
    let clamped = run(&exact(Policy::constant(ms(10)).hint_clamp(s(5))), hint);
    assert_eq!(clamped.delays(), [s(5), s(5)]);
    let patient = run(&exact(Policy::constant(ms(10)).hint_unlimited()), hint);
    assert_eq!(patient.delays(), [s(3600), s(3600)]);
    // The deadline bounds it in any case.
    let late = exact(Policy::constant(ms(10)).hint_unlimited().deadline(s(60)));
    assert_eq!(run(&late, hint).stop_reason, StopReason::Deadline);
}

/// In another library, a server that sends `Retry-After: 0` switches the backoff off.
#[test]
fn hint_of_zero_leaves_the_backoff() {
    let hint = Fails(Duration::ZERO, Failure::throttling().retry_after(s(0)));
    let policy = exact(Policy::exponential(ms(10)).attempts(4));
    assert_eq!(run(&policy, hint).delays(), [ms(10), ms(20), ms(40)]);
    // Where the server's word counts exactly, it does.
    let exactly = exact(Policy::exponential(ms(10)).attempts(4).hint_unlimited());
    assert_eq!(run(&exactly, hint).delays(), [ms(0); 3]);
}

/// A hedged call would otherwise sleep until its deadline for a hedge that cannot start.
#[test]
fn hint_past_the_deadline_ends_a_hedged_call() {
    let hedged = Policy::hedged(ms(10)).attempts(3).deadline(s(1)).throttle(Throttle::none());
    let hint = || fails_with(Failure::throttling().retry_after(s(1)));
    let played = play(&hedged.build(), [hint(), fails(), fails()]);
    let end = played.end().expect("it ends");
    assert_eq!((played.starts(), end.at), (vec![s(0)], s(0)));
    assert_eq!((end.stop_reason, end.attempt), (StopReason::Deadline, Some(1)));
    // The other attempt may still succeed.
    let played = play(&hedged.build(), [hint().after(ms(20)), succeeds().after(ms(500)), fails()]);
    assert_eq!(played.stop_reason(), Some(StopReason::Succeeded));
}

#[test]
fn hint_jitter_spreads_the_delay_upwards() {
    let _draws = draws([0.5, 0.0]);
    let hint = Fails(Duration::ZERO, Failure::throttling().retry_after(s(10)));
    let policy = exact(Policy::constant(ms(10)).hint_jitter(0.2));
    assert_eq!(run_one(&policy, hint, None).delays(), [s(11), s(10)]);
    let _draws = draws([0.5, 0.0]);
    let clamped = exact(Policy::constant(ms(10)).hint_clamp(ms(10_500)).hint_jitter(0.2));
    assert_eq!(run_one(&clamped, hint, None).delays(), [ms(10_500), s(10)]);
}

/// In another library, only the async retry can follow a hint.
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

/// In another library, the hook receives the sum of the earlier delays: 0, 10, 20, 30 ms for a delay
/// of 10 ms; and it is called once more when no retry follows.
#[test]
fn hook_receives_the_delay_only_if_a_retry_follows() {
    let mut call_log = CallLog::new();
    let policy = exact(Policy::arithmetic(ms(10), ms(5)).attempts(4));
    let result_of_call = run_one(&policy, Fails::AT_ONCE, Some(&mut call_log));
    assert_eq!(announced(&call_log), [ms(10), ms(15), ms(20)]);
    assert_eq!(announced(&call_log), result_of_call.delays());
    for failure in [Failure::server().stop(), Failure::server().retry_after(s(9))] {
        let mut call_log = CallLog::new();
        let policy = exact(Policy::constant(ms(10)).deadline(s(1)));
        run_one(&policy, Fails(Duration::ZERO, failure), Some(&mut call_log));
        assert_eq!(announced(&call_log), [], "{failure:?}");
        assert!(matches!(call_log.events().last(), Some((_, Event::CallEnded { .. }))));
    }
}
