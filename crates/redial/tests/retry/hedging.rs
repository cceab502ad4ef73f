//! Hedging.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use redial::testing::{Clock, block_on, hangs, play, succeeds};
use redial::throttle::{Bucket, RetryBudget};
use redial::time::Sleeper;
use redial::{Hedged, Policy, Report, StopReason, ms, s};

/// Runs a hedged call whose attempts have these durations and results; returns the starts, too.
fn race(
    policy: &Hedged,
    plan: &[(Duration, bool)],
) -> (Result<(usize, Report), StopReason>, Vec<Duration>) {
    let began = Clock.now();
    let starts = RefCell::new(Vec::new());
    let call = policy.retry(|| {
        starts.borrow_mut().push(Duration::from_nanos(Clock.now() - began));
        let number = starts.borrow().len();
        let (took, wins) = plan[number - 1];
        async move {
            Clock.sleep(took).await;
            if wins { Ok(number) } else { Err(number) }
        }
    });
    let call = call.when(|_| true).with_report().sleeping_on(Clock);
    let result = block_on(call.into_future()).map_err(|error| error.stop_reason());
    (result, starts.into_inner())
}

fn hedged(delay: Duration) -> Hedged {
    Policy::hedged(delay).attempts(3).try_build().expect("valid")
}

/// In another library, the first attempt's error wins at once, and the hedge that was about to
/// answer is dropped.
#[test]
fn hedging_first_attempt_error_keeps_the_hedge_running() {
    let plan = [(ms(15), false), (ms(30), true), (s(9), true)];
    let (result, _) = race(&hedged(ms(10)), &plan);
    let (winner, report) = result.expect("the hedge answers");
    assert_eq!((winner, report.elapsed), (2, ms(40)));
}

/// In another library, a first attempt that fails fast is followed only after the whole hedge delay.
#[test]
fn hedging_fast_failure_starts_the_next_attempt_at_once() {
    let (result, starts) = race(&hedged(s(10)), &[(ms(5), false), (ms(5), true)]);
    assert_eq!((result.expect("the second answers").0, starts), (2, vec![ms(0), ms(5)]));
}

/// In another library, hedge delays are whole milliseconds, and shorter ones are zero.
#[test]
fn hedging_delay_is_exact_to_the_nanosecond() {
    let micro = Duration::from_nanos(1_001);
    let policy = hedged(micro);
    let (_, starts) = race(&policy, &[(s(1), true), (s(1), true), (ms(1), true)]);
    assert_eq!(starts, [Duration::ZERO, micro, micro * 2]);
    let played = play(&policy, [hangs(), hangs(), succeeds()]);
    assert_eq!(played.starts(), [Duration::ZERO, micro, micro * 2]);
}

/// In another library, hedges are free: a slow server gets twice the load for as long as it is
/// slow.
#[test]
fn hedging_and_retries_share_one_budget() {
    let budget = Arc::new(RetryBudget::try_new(3.0, 0.0).expect("valid"));
    let hedged = hedged(ms(10)).sharing(budget.clone());
    let policy = Policy::immediate().attempts(2).build().sharing(budget.clone());
    let slow = [(ms(100), true), (ms(100), true), (ms(100), true)];
    assert_eq!(race(&hedged, &slow).1.len(), 3);
    assert_eq!(budget.tokens(0), Some(1.0), "two hedges");
    policy.retry(|| Err::<(), _>(())).when(|()| true).call().expect_err("it fails");
    assert_eq!(budget.tokens(0), Some(0.0), "and a retry");
    assert_eq!(race(&hedged, &slow).1.len(), 1, "nothing is left for a hedge");
}

/// In another library, an exhausted budget fails the call, though its first attempt is about to
/// answer.
#[test]
fn hedging_empty_budget_suppresses_the_hedge_only() {
    let budget = Arc::new(RetryBudget::try_new(1.0, 0.0).expect("valid"));
    let hedged = hedged(ms(10)).sharing(budget);
    let (result, starts) = race(&hedged, &[(ms(100), true), (s(9), true)]);
    let (winner, report) = result.expect("the first answers");
    assert_eq!((winner, report.elapsed, starts.len()), (1, ms(100), 2));
}

/// In another library, the losers were not cancelled.
#[test]
fn hedging_losers_are_dropped_when_the_winner_answers() {
    let alive = Rc::new(Cell::new(0));
    struct Owned(Rc<Cell<i32>>);
    impl Drop for Owned {
        fn drop(&mut self) {
            self.0.set(self.0.get() - 1);
        }
    }
    let policy = Policy::hedged(ms(0)).attempts(3).try_build().expect("valid");
    let calls = Cell::new(0);
    let call = policy.retry(|| {
        calls.set(calls.get() + 1);
        alive.set(alive.get() + 1);
        let (number, owned) = (calls.get(), Owned(alive.clone()));
        async move {
            let _owned = owned;
            if number < 3 {
                std::future::pending::<()>().await;
            }
            Ok::<_, ()>(number)
        }
    });
    let mut call = Box::pin(call.when(|()| true).sleeping_on(Clock).into_future());
    let polled = call.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(polled, Poll::Ready(Ok(3))));
    assert_eq!((calls.get(), alive.get()), (3, 0), "though the future itself still lives");
    drop(call);
}
