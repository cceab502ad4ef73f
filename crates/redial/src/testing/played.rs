//! What became of a scripted call; all of it is read from its diary.

use std::time::Duration;

use redial_core::{Event, Ns, StopReason, duration};

use crate::call_log::CallLog;
use crate::error::BoxError;

/// What became of a scripted call. Times count from its start.
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
pub struct Ended {
    /// When.
    pub at: Duration,
    /// Why.
    pub stop_reason: StopReason,
    /// The attempt whose outcome was handed on, if there was one.
    pub attempt: Option<u32>,
}

impl Played {
    /// When attempts started, in order.
    #[must_use]
    pub fn starts(&self) -> Vec<Duration> {
        self.each(|event| matches!(event, Event::AttemptStarted { .. }).then_some(()))
            .map(|(at, ())| at)
            .collect()
    }

    /// Which attempts were cancelled while they ran, and when.
    #[must_use]
    pub fn cancels(&self) -> Vec<(u32, Duration)> {
        let cancelled = |event: &Event| match event {
            Event::AttemptCancelled { attempt } => Some(*attempt),
            _ => None,
        };
        self.each(cancelled).map(|(at, attempt)| (attempt, at)).collect()
    }

    /// How the call ended; `None` if it never did.
    #[must_use]
    pub fn end(&self) -> Option<Ended> {
        let ended = |event: &Event| match event {
            Event::CallEnded { stop_reason, attempt } => Some((*stop_reason, *attempt)),
            _ => None,
        };
        self.each(ended).next().map(|(at, (stop_reason, attempt))| Ended {
            at,
            stop_reason,
            attempt,
        })
    }

    /// Why the call ended; `None` if it never did.
    #[must_use]
    pub fn stop_reason(&self) -> Option<StopReason> {
        self.end().map(|end| end.stop_reason)
    }

    /// When the application wrote a message that is larger than
    /// [`message_max`](super::Script::message_max), which ended the call. If no attempt ran then,
    /// nothing failed but the application: its diary says "cancelled".
    #[must_use]
    pub fn too_large(&self) -> Option<Duration> {
        self.too_large.map(|at| duration(at.saturating_sub(self.began)))
    }

    /// The number of each attempt as the policy counts: a replacement keeps that of what it
    /// replaces.
    #[must_use]
    pub fn numbers(&self) -> Vec<u32> {
        let number = |event: &Event| match event {
            Event::AttemptStarted { number, .. } => Some(*number),
            _ => None,
        };
        self.each(number).map(|(_, number)| number).collect()
    }

    /// What remained of the deadline when each attempt started; `None` without a deadline.
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

    /// How many of the call's messages were written to each attempt by its end.
    #[must_use]
    pub fn sent(&self) -> &[u64] {
        &self.sent
    }

    /// What its throttle held when the call ended; `None` without a throttle.
    #[must_use]
    pub const fn tokens(&self) -> Option<f64> {
        self.tokens
    }

    /// The first attempt that started though the script has nothing for it; the call was cancelled
    /// then.
    #[must_use]
    pub const fn unscripted(&self) -> Option<u32> {
        self.unscripted
    }

    /// What a strategy failed the call with, if it did.
    #[must_use]
    pub fn strategy_error(&self) -> Option<&(dyn std::error::Error + Send + Sync + 'static)> {
        self.strategy_error.as_deref()
    }

    /// Its place, from 0, in the order in which the calls of the play ended.
    #[must_use]
    pub const fn ended_nth(&self) -> Option<usize> {
        self.ended_nth
    }

    /// When the call began, in nanoseconds of the play.
    #[must_use]
    pub const fn began(&self) -> Ns {
        self.began
    }

    /// Everything that happened, in nanoseconds of the play.
    #[must_use]
    pub const fn call_log(&self) -> &CallLog {
        &self.call_log
    }

    /// What `select` finds in the notes, with the time since the call began.
    fn each<T>(&self, select: impl Fn(&Event) -> Option<T>) -> impl Iterator<Item = (Duration, T)> {
        let began = self.began;
        self.call_log.events().iter().filter_map(move |(at, event)| {
            select(event).map(|found| (duration(at.saturating_sub(began)), found))
        })
    }
}
