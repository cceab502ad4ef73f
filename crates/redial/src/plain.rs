//! A call without its state machine: one attempt at a time, and [`decide`] after each failure.
//!
//! Every call begins like this. A call whose policy needs more than counters (a deadline, hedging, an
//! attempt timeout, a strategy) gets its state machine when its first timer fires or its first attempt
//! fails. The module is generic over the sleeper and the kind of policy only, so call sites share its code.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use redial_core::throttle::Bucket;
use redial_core::{
    Advice, CallCounters, Cost, Environment, Failure, Grant, NEVER, Ns, StopReason, Verdict,
    Withdrawal, decide, duration,
};

use crate::draws::draw;
use crate::policy::{Origin, Policy};
use crate::report::Report;
use crate::sleeper::Sleeper;
use crate::throttle::Handle;

/// The start of a call that has not read the clock.
pub(crate) const UNKNOWN: Ns = NEVER;

/// The state of a call without its state machine.
pub(crate) enum PlainCall<S: Sleeper> {
    /// No delay and no timer so far.
    Immediate {
        /// Attempts started.
        attempts: u32,
        /// When the call started; [`UNKNOWN`] until it is pending or fails, unless the clock was read at
        /// the first poll.
        start: Ns,
    },
    /// With a timer or a delay.
    Timed(Pin<Box<Timed<S>>>),
}

pin_project! {
    pub(crate) struct Timed<S: Sleeper> {
        counters: CallCounters,
        waits: WaitsFor,
        #[pin]
        timer: SleepUntil<S>,
    }
}

/// What the timer of a [`Timed`] call is for.
enum WaitsFor {
    /// The first attempt runs until this time; then the call needs its state machine.
    FirstTimer(Ns),
    /// The next attempt starts at this time.
    NextAttempt(Ns, Reserved),
    /// An attempt runs, and no timer is armed.
    Nothing,
}

/// The tokens of a retry that has not started. Dropping it refunds them (P6).
struct Reserved {
    handle: Handle,
    withdrawal: Option<Withdrawal>,
}

impl Drop for Reserved {
    fn drop(&mut self) {
        if let Some(withdrawal) = self.withdrawal.take() {
            self.handle.refund(withdrawal);
        }
    }
}

/// What follows a retryable failure.
pub(crate) enum Next {
    /// Start the attempt with this number.
    Start(u32),
    /// Wait for [`PlainCall::poll_next_attempt`].
    Wait,
    /// End the call.
    End(StopReason),
}

pin_project! {
    /// A timer that can be set again.
    pub(crate) struct SleepUntil<S: Sleeper> {
        #[pin]
        sleep: Option<S::Sleep>,
        at: Ns,
    }
}

impl<S: Sleeper> SleepUntil<S> {
    pub(crate) const fn unarmed() -> Self {
        SleepUntil { sleep: None, at: NEVER }
    }

    /// Ready at this time. A timer for another time is replaced.
    pub(crate) fn poll(
        self: Pin<&mut Self>,
        sleeper: &S,
        at: Ns,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        let mut this = self.project();
        if *this.at != at || this.sleep.is_none() {
            this.sleep.set(Some(sleeper.sleep_until(at)));
            *this.at = at;
        }
        if let Some(sleep) = this.sleep.as_mut().as_pin_mut() {
            ready!(sleep.poll(cx));
        }
        this.sleep.set(None);
        Poll::Ready(())
    }
}

/// The environment of a decision without the state machine. Its throttle is a budget, which answers at
/// once.
struct PlainEnvironment<'s, G, S> {
    origin: G,
    withdrawal: Option<Withdrawal>,
    sleeper: &'s S,
    /// Whether the time of the decision is the current one, and not the start of the call.
    knows_time: bool,
}

impl<'p, G: Origin<'p>, S: Sleeper> Environment for PlainEnvironment<'_, G, S> {
    fn draw(&mut self) -> f64 {
        draw()
    }
    fn withdraw(&mut self, cost: Cost, now: Ns) -> Grant {
        let now = || if self.knows_time { now } else { self.sleeper.now() };
        self.withdrawal = self.origin.withdraw(cost, now);
        self.withdrawal.map_or(Grant::Refused, Grant::Now)
    }
}

impl<S: Sleeper> PlainCall<S> {
    /// When the call started; recorded as now if it is unknown.
    pub(crate) fn start(&mut self, sleeper: &S) -> Ns {
        match self {
            PlainCall::Immediate { start, .. } => {
                if *start == UNKNOWN {
                    *start = sleeper.now();
                }
                *start
            }
            PlainCall::Timed(timed) => timed.counters.start,
        }
    }

    /// The counters of the call.
    fn counters(&mut self, sleeper: &S) -> CallCounters {
        match self {
            PlainCall::Immediate { attempts, .. } => {
                let attempts = *attempts;
                CallCounters { attempts, ..CallCounters::new(self.start(sleeper)) }
            }
            PlainCall::Timed(timed) => timed.counters,
        }
    }

    /// Waits for the first timer of a call whose first attempt is pending; records the start of the call.
    /// Ready if the call needs its state machine.
    #[cold]
    #[inline(never)]
    pub(crate) fn poll_first_timer(
        &mut self,
        policy: &redial_core::Policy,
        sleeper: &S,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        if let PlainCall::Immediate { attempts, .. } = *self {
            let start = self.start(sleeper);
            let at = policy.first_wake_at(start);
            if attempts > 1 || at == NEVER {
                return Poll::Pending;
            }
            if at == start {
                return Poll::Ready(());
            }
            let counters = CallCounters { attempts, ..CallCounters::new(start) };
            *self = PlainCall::timed(counters, WaitsFor::FirstTimer(at));
        }
        let PlainCall::Timed(timed) = self else { return Poll::Pending };
        let timed = timed.as_mut().project();
        match timed.waits {
            WaitsFor::FirstTimer(at) => timed.timer.poll(sleeper, *at, cx),
            WaitsFor::NextAttempt(..) | WaitsFor::Nothing => Poll::Pending,
        }
    }

    fn timed(counters: CallCounters, waits: WaitsFor) -> Self {
        PlainCall::Timed(Box::pin(Timed { counters, waits, timer: SleepUntil::unarmed() }))
    }

    /// Decides what follows a retryable failure of a call that needs no state machine.
    #[cold]
    #[inline(never)]
    pub(crate) fn after_failure<'p>(
        &mut self,
        origin: impl Origin<'p>,
        failure: &Failure,
        sleeper: &S,
    ) -> Next {
        let policy = &origin.policy().core;
        let mut env = PlainEnvironment { origin, withdrawal: None, sleeper, knows_time: false };
        let start = self.start(sleeper);
        // Of a call that is retried at once only the number of attempts changes, and its decision does
        // not depend on the time, unless the budget refills.
        if let PlainCall::Immediate { attempts, .. } = self
            && policy.is_immediate()
            && failure.has_no_reason_or_hint()
        {
            let mut counters = CallCounters { attempts: *attempts, ..CallCounters::new(start) };
            let verdict =
                decide(policy, &mut counters, failure, Advice::None, start, NEVER, &mut env);
            return match verdict {
                Verdict::Retry { .. } => {
                    *attempts = counters.count();
                    Next::Start(*attempts)
                }
                other => Next::End(stop_reason(other)),
            };
        }
        let now = sleeper.now();
        env.knows_time = true;
        let mut counters = self.counters(sleeper);
        let verdict = decide(policy, &mut counters, failure, Advice::None, now, NEVER, &mut env);
        let Verdict::Retry { after, .. } = verdict else { return Next::End(stop_reason(verdict)) };
        let waits = if after == 0 {
            counters.count();
            WaitsFor::Nothing
        } else {
            let reserved = Reserved { handle: origin.handle(), withdrawal: env.withdrawal };
            WaitsFor::NextAttempt(now.saturating_add(after), reserved)
        };
        match self {
            PlainCall::Timed(timed) => {
                let timed = timed.as_mut().project();
                (*timed.counters, *timed.waits) = (counters, waits);
            }
            PlainCall::Immediate { .. } => *self = PlainCall::timed(counters, waits),
        }
        if after == 0 { Next::Start(counters.attempts) } else { Next::Wait }
    }

    /// Waits until the next attempt may start; ready with its number.
    #[cold]
    #[inline(never)]
    pub(crate) fn poll_next_attempt(&mut self, sleeper: &S, cx: &mut Context<'_>) -> Poll<u32> {
        let PlainCall::Timed(timed) = self else { panic!("polled after completion") };
        let timed = timed.as_mut().project();
        let WaitsFor::NextAttempt(at, reserved) = timed.waits else {
            panic!("polled after completion")
        };
        ready!(timed.timer.poll(sleeper, *at, cx));
        // The attempt starts, which spends the tokens.
        reserved.withdrawal = None;
        *timed.waits = WaitsFor::Nothing;
        Poll::Ready(timed.counters.count())
    }

    /// The report of a call that ends without its state machine.
    #[cold]
    #[inline(never)]
    pub(crate) fn report(
        &mut self,
        policy: &Policy,
        handle: &Handle,
        sleeper: &S,
        stop_reason: StopReason,
        elapsed_exact: bool,
    ) -> Report {
        let counters = self.counters(sleeper);
        let now = sleeper.now();
        let throttled = stop_reason == StopReason::Throttled;
        let report = Report {
            attempts: counters.attempts,
            attempts_max: policy.rules().attempts,
            elapsed: duration(now.saturating_sub(counters.start)),
            elapsed_exact,
            stop_reason,
            tokens: if throttled { handle.tokens(now) } else { None },
            history: Vec::new(),
        };
        crate::trace::gave_up(stop_reason, report.attempts, Some(report.elapsed), None);
        report
    }
}

/// The stop reason of a verdict that is not to retry.
fn stop_reason(verdict: Verdict) -> StopReason {
    match verdict {
        Verdict::End(stop_reason) => stop_reason,
        Verdict::Retry { .. } | Verdict::Later { .. } | Verdict::Ask => {
            unreachable!(
                "a call without its state machine has no strategy, and a budget answers at once"
            )
        }
    }
}
