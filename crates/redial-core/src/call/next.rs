//! What follows a failure, and what happens when its time has come.

use core::ops::Deref;

use super::{Call, Phase, Question, Wanted};
use crate::decide::{self, Advice, Verdict, decide};
use crate::rules::AttemptTimeoutAction;
use crate::time::{NEVER, Ns};
use crate::{Environment, Event, Failure, Grant, Kind, Policy, StopReason};

impl<P: Deref<Target = Policy>, const LIVE: usize> Call<P, LIVE> {
    /// An attempt's own timeout, or a replacement.
    pub(super) fn slot_due(&mut self, slot: usize, now: Ns, env: &mut impl Environment) {
        let attempt = self.live[slot].attempt;
        if self.waiting & 1 << slot != 0 {
            self.starts |= 1 << slot;
            return;
        }
        env.record(now, Event::AttemptTimedOut { attempt });
        self.stop(slot, now, env);
        match self.policy.rules().attempt_timeout_action {
            AttemptTimeoutAction::EndCall => self.finish(StopReason::Deadline, None, now, env),
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

    /// A retry or hedge is due.
    pub(super) fn phase_due(&mut self, now: Ns, env: &mut impl Environment) {
        self.at = NEVER;
        match self.phase {
            Phase::Retry { paid: true } | Phase::Lent { .. } => self.phase = Phase::StartNow,
            Phase::Retry { paid: false } => {
                self.phase = Phase::Idle;
                let wanted = Wanted::new(self.failure.kind, 0);
                let grant = decide::ask(env, wanted.cost, now);
                self.use_grant(grant, wanted, now, env);
            }
            Phase::Hedge { .. } => self.hedge(Kind::Timeout, now, env),
            // These have no timer.
            Phase::Idle
            | Phase::HedgeNow
            | Phase::StartNow
            | Phase::Asking
            | Phase::Granting(_) => {}
        }
    }

    /// A failure that may be retried.
    pub(super) fn retry_or_hedge(
        &mut self,
        who: (u32, usize),
        failure: Failure,
        now: Ns,
        env: &mut impl Environment,
    ) {
        self.failure = failure;
        self.failed = Some(who);
        if self.policy.rules().hedge.is_some() && !self.is_committed() {
            self.hedge_failed(now, env);
        } else {
            self.judge(Advice::None, now, env);
        }
    }

    pub(super) fn judge(&mut self, advice: Advice, now: Ns, env: &mut impl Environment) {
        let failure = self.failure;
        let deadline = self.deadline;
        match decide(&self.policy, &mut self.counters, &failure, advice, now, deadline, env) {
            Verdict::Retry { after, paid } => self.retry_after(after, paid, now, env),
            Verdict::Later { after } => {
                let wanted = Wanted::new(failure.kind, after);
                self.phase = Phase::Granting(wanted);
                self.question = Question::Throttle(wanted.cost);
            }
            Verdict::Ask => {
                env.record(now, Event::StrategyAsked(failure));
                self.phase = Phase::Asking;
                self.question = Question::Strategy;
            }
            Verdict::End(stop_reason) => self.finish(stop_reason, self.failed, now, env),
        }
    }

    pub(super) fn retry_after(
        &mut self,
        after: Ns,
        paid: bool,
        now: Ns,
        env: &mut impl Environment,
    ) {
        self.phase = Phase::Retry { paid };
        self.at = now.saturating_add(after);
        // P5: a zero delay needs no timer; P4: at the deadline's moment nothing starts any more.
        if after == 0 && now < self.deadline {
            self.phase_due(now, env);
        }
    }

    /// Does what a grant allows: the retry or hedge starts now, after a while, or not at all.
    pub(super) fn use_grant(
        &mut self,
        grant: Grant,
        wanted: Wanted,
        now: Ns,
        env: &mut impl Environment,
    ) {
        let after = match grant {
            Grant::Now(_) => wanted.after,
            Grant::After(debt, _) => wanted.after.saturating_add(debt),
            Grant::Later => {
                self.phase = Phase::Granting(wanted);
                self.question = Question::Throttle(wanted.cost);
                return;
            }
            // A retry has nothing beside it; of hedges, those that run go on.
            Grant::Refused => {
                self.stopped.get_or_insert(StopReason::Throttled);
                self.end_if_nothing_is_left(now, env);
                return;
            }
        };
        if self.policy.rules().hedge.is_some() {
            let ready = now.saturating_add(after);
            self.phase = Phase::Lent { ready };
            self.at = ready.max(wanted.not_before);
            self.send_if_due(now, env);
        } else if decide::is_late(&self.policy, now.saturating_add(after), self.deadline) {
            self.finish(StopReason::Deadline, self.failed, now, env);
        } else {
            self.retry_after(after, true, now, env);
        }
    }
}
