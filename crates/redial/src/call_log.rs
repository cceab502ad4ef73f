//! The call log: every event of a call in order. It can be printed, stored as JSON lines, and replayed
//! to check that the same inputs lead to the same decisions.
//!
//! # Format
//!
//! With the feature `serde`, a call log is stored as JSON lines: one object with the version and, where it is
//! known, the name of the policy; then one object per event.
//!
//! ```text
//! {"redial_call_log":2,"policy":"fetch"}
//! {"at":0,"event":"call-started","idempotent":true}
//! {"at":0,"event":"attempt-started","attempt":1,"number":1}
//! {"at":3000000,"event":"attempt-outcome","attempt":1,"directive":"succeed"}
//! {"at":3000000,"event":"call-ended","stop_reason":"succeeded","attempt":1}
//! ```
//!
//! # Compatibility
//!
//! - A release writes the newest version of the format, which is 2, and reads every version that an
//!   earlier release wrote. Version 1 (`{"redial_diary":1}`) and version 2 are read by all releases before
//!   2.0; after that, a version is dropped only in a new major release.
//! - Within a version, the head, the names of the events, their fields and their values never change
//!   their meaning, and none of them is removed.
//! - Once a release has written a version, a new event, field or value means a new version, so an old
//!   reader fails on the first line rather than in the middle of a file. (Before the first
//!   release, version 2 got the stop reasons `hint` and `attempt-timeout` and the kind `not-ready`.)
//! - Times are whole nanoseconds. `at` counts from the start of the driver's clock, which differs from
//!   process to process. It never decreases: a line with an earlier time than the one above it is an error.
//! - An unknown event or field is an error with its line number. A call log is evidence: a reader that
//!   skipped a line could replay another call than the one that happened.

#[cfg(feature = "serde")]
pub(crate) mod event_json;
#[cfg(feature = "serde")]
mod json_lines;
mod replay;
#[cfg(feature = "serde")]
mod version_1;

use std::collections::BTreeMap;
use std::fmt;

use redial_core::{Event, Ns};

pub use crate::event_context::EventContext;

#[cfg(feature = "serde")]
pub use json_lines::CallLogError;
pub use replay::ReplayMismatch;

/// The events of a call in order, with their times.
///
/// Attach one with [`Retry::call_log`](crate::Retry::call_log). With the feature `serde` it can be
/// stored: `CallLog::to_json_lines`.
///
/// ```
/// use redial::{CallLog, Event, Policy, StopReason, ms};
///
/// static TWICE: Policy = Policy::constant(ms(10)).attempts(2).build();
///
/// let mut call_log = CallLog::new();
/// let result = TWICE.retry(|| Err::<(), _>("busy")).when(|_| true).call_log(&mut call_log).call();
/// assert_eq!(result.unwrap_err().stop_reason(), StopReason::AttemptsExhausted);
/// assert!(matches!(call_log.events().last(), Some((_, Event::CallEnded { stop_reason: StopReason::AttemptsExhausted, .. }))));
/// // The same inputs lead to the same decisions.
/// call_log.replay(&TWICE).expect("the same decisions");
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CallLog {
    policy: Option<Box<str>>,
    events: Vec<(Ns, Event)>,
    /// By the index of their event.
    details: BTreeMap<usize, EventDetail>,
}

/// Details of an event that the state machine does not know: the error and the backend of an attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EventDetail {
    /// The error of an attempt, as text.
    pub error: Option<Box<str>>,
    /// The backend of an attempt.
    pub backend: Option<Box<str>>,
}

impl EventDetail {
    /// No details.
    #[must_use]
    pub const fn new() -> Self {
        EventDetail { error: None, backend: None }
    }

    /// Sets the error of an attempt.
    #[must_use]
    pub fn error(mut self, text: impl Into<Box<str>>) -> Self {
        self.error = Some(text.into());
        self
    }

    /// Sets the backend of an attempt.
    #[must_use]
    pub fn backend(mut self, name: impl Into<Box<str>>) -> Self {
        self.backend = Some(name.into());
        self
    }

    /// Whether there are no details.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.error.is_none() && self.backend.is_none()
    }
}

impl fmt::Display for EventDetail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(error) = &self.error {
            write!(f, ": {error}")?;
        }
        self.backend.as_ref().map_or(Ok(()), |backend| write!(f, " (backend {backend})"))
    }
}

impl CallLog {
    /// An empty call log.
    #[must_use]
    pub const fn new() -> Self {
        CallLog { policy: None, events: Vec::new(), details: BTreeMap::new() }
    }

    /// The name of the policy of the call, or the place in the source where it was built; `None` for a log that
    /// was not recorded by a call of this crate.
    ///
    /// ```
    /// use redial::{CallLog, Policy, ms};
    ///
    /// static FETCH: Policy = Policy::constant(ms(10)).name("fetch").build();
    ///
    /// let mut call_log = CallLog::new();
    /// let value = FETCH.retry(|| Ok::<_, ()>(7)).when(|_| true).call_log(&mut call_log).call();
    /// assert_eq!((value.ok(), call_log.policy()), (Some(7), Some("fetch")));
    /// assert!(call_log.to_string().contains("call started (idempotent), policy fetch\n"));
    /// ```
    #[must_use]
    pub fn policy(&self) -> Option<&str> {
        self.policy.as_deref()
    }

    /// The events, each with its time.
    #[must_use]
    pub fn events(&self) -> &[(Ns, Event)] {
        &self.events
    }

    /// Adds an event.
    pub fn push(&mut self, at: Ns, event: Event) {
        self.events.push((at, event));
    }

    /// Adds an event of a call, with the error of an attempt if its text is known.
    pub(crate) fn record(&mut self, context: &EventContext<'_>, event: Event) {
        if self.policy.is_none() {
            self.policy = Some(context.policy.to_string().into());
        }
        self.push(context.at, event);
        if let (Event::AttemptOutcome { .. }, Some(error)) = (event, context.error) {
            self.annotate(EventDetail::new().error(error));
        }
    }

    /// Adds a detail to the last event. An empty detail is ignored, and so is one without an event.
    pub fn annotate(&mut self, detail: EventDetail) {
        if let Some(last) = self.events.len().checked_sub(1)
            && !detail.is_empty()
        {
            self.details.insert(last, detail);
        }
    }

    /// The detail of the event at this index of [`CallLog::events`].
    #[must_use]
    pub fn detail(&self, index: usize) -> Option<&EventDetail> {
        self.details.get(&index)
    }
}

impl FromIterator<(Ns, Event)> for CallLog {
    fn from_iter<I: IntoIterator<Item = (Ns, Event)>>(events: I) -> Self {
        CallLog { events: events.into_iter().collect(), ..CallLog::new() }
    }
}

/// One line per event, after the milliseconds since the start of the call. Times are rounded down to
/// the microsecond; a deadline counts from the start too.
///
/// ```
/// use redial::{CallLog, Policy, ms};
///
/// static TWICE: Policy =
///     Policy::constant(ms(10)).attempts(2).deadline(ms(500)).name("twice").build();
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() {
/// let mut call_log = CallLog::new();
/// let busy = || async { Err::<(), _>("busy") };
/// TWICE.retry(busy).when(|_| true).call_log(&mut call_log).await.unwrap_err();
/// let text = call_log.to_string();
/// let lines: Vec<_> = text.lines().map(str::trim_start).collect();
/// assert_eq!(lines, [
///     "0.000 ms  call started (idempotent), deadline at 500ms, policy twice",
///     "0.000 ms  attempt 1 started",
///     "0.000 ms  attempt 1 failed: a server failure",
///     "0.000 ms  throttle allowed another attempt",
///     "0.000 ms  retry scheduled in 10ms after a server failure",
///     "10.000 ms  attempt 2 started",
///     "10.000 ms  attempt 2 failed: a server failure",
///     "10.000 ms  call ended with attempt 2: no attempt left",
/// ]);
/// # }
/// ```
/// An event with its deadline from the start of the call, for people: the origin of a driver's clock is
/// arbitrary.
fn from_start(event: Event, started_at: Ns) -> Event {
    match event {
        Event::CallStarted { deadline: Some(deadline), idempotent } => {
            let deadline = Some(deadline.saturating_sub(started_at));
            Event::CallStarted { deadline, idempotent }
        }
        event => event,
    }
}

impl fmt::Display for CallLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let started_at = self.events.first().map_or(0, |(at, _)| *at);
        for (index, (at, event)) in self.events.iter().enumerate() {
            let line_end = if index > 0 { "\n" } else { "" };
            let us = at.saturating_sub(started_at) / 1_000;
            write!(f, "{line_end}{:>6}.{:03} ms  ", us / 1_000, us % 1_000)?;
            write!(f, "{}", from_start(*event, started_at))?;
            if let (Event::CallStarted { .. }, Some(policy)) = (event, &self.policy) {
                write!(f, ", policy {policy}")?;
            }
            if let Some(detail) = self.detail(index) {
                write!(f, "{detail}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redial_core::StopReason;

    #[test]
    fn call_log_detail_belongs_to_the_last_event() {
        let mut call_log = CallLog::new();
        call_log.annotate(EventDetail::new().error("lost"));
        call_log.push(0, Event::NotReplayable);
        call_log.annotate(EventDetail::new());
        assert_eq!(call_log.detail(0), None, "an empty one is left out");
        call_log.push(1_000, Event::AttemptCancelled { attempt: 1 });
        call_log.annotate(EventDetail::new().error("busy").backend("10.0.0.1:1"));
        assert_eq!(call_log.detail(1).and_then(|it| it.error.as_deref()), Some("busy"));
        let text = call_log.to_string();
        assert!(text.ends_with("attempt 1 was cancelled: busy (backend 10.0.0.1:1)"), "{text}");
    }

    #[test]
    fn call_log_display_counts_from_the_call_start() {
        let ended = Event::CallEnded { stop_reason: StopReason::Deadline, attempt: None };
        let call_log: CallLog = [
            (7_000_000_000, Event::CallStarted { deadline: Some(9_000_000_000), idempotent: true }),
            (7_000_001_999, Event::AttemptStarted { attempt: 1, number: 1 }),
            (9_000_000_000, ended),
        ]
        .into_iter()
        .collect();
        assert_eq!(
            call_log.to_string(),
            "     0.000 ms  call started (idempotent), deadline at 2s\n     \
             0.001 ms  attempt 1 started\n  \
             2000.000 ms  call ended: no time left before the deadline"
        );
        assert_eq!(CallLog::new().to_string(), "");
    }
}
