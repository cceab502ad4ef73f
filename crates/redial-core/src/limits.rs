//! Soft and hard limits on the time spent retrying (section L of docs/decisions.md).

use core::time::Duration;

use crate::time::{Ns, ns};
use crate::{PolicyError, StopReason};

/// The quantity that a limit bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LimitBasis {
    /// The sum of the delays so far.
    #[default]
    TotalDelay,
    /// The time since the call started.
    Elapsed,
}

/// What happens to a delay that would exceed the hard limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OverLimitAction {
    /// The call ends without the delay.
    #[default]
    Stop,
    /// The delay is shortened to end at the limit.
    TruncateDelay,
}

/// What happens to the last delay that fits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LastDelayAction {
    /// The delay is kept.
    #[default]
    Keep,
    /// The delay is extended to end at the hard limit.
    ExtendToLimit,
}

/// Limits on the time spent retrying. A limit never cancels a running attempt; a deadline does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// No delay starts at or above it; one that starts below may end above.
    pub soft: Option<Duration>,
    /// No delay ends above it.
    pub hard: Option<Duration>,
    /// What happens to a delay that would exceed the hard limit.
    pub over_limit_action: OverLimitAction,
    /// What happens to the last delay that fits.
    pub last_delay_action: LastDelayAction,
    /// The quantity that the limits bound.
    pub basis: LimitBasis,
}

/// A delay to check against the limits.
pub(crate) struct RequestedDelay {
    /// The amount used up before this retry (D in docs/decisions.md).
    pub(crate) spent: Ns,
    /// The requested delay with jitter (d in docs/decisions.md).
    pub(crate) delay: Ns,
    /// Whether the limits may change the delay; not if the server chose it (L3).
    pub(crate) adjustable: bool,
    /// The base delay of the retry after this one, if an attempt is left for it.
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

    /// The delay within the limits, or the limit that ends the call (L1 to L3).
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
            // `Duration` has no `const` comparison; nanoseconds compare equally.
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
