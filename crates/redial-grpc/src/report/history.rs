//! Records the attempts of a running call, for reports and call logs.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redial::call_log::EventDetail;
use redial_core::{Event, Ns, StopReason, duration};
use redial_service_config::Code;

use super::{ATTEMPTS_REPORTED_MAX, AttemptReport, LOGGED_MESSAGE_MAX};
use crate::backends::UsedBackends;

/// The attempts of one call.
///
/// The first one is stored inline, so a call that succeeds immediately allocates nothing.
#[derive(Debug, Default)]
pub(crate) struct AttemptHistory {
    began: Ns,
    first: Option<AttemptReport>,
    later: Vec<AttemptReport>,
    omitted: u32,
    /// Status and message of the next outcome, set before its event is recorded.
    outcome: Option<(Code, Option<Box<str>>)>,
}

impl AttemptHistory {
    /// Sets status and message of the next outcome.
    pub(crate) fn outcome(&mut self, code: Code, message: Option<Box<str>>) {
        self.outcome = Some((code, message));
    }

    /// Records an event.
    pub(crate) fn record(&mut self, at: Ns, event: &Event, used: Option<&UsedBackends>) {
        match *event {
            Event::CallStarted { .. } => self.began = at,
            Event::AttemptStarted { attempt, number } => self.started(at, attempt, number),
            Event::Committed { attempt } => {
                self.attempt_mut(attempt, used);
            }
            Event::AttemptOutcome { attempt, .. } => {
                let (code, message) = self.outcome.take().unwrap_or((Code::Unknown, None));
                self.ended(at, attempt, Some(code), message, used);
            }
            Event::AttemptTimedOut { attempt } => {
                let code = Some(Code::DeadlineExceeded);
                let message = "the attempt timed out".into();
                self.ended(at, attempt, code, Some(message), used);
            }
            Event::AttemptCancelled { attempt } => {
                let waited = used.and_then(|used| used.wait_reason_of(attempt));
                self.ended(at, attempt, None, waited, used);
            }
            _ => {}
        }
    }

    /// The detail that a call log shows for a recorded event.
    pub(crate) fn detail(&self, event: &Event) -> EventDetail {
        let (attempt, ended) = match *event {
            Event::Committed { attempt } => (attempt, false),
            Event::AttemptOutcome { attempt, .. }
            | Event::AttemptTimedOut { attempt }
            | Event::AttemptCancelled { attempt } => (attempt, true),
            _ => return EventDetail::new(),
        };
        let mut all = self.first.iter().chain(&self.later);
        let Some(report) = all.find(|report| report.attempt == attempt) else {
            return EventDetail::new();
        };
        let detail = match report.backend() {
            Some(backend) => EventDetail::new().backend(backend),
            None => EventDetail::new(),
        };
        match (report.status, &report.message) {
            _ if !ended => detail,
            (Some(Code::Ok), _) | (None, None) => detail,
            (Some(code), Some(message)) => detail.error(format!("{code}: {message}")),
            (Some(code), None) => detail.error(code.name()),
            (None, Some(message)) => detail.error(message.clone()),
        }
    }

    fn started(&mut self, at: Ns, attempt: u32, number: u32) {
        let mut before = self.first.iter().chain(&self.later);
        let report = AttemptReport {
            attempt,
            number,
            is_transparent: before.any(|it| it.number == number),
            backend: None,
            started: duration(at.saturating_sub(self.began)),
            elapsed: Duration::ZERO,
            status: None,
            message: None,
        };
        if self.first.is_none() {
            self.first = Some(report);
            return;
        }
        if self.later.len() == ATTEMPTS_REPORTED_MAX - 1 {
            self.later.remove(0);
            self.omitted = self.omitted.saturating_add(1);
        }
        self.later.push(report);
    }

    /// The attempt, with the name of its backend filled in.
    fn attempt_mut(
        &mut self,
        attempt: u32,
        used: Option<&UsedBackends>,
    ) -> Option<&mut AttemptReport> {
        let mut all = self.first.iter_mut().chain(&mut self.later);
        let report = all.find(|report| report.attempt == attempt)?;
        if report.backend.is_none() {
            report.backend = used.and_then(|used| used.name_of(attempt));
        }
        Some(report)
    }

    fn ended(
        &mut self,
        at: Ns,
        attempt: u32,
        status: Option<Code>,
        message: Option<Box<str>>,
        used: Option<&UsedBackends>,
    ) {
        let since = duration(at.saturating_sub(self.began));
        // An attempt that timed out is cancelled afterwards; its end is recorded already.
        let report = self.attempt_mut(attempt, used).filter(|report| report.status.is_none());
        let Some(report) = report else { return };
        report.elapsed = since.saturating_sub(report.started);
        report.status = status;
        report.message = message;
    }

    /// The final status and message of a call. `code` is the status of the last outcome, whose attempt
    /// may be missing here.
    pub(crate) fn end(
        &self,
        stop_reason: StopReason,
        attempt: Option<u32>,
        code: Code,
    ) -> (Code, Option<&str>) {
        let Some(attempt) = attempt else {
            return (end_without_outcome(stop_reason), self.wait_reason());
        };
        let mut all = self.first.iter().chain(&self.later);
        match all.find(|report| report.attempt == attempt) {
            Some(report) => (report.status.unwrap_or(code), report.message()),
            None => (code, None),
        }
    }

    /// What the last attempt without an outcome was waiting for.
    pub(crate) fn wait_reason(&self) -> Option<&str> {
        let mut all = self.first.iter().chain(&self.later).rev();
        all.find(|report| report.status.is_none()).and_then(AttemptReport::message)
    }

    /// The attempts, and the number of omitted ones.
    pub(crate) fn take(&mut self) -> (Vec<AttemptReport>, u32) {
        let all = self.first.take().into_iter().chain(self.later.drain(..)).collect();
        (all, self.omitted)
    }

    /// Start time of the call.
    pub(crate) fn began(&self) -> Ns {
        self.began
    }
}

/// The status of a call that ended without an outcome.
pub(crate) fn end_without_outcome(stop_reason: StopReason) -> Code {
    if stop_reason == StopReason::Deadline { Code::DeadlineExceeded } else { Code::Cancelled }
}

/// Redacts and truncates messages and errors for logs.
#[derive(Clone, Default)]
pub(crate) struct MessageFilter(Option<Arc<Redact>>);

type Redact = dyn Fn(&str) -> String + Send + Sync;

impl MessageFilter {
    pub(crate) fn redacting(redact: impl Fn(&str) -> String + Send + Sync + 'static) -> Self {
        MessageFilter(Some(Arc::new(redact)))
    }

    /// The text as logs may show it; `None` if it is empty.
    pub(crate) fn apply(&self, text: &str) -> Option<Box<str>> {
        let text = match &self.0 {
            Some(redact) => Cow::Owned(redact(text)),
            None => Cow::Borrowed(text),
        };
        match text.len() {
            0 => None,
            1..=LOGGED_MESSAGE_MAX => Some(text.into()),
            _ => {
                let end = (0..=LOGGED_MESSAGE_MAX).rev().find(|end| text.is_char_boundary(*end));
                Some(format!("{}...", &text[..end.unwrap_or(0)]).into())
            }
        }
    }
}

impl fmt::Debug for MessageFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MessageFilter").field("redacts", &self.0.is_some()).finish()
    }
}

#[cfg(test)]
mod tests {
    use redial_core::Directive;

    use super::*;

    fn outcome(attempt: u32) -> Event {
        Event::AttemptOutcome { attempt, classification: Directive::Fail.into() }
    }

    fn began(history: &mut AttemptHistory) {
        history.record(1_000, &Event::CallStarted { deadline: None, idempotent: true }, None);
    }

    #[test]
    fn report_keeps_the_first_and_the_most_recent_attempts() {
        let last = ATTEMPTS_REPORTED_MAX as u32 + 2;
        let mut history = AttemptHistory::default();
        began(&mut history);
        for attempt in 1..=last {
            history.record(
                u64::from(attempt),
                &Event::AttemptStarted { attempt, number: attempt },
                None,
            );
            history.outcome(Code::Unavailable, Some("busy".into()));
            history.record(u64::from(attempt), &outcome(attempt), None);
            let at_limit = attempt as usize == ATTEMPTS_REPORTED_MAX;
            assert!(!at_limit || history.omitted == 0, "the limit itself fits");
        }
        let (all, omitted) = history.take();
        assert_eq!((all.len(), omitted), (ATTEMPTS_REPORTED_MAX, 2));
        assert_eq!((all[0].attempt(), all[1].attempt()), (1, 4));
        assert_eq!(all.last().map(AttemptReport::attempt), Some(last));
    }

    #[test]
    fn report_times_an_attempt_from_its_own_start() {
        let mut history = AttemptHistory::default();
        began(&mut history);
        history.record(1_000, &Event::AttemptStarted { attempt: 1, number: 1 }, None);
        history.record(3_000, &Event::AttemptStarted { attempt: 2, number: 2 }, None);
        history.outcome(Code::Aborted, None);
        history.record(7_000, &outcome(2), None);
        assert_eq!(history.detail(&outcome(2)).error.as_deref(), Some("ABORTED"));
        let cancelled = Event::AttemptCancelled { attempt: 1 };
        history.record(7_000, &cancelled, None);
        assert!(history.detail(&cancelled).is_empty(), "a cancelled attempt has no error");
        assert_eq!(
            history.end(StopReason::NotRetryable, Some(2), Code::Unknown),
            (Code::Aborted, None)
        );
        let left_out = history.end(StopReason::NotRetryable, Some(9), Code::NotFound);
        assert_eq!(left_out, (Code::NotFound, None));
        let late = history.end(StopReason::Deadline, None, Code::Aborted);
        assert_eq!(late, (Code::DeadlineExceeded, None));
        let (all, _) = history.take();
        assert_eq!(all[0].to_string(), "attempt 1: cancelled after 6.0µs");
        assert_eq!((all[1].started().as_nanos(), all[1].elapsed().as_nanos()), (2_000, 4_000));
        assert_eq!(all[1].to_string(), "attempt 2: ABORTED after 4.0µs");
    }

    #[test]
    fn report_messages_are_truncated_and_redacted() {
        let plain = MessageFilter::default();
        let longest = "x".repeat(LOGGED_MESSAGE_MAX);
        assert_eq!(plain.apply(&longest).as_deref(), Some(&*longest));
        let cut = plain.apply(&format!("{longest}y")).unwrap();
        assert_eq!(&*cut, format!("{longest}..."));
        // A two-byte character across the limit is dropped as a whole.
        let wide = format!("{}\u{e9}", &longest[1..]);
        let cut = plain.apply(&wide).unwrap();
        assert_eq!(&*cut, format!("{}...", &longest[1..]));
        assert_eq!(plain.apply(""), None);
        let redacting = MessageFilter::redacting(|text| text.replace("secret", "[redacted]"));
        assert_eq!(redacting.apply("a secret").as_deref(), Some("a [redacted]"));
    }
}
