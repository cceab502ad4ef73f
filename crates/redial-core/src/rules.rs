//! What a policy says: plain data, and every contradiction that it can have.
//!
//! Rule: what contradicts itself is a [`PolicyError`] here, whoever wrote it and however.

use core::time::Duration;

use crate::backoff::{self, Backoff};
use crate::jitter::Jitter;
use crate::limits::{LimitBasis, Limits};
use crate::time::{Ns, ns};
use crate::{LIVE_MAX, PolicyError};

/// What happens when the next retry cannot start before the deadline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeadlineAction {
    /// The call ends at once with its last outcome.
    #[default]
    FailFast,
    /// The call waits, and ends at the deadline.
    WaitForDeadline,
}

/// What an attempt's own timeout means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AttemptTimeoutAction {
    /// A retryable failure of kind timeout (decision P7).
    #[default]
    Retry,
    /// The end of the call (Milvus, decision M4).
    EndCall,
    /// A failure that is final (gRPC, decision G42).
    Fail {
        /// Whether it drains the throttle.
        drains: bool,
    },
}

/// How the delays of a series are numbered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Numbering {
    /// By the delays that the backoff made: a hint does not advance the series.
    #[default]
    Delays,
    /// By attempt (smithy, Couchbase).
    Attempts,
    /// Anew after each hint (gRPC, decision G9).
    SinceHint,
}

/// What a server's wish for a delay does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HintRule {
    /// It replaces the delay, at most this long.
    Exact(Option<Duration>),
    /// It is kept within the computed delay and so much more (decision S6).
    Within(Duration),
}

/// When a retry is paid for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChargeAt {
    /// When it is decided; a debt is waited for, then the backoff.
    #[default]
    Decision,
    /// After its backoff (smithy's standard strategy, decision S2).
    AfterBackoff,
}

/// What a deadline that has passed already leaves of a call (decision P10).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExpiredDeadlineAction {
    /// Its first attempt starts, and counts if its outcome is there at once.
    #[default]
    StartOneAttempt,
    /// Nothing starts (gRPC).
    StartNoAttempt,
}

/// Everything that a policy can say. Plain data: write the fields that differ from
/// [`Rules::DEFAULT`], and let [`Policy::try_new`](crate::Policy::new) check them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rules {
    /// How many attempts, the first included; `None`: as many as the deadline or a limit allows, of
    /// hedges [`LIVE_MAX`] at the most.
    pub attempts: Option<u32>,
    /// The series of delays.
    pub backoff: Backoff,
    /// The randomness in a delay.
    pub jitter: Jitter,
    /// Whether jitter may pass the backoff's cap (today's gRPC, decision G1).
    pub jitter_above_cap: bool,
    /// Limits on the time that retrying takes.
    pub limits: Limits,
    /// After how long the call must end.
    pub deadline: Option<Duration>,
    /// What happens when the next retry cannot start before the deadline.
    pub deadline_action: DeadlineAction,
    /// What a deadline that has passed already leaves of a call.
    pub expired_deadline_action: ExpiredDeadlineAction,
    /// After how long an attempt is cancelled.
    pub attempt_timeout: Option<Duration>,
    /// What that means.
    pub attempt_timeout_action: AttemptTimeoutAction,
    /// The delay between hedges; `None`: retry instead.
    pub hedge: Option<Duration>,
    /// How delays are numbered.
    pub numbering: Numbering,
    /// What a server's hint does.
    pub hint: HintRule,
    /// The first delay after throttling, if it differs.
    pub throttling_first: Option<Duration>,
    /// The delays after a reason that is always retried.
    pub always: Backoff,
    /// When a retry is paid for.
    pub charge_at: ChargeAt,
    /// Whether a strategy is asked about each failure (decision C9).
    pub uses_strategy: bool,
    /// Whether what provably did not run is replaced transparently (decisions G26 to G29).
    pub transparent_retries: bool,
}

impl Rules {
    /// Three attempts, 100 ms doubled up to 20 s, full jitter; no deadline, no limits.
    pub const DEFAULT: Rules = Rules {
        attempts: Some(3),
        backoff: Backoff::Exponential {
            first: Duration::from_millis(100),
            factor: 2.0,
            cap: Some(Duration::from_secs(20)),
        },
        jitter: Jitter::Full,
        jitter_above_cap: false,
        limits: Limits::NONE,
        deadline: None,
        deadline_action: DeadlineAction::FailFast,
        expired_deadline_action: ExpiredDeadlineAction::StartOneAttempt,
        attempt_timeout: None,
        attempt_timeout_action: AttemptTimeoutAction::Retry,
        hedge: None,
        numbering: Numbering::Delays,
        hint: HintRule::Exact(None),
        throttling_first: None,
        always: backoff::CONTROLLED,
        charge_at: ChargeAt::Decision,
        uses_strategy: false,
        transparent_retries: false,
    };

    /// The first contradiction in these rules.
    #[must_use]
    pub const fn problem(&self) -> Option<PolicyError> {
        self.problem_with(&[])
    }

    /// The same where these are the delays of [`Backoff::Own`].
    pub(crate) const fn problem_with(&self, own: &[Duration]) -> Option<PolicyError> {
        if let Some(0) = self.attempts {
            return Some(PolicyError::NoAttempt);
        }
        if self.hedge.is_some() {
            if !self.limits.is_none() {
                return Some(PolicyError::HedgeWithLimits);
            }
            if self.uses_strategy {
                return Some(PolicyError::HedgeWithStrategy);
            }
            match self.attempts {
                Some(attempts) if attempts as usize > LIVE_MAX => {
                    return Some(PolicyError::HedgeAttempts);
                }
                // Without a number it is as many as there is room for, if a deadline ends them.
                _ => {}
            }
        }
        let parts = [
            self.backoff.problem(),
            self.always.problem(),
            self.jitter.problem(),
            self.limits.problem(),
        ];
        let mut i = 0;
        while i < parts.len() {
            if parts[i].is_some() {
                return parts[i];
            }
            i += 1;
        }
        if let (Some(attempt), Some(deadline)) = (self.attempt_timeout, self.deadline)
            && attempt.as_nanos() >= deadline.as_nanos()
        {
            return Some(PolicyError::AttemptTimeout);
        }
        if self.attempts.is_none() && self.deadline.is_none() && !self.ends_by_limit(own) {
            return Some(PolicyError::Unlimited);
        }
        None
    }

    /// The first contradiction, where nothing comes with the rules.
    pub(crate) const fn problem_without_custom_backoff(&self) -> Option<PolicyError> {
        match self.backoff {
            Backoff::Own => Some(PolicyError::OwnBackoff),
            _ => self.problem(),
        }
    }

    /// Whether a limit ends unlimited attempts: by the clock, or by delays that add up to it.
    const fn ends_by_limit(&self, own: &[Duration]) -> bool {
        let bound = match (self.limits.soft, self.limits.hard) {
            (None, None) => return false,
            // The smaller one, as its problems say.
            (Some(limit), _) | (None, Some(limit)) => ns(limit),
        };
        match self.limits.basis {
            LimitBasis::Elapsed => true,
            // Every series that a failure can lead to must add up.
            LimitBasis::TotalDelay => {
                let throttled = match self.throttling_first {
                    Some(first) => self.backoff.starting_at(first),
                    None => self.backoff,
                };
                self.delays_reach(&self.backoff, own, bound)
                    && self.delays_reach(&throttled, own, bound)
                    && self.always.sum_is_unbounded()
            }
        }
    }

    /// Whether the series adds up to `bound`, whatever is drawn. (Draws of nothing for ever are not: a
    /// series that grows for ever gets there.)
    const fn delays_reach(&self, backoff: &Backoff, own: &[Duration], bound: Ns) -> bool {
        let is_own = matches!(backoff, Backoff::Own);
        if let Jitter::Decorrelated = self.jitter {
            // It grows from the first delay, and three times nothing is nothing.
            let first = if is_own { backoff::entry(own, 1) } else { backoff.first() };
            return first > 0 && backoff.cap() > 0;
        }
        let last = backoff::entry(own, u32::MAX);
        if backoff.sum_is_unbounded() || is_own && last > 0 {
            return true;
        }
        // Of a series that fades every delay counts, so nothing may take one's place.
        if self.uses_strategy || !matches!(self.numbering, Numbering::Delays) {
            return false;
        }
        let (mut sum, mut n): (Ns, u32) = (0, 0);
        while n < SHRINKING_DELAYS_MAX {
            n += 1;
            let base = if is_own { backoff::entry(own, n) } else { backoff.base(n) };
            sum = sum.saturating_add(self.jitter.least(base));
        }
        sum >= bound
    }
}

/// So many delays of a series that fades are added up, to see whether they reach a limit. What comes
/// after them is next to nothing, or a mistake.
const SHRINKING_DELAYS_MAX: u32 = 1000;

impl Default for Rules {
    fn default() -> Self {
        Rules::DEFAULT
    }
}
