//! The result of a scripted call, read from its call log.

use std::time::Duration;

use redial_core::{Event, Ns, StopReason, duration};

use crate::call_log::CallLog;
use crate::error::BoxError;

/// The result of a scripted call. Times count from its start.
#[derive(Debug)]
pub struct Played {
    pub(super) began: Ns,
    pub(super) call_log: CallLog,
    pub(super) sent: Vec<u64>,
    pub(super) tokens: Option<f64>,
    pub(super) unscripted: Option<u32>,
    pub(super) strategy_error: Option<BoxError>,
    pub(super) ended_nth: Option<usize>,
    pub(super) too_large: Option<Ns>,
}

/// How a scripted call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallEnd {
    /// The time of the end.
    pub at: Duration,
    /// The reason of the end.
    pub stop_reason: StopReason,
    /// The attempt whose outcome was returned, if there was one.
    pub attempt: Option<u32>,
}

impl Played {
    /// The start times of the attempts, in order.
    #[must_use]
    pub fn starts(&self) -> Vec<Duration> {
        self.each(|event| matches!(event, Event::AttemptStarted { .. }).then_some(()))
            .map(|(at, ())| at)
            .collect()
    }

    /// The attempts that were cancelled while they ran, with the times.
    #[must_use]
    pub fn cancels(&self) -> Vec<(u32, Duration)> {
        let cancelled = |event: &Event| match event {
            Event::AttemptCancelled { attempt } => Some(*attempt),
            _ => None,
        };
        self.each(cancelled).map(|(at, attempt)| (attempt, at)).collect()
    }

    /// The end of the call; `None` if it never ended.
    #[must_use]
    pub fn end(&self) -> Option<CallEnd> {
        let ended = |event: &Event| match event {
            Event::CallEnded { stop_reason, attempt } => Some((*stop_reason, *attempt)),
            _ => None,
        };
        self.each(ended).next().map(|(at, (stop_reason, attempt))| CallEnd {
            at,
            stop_reason,
            attempt,
        })
    }

    /// Why the call ended; `None` if it never ended.
    #[must_use]
    pub fn stop_reason(&self) -> Option<StopReason> {
        self.end().map(|end| end.stop_reason)
    }

    /// The time at which the application wrote a message above
    /// [`message_max`](super::Script::message_max), which ended the call. If no attempt was running, the
    /// stop reason is `Cancelled`.
    #[must_use]
    pub fn too_large(&self) -> Option<Duration> {
        self.too_large.map(|at| duration(at.saturating_sub(self.began)))
    }

    /// The number of each attempt as the policy counts: a transparent retry keeps the number of the attempt
    /// that it replaces.
    #[must_use]
    pub fn numbers(&self) -> Vec<u32> {
        let number = |event: &Event| match event {
            Event::AttemptStarted { number, .. } => Some(*number),
            _ => None,
        };
        self.each(number).map(|(_, number)| number).collect()
    }

    /// The remaining time until the deadline at the start of each attempt; `None` without a deadline.
    #[must_use]
    pub fn remaining(&self) -> Option<Vec<Duration>> {
        let deadline = |event: &Event| match event {
            Event::CallStarted { deadline, .. } => *deadline,
            _ => None,
        };
        let (_, deadline) = self.each(deadline).next()?;
        let deadline = duration(deadline.saturating_sub(self.began));
        Some(self.starts().iter().map(|start| deadline.saturating_sub(*start)).collect())
    }

    /// The number of messages that were sent to each attempt until its end.
    #[must_use]
    pub fn sent(&self) -> &[u64] {
        &self.sent
    }

    /// The tokens in the throttle at the end of the call; `None` without a throttle.
    #[must_use]
    pub const fn tokens(&self) -> Option<f64> {
        self.tokens
    }

    /// The first attempt that started although the script does not list it. The call is then cancelled.
    #[must_use]
    pub const fn unscripted(&self) -> Option<u32> {
        self.unscripted
    }

    /// The error with which a strategy failed the call.
    #[must_use]
    pub fn strategy_error(&self) -> Option<&(dyn std::error::Error + Send + Sync + 'static)> {
        self.strategy_error.as_deref()
    }

    /// The position of this call, from 0, in the order in which the calls of the play ended.
    #[must_use]
    pub const fn ended_nth(&self) -> Option<usize> {
        self.ended_nth
    }

    /// The start of the call, in nanoseconds from the start of the play.
    #[must_use]
    pub const fn began(&self) -> Ns {
        self.began
    }

    /// The call log; its times count from the start of the play.
    #[must_use]
    pub const fn call_log(&self) -> &CallLog {
        &self.call_log
    }

    /// The events that `select` accepts, with the time since the start of the call.
    fn each<T>(&self, select: impl Fn(&Event) -> Option<T>) -> impl Iterator<Item = (Duration, T)> {
        let began = self.began;
        self.call_log.events().iter().filter_map(move |(at, event)| {
            select(event).map(|found| (duration(at.saturating_sub(began)), found))
        })
    }
}
