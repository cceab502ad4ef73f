//! The rhythm of hedges (decisions G14, G16 to G22).

use core::ops::Deref;
use core::time::Duration;

use super::{Call, Phase, Wanted};
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
                | Phase::Lent { .. }
                | Phase::StartNow
                | Phase::Granting(_)
        );
        match failure.hint {
            _ if self.stopped.is_some() => {}
            Hint::Stop => {
                self.stopped = Some(StopReason::ServerRefused);
                self.drop_what_waits();
            }
            Hint::After(wish) => {
                let most = match self.policy.rules().hint {
                    HintRule::Exact(Some(most)) => ns(most),
                    _ => NEVER,
                };
                let at = now.saturating_add(ns(wish).min(most));
                match &mut self.phase {
                    Phase::Granting(wanted) => wanted.not_before = at,
                    Phase::Lent { ready } => self.at = at.max(*ready),
                    Phase::StartNow => (self.phase, self.at) = (Phase::Lent { ready: now }, at),
                    phase => {
                        *phase = Phase::Hedge { pushback: true };
                        self.at = at;
                    }
                }
                self.send_if_due(now, env);
            }
            Hint::None if fixed => {}
            Hint::None if now < self.deadline => self.hedge(failure.kind, now, env),
            // Nothing starts at the deadline's moment, which ends the call now.
            Hint::None => {
                self.phase = Phase::Hedge { pushback: false };
                self.at = now;
            }
        }
        self.end_if_nothing_is_left(now, env);
    }

    /// Sends the next hedge, if the throttle allows it (decision G14).
    pub(super) fn hedge(&mut self, kind: Kind, now: Ns, env: &mut impl Environment) {
        self.phase = Phase::Idle;
        self.at = NEVER;
        let wanted = Wanted::new(kind, 0);
        let grant = decide::ask(env, wanted.cost, now);
        self.use_grant(grant, wanted, now, env);
    }

    /// Sends a hedge that is due at once, without a timer (P5).
    pub(super) fn send_if_due(&mut self, now: Ns, env: &mut impl Environment) {
        if self.at <= now && now < self.deadline {
            self.phase_due(now, env);
        }
    }

    /// Arms the next hedge, which follows at once if hedges have no delay.
    pub(super) fn schedule_hedge(&mut self) {
        if self.policy.rules().hedge.is_none() {
            return;
        }
        if self.end.is_some() || self.is_committed() || self.stopped.is_some() {
            return;
        }
        match self.hedge_after {
            NEVER => {}
            // G16: without a delay all start in the same moment, one command after the other.
            0 if self.seen < self.deadline => self.phase = Phase::HedgeNow,
            delay => {
                self.phase = Phase::Hedge { pushback: false };
                self.at = self.seen.saturating_add(delay);
            }
        }
    }

    /// Ends a call of which nothing runs and nothing is to come (decision G21).
    pub(super) fn end_if_nothing_is_left(&mut self, now: Ns, env: &mut impl Environment) {
        if self.end.is_none() && self.running | self.waiting == 0 && self.phase == Phase::Idle {
            let stop_reason = self.stopped.unwrap_or(StopReason::AttemptsExhausted);
            self.finish(stop_reason, self.failed, now, env);
        }
    }
}
