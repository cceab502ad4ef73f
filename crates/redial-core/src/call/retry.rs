//! Retries after a failure, and the timers of retries and hedges.

use core::ops::Deref;

use super::{Call, GrantRequest, Phase, Question};
use crate::decide::{self, Advice, Verdict, decide};
use crate::rules::AttemptTimeoutAction;
use crate::time::{NEVER, Ns, ns};
use crate::{Environment, Event, Failure, FailureKind, Grant, Policy, StopReason};

impl<P: Deref<Target = Policy>> Call<P> {
    /// Handles an attempt timeout, or makes a transparent retry ready to start.
    pub(super) fn handle_slot_timer(&mut self, slot: usize, now: Ns, env: &mut impl Environment) {
        let attempt = self.slots[slot].attempt;
        if self.waiting & 1 << slot != 0 {
            self.pending_starts |= 1 << slot;
            return;
        }
        env.record(now, Event::AttemptTimedOut { attempt });
        self.cancel_slot(slot, now, env);
        match self.policy.rules().attempt_timeout_action {
            AttemptTimeoutAction::EndCall => self.finish(StopReason::Deadline, None, now, env),
            AttemptTimeoutAction::Stop => {
                self.finish(StopReason::AttemptTimeout, None, now, env);
            }
            AttemptTimeoutAction::Retry if self.ends_at_attempt_timeout => {
                self.finish(StopReason::AttemptTimeout, None, now, env);
            }
            AttemptTimeoutAction::Retry => {
                self.retry_or_hedge((attempt, slot), Failure::timeout(), now, env);
            }
            AttemptTimeoutAction::Fail { drains } => {
                if drains {
                    env.failed();
                }
                self.finish(StopReason::NotRetryable, Some((attempt, slot)), now, env);
            }
        }
    }

    /// Handles the timer of a retry or hedge.
    pub(super) fn handle_phase_timer(&mut self, now: Ns, env: &mut impl Environment) {
        self.timer_at = NEVER;
        match self.phase {
            Phase::Retry { paid: true } | Phase::PaidHedge { .. } => self.phase = Phase::StartNow,
            Phase::Retry { paid: false } => {
                self.phase = Phase::Idle;
                let request = GrantRequest::new(self.failure.kind, 0);
                let grant = decide::request_grant(env, request.cost, now);
                self.apply_grant(grant, request, now, env);
            }
            Phase::Hedge { .. } => self.request_hedge(FailureKind::Timeout, now, env),
            // These phases have no timer.
            Phase::Idle
            | Phase::HedgeNow
            | Phase::StartNow
            | Phase::AwaitStrategy
            | Phase::AwaitGrant(_) => {}
        }
    }

    /// Handles a retryable failure.
    pub(super) fn retry_or_hedge(
        &mut self,
        failed_attempt: (u32, usize),
        failure: Failure,
        now: Ns,
        env: &mut impl Environment,
    ) {
        self.failure = failure;
        self.failed_attempt = Some(failed_attempt);
        if self.policy.rules().hedge.is_some() && !self.is_committed() {
            self.hedge_failed(now, env);
        } else {
            self.reset_after_health(now, env);
            self.decide_next(Advice::None, now, env);
        }
    }

    /// Starts the series of delays anew if the attempt that failed had run for long enough.
    fn reset_after_health(&mut self, now: Ns, env: &mut impl Environment) {
        let Some(healthy) = self.policy.rules().reset_after else { return };
        if now.saturating_sub(self.started_at) >= ns(healthy) {
            self.counters.start_series();
            env.forget();
        }
    }

    pub(super) fn decide_next(&mut self, advice: Advice, now: Ns, env: &mut impl Environment) {
        let failure = self.failure;
        let deadline = self.deadline;
        match decide(&self.policy, &mut self.counters, &failure, advice, now, deadline, env) {
            Verdict::Retry { after, paid } => self.schedule_retry(after, paid, now, env),
            Verdict::Later { after } => {
                let request = GrantRequest::new(failure.kind, after);
                self.phase = Phase::AwaitGrant(request);
                self.question = Question::Throttle(request.cost);
            }
            Verdict::Ask => {
                env.record(now, Event::StrategyAsked(failure));
                self.phase = Phase::AwaitStrategy;
                self.question = Question::Strategy;
            }
            Verdict::End(stop_reason) => self.finish(stop_reason, self.failed_attempt, now, env),
        }
    }

    pub(super) fn schedule_retry(
        &mut self,
        after: Ns,
        paid: bool,
        now: Ns,
        env: &mut impl Environment,
    ) {
        self.phase = Phase::Retry { paid };
        self.timer_at = now.saturating_add(after);
        // P5: a zero delay needs no timer. P4: nothing starts at the deadline.
        if after == 0 && now < self.deadline {
            self.handle_phase_timer(now, env);
        }
    }

    /// Applies the answer of the throttle: the retry or hedge starts now, later or not at all.
    pub(super) fn apply_grant(
        &mut self,
        grant: Grant,
        request: GrantRequest,
        now: Ns,
        env: &mut impl Environment,
    ) {
        let after = match grant {
            Grant::Now(_) => request.after,
            Grant::After(debt, _) => request.after.saturating_add(debt),
            Grant::Later => {
                self.phase = Phase::AwaitGrant(request);
                self.question = Question::Throttle(request.cost);
                return;
            }
            // A refused retry ends the call; a refused hedge leaves the running attempts alone.
            Grant::Refused => {
                self.stopped_by.get_or_insert(StopReason::Throttled);
                self.end_if_idle(now, env);
                return;
            }
        };
        if self.policy.rules().hedge.is_some() {
            let ready = now.saturating_add(after);
            self.phase = Phase::PaidHedge { ready };
            self.timer_at = ready.max(request.not_before);
            self.send_hedge_if_due(now, env);
            self.end_if_idle(now, env);
        } else if decide::misses_deadline(&self.policy, now.saturating_add(after), self.deadline) {
            self.finish(StopReason::Deadline, self.failed_attempt, now, env);
        } else {
            self.schedule_retry(after, true, now, env);
        }
    }
}
