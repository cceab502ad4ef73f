//! The rhythm of hedges (decisions G14, G16 to G22).

use core::ops::Deref;
use core::time::Duration;

use super::{Call, GrantRequest, Phase};
use crate::decide;
use crate::time::{NEVER, Ns, ns};
use crate::{Environment, Hint, HintRule, Kind, Policy, StopReason};

/// When the hedges of one call follow, whatever its policy's delay.
///
/// Only the rhythm is the call's: failures, pushback and the throttle do to its hedges what they do
/// to all (decisions G14, G17 to G22).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HedgeDelay {
    /// So long after the attempt before.
    After(Ns),
    /// Not by time: only a failure starts the next attempt.
    Never,
}

impl HedgeDelay {
    /// The delay of a call that says this, under a policy that says that.
    pub(super) fn after(call: Option<HedgeDelay>, policy: Option<Duration>) -> Ns {
        match call {
            None => policy.map_or(NEVER, ns),
            Some(HedgeDelay::After(delay)) => delay,
            Some(HedgeDelay::Never) => NEVER,
        }
    }
}

impl<P: Deref<Target = Policy>, const LIVE: usize> Call<P, LIVE> {
    /// A hedge failed and others may still answer (decisions G17 to G19, G22).
    pub(super) fn hedge_failed(&mut self, now: Ns, env: &mut impl Environment) {
        env.failed();
        let failure = self.failure;
        // A hedge that the throttle has in hand, or that a server wants later, is not shortened.
        let fixed = matches!(
            self.phase,
            Phase::Hedge { pushback: true }
                | Phase::PaidHedge { .. }
                | Phase::StartNow
                | Phase::AwaitGrant(_)
        );
        match failure.hint {
            _ if self.stopped_by.is_some() => {}
            Hint::Stop => {
                self.stopped_by = Some(StopReason::ServerRefused);
                self.clear_pending();
            }
            Hint::After(requested) => {
                let most = match self.policy.rules().hint {
                    HintRule::Exact(Some(most)) => ns(most),
                    _ => NEVER,
                };
                let at = now.saturating_add(ns(requested).min(most));
                match &mut self.phase {
                    Phase::AwaitGrant(request) => request.not_before = at,
                    Phase::PaidHedge { ready } => self.timer_at = at.max(*ready),
                    Phase::StartNow => {
                        (self.phase, self.timer_at) = (Phase::PaidHedge { ready: now }, at)
                    }
                    phase => {
                        *phase = Phase::Hedge { pushback: true };
                        self.timer_at = at;
                    }
                }
                self.send_hedge_if_due(now, env);
            }
            Hint::None if fixed => {}
            Hint::None if now < self.deadline => self.request_hedge(failure.kind, now, env),
            // Nothing starts at the deadline's moment, which ends the call now.
            Hint::None => {
                self.phase = Phase::Hedge { pushback: false };
                self.timer_at = now;
            }
        }
        self.end_if_idle(now, env);
    }

    /// Sends the next hedge, if the throttle allows it (decision G14).
    pub(super) fn request_hedge(&mut self, kind: Kind, now: Ns, env: &mut impl Environment) {
        self.phase = Phase::Idle;
        self.timer_at = NEVER;
        let request = GrantRequest::new(kind, 0);
        let grant = decide::request_grant(env, request.cost, now);
        self.apply_grant(grant, request, now, env);
    }

    /// Sends a hedge that is due at once, without a timer (P5).
    pub(super) fn send_hedge_if_due(&mut self, now: Ns, env: &mut impl Environment) {
        if self.timer_at <= now && now < self.deadline {
            self.handle_phase_timer(now, env);
        }
    }

    /// Arms the next hedge, which follows at once if hedges have no delay.
    pub(super) fn schedule_hedge(&mut self) {
        if self.policy.rules().hedge.is_none() {
            return;
        }
        if self.end.is_some() || self.is_committed() || self.stopped_by.is_some() {
            return;
        }
        match self.hedge_after {
            NEVER => {}
            // G16: without a delay all start in the same moment, one command after the other.
            0 if self.last_input_at < self.deadline => self.phase = Phase::HedgeNow,
            delay => {
                self.phase = Phase::Hedge { pushback: false };
                self.timer_at = self.last_input_at.saturating_add(delay);
            }
        }
    }

    /// Ends a call of which nothing runs and nothing is to come (decision G21).
    pub(super) fn end_if_idle(&mut self, now: Ns, env: &mut impl Environment) {
        if self.end.is_none() && self.running | self.waiting == 0 && self.phase == Phase::Idle {
            let stop_reason = self.stopped_by.unwrap_or(StopReason::AttemptsExhausted);
            self.finish(stop_reason, self.failed_attempt, now, env);
        }
    }
}
