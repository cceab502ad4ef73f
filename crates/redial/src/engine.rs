//! The state machine of a call with its environment in a real process: throttle, random draws, events
//! and strategy.
//!
//! All decisions are made by the core; the engine only translates. The drivers (async, blocking and
//! borrowing) report outcomes and run commands.

use std::any::Any;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use redial_core::throttle::Bucket;
use redial_core::{
    Advice, Call, CallCounters, CallEnvironment, CallLatency, CallParams, Classification, Command,
    Cost, Directive, DriverContext, End, Event, Failure, Grant, LatencyEstimator, NEVER, Ns,
    Random, Start, StopReason, duration, ns,
};

use crate::attempt::Attempt;
use crate::call_log::CallLog;
use crate::classify::{Classified, Last};
pub(crate) use crate::draws::draw;
use crate::error::{BoxError, Error};
use crate::options::{Hook, Options};
use crate::policy::Policy;
use crate::report::Report;
use crate::strategy::{Decision, Reasons, Request, Strategy};
use crate::throttle::Handle;

/// The source of random draws, and the receivers of events.
struct ProcessContext<'p> {
    random: Option<Random>,
    hook: Option<Hook<'p>>,
    call_log: Option<&'p mut CallLog>,
    history: Option<Vec<(Ns, Event)>>,
    /// The latency of this call, for its estimator.
    call_latency: Option<(CallLatency, &'p LatencyEstimator)>,
}

impl DriverContext for ProcessContext<'_> {
    fn draw(&mut self) -> f64 {
        self.random.as_mut().map_or_else(draw, Random::draw)
    }
    fn record(&mut self, at: Ns, event: Event) {
        crate::trace::record(&event);
        // A hook is taken out while it runs: if it panics, it is not called again for the events of
        // the cancellation.
        if let Some(mut hook) = self.hook.take() {
            hook(at, &event);
            self.hook = Some(hook);
        }
        if let Some(call_log) = &mut self.call_log {
            call_log.push(at, event);
        }
        if let Some(history) = &mut self.history {
            history.push((at, event));
        }
        if let Some((call_latency, estimator)) = &mut self.call_latency {
            call_latency.record(at, &event, estimator);
        }
    }
}

/// An answer that the call waits for.
enum PendingAnswer {
    Strategy(Pin<Box<dyn Future<Output = Decision> + Send>>),
    Throttle(Pin<Box<dyn Future<Output = Grant> + Send>>),
}

/// One call: the state machine, its environment and the last result.
pub(crate) struct Engine<'p, T, E, V, const LIVE: usize> {
    pub(crate) call: Call<&'p redial_core::Policy, LIVE>,
    policy: &'p Policy,
    env: CallEnvironment<Handle, ProcessContext<'p>>,
    strategy: Option<Arc<dyn Strategy + 'p>>,
    strategy_error: Option<BoxError>,
    data: Vec<Box<dyn Any + Send + Sync>>,
    idempotent: bool,
    reasons: Reasons,
    pending_answer: Option<PendingAnswer>,
    value: Option<T>,
    last: Option<Last<E, V>>,
}

impl<'p, T, E, V, const LIVE: usize> Engine<'p, T, E, V, LIVE> {
    /// Begins a call whose start time is `start`.
    #[inline]
    pub(crate) fn begin(
        policy: &'p Policy,
        handle: Handle,
        options: Options<'p>,
        start: Ns,
    ) -> Self {
        let hedge = options.estimator.and_then(LatencyEstimator::delay);
        let process = ProcessContext {
            random: options.seed.map(Random::new),
            hook: options.hook,
            call_log: options.call_log,
            history: options.history.then(Vec::new),
            call_latency: options.estimator.map(|estimator| (CallLatency::new(hedge), estimator)),
        };
        let mut env = CallEnvironment::new(handle, process);
        let params = CallParams {
            deadline: options.deadline,
            idempotent: !options.not_idempotent,
            not_replayable: false,
            uses_strategy: options.strategy.is_some(),
            hedge,
        };
        let call = Call::begin(&policy.core, params, start, &mut env);
        let own: Option<Arc<dyn Strategy + 'p>> = match &policy.strategy {
            Some(strategy) => Some(strategy.clone()),
            None => None,
        };
        Engine {
            call,
            policy,
            env,
            strategy: options.strategy.or(own),
            strategy_error: None,
            data: options.data,
            idempotent: params.idempotent,
            reasons: Reasons::default(),
            pending_answer: None,
            value: None,
            last: None,
        }
    }

    /// The next command of the state machine.
    pub(crate) fn command(&mut self) -> Option<Command> {
        self.call.command(&mut self.env)
    }

    /// The context of an attempt that starts now.
    pub(crate) fn attempt(&self, start: Start, now: Ns) -> Attempt {
        let timeout =
            self.policy.rules().attempt_timeout.map_or(NEVER, |span| now.saturating_add(ns(span)));
        let until = self.call.deadline().min(timeout);
        let remaining = (until != NEVER).then(|| duration(until.saturating_sub(now)));
        Attempt { number: start.number, remaining, last: self.call.failure().copied() }
    }

    /// Reports the outcome of an attempt.
    pub(crate) fn handle_outcome(&mut self, slot: usize, outcome: Classified<T, E, V>, now: Ns) {
        let directive = match outcome {
            Classified::Succeed(value) => {
                self.value = Some(value);
                Directive::Succeed
            }
            Classified::SucceedWith(error) => {
                self.last = Some(Last::Error(error));
                Directive::Succeed
            }
            Classified::Fail(last) => {
                self.last = Some(last);
                Directive::Fail
            }
            Classified::Retry(failure, last) => {
                self.last = Some(last);
                if self.strategy.is_some() {
                    self.reasons.record(failure.reason);
                }
                Directive::Retry(failure)
            }
        };
        self.call.outcome(slot, Classification::from(directive), now, &mut self.env);
    }

    /// Reports that a timer fired.
    pub(crate) fn wake(&mut self, now: Ns) {
        // One step at a time: an attempt that this starts may be ready at once, and outcomes come
        // before timers (P4).
        self.call.wake_once(now, &mut self.env);
    }

    /// Asks the strategy. `poll_pending_answer` polls an answer that is not ready.
    pub(crate) fn ask_strategy(&mut self, failure: Failure, now: Ns) {
        let counters = *self.call.counters();
        let deadline = self.call.deadline();
        let request = Request {
            idempotent: self.idempotent,
            attempts: counters.attempts,
            reasons: self.reasons.earlier(),
            failure,
            elapsed: duration(now.saturating_sub(counters.start)),
            remaining: (deadline != NEVER).then(|| duration(deadline.saturating_sub(now))),
            data: &self.data,
        };
        // Rules may ask for a strategy that is not set (`Policy::from_rules`): decline.
        let decision =
            self.strategy.as_ref().map_or(Decision::Decline, |it| it.retry_after(&request));
        self.apply_decision(decision, now);
    }

    /// Waits for a later answer of the throttle.
    pub(crate) fn await_grant(&mut self, cost: Cost) {
        self.pending_answer = Some(PendingAnswer::Throttle(self.env.throttle().later(cost)));
    }

    fn apply_decision(&mut self, decision: Decision, now: Ns) {
        let advice = match decision {
            Decision::Retry(delay) => Advice::After(ns(delay)),
            Decision::Decline => Advice::Decline,
            Decision::Fail(error) => {
                self.strategy_error = Some(error);
                Advice::Decline
            }
            Decision::Later(decision) => {
                self.pending_answer = Some(PendingAnswer::Strategy(decision));
                return;
            }
        };
        self.call.answered(advice, now, &mut self.env);
    }

    /// Polls the pending answer; ready if it arrived.
    pub(crate) fn poll_pending_answer(
        &mut self,
        cx: &mut Context<'_>,
        now: impl FnOnce() -> Ns,
    ) -> Poll<()> {
        match &mut self.pending_answer {
            None => return Poll::Pending,
            Some(PendingAnswer::Strategy(decision)) => {
                let Poll::Ready(decision) = decision.as_mut().poll(cx) else {
                    return Poll::Pending;
                };
                self.pending_answer = None;
                self.apply_decision(decision, now());
            }
            Some(PendingAnswer::Throttle(grant)) => {
                let Poll::Ready(grant) = grant.as_mut().poll(cx) else { return Poll::Pending };
                self.pending_answer = None;
                self.call.granted(grant, now(), &mut self.env);
            }
        }
        Poll::Ready(())
    }

    /// The result of the call, after its end.
    pub(crate) fn result(&mut self, end: End) -> Result<(T, Report), Error<E, V>> {
        // The call ended at the time of the last input.
        let now = self.call.seen();
        let counters: CallCounters = *self.call.counters();
        let throttled = end.stop_reason == StopReason::Throttled;
        let history = self.env.context.history.as_deref().unwrap_or(&[]);
        let report = Report {
            attempts: counters.attempts,
            attempts_max: self.policy.rules().attempts,
            elapsed: duration(now.saturating_sub(counters.start)),
            stop_reason: end.stop_reason,
            tokens: if throttled { self.env.throttle().tokens(now) } else { None },
            history: Report::history(counters.start, history),
        };
        crate::trace::gave_up(report.stop_reason, report.attempts, Some(report.elapsed), None);
        match (end.stop_reason, self.value.take()) {
            (StopReason::Succeeded, Some(value)) => Ok((value, report)),
            _ => Err(Error::new(self.last.take(), self.strategy_error.take(), report)),
        }
    }
}

impl<T, E, V, const LIVE: usize> Drop for Engine<'_, T, E, V, LIVE> {
    fn drop(&mut self) {
        // A call that is dropped before its end is cancelled. The clock is not read for that, so the
        // last event has the time of the last input.
        if self.call.end().is_none() {
            self.call.cancel(self.call.seen(), &mut self.env);
        }
    }
}
