//! A call without its state machine: one attempt at a time, and [`decide`] after each failure.
//!
//! Every call begins like this. A call whose policy needs more than counters (a deadline, hedging, an
//! attempt timeout, a strategy) gets its state machine when its first timer fires or its first attempt
//! fails, and one with options at its start. The module is generic over the sleeper and the kind of
//! policy only, so call sites share its code.

use std::fmt;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use redial_core::throttle::Bucket;
use redial_core::{
    Advice, CallCounters, Cost, Directive, Environment, Failure, Grant, NEVER, Ns, StopReason,
    Verdict, Withdrawal, decide, duration,
};

use crate::attempt::Attempt;
use crate::call_phase::Machine;
use crate::draws::draw;
use crate::driver::{CallTraits, Input, PollContext, Step};
use crate::engine::Engine;
use crate::error::Details;
use crate::options::Options;
use crate::policy::Origin;
use crate::report::Report;
use crate::sleeper::Sleeper;
use crate::throttle::Handle;

/// The start of a call that has not read the clock.
pub(crate) const UNKNOWN: Ns = NEVER;

/// The state of a call without its state machine.
pub(crate) enum PlainCall<'p, S: Sleeper> {
    /// The call has not been polled.
    NotStarted(Option<Box<Options<'p>>>),
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

/// What a call without its state machine does next.
pub(crate) enum PlainStep<'p, S: Sleeper> {
    /// A step of the call.
    Step(Step),
    /// The call needs its state machine.
    NeedsMachine(Pin<Box<Machine<'p, S>>>),
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
enum Next {
    /// Start the attempt with this number.
    Start(u32),
    /// Wait this long, with [`PlainCall::poll_delay`].
    Wait(Ns),
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
    origin: &'s G,
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

impl<'p, S: Sleeper> PlainCall<'p, S> {
    /// The next step of the call; pending if everything that it waits for is pending.
    pub(crate) fn next_step(
        &mut self,
        origin: &impl Origin<'p>,
        input: &Input,
        poll: &mut PollContext<'_, '_>,
        sleeper: &S,
    ) -> Poll<PlainStep<'p, S>> {
        let policy = origin.policy();
        let step = match input {
            Input::Polled => return self.poll(origin, poll, sleeper),
            Input::Started => {
                ready!(poll.poll_fairness());
                Step::Poll(0)
            }
            Input::Pending | Input::Cancelled => {
                ready!(self.poll_first_timer(&policy.core, sleeper, poll.cx));
                let mut engine = self.late_engine(origin, poll.traits, sleeper);
                engine.yielded = matches!(self, PlainCall::Timed(_));
                return Poll::Ready(PlainStep::NeedsMachine(Machine::new(engine)));
            }
            Input::Outcome(_, Directive::Succeed) => {
                origin.succeeded();
                Step::End(StopReason::Succeeded)
            }
            Input::Outcome(_, Directive::Fail) => Step::End(StopReason::NotRetryable),
            Input::Outcome(slot, Directive::Retry(failure)) => {
                if poll.traits.needs_machine_after_failure() || !policy.needs_only_counters() {
                    let mut engine = self.late_engine(origin, poll.traits, sleeper);
                    engine.handle_outcome(*slot, Directive::Retry(*failure), sleeper.now());
                    return Poll::Ready(PlainStep::NeedsMachine(Machine::new(engine)));
                }
                match self.after_failure(origin, failure, poll.traits, sleeper) {
                    Next::Start(number) => {
                        poll.retry_after = Some(0);
                        start(number, poll)
                    }
                    Next::Wait(delay) => {
                        poll.retry_after = Some(delay);
                        start(ready!(self.poll_delay(sleeper, poll.cx)), poll)
                    }
                    Next::End(stop_reason) => Step::End(stop_reason),
                }
            }
        };
        Poll::Ready(PlainStep::Step(step))
    }

    /// Whether an attempt runs.
    pub(crate) fn is_attempt_running(&self) -> bool {
        match self {
            PlainCall::NotStarted(_) => false,
            PlainCall::Immediate { .. } => true,
            PlainCall::Timed(timed) => !matches!(timed.waits, WaitsFor::NextAttempt(..)),
        }
    }

    /// The first step of a poll.
    fn poll(
        &mut self,
        origin: &impl Origin<'p>,
        poll: &mut PollContext<'_, '_>,
        sleeper: &S,
    ) -> Poll<PlainStep<'p, S>> {
        let step = match self {
            PlainCall::NotStarted(Some(options)) => {
                let options = mem::take(&mut **options);
                let start = options.start.unwrap_or_else(|| sleeper.now());
                return Poll::Ready(begin(origin, options, poll.traits, start));
            }
            PlainCall::NotStarted(None) => {
                let (policy, now) = (origin.policy(), sleeper.now());
                if policy.needs_machine() || crate::is_observed() {
                    return Poll::Ready(begin(origin, Options::default(), poll.traits, now));
                }
                *self = PlainCall::Immediate { attempts: 1, start: now };
                poll.attempt = Attempt::first(policy.first_attempt_timeout());
                start(1, poll)
            }
            PlainCall::Timed(timed) if matches!(timed.waits, WaitsFor::NextAttempt(..)) => {
                start(ready!(self.poll_delay(sleeper, poll.cx)), poll)
            }
            PlainCall::Immediate { .. } | PlainCall::Timed(_) => Step::Poll(0),
        };
        Poll::Ready(PlainStep::Step(step))
    }

    /// The state machine of a call whose first attempt runs or has just ended.
    fn late_engine(
        &mut self,
        origin: &impl Origin<'p>,
        traits: CallTraits,
        sleeper: &S,
    ) -> Engine<'p> {
        let start = self.start(sleeper);
        let mut engine = Engine::begin_late(origin.policy_ref(), origin.handle(), traits, start);
        engine.elapsed_exact = traits.is_elapsed_exact(origin.policy());
        if !traits.replayable {
            engine.commit_to_running();
        }
        engine
    }

    /// When the call started; recorded as now if it is unknown.
    fn start(&mut self, sleeper: &S) -> Ns {
        match self {
            PlainCall::Immediate { start, .. } if *start != UNKNOWN => *start,
            PlainCall::Timed(timed) => timed.counters.start,
            PlainCall::Immediate { start, .. } => {
                *start = sleeper.now();
                *start
            }
            PlainCall::NotStarted(_) => sleeper.now(),
        }
    }

    /// The counters of the call.
    fn counters(&mut self, sleeper: &S) -> CallCounters {
        let start = self.start(sleeper);
        match self {
            PlainCall::NotStarted(_) => CallCounters::new(start),
            PlainCall::Immediate { attempts, .. } => {
                CallCounters { attempts: *attempts, ..CallCounters::new(start) }
            }
            PlainCall::Timed(timed) => timed.counters,
        }
    }

    /// Waits for the first timer of a call whose first attempt is pending; records the start of the call.
    /// Ready if the call needs its state machine.
    fn poll_first_timer(
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
    fn after_failure(
        &mut self,
        origin: &impl Origin<'p>,
        failure: &Failure,
        traits: CallTraits,
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
            counters.committed = !traits.replayable;
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
        counters.committed = !traits.replayable;
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
            PlainCall::NotStarted(_) | PlainCall::Immediate { .. } => {
                *self = PlainCall::timed(counters, waits);
            }
        }
        if after == 0 { Next::Start(counters.attempts) } else { Next::Wait(after) }
    }

    /// Waits until the next attempt may start; ready with its number.
    fn poll_delay(&mut self, sleeper: &S, cx: &mut Context<'_>) -> Poll<u32> {
        let PlainCall::Timed(timed) = self else { unreachable!("a call without a delay waits") };
        let timed = timed.as_mut().project();
        if let WaitsFor::NextAttempt(at, reserved) = timed.waits {
            ready!(timed.timer.poll(sleeper, *at, cx));
            // The attempt starts, which spends the tokens.
            reserved.withdrawal = None;
        }
        *timed.waits = WaitsFor::Nothing;
        Poll::Ready(timed.counters.count())
    }

    /// The details of a call that ends without its state machine.
    pub(crate) fn details(
        &mut self,
        origin: &impl Origin<'p>,
        traits: CallTraits,
        sleeper: &S,
        stop_reason: StopReason,
        error: Option<&dyn fmt::Display>,
    ) -> Box<Details> {
        let policy = origin.policy();
        let counters = self.counters(sleeper);
        let now = sleeper.now();
        let throttled = stop_reason == StopReason::Throttled;
        let report = Report {
            policy: origin.name(),
            attempts: counters.attempts,
            attempts_max: policy.rules().attempts,
            elapsed: duration(now.saturating_sub(counters.start)),
            elapsed_exact: traits.is_elapsed_exact(policy),
            stop_reason,
            tokens: if throttled { origin.handle().tokens(now) } else { None },
            error: error.map(|error| error.to_string().into()),
            history: Vec::new(),
        };
        crate::trace::call_gave_up(&report, error);
        Box::new(Details { report, strategy: None })
    }
}

/// Begins a call with its state machine.
fn begin<'p, S: Sleeper>(
    origin: &impl Origin<'p>,
    mut options: Options<'p>,
    traits: CallTraits,
    start: Ns,
) -> PlainStep<'p, S> {
    traits.complete(&mut options);
    let engine = Engine::begin(origin.policy_ref(), origin.handle(), options, start);
    PlainStep::NeedsMachine(Machine::new(engine))
}

fn start(number: u32, poll: &mut PollContext<'_, '_>) -> Step {
    poll.starts += 1;
    poll.attempt.number = number;
    if poll.is_fair() { Step::StartAndPoll(0) } else { Step::Start(0) }
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
