//! Soft and hard limits on the time that retries may take (the decision record, section L).

use core::time::Duration;

use crate::time::{Ns, ns};
use crate::{PolicyError, StopReason};

/// What a limit measures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LimitBasis {
    /// The sum of the delays waited so far.
    #[default]
    TotalDelay,
    /// The time since the call began.
    Elapsed,
}

/// What becomes of a delay that would pass the hard limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OverLimitAction {
    /// It is not made: the call ends.
    #[default]
    Stop,
    /// It is cut to end at the limit.
    TruncateDelay,
}

/// What becomes of the last delay that fits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LastDelayAction {
    /// It is left as it is.
    #[default]
    Keep,
    /// It is made to end at the hard limit.
    ExtendToLimit,
}

/// How long retrying may go on. A limit never cancels a running attempt; a deadline does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// No delay begins at or above it; one that begins below may end above.
    pub soft: Option<Duration>,
    /// No delay ends above it.
    pub hard: Option<Duration>,
    /// What becomes of a delay that would pass the hard limit.
    pub over_limit_action: OverLimitAction,
    /// What becomes of the last delay that fits.
    pub last_delay_action: LastDelayAction,
    /// What the limits measure.
    pub basis: LimitBasis,
}

/// A delay that is to be held against the limits.
pub(crate) struct RequestedDelay {
    /// D: what the limit measures before this retry.
    pub(crate) spent: Ns,
    /// d: the delay that is asked for, jitter included.
    pub(crate) delay: Ns,
    /// Whether the delay is ours to change; a server's hint is not (L3).
    pub(crate) adjustable: bool,
    /// The next base delay, if an attempt would be left for it.
    pub(crate) next: Option<Ns>,
}

impl Limits {
    /// No limits.
    pub const NONE: Limits = Limits {
        soft: None,
        hard: None,
        over_limit_action: OverLimitAction::Stop,
        last_delay_action: LastDelayAction::Keep,
        basis: LimitBasis::TotalDelay,
    };

    /// The delay that the limits leave of the wish, or the limit that ends the call (L1 to L3).
    pub(crate) fn apply(&self, requested: &RequestedDelay) -> Result<Ns, StopReason> {
        if self.soft.is_some_and(|soft| requested.spent >= ns(soft)) {
            return Err(StopReason::SoftLimit);
        }
        let Some(hard) = self.hard.map(ns) else { return Ok(requested.delay) };
        if requested.spent >= hard {
            return Err(StopReason::HardLimit);
        }
        let end = requested.spent.saturating_add(requested.delay);
        if end > hard {
            let cut =
                requested.adjustable && self.over_limit_action == OverLimitAction::TruncateDelay;
            return if cut { Ok(hard - requested.spent) } else { Err(StopReason::HardLimit) };
        }
        let another = self.soft.is_none_or(|soft| end < ns(soft));
        let is_last = requested.next.is_some_and(|next| end.saturating_add(next) > hard);
        if self.last_delay_action == LastDelayAction::ExtendToLimit
            && requested.adjustable
            && another
            && is_last
        {
            return Ok(hard - requested.spent);
        }
        Ok(requested.delay)
    }

    pub(crate) const fn is_none(&self) -> bool {
        self.soft.is_none() && self.hard.is_none()
    }

    pub(crate) const fn problem(&self) -> Option<PolicyError> {
        match (self.soft, self.hard) {
            (Some(limit), _) if limit.is_zero() => return Some(PolicyError::LimitOfZero),
            (_, Some(limit)) if limit.is_zero() => return Some(PolicyError::LimitOfZero),
            // `Duration` has no const comparison; whole nanoseconds compare as it does.
            (Some(soft), Some(hard)) if soft.as_nanos() > hard.as_nanos() => {
                return Some(PolicyError::SoftAboveHard);
            }
            _ => {}
        }
        if self.hard.is_some() {
            return None;
        }
        match (self.last_delay_action, self.over_limit_action) {
            (LastDelayAction::ExtendToLimit, _) => Some(PolicyError::FillWithoutHard),
            (_, OverLimitAction::TruncateDelay) => Some(PolicyError::TruncateWithoutHard),
            _ => None,
        }
    }
}
