//! When hedges start (decisions G14 and G16 to G22).

use core::ops::Deref;
use core::time::Duration;

use super::{Call, GrantRequest, Phase};
use crate::decide;
use crate::time::{NEVER, Ns, ns};
use crate::{Environment, FailureKind, Hint, HintRule, Policy, StopReason};

/// The hedging delay of one call, in place of the policy's delay.
///
/// Failures, pushback and the throttle affect these hedges as usual (decisions G14 and G17 to G22).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HedgeDelay {
    /// Each hedge starts this long after the previous attempt.
    After(Ns),
    /// No hedge starts by time; only a failure starts the next attempt.
    Never,
}

impl HedgeDelay {
    /// The effective delay of a call, given its own setting and the policy's.
    pub(super) fn after(call: Option<HedgeDelay>, policy: Option<Duration>) -> Ns {
        match call {
            None => policy.map_or(NEVER, ns),
            Some(HedgeDelay::After(delay)) => delay,
            Some(HedgeDelay::Never) => NEVER,
        }
    }
}

impl<P: Deref<Target = Policy>> Call<P> {
    /// Handles the failure of an attempt while others may still succeed (decisions G17 to G19 and
    /// G22).
    pub(super) fn hedge_failed(&mut self, now: Ns, env: &mut impl Environment) {
        let failure = self.failure;
        if failure.is_charged() {
            env.failed();
        }
        // A plain failure does not bring forward a hedge that waits for the throttle or for
        // pushback.
        let fixed = matches!(
            self.phase,
            Phase::Hedge { pushback: true }
                | Phase::PaidHedge { .. }
                | Phase::StartNow
                | Phase::AwaitGrant(_)
        );
        match self.policy.rules().hint_of(&failure) {
            _ if self.stopped_by.is_some() => {}
            Hint::Stop => {
                self.stopped_by = Some(StopReason::ServerRefused);
                self.clear_pending();
            }
            Hint::After(_) if decide::is_hint_too_long(self.policy.rules(), &failure) => {
                self.stopped_by = Some(StopReason::HintTooLong);
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
                        (self.phase, self.timer_at) = (Phase::PaidHedge { ready: now }, at);
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
            // Nothing starts at the deadline; the timer that is due now ends the call.
            Hint::None => {
                self.phase = Phase::Hedge { pushback: false };
                self.timer_at = now;
            }
        }
        self.end_if_idle(now, env);
    }

    /// Requests a grant for the next hedge, and starts it if the throttle allows (decision G14).
    pub(super) fn request_hedge(&mut self, kind: FailureKind, now: Ns, env: &mut impl Environment) {
        self.phase = Phase::Idle;
        self.timer_at = NEVER;
        let request = GrantRequest::new(kind, 0);
        let grant = decide::request_grant(env, request.cost, now);
        self.apply_grant(grant, request, now, env);
    }

    /// Starts a hedge that is due now without a timer (decision P5).
    pub(super) fn send_hedge_if_due(&mut self, now: Ns, env: &mut impl Environment) {
        if self.timer_at <= now && now < self.deadline {
            self.handle_phase_timer(now, env);
        }
    }

    /// Schedules the next hedge after the hedging delay.
    pub(super) fn schedule_hedge(&mut self) {
        if self.policy.rules().hedge.is_none() {
            return;
        }
        if self.end.is_some() || self.is_committed() || self.stopped_by.is_some() {
            return;
        }
        match self.hedge_after {
            NEVER => {}
            // G16: without a delay all hedges start at the same time, one command after the other.
            0 if self.last_input_at < self.deadline => self.phase = Phase::HedgeNow,
            delay => {
                self.phase = Phase::Hedge { pushback: false };
                self.timer_at = self.last_input_at.saturating_add(delay);
            }
        }
    }

    /// Ends the call if no attempt is running or pending (decision G21), or if the only pending one is a
    /// hedge that the server or the throttle delays past the deadline (decision P14).
    pub(super) fn end_if_idle(&mut self, now: Ns, env: &mut impl Environment) {
        if self.end.is_some() || self.running | self.waiting != 0 {
            return;
        }
        if self.phase == Phase::Idle {
            let stop_reason = self.stopped_by.unwrap_or(StopReason::AttemptsExhausted);
            self.finish(stop_reason, self.failed_attempt, now, env);
        } else if self.is_hedge_too_late() {
            self.finish(StopReason::Deadline, self.failed_attempt, now, env);
        }
    }

    /// Whether the next hedge is delayed past the deadline, and the rules end a call for which a hint is
    /// too long. gRPC's do not: its call waits for the deadline (decision G4).
    fn is_hedge_too_late(&self) -> bool {
        let rules = self.policy.rules();
        let ends = matches!(rules.hint, HintRule::UpTo(_) | HintRule::AtLeast(_));
        let is_delayed =
            matches!(self.phase, Phase::Hedge { pushback: true } | Phase::PaidHedge { .. });
        ends && is_delayed && decide::misses_deadline(&self.policy, self.timer_at, self.deadline)
    }
}
