//! Failures that a timer of the call supersedes (decisions G4, G5 and G42).
//!
//! Attempts run over a network, and both ends measure the same deadline: the server that gets it with
//! the request, a timer of the client library, and the timer of the call. Which of them is noticed
//! first is a race. The result must not depend on it, so a failure that the deadline or the attempt
//! timeout has caused, or that arrives after it, counts as that timer.

use core::ops::Deref;

use super::Call;
use crate::time::Ns;
use crate::{Classification, Directive, Environment, Policy};

/// What ended a failed attempt, as far as the driver can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureCause {
    /// The response of the server, or an error that is known not to come from a timer.
    Response,
    /// A timer below the driver that was given the remaining time of the attempt, such as the timeout
    /// of a client library.
    Timer,
    /// An error that the driver does not know: it may come from such a timer.
    Unknown,
}

/// A timer below the driver fires early if it was given a rounded time: `grpc-timeout` has at most
/// eight digits, and is rounded down by less than one part in 50,000. An early timer is therefore
/// accepted if less than this part of the time since the start of the call is left.
const ROUNDING_PARTS: Ns = 50_000;

impl<P: Deref<Target = Policy>> Call<P> {
    /// Whether the deadline or the attempt timeout supersedes an outcome that the driver is about to
    /// report. If so, the timer has fired: the driver drops the outcome and runs the commands.
    ///
    /// A success is never superseded. A failure is, if its time was up before it arrived; if its
    /// cause is or may be a timer, then also at the moment at which the time is up, and as much
    /// before it as the time given to that timer may have been rounded down.
    pub fn superseded(
        &mut self,
        slot: usize,
        classification: Classification,
        cause: FailureCause,
        now: Ns,
        env: &mut impl Environment,
    ) -> bool {
        if classification.directive == Directive::Succeed || !self.is_running(slot) {
            return false;
        }
        let time_up = self.deadline.min(self.slots[slot].at);
        let is_up = match cause {
            FailureCause::Response => now > time_up,
            FailureCause::Timer | FailureCause::Unknown => {
                let elapsed = now.saturating_sub(self.counters.start);
                time_up.saturating_sub(now) <= elapsed / ROUNDING_PARTS
            }
        };
        if is_up {
            let now = now.max(time_up);
            // Timers of other attempts may be due before it.
            while self.is_running(slot) && self.wake_once(now, env) {}
        }
        is_up
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::rules::AttemptTimeoutAction;
    use crate::throttle::Unthrottled;
    use crate::{
        CallEnvironment, CallParams, Failure, FailureKind, NEVER, Random, Rules, StopReason, ns, s,
    };

    const START: Ns = 1_000;
    const SECOND: Ns = ns(s(1));

    /// Whether a failure after `elapsed` of a call with a limit of one second is superseded, and how
    /// the call has ended.
    fn after(
        elapsed: Ns,
        cause: FailureCause,
        directive: Directive,
    ) -> (bool, Option<(StopReason, Ns)>) {
        let policy = Policy::new(Rules { deadline: Some(s(1)), ..Rules::DEFAULT });
        let mut env = CallEnvironment::new(Unthrottled, Random::new(1));
        let mut call: Call<&Policy> = Call::begin(&policy, CallParams::default(), START, &mut env);
        call.command(&mut env);
        let now = START + elapsed;
        let superseded = call.superseded(0, directive.into(), cause, now, &mut env);
        (superseded, call.end().map(|end| (end.stop_reason, call.seen() - START)))
    }

    const KEPT: (bool, Option<(StopReason, Ns)>) = (false, None);

    fn deadline_at(elapsed: Ns) -> (bool, Option<(StopReason, Ns)>) {
        (true, Some((StopReason::Deadline, elapsed)))
    }

    #[test]
    fn superseded_failure_arrives_after_the_deadline() {
        for directive in [Directive::Fail, Directive::Retry(Failure::server())] {
            let after = |elapsed| after(elapsed, FailureCause::Response, directive);
            assert_eq!(after(SECOND - 1), KEPT);
            assert_eq!(after(SECOND), KEPT, "outcomes come before the deadline (P4)");
            assert_eq!(after(SECOND + 1), deadline_at(SECOND + 1));
        }
    }

    #[test]
    fn superseded_success_is_never() {
        for cause in [FailureCause::Response, FailureCause::Timer, FailureCause::Unknown] {
            assert_eq!(after(2 * SECOND, cause, Directive::Succeed), KEPT);
        }
    }

    #[test]
    fn superseded_timer_may_be_early_by_a_50_000th() {
        // 1 s × 50,000 / 50,001, rounded up: the first moment at which the time counts as up.
        let first = 999_980_001;
        for cause in [FailureCause::Timer, FailureCause::Unknown] {
            let after = |elapsed| after(elapsed, cause, Directive::Fail);
            assert_eq!(after(first - 1), KEPT);
            assert_eq!(after(first), deadline_at(SECOND), "the deadline itself has passed then");
            assert_eq!(after(SECOND), deadline_at(SECOND));
            assert_eq!(after(SECOND + 1), deadline_at(SECOND + 1));
        }
    }

    #[test]
    fn superseded_without_a_limit_is_never() {
        let policy = Policy::new(Rules { deadline: None, ..Rules::DEFAULT });
        let mut env = CallEnvironment::new(Unthrottled, Random::new(1));
        let mut call: Call<&Policy> = Call::begin(&policy, CallParams::default(), 0, &mut env);
        call.command(&mut env);
        for cause in [FailureCause::Response, FailureCause::Timer, FailureCause::Unknown] {
            assert!(!call.superseded(0, Directive::Fail.into(), cause, NEVER / 2, &mut env));
        }
    }

    #[test]
    fn superseded_by_attempt_timeout_before_commit_only() {
        let rules = Rules {
            attempt_timeout: Some(s(1)),
            attempt_timeout_action: AttemptTimeoutAction::Retry,
            ..Rules::DEFAULT
        };
        for committed in [false, true] {
            let policy = Policy::new(rules);
            let mut env = CallEnvironment::new(Unthrottled, Random::new(1));
            let mut call: Call<&Policy> = Call::begin(&policy, CallParams::default(), 0, &mut env);
            call.command(&mut env);
            if committed {
                call.committed(0, 1, &mut env);
            }
            let (fail, cause) = (Directive::Fail.into(), FailureCause::Response);
            let superseded = call.superseded(0, fail, cause, SECOND + 1, &mut env);
            assert_eq!(superseded, !committed);
            assert_eq!(call.is_running(0), committed);
            assert_eq!(call.end(), None, "the timed-out attempt is retried");
            let failure = call.failure().map(|failure| failure.kind);
            assert_eq!(failure, (!committed).then_some(FailureKind::Timeout));
        }
    }
}
