//! Deadlines.

use std::cell::Cell;
use std::fs;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use redial::time::Sleeper;
use redial::{
    Failure, Policy, PolicyError, Reason, StopReason, Throttle, ms,
    rules::{LimitBasis, Limits, Rules},
    s,
    time::Ns,
};

use crate::common::{Fails, exact, run};

/// In another library, the limit on the total time sums up the sleeps alone: a limit of one second
/// let four attempts of 30 s run for two minutes.
#[test]
fn deadline_includes_the_time_of_attempts() {
    let policy = exact(Policy::constant(ms(200)).deadline(s(1)));
    let result_of_call = run(&policy, Fails(s(30), Failure::server()));
    assert_eq!(
        (result_of_call.starts.len(), result_of_call.stop_reason, result_of_call.elapsed),
        (1, StopReason::Deadline, s(1))
    );
    let policy = exact(Policy::constant(s(1)).attempts(9).deadline(s(100)));
    let result_of_call = run(&policy, Fails(s(30), Failure::server()));
    assert_eq!(result_of_call.starts, [s(0), s(31), s(62), s(93)]);
    assert_eq!(
        (result_of_call.stop_reason, result_of_call.elapsed),
        (StopReason::Deadline, s(100))
    );
}

/// In another library, the elapsed time is compared before the sleep and never with its end: a
/// limit of one second with delays of 60 s sleeps for 60 s.
#[test]
fn deadline_skips_a_sleep_that_would_reach_it() {
    let policy = exact(Policy::constant(s(60)).deadline(s(1)));
    let result_of_call = run(&policy, Fails(ms(100), Failure::server()));
    assert_eq!(
        (result_of_call.starts.len(), result_of_call.stop_reason, result_of_call.elapsed),
        (1, StopReason::Deadline, ms(100))
    );
    // A sleep that ends exactly at the deadline is skipped, too.
    let policy = exact(Policy::constant(ms(900)).deadline(s(1)));
    let result_of_call = run(&policy, Fails(ms(100), Failure::server()));
    assert_eq!((result_of_call.starts.len(), result_of_call.elapsed), (1, ms(100)));
}

/// In another library, the time limit starts when the strategy is built, so a strategy that is reused
/// has expired before its second call.
#[test]
fn deadline_counts_from_the_start_of_the_call() {
    let policy = exact(Policy::constant(ms(300)).attempts(9).deadline(s(1)));
    for _ in 0..3 {
        let result_of_call = run(&policy, Fails::AT_ONCE);
        assert_eq!(result_of_call.starts, [ms(0), ms(300), ms(600), ms(900)]);
    }
}

/// In another library, a deadline is a timeout around the whole call, which the running attempt does
/// not know.
#[test]
fn deadline_remaining_is_passed_to_each_attempt() {
    let policy = exact(Policy::constant(s(1)).attempts(3).deadline(s(10)));
    let received = std::cell::RefCell::new(Vec::new());
    let call = policy.retry_with(|attempt| {
        received.borrow_mut().push(attempt.remaining());
        async { Err::<(), _>(()) }
    });
    let call = call.when(|()| true).sleeping_on(redial::testing::Clock);
    redial::testing::block_on(call.into_future()).expect_err("it fails for ever");
    assert_eq!(received.into_inner(), [Some(s(10)), Some(s(9)), Some(s(8))]);
}

/// In another library, a server's hint bypasses the limit: with a limit of a millisecond, a
/// thousand attempts were made over a thousand seconds.
#[test]
fn hint_respects_deadline_attempts_and_limits() {
    let hint = |span| Fails(Duration::ZERO, Failure::server().retry_after(span));
    let policy = exact(Policy::constant(ms(1)).unlimited().deadline(s(10)));
    let result_of_call = run(&policy, hint(s(4)));
    assert_eq!(
        (result_of_call.starts, result_of_call.stop_reason),
        (vec![s(0), s(4), s(8)], StopReason::Deadline)
    );
    assert_eq!(result_of_call.elapsed, s(8), "no wait beyond the deadline");
    assert_eq!(run(&policy, hint(s(10))).starts.len(), 1);
    assert_eq!(run(&exact(Policy::constant(ms(1)).attempts(4)), hint(s(1))).starts.len(), 4);
    let limits = Limits { hard: Some(s(10)), ..Limits::NONE };
    let result_of_call =
        run(&exact(Policy::constant(ms(1)).unlimited().limits(limits)), hint(s(4)));
    assert_eq!(
        (result_of_call.starts.len(), result_of_call.stop_reason),
        (3, StopReason::HardLimit)
    );
}

/// In another library, the orchestrator has neither a maximum nor a deadline, and never stops.
#[test]
fn unlimited_attempts_need_a_deadline_or_limit() {
    let unlimited = || Policy::constant(ms(1)).unlimited();
    assert_eq!(unlimited().try_build().err(), Some(PolicyError::Unlimited));
    let soft = Limits { soft: Some(s(1)), ..Limits::NONE };
    assert!(
        unlimited().deadline(s(1)).try_build().is_ok()
            && unlimited().limits(soft).try_build().is_ok()
    );
}

/// In another library, a total duration with a smallest delay of zero never terminates.
#[test]
fn unlimited_attempts_with_unreachable_limit_are_refused() {
    let soft = Limits { soft: Some(s(1)), ..Limits::NONE };
    let zero = || Policy::immediate().unlimited();
    assert_eq!(zero().limits(soft).try_build().err(), Some(PolicyError::Unlimited));
    let elapsed = Limits { basis: LimitBasis::Elapsed, ..soft };
    let result_of_call = run(&exact(zero().limits(elapsed)), Fails(ms(300), Failure::server()));
    assert_eq!(
        (result_of_call.starts.len(), result_of_call.stop_reason),
        (4, StopReason::SoftLimit)
    );
}

/// In another library, failures that are always retried bypass every bound.
#[test]
fn always_retried_reason_still_ends_at_the_deadline() {
    static MOVED: Reason = Reason::new("MOVED").always();
    let moved = Fails(Duration::ZERO, Failure::server().because(MOVED));
    assert_eq!(run(&exact(Policy::constant(ms(1)).attempts(4)), moved).starts.len(), 4);
    let policy = exact(Policy::constant(ms(1)).unlimited().deadline(ms(100)));
    let result_of_call = run(&policy, moved);
    assert_eq!(
        (result_of_call.stop_reason, result_of_call.starts.len()),
        (StopReason::Deadline, 4),
        "after 1, 10 and 50 ms"
    );
}

/// A clock that steps back by an hour after each read.
struct Stepping<'a>(&'a Cell<Ns>);

/// Ready at the second poll.
struct Twice(bool);

const HOUR: Ns = 3_600_000_000_000;

impl Sleeper for Stepping<'_> {
    type Sleep = Twice;
    fn now(&self) -> Ns {
        self.0.replace(self.0.get().saturating_sub(HOUR))
    }
    fn sleep_until(&self, _: Ns) -> Twice {
        Twice(false)
    }
}

impl Future for Twice {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.0, true) { Poll::Ready(()) } else { Poll::Pending }
    }
}

/// In another library, a step of the wall clock turns into an instant retry, a long sleep, a
/// negative refill or a panic. The default clock is monotonic; with one that is not, only `elapsed` is
/// wrong.
#[test]
fn deadline_tolerates_a_clock_stepping_back() {
    for deadline in [None, Some(s(86_400))] {
        let builder = Policy::constant(ms(10)).attempts(3).throttle(Throttle::none());
        let builder = deadline.into_iter().fold(builder, redial::Builder::deadline);
        let policy = builder.try_build().expect("valid");
        let clock = Cell::new(10 * HOUR);
        let mut calls = 0;
        let call = policy.retry(|| {
            calls += 1;
            async { Err::<(), _>(()) }
        });
        let call = call.when(|()| true).sleeping_on(Stepping(&clock));
        let mut call = Box::pin(call.into_future());
        let mut cx = Context::from_waker(Waker::noop());
        let ended = (0..99).find_map(|_| match call.as_mut().poll(&mut cx) {
            Poll::Ready(result) => Some(result),
            Poll::Pending => None,
        });
        drop(call);
        let error = ended.expect("it ends").expect_err("it fails for ever");
        assert_eq!(
            (error.stop_reason(), error.attempts(), calls),
            (StopReason::AttemptsExhausted, 3, 3)
        );
        assert_eq!(error.elapsed(), Duration::ZERO);
    }
}

/// The sources use no wall clock.
#[test]
fn source_never_reads_the_wall_clock() {
    fn search(folder: &Path, found: &mut Vec<String>, seen: &mut usize) {
        for entry in fs::read_dir(folder).expect("a folder of sources") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                search(&path, found, seen);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                *seen += 1;
                let text = fs::read_to_string(&path).expect("a source");
                if text.contains("SystemTime") {
                    found.push(path.display().to_string());
                }
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (mut found, mut seen) = (Vec::new(), 0);
    for folder in ["src", "../redial-core/src"] {
        search(&root.join(folder), &mut found, &mut seen);
    }
    assert!(found.is_empty() && seen > 20, "{found:?} of {seen}");
}

/// A clock that does not advance, with timers that are ready at once.
struct Impatient;

impl Sleeper for Impatient {
    type Sleep = std::future::Ready<()>;
    fn now(&self) -> Ns {
        5
    }
    fn sleep_until(&self, _: Ns) -> Self::Sleep {
        std::future::ready(())
    }
}

/// In another library, a long duration overflows and panics, or ends the retries.
#[test]
fn deadline_longest_durations_do_not_panic() {
    let attempts = |policy: &Policy, failure: Failure, machine: bool| {
        let call = policy.retry(|| async { Err::<(), _>(()) }).when(move |()| Some(failure));
        let call = call.sleeping_on(Impatient);
        let call = if machine { call.history() } else { call };
        redial::testing::block_on(call.into_future()).expect_err("it fails").attempts()
    };
    // The longest duration, and the longest one that is not `NEVER`.
    let ages = Duration::from_nanos(Ns::MAX / 2);
    for (span, machine) in [(Duration::MAX, false), (ages, false), (ages, true)] {
        let throttling = Rules { throttling_first: Some(span), ..Rules::DEFAULT };
        let policies = [
            Policy::constant(span),
            Policy::exponential(span).cap(span).factor(1e300),
            Policy::arithmetic(span, span).cap(span),
            Policy::fibonacci(span).cap(span),
            Policy::from_rules(throttling),
        ];
        for policy in policies.map(|builder| exact(builder.attempts(5).hint_unlimited())) {
            for failure in [Failure::throttling(), Failure::server().retry_after(span)] {
                assert_eq!(attempts(&policy, failure, machine), 5, "{policy:?}, {failure:?}");
            }
        }
    }
    let policy = exact(Policy::constant(ages).attempts(5).deadline(ages));
    assert_eq!(attempts(&policy, Failure::server(), false), 1, "it would be too late");
}

/// The same on tokio's timer, which has a millisecond resolution.
#[tokio::test(start_paused = true)]
async fn backoff_longest_delay_can_be_slept_on_tokio() {
    let policy = exact(Policy::constant(Duration::MAX));
    let call = policy.retry(|| async { Err::<(), _>(()) }).when(|()| true);
    assert!(tokio::time::timeout(s(86_400), call).await.is_err(), "it still sleeps");
    let call = policy.retry(std::future::pending::<Result<(), ()>>).when(|()| true);
    let call = tokio::time::timeout(s(86_400), call.deadline(Duration::MAX));
    assert!(call.await.is_err(), "its deadline has not come");
}
