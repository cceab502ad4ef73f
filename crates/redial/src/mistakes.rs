//! Likely mistakes: settings that are valid by themselves, and would silently have another effect than they say.
//!
//! The builder refuses them, and so does a change of the rules that makes one. A written policy may have most of
//! them on purpose: loading it warns instead (`config/warnings.rs`).

use std::time::Duration;

use redial_core::throttle::RetryBudget;
use redial_core::{Policy, PolicyError};

/// The likely mistakes in a policy.
#[derive(Clone, Copy)]
pub(crate) struct Mistakes {
    pub(crate) first_above_cap: bool,
    pub(crate) forever_without_delay: bool,
    pub(crate) attempts_above_reserve: bool,
    pub(crate) attempt_timeout_zero: bool,
}

impl Mistakes {
    /// The mistakes of these rules with a throttle: its retry budget, if it is one, and whether it is the default
    /// throttle, which a call that never gives up does not have.
    pub(crate) const fn of(
        core: &Policy,
        budget: Option<&RetryBudget>,
        has_default_throttle: bool,
    ) -> Self {
        let rules = core.rules();
        let has_no_throttle = has_default_throttle && rules.never_gives_up();
        Mistakes {
            first_above_cap: rules.backoff.first() > rules.backoff.cap(),
            forever_without_delay: has_no_throttle && !core.has_lasting_delays(),
            attempts_above_reserve: match (budget, rules.attempts) {
                (Some(budget), Some(attempts)) => !budget.pays_for(attempts.saturating_sub(1)),
                _ => false,
            },
            attempt_timeout_zero: matches!(rules.attempt_timeout, Some(Duration::ZERO)),
        }
    }

    /// The mistakes that `earlier` does not have.
    pub(crate) const fn except(self, earlier: Mistakes) -> Self {
        Mistakes {
            first_above_cap: self.first_above_cap && !earlier.first_above_cap,
            forever_without_delay: self.forever_without_delay && !earlier.forever_without_delay,
            attempts_above_reserve: self.attempts_above_reserve && !earlier.attempts_above_reserve,
            attempt_timeout_zero: self.attempt_timeout_zero && !earlier.attempt_timeout_zero,
        }
    }

    /// The first mistake.
    pub(crate) const fn error(self) -> Option<PolicyError> {
        if self.first_above_cap {
            Some(PolicyError::FirstAboveCap)
        } else if self.forever_without_delay {
            Some(PolicyError::ForeverWithoutDelay)
        } else if self.attempts_above_reserve {
            Some(PolicyError::AttemptsAboveReserve)
        } else if self.attempt_timeout_zero {
            Some(PolicyError::AttemptTimeoutZero)
        } else {
            None
        }
    }
}
