//! How long the body of a response is read before a retry, so that no timer of the call loses the response.

use std::time::Duration;

use redial::Failure;
use redial::classify::Hint;
use redial::rules::Rules;
use tokio::time::Instant;

use crate::policy::hint_max;
use crate::response_body::DRAIN_TIME_MAX;

/// The timers of a call, and the longest hint that it follows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallTimers {
    deadline: Deadline,
    /// From the start of an attempt until it is cancelled, or until the next hedge may start.
    attempt: Option<Duration>,
    hint_max: Duration,
}

#[derive(Clone, Copy, Debug)]
enum Deadline {
    None,
    /// No attempt has started: the deadline counts from the first.
    After(Duration),
    At(Instant),
}

impl CallTimers {
    /// For a call with these rules; `deadline` is that of its request.
    pub(crate) fn new(rules: &Rules, deadline: Option<Duration>) -> Self {
        CallTimers {
            deadline: earliest(rules.deadline, deadline).map_or(Deadline::None, Deadline::After),
            attempt: earliest(rules.attempt_timeout, rules.hedge),
            hint_max: hint_max(rules),
        }
    }

    /// The limits of an attempt that starts now.
    pub(crate) fn start_attempt(&mut self) -> DrainLimits {
        let after = |span| Instant::now().checked_add(span);
        if let Deadline::After(span) = self.deadline {
            self.deadline = after(span).map_or(Deadline::None, Deadline::At);
        }
        let deadline = match self.deadline {
            Deadline::At(at) => Some(at),
            Deadline::None | Deadline::After(_) => None,
        };
        let timer = earliest(deadline, self.attempt.and_then(after));
        DrainLimits { deadline, timer, hint_max: self.hint_max }
    }
}

fn earliest<T: Ord>(a: Option<T>, b: Option<T>) -> Option<T> {
    a.into_iter().chain(b).min()
}

/// What limits the time for which the response of an attempt is read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DrainLimits {
    deadline: Option<Instant>,
    /// When the first timer of the call may fire: its deadline, its attempt timeout or its next hedge.
    timer: Option<Instant>,
    hint_max: Duration,
}

impl DrainLimits {
    /// How long the body of a response with this failure may be read; `None` if its hint ends the call
    /// (decision H3), or if there is no time left.
    pub(crate) fn drain_time(&self, failure: &Failure) -> Option<Duration> {
        let left = |until: Instant| until.saturating_duration_since(Instant::now());
        let is_followed = match failure.hint {
            Hint::After(delay) => {
                delay <= self.hint_max && self.deadline.is_none_or(|at| delay < left(at))
            }
            Hint::Stop => false,
            _ => true,
        };
        // Half: what the attempt returns is decided upon long before the timer.
        let time = self.timer.map_or(DRAIN_TIME_MAX, |at| DRAIN_TIME_MAX.min(left(at) / 2));
        (is_followed && !time.is_zero()).then_some(time)
    }
}
