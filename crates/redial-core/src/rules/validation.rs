//! Validation of a policy's settings.
//!
//! Every contradiction is found here as a [`PolicyError`], whether the rules come from a builder, a
//! file or a preset.

use core::time::Duration;

use super::{Numbering, Rules};
use crate::backoff::{self, Backoff};
use crate::jitter::Jitter;
use crate::limits::LimitBasis;
use crate::time::{Ns, ns};
use crate::{LIVE_MAX, PolicyError};

/// The number of shrinking delays to add up when checking whether they reach a limit. Later ones
/// are negligible.
const SHRINKING_DELAYS_MAX: u32 = 1000;

impl Rules {
    /// The first contradiction in these rules.
    #[must_use]
    pub const fn problem(&self) -> Option<PolicyError> {
        self.problem_with(&[])
    }

    /// The first contradiction, given the table behind [`Backoff::Own`].
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
            if self.reset_after.is_some() {
                return Some(PolicyError::HedgeWithReset);
            }
            if self.never_gives_up() {
                return Some(PolicyError::HedgeForever);
            }
            if self.hint_jitter > 0.0 {
                return Some(PolicyError::HedgeWithHintJitter);
            }
            match self.attempts {
                Some(attempts) if attempts as usize > LIVE_MAX => {
                    return Some(PolicyError::HedgeAttempts);
                }
                // Unlimited hedges are bounded by the slots, and need a deadline like unlimited
                // retries.
                _ => {}
            }
        }
        if let Backoff::Own = self.always {
            return Some(PolicyError::OwnBackoff);
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
        if !(self.hint_jitter >= 0.0 && self.hint_jitter <= 1.0) {
            return Some(PolicyError::HintJitter);
        }
        if let Some(Duration::ZERO) = self.reset_after {
            return Some(PolicyError::ResetAfterZero);
        }
        let is_unlimited = self.attempts.is_none() && !self.forever;
        if is_unlimited && self.deadline.is_none() && !self.ends_by_limit(own) {
            return Some(PolicyError::Unlimited);
        }
        None
    }

    /// Whether attempts are unlimited by name: [`forever`](Rules::forever), and no maximum.
    #[must_use]
    pub const fn never_gives_up(&self) -> bool {
        self.forever && self.attempts.is_none()
    }

    /// The first contradiction, without a table or function for [`Backoff::Own`].
    pub(crate) const fn problem_without_custom_backoff(&self) -> Option<PolicyError> {
        match self.backoff {
            Backoff::Own => Some(PolicyError::OwnBackoff),
            _ => self.problem(),
        }
    }

    /// Whether a limit ends unlimited attempts: because it counts elapsed time, or because the
    /// delays add up to it.
    const fn ends_by_limit(&self, own: &[Duration]) -> bool {
        let bound = match (self.limits.soft, self.limits.hard) {
            (None, None) => return false,
            // A soft limit is not above the hard one, or the rules are invalid.
            (Some(limit), _) | (None, Some(limit)) => ns(limit),
        };
        match self.limits.basis {
            LimitBasis::Elapsed => true,
            // Every series that a failure can select must reach the limit.
            LimitBasis::TotalDelay => {
                self.delays_reach(&self.backoff, own, bound)
                    && self.delays_reach(&self.backoff_after_throttling(), own, bound)
                    && self.always.sum_is_unbounded()
            }
        }
    }

    const fn backoff_after_throttling(&self) -> Backoff {
        match self.throttling_first {
            Some(first) => self.backoff.starting_at(first),
            None => self.backoff,
        }
    }

    /// Whether no delay fades to zero, in any series that a failure can select: the delays limit the rate
    /// of retries however long they go on.
    pub(crate) const fn has_lasting_delays(&self, own: &[Duration]) -> bool {
        self.series_lasts(&self.backoff, own)
            && self.series_lasts(&self.backoff_after_throttling(), own)
            && self.always.sum_is_unbounded()
    }

    /// Whether the sum of the delays exceeds every bound. (Draws that are always zero are ruled out.)
    const fn series_lasts(&self, backoff: &Backoff, own: &[Duration]) -> bool {
        let is_own = matches!(backoff, Backoff::Own);
        if let Jitter::Decorrelated = self.jitter {
            // Decorrelated jitter grows by a factor of up to 3 from the first delay; from zero it
            // stays zero.
            let first = if is_own { backoff::entry(own, 1) } else { backoff.first() };
            return first > 0 && backoff.cap() > 0;
        }
        backoff.sum_is_unbounded() || is_own && backoff::entry(own, u32::MAX) > 0
    }

    /// Whether the delays add up to `bound` for any random draws.
    const fn delays_reach(&self, backoff: &Backoff, own: &[Duration], bound: Ns) -> bool {
        if self.series_lasts(backoff, own) {
            return true;
        }
        // If the delays shrink, each one is needed, so neither hints nor a strategy may replace
        // any. Decorrelated jitter that does not last is always zero.
        if self.uses_strategy
            || !matches!(self.numbering, Numbering::Delays)
            || matches!(self.jitter, Jitter::Decorrelated)
        {
            return false;
        }
        let is_own = matches!(backoff, Backoff::Own);
        let (mut sum, mut n): (Ns, u32) = (0, 0);
        while n < SHRINKING_DELAYS_MAX {
            n += 1;
            let base = if is_own { backoff::entry(own, n) } else { backoff.base(n) };
            sum = sum.saturating_add(self.jitter.least(base));
        }
        sum >= bound
    }
}
