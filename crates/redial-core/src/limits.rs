//! Soft and hard limits on the time that retries may take (the decision record, section L).

use core::time::Duration;

use crate::time::{Ns, ns};
use crate::{Problem, Why};

/// What a limit measures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Measure {
    /// The sum of the delays waited so far.
    #[default]
    Delays,
    /// The time since the call began.
    Elapsed,
}

/// What becomes of a delay that would pass the hard limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Over {
    /// It is not made: the call ends.
    #[default]
    Drop,
    /// It is cut to end at the limit.
    Truncate,
}

/// What becomes of the last delay that fits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Under {
    /// It is left as it is.
    #[default]
    Leave,
    /// It is made to end at the hard limit.
    Fill,
}

/// How long retrying may go on. A limit never cancels a running attempt; a deadline does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// No delay begins at or above it; one that begins below may end above.
    pub soft: Option<Duration>,
    /// No delay ends above it.
    pub hard: Option<Duration>,
    /// What becomes of a delay that would pass the hard limit.
    pub over: Over,
    /// What becomes of the last delay that fits.
    pub under: Under,
    /// What the limits measure.
    pub measure: Measure,
}

/// A delay that is to be held against the limits.
pub(crate) struct Wish {
    /// D: what the limit measures before this retry.
    pub(crate) spent: Ns,
    /// d: the delay that is asked for, jitter included.
    pub(crate) delay: Ns,
    /// Whether the delay is ours to change; a server's hint is not (L3).
    pub(crate) ours: bool,
    /// The next base delay, if an attempt would be left for it.
    pub(crate) next: Option<Ns>,
}

impl Limits {
    /// No limits.
    pub const NONE: Limits = Limits {
        soft: None,
        hard: None,
        over: Over::Drop,
        under: Under::Leave,
        measure: Measure::Delays,
    };

    /// The delay that the limits leave of the wish, or the limit that ends the call (L1 to L3).
    pub(crate) fn judge(&self, wish: &Wish) -> Result<Ns, Why> {
        if self.soft.is_some_and(|soft| wish.spent >= ns(soft)) {
            return Err(Why::SoftLimit);
        }
        let Some(hard) = self.hard.map(ns) else { return Ok(wish.delay) };
        if wish.spent >= hard {
            return Err(Why::HardLimit);
        }
        let end = wish.spent.saturating_add(wish.delay);
        if end > hard {
            let cut = wish.ours && self.over == Over::Truncate;
            return if cut { Ok(hard - wish.spent) } else { Err(Why::HardLimit) };
        }
        let another = self.soft.is_none_or(|soft| end < ns(soft));
        let is_last = wish.next.is_some_and(|next| end.saturating_add(next) > hard);
        if self.under == Under::Fill && wish.ours && another && is_last {
            return Ok(hard - wish.spent);
        }
        Ok(wish.delay)
    }

    pub(crate) const fn is_none(&self) -> bool {
        self.soft.is_none() && self.hard.is_none()
    }

    pub(crate) const fn problem(&self) -> Option<Problem> {
        match (self.soft, self.hard) {
            (Some(limit), _) if limit.is_zero() => return Some(Problem::LimitOfZero),
            (_, Some(limit)) if limit.is_zero() => return Some(Problem::LimitOfZero),
            // `Duration` has no const comparison; whole nanoseconds compare as it does.
            (Some(soft), Some(hard)) if soft.as_nanos() > hard.as_nanos() => {
                return Some(Problem::SoftAboveHard);
            }
            _ => {}
        }
        if self.hard.is_some() {
            return None;
        }
        match (self.under, self.over) {
            (Under::Fill, _) => Some(Problem::FillWithoutHard),
            (_, Over::Truncate) => Some(Problem::TruncateWithoutHard),
            _ => None,
        }
    }
}
