//! The state machine of a call with its environment in a real process: throttle, random draws, events
//! and strategy. The engine translates; the state machine in `redial-core` decides.

use std::any::Any;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use redial_core::throttle::Bucket;
use redial_core::{
    Advice, Call, CallEnvironment, CallLatency, CallParams, Classification, Command, Cost,
    Directive, DriverContext, Environment, Event, Failure, FirstAttempt, Grant, LatencyEstimator,
    NEVER, Ns, PollLoop, Random, Start, StopReason, duration, ns,
};

use crate::attempt::Attempt;
use crate::call_log::CallLog;
pub(crate) use crate::draws::draw;
use crate::driver::CallTraits;
use crate::error::{BoxError, Details};
use crate::event_context::EventContext;
use crate::metrics::CallMetrics;
use crate::options::{Hook, Options};
use crate::policy::Policy;
use crate::policy_name::PolicyName;
use crate::policy_ref::{CorePolicyRef, PolicyRef};
use crate::report::{History, Report};
use crate::strategy::{Decision, Reasons, Request, Strategy};
use crate::throttle::Handle;

/// The source of random draws, and the receivers of events.
struct ProcessContext<'p> {
    policy: PolicyName,
    random: Option<Random>,
    hook: Option<Hook<'p>>,
    call_log: Option<&'p mut CallLog>,
    history: Option<History>,
    /// The latency of this call, for its estimator.
    call_latency: Option<(CallLatency, &'p LatencyEstimator)>,
    metrics: CallMetrics,
    /// The text of the last error, where it is recorded, and that of the next outcome.
    error: Option<Box<str>>,
    next_error: Option<Box<str>>,
    /// Whether the last attempt to end has a result; one that timed out has none.
    has_result: bool,
    /// The delay of a retry after a result, until the driver takes it.
    retry_after: Option<Ns>,
}

impl ProcessContext<'_> {
    fn new(policy: &Policy, handle: &Handle) -> Self {
        ProcessContext {
            policy: policy.call_name(handle),
            random: None,
            hook: None,
            call_log: None,
            history: None,
            call_latency: None,
            metrics: CallMetrics::new(policy, handle),
            error: None,
            next_error: None,
            has_result: false,
            retry_after: None,
        }
    }
}

impl DriverContext for ProcessContext<'_> {
    fn draw(&mut self) -> f64 {
        self.random.as_mut().map_or_else(draw, Random::draw)
    }
    fn record(&mut self, at: Ns, event: Event) {
        match event {
            Event::AttemptOutcome { .. } => {
                self.has_result = true;
                self.error = self.next_error.take();
            }
            Event::AttemptTimedOut { .. } => (self.has_result, self.error) = (false, None),
            Event::RetryScheduled { after, .. } if self.has_result => {
                self.retry_after = Some(after);
            }
            _ => {}
        }
        let context = EventContext { at, policy: &self.policy, error: self.error.as_deref() };
        crate::trace::record_call(&event, context.policy, context.error);
        self.metrics.record(at, &event);
        // A hook is taken out while it runs: if it panics, it is not called again for the events of
        // the cancellation.
        if let Some(mut hook) = self.hook.take() {
            hook(&context, &event);
            self.hook = Some(hook);
        }
        if let Some(call_log) = &mut self.call_log {
            call_log.record(&context, event);
        }
        if let Some(history) = &mut self.history {
            history.record(at, &event, context.error);
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

/// One call: the state machine and its environment. The driver keeps the attempts and the last result.
pub(crate) struct Engine<'p> {
    pub(crate) call: Call<CorePolicyRef<'p>>,
    policy: PolicyRef<'p>,
    env: CallEnvironment<Handle, ProcessContext<'p>>,
    strategy: Option<Arc<dyn Strategy + 'p>>,
    strategy_error: Option<BoxError>,
    data: Vec<Box<dyn Any + Send + Sync>>,
    reasons: Reasons,
    pending_answer: Option<PendingAnswer>,
    /// Whether the hedge that follows a failure waits for a later answer of the throttle.
    is_hedge_awaited: bool,
    /// Where the current poll is.
    pub(crate) position: PollLoop,
    /// The timer has fired, and other tasks had a turn since: an outcome of the same moment comes first
    /// (P4).
    pub(crate) yielded: bool,
    /// Whether the start of the call is the time of its first poll.
    pub(crate) elapsed_exact: bool,
}

impl<'p> Engine<'p> {
    /// Begins a call whose start time is `start`.
    pub(crate) fn begin(
        policy: PolicyRef<'p>,
        handle: Handle,
        options: Options<'p>,
        start: Ns,
    ) -> Self {
        let (policy, handle) = options.overrides.apply(policy, handle);
        let hedge = options.estimator.and_then(LatencyEstimator::delay);
        let context = ProcessContext {
            random: options.seed.map(Random::new),
            hook: options.hook,
            call_log: options.call_log,
            history: options.history.then(|| History::new(start)),
            call_latency: options.estimator.map(|estimator| (CallLatency::new(hedge), estimator)),
            ..ProcessContext::new(&policy, &handle)
        };
        let params = CallParams {
            deadline: options.deadline,
            idempotent: !options.not_idempotent,
            not_replayable: false,
            ends_at_attempt_timeout: options.owns_context,
            uses_strategy: options.strategy.is_some(),
            hedge,
        };
        let mut env = CallEnvironment::new(handle, context);
        let call = Call::begin(CorePolicyRef(policy.clone()), params, start, &mut env);
        Engine::new(policy, call, env, options.strategy, options.data)
    }

    /// Begins a call without options whose first attempt runs since `start`.
    pub(crate) fn begin_late(
        policy: PolicyRef<'p>,
        handle: Handle,
        traits: CallTraits,
        start: Ns,
    ) -> Self {
        let history = traits.records_history.then(|| History::new(start));
        let context = ProcessContext { history, ..ProcessContext::new(&policy, &handle) };
        let mut env = CallEnvironment::new(handle, context);
        let params = CallParams { idempotent: traits.idempotent, ..CallParams::default() };
        let core = CorePolicyRef(policy.clone());
        let call = match FirstAttempt::of(&core, params, start) {
            Some(first) => first.begin(core, &mut env),
            None => begin_expired(core, params, start, &mut env),
        };
        Engine::new(policy, call, env, None, Vec::new())
    }

    fn new(
        policy: PolicyRef<'p>,
        call: Call<CorePolicyRef<'p>>,
        env: CallEnvironment<Handle, ProcessContext<'p>>,
        strategy: Option<Arc<dyn Strategy + 'p>>,
        data: Vec<Box<dyn Any + Send + Sync>>,
    ) -> Self {
        let own: Option<Arc<dyn Strategy + 'p>> = match &policy.strategy {
            Some(strategy) => Some(strategy.clone()),
            None => None,
        };
        Engine {
            call,
            policy,
            env,
            strategy: strategy.or(own),
            strategy_error: None,
            data,
            reasons: Reasons::default(),
            pending_answer: None,
            is_hedge_awaited: false,
            position: PollLoop::START,
            yielded: false,
            elapsed_exact: true,
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

    /// Keeps the text of the error of the next outcome, if it is recorded.
    pub(crate) fn record_error(&mut self, error: &dyn fmt::Display) {
        let context = &mut self.env.context;
        let has_receiver =
            context.history.is_some() || context.call_log.is_some() || context.hook.is_some();
        if has_receiver || crate::trace::is_enabled() {
            context.next_error = Some(error.to_string().into());
        }
    }

    /// Reports the outcome of an attempt.
    pub(crate) fn handle_outcome(&mut self, slot: usize, directive: Directive, now: Ns) {
        if let Directive::Retry(failure) = directive
            && self.strategy.is_some()
        {
            self.reasons.record(failure.reason);
        }
        self.yielded = false;
        self.call.outcome(slot, Classification::from(directive), now, &mut self.env);
        if self.policy.rules().hedge.is_some() {
            self.note_next_hedge(now);
        }
    }

    /// Keeps the delay of the hedge that follows a failure: a hedged call schedules no retry.
    fn note_next_hedge(&mut self, now: Ns) {
        let next = self.call.next_attempt_at();
        self.env.context.retry_after = next.map(|at| at.saturating_sub(now));
        self.is_hedge_awaited = self.call.awaits_grant();
    }

    /// The delay of a retry that was decided since the last time, if a result is retried. A retry for which
    /// the throttle has not answered yet is not decided.
    pub(crate) fn take_retry_after(&mut self) -> Option<Ns> {
        if self.call.awaits_grant() || self.pending_answer.is_some() {
            return None;
        }
        let retry_after = self.env.context.retry_after.take();
        retry_after.filter(|_| self.call.end().is_none())
    }

    /// Reports that no further attempt can be started: the running one is the last.
    pub(crate) fn commit_to_running(&mut self) {
        if let Some((_, slot)) = self.call.running_after(0) {
            self.call.not_replayable(Some(slot), self.call.seen(), &mut self.env);
        }
    }

    /// Reports that a timer fired.
    pub(crate) fn wake(&mut self, now: Ns) {
        // One step at a time: an attempt that this starts may be ready at once, and outcomes come
        // before timers (P4).
        self.call.wake_once(now, &mut self.env);
    }

    /// Reports that another library ended an attempt at its attempt timeout.
    pub(crate) fn attempt_timed_out(&mut self, slot: usize, now: Ns) {
        self.call.attempt_timed_out(slot, now, &mut self.env);
    }

    /// Asks the strategy. `poll_pending_answer` polls an answer that is not ready.
    pub(crate) fn ask_strategy(&mut self, failure: Failure, now: Ns) {
        let counters = *self.call.counters();
        let deadline = self.call.deadline();
        let request = Request {
            idempotent: counters.idempotent,
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
                let now = now();
                self.call.granted(grant, now, &mut self.env);
                if self.is_hedge_awaited {
                    self.note_next_hedge(now);
                } else if let Some(at) = self.call.retry_at() {
                    // The throttle may have added a debt to the delay, which counts from its answer.
                    let retry_after = &mut self.env.context.retry_after;
                    *retry_after = retry_after.map(|_| at.saturating_sub(now));
                }
            }
        }
        Poll::Ready(())
    }

    /// Ends the call because its scheduled retry cannot be started.
    pub(crate) fn decline_retry(&mut self, reason: StopReason, now: Ns) {
        self.call.decline_retry(reason, now, &mut self.env);
    }

    /// Takes an answer that does not come in time as a refusal, for a driver that cannot wait for it.
    pub(crate) fn refuse_pending_answer(&mut self, now: Ns) {
        match self.pending_answer.take() {
            None => {}
            Some(PendingAnswer::Strategy(_)) => {
                let later = "the strategy decides later, and this call cannot wait for it";
                self.apply_decision(Decision::Fail(later.into()), now);
            }
            Some(PendingAnswer::Throttle(_)) => {
                self.call.granted(Grant::Refused, now, &mut self.env);
            }
        }
    }

    /// The details of the call, after its end.
    pub(crate) fn details(
        &mut self,
        stop_reason: StopReason,
        error: Option<&dyn fmt::Display>,
    ) -> Box<Details> {
        // The call ended at the time of the last input.
        let now = self.call.seen();
        let counters = self.call.counters();
        let throttled = stop_reason == StopReason::Throttled;
        let history = self.env.context.history.take();
        let report = Report {
            policy: self.env.context.policy.clone(),
            attempts: counters.attempts,
            attempts_max: self.policy.rules().attempts,
            elapsed: duration(now.saturating_sub(counters.start)),
            elapsed_exact: self.elapsed_exact,
            stop_reason,
            tokens: if throttled { self.env.throttle().tokens(now) } else { None },
            error: error.map(|error| error.to_string().into()),
            history: history.map_or_else(Vec::new, History::into_records),
        };
        crate::trace::call_gave_up(&report, error);
        Box::new(Details { report, strategy: self.strategy_error.take().map(Arc::from) })
    }
}

/// Begins a call whose deadline had passed when its first attempt started. No driver starts an attempt then
/// (`Policy::needs_machine`). If one did, the attempt must not run again: its start is taken here.
fn begin_expired<'p>(
    core: CorePolicyRef<'p>,
    params: CallParams,
    start: Ns,
    env: &mut impl Environment,
) -> Call<CorePolicyRef<'p>> {
    let mut call = Call::begin(core, params, start, env);
    if call.end().is_none() {
        call.command(env);
    }
    call
}

impl Drop for Engine<'_> {
    fn drop(&mut self) {
        // A call that is dropped before its end is cancelled. The clock is not read for that, so the
        // last event has the time of the last input.
        if self.call.end().is_none() {
            self.call.cancel(self.call.seen(), &mut self.env);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// The drivers start no attempt before the state machine of such a call. If one did, its outcome counts.
    #[test]
    fn deadline_expired_late_engine_does_not_repeat_the_first_attempt() {
        let policy = Policy::immediate().attempts(3).deadline(Duration::ZERO).build();
        let policy_ref = PolicyRef::Borrowed(&policy);
        let mut engine = Engine::begin_late(policy_ref, Handle::None, CallTraits::OF_CLOSURE, 7);
        assert_eq!(engine.command(), None, "the first attempt runs");
        engine.handle_outcome(0, Directive::Retry(Failure::server()), 7);
        assert!(matches!(engine.command(), Some(Command::End(_))), "{:?}", engine.call.end());
        assert_eq!(engine.call.started(), 1);
    }
}
