//! The report of a call: attempts, elapsed time and stop reason.

#[cfg(feature = "serde")]
mod serialize;

use std::fmt;
use std::time::Duration;

use redial_core::{Directive, Event, Failure, Ns, StopReason, duration};

pub use crate::policy_name::PolicyName;

/// The report of a call that has ended. It prints as in the text of an [`Error`](crate::Error), without the
/// operation's error, so it can be the context of that error (with `anyhow`, `error.context(report)`).
///
/// With the feature `serde` it can be serialized, for a log or a test:
#[cfg_attr(
    feature = "serde",
    doc = "
```
use redial::{Policy, ms};

static FETCH: Policy = Policy::immediate().attempts(2).name(\"fetch\").build();

let call = FETCH.retry(|| Err::<(), _>(\"busy\")).when(|_| true).record_errors().history();
let error = call.call().unwrap_err();
let json = serde_json::to_value(error.report())?;
assert_eq!((&json[\"policy\"], &json[\"stop_reason\"]), (&\"fetch\".into(), &\"attempts\".into()));
assert_eq!(json[\"error\"], \"busy\");
assert_eq!(json[\"history\"][1][\"error\"], \"busy\");
# Ok::<(), serde_json::Error>(())
```
"
)]
///
/// | field | value |
/// | --- | --- |
/// | `policy`, `attempts`, `attempts_max`, `elapsed_exact`, `tokens`, `error` | as below; `attempts_max`, `tokens` and `error` only where they have a value |
/// | `elapsed_ms` | milliseconds |
/// | `stop_reason` | [`StopReason::name`] |
/// | `history` | only where it was recorded: `attempt`, `started_ms`, `ended_ms`, `end` (`succeeded`, `fatal`, `failed`, `timed-out`, `cancelled`, `running`), `failure` (as in a [`CallLog`](crate::CallLog)) and `error` |
/// | `history_left_out` | only where attempts were left out: [`Report::history_left_out`] |
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Report {
    /// The name of the policy: that of [`Builder::name`](crate::Builder::name), or the place in the source
    /// where the policy was built, or where [`retry`](crate::retry()) was called.
    pub policy: PolicyName,
    /// The number of attempts that were started.
    pub attempts: u32,
    /// The policy's maximum number of attempts; `None`: unlimited. With
    /// [`Builder::reset_after`](crate::Builder::reset_after) it bounds the attempts since the last reset, so
    /// `attempts` can be larger.
    pub attempts_max: Option<u32>,
    /// The duration of the call, or a lower bound of it: see `elapsed_exact`.
    pub elapsed: Duration,
    /// Whether `elapsed` counts from the first poll of the call. Otherwise it counts from the first time
    /// that the call was pending or failed, because the fast path does not read the clock: the call took
    /// at least that long. A call with a deadline, a call log, a report or another option knows its start,
    /// and so does a blocking call.
    pub elapsed_exact: bool,
    /// Why the call ended.
    pub stop_reason: StopReason,
    /// The tokens left in the throttle, if the throttle ended the call.
    pub tokens: Option<f64>,
    /// The text of the last error, if the call failed and
    /// [`Retry::record_errors`](crate::Retry::record_errors) was set.
    pub error: Option<Box<str>>,
    /// The attempts in the order of starts, if [`Retry::history`](crate::Retry::history) was set. Of a call
    /// with more than [`Report::HISTORY_MAX`] it has the first half of that number, and the latest attempts.
    pub history: Vec<AttemptRecord>,
}

/// One attempt of a call.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct AttemptRecord {
    /// The number of the attempt in the order of starts, from 1.
    pub attempt: u32,
    /// When the attempt started, from the start of the call.
    pub started: Duration,
    /// When the attempt ended, from the start of the call.
    pub ended: Duration,
    /// How the attempt ended.
    pub end: AttemptEnd,
    /// The text of its error, if [`Retry::record_errors`](crate::Retry::record_errors) was set.
    pub error: Option<Box<str>>,
}

/// How an attempt ended. It prints in the words of a call log:
///
/// ```
/// use redial::report::AttemptEnd;
/// use redial::{Failure, Reason};
///
/// let busy = Failure::server().because(Reason::new("503"));
/// assert_eq!(AttemptEnd::Failed(busy).to_string(), "failed: a server failure (503)");
/// assert_eq!(AttemptEnd::TimedOut.to_string(), "timed out");
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum AttemptEnd {
    /// With a success.
    Succeeded,
    /// With a failure that is not retryable.
    Fatal,
    /// With a retryable failure.
    Failed(Failure),
    /// Cancelled by the attempt timeout.
    TimedOut,
    /// Cancelled because another attempt won or the call ended.
    Cancelled,
    /// Still running when the report was made.
    Running,
}

impl fmt::Display for AttemptEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AttemptEnd::Succeeded => f.write_str("succeeded"),
            AttemptEnd::Fatal => f.write_str("failed, not retryable"),
            AttemptEnd::Failed(failure) => write!(f, "failed: {failure}"),
            AttemptEnd::TimedOut => f.write_str("timed out"),
            AttemptEnd::Cancelled => f.write_str("was cancelled"),
            AttemptEnd::Running => f.write_str("is still running"),
        }
    }
}

impl Report {
    /// The most attempts in [`history`](Report::history), so that a call that goes on for days does not grow.
    pub const HISTORY_MAX: usize = 256;

    /// How many attempts the history leaves out, between the first and the latest ones.
    ///
    /// ```
    /// use redial::{Policy, Report, Throttle};
    ///
    /// static AGAIN: Policy = Policy::immediate().attempts(300).throttle(Throttle::none()).build();
    ///
    /// let error = AGAIN.retry(|| Err::<(), _>("busy")).when(|_| true).history().call().unwrap_err();
    /// let report = error.report();
    /// assert_eq!((report.history.len(), report.history_left_out()), (Report::HISTORY_MAX, 44));
    /// let around: Vec<_> = report.history[127..129].iter().map(|record| record.attempt).collect();
    /// assert_eq!(around, [128, 173]);
    /// ```
    #[must_use]
    pub fn history_left_out(&self) -> usize {
        self.history
            .last()
            .map_or(0, |last| (last.attempt as usize).saturating_sub(self.history.len()))
    }

    /// The report of a call that ended before its first attempt, for example because the service was not
    /// ready and never will be.
    ///
    /// ```
    /// use redial::{Policy, Report, StopReason, ms};
    ///
    /// static FETCH: Policy = Policy::exponential(ms(100)).build();
    /// let report = Report::not_started(FETCH.name(), StopReason::NotRetryable);
    /// assert_eq!((report.attempts, report.stop_reason), (0, StopReason::NotRetryable));
    /// ```
    #[must_use]
    pub const fn not_started(policy: PolicyName, stop_reason: StopReason) -> Self {
        Report {
            policy,
            attempts: 0,
            attempts_max: None,
            elapsed: Duration::ZERO,
            elapsed_exact: true,
            stop_reason,
            tokens: None,
            error: None,
            history: Vec::new(),
        }
    }
}

/// What an [`Error`](crate::Error) prints after the error of the operation: `3 attempts in 1.2 s; gave up: no
/// attempt left`. A call that was stopped by its throttle has more (decision S10).
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { attempts, attempts_max, elapsed, elapsed_exact, stop_reason, tokens, .. } =
            self;
        let plural = if *attempts == 1 { "" } else { "s" };
        let bound = if *elapsed_exact { "" } else { "at least " };
        write!(f, "{attempts} attempt{plural} in {bound}{}; ", HumanDuration(*elapsed))?;
        match stop_reason {
            StopReason::NotRetryable | StopReason::Succeeded | StopReason::Cancelled => {
                return write!(f, "{stop_reason}");
            }
            _ => write!(f, "gave up: {stop_reason}")?,
        }
        match (stop_reason, tokens, attempts_max) {
            // After a reset, the attempts before it count on, and the maximum begins anew.
            (StopReason::Throttled, Some(tokens), Some(max)) if attempts <= max => {
                write!(f, ", attempt {attempts} of {max}, {tokens:.1} tokens left")
            }
            (StopReason::Throttled, Some(tokens), _) => write!(f, ", {tokens:.1} tokens left"),
            _ => Ok(()),
        }
    }
}

/// How many of the first attempts a history keeps.
const HISTORY_FIRST: usize = Report::HISTORY_MAX / 2;

/// Collects the attempts of a call from its events.
pub(crate) struct History {
    start: Ns,
    /// The first attempts, and then the latest ones, each at the index of its number: a new one takes the
    /// place of the oldest.
    records: Vec<AttemptRecord>,
}

/// Where the record of an attempt is. Attempts are numbered in the order of their starts.
const fn index(attempt: u32) -> usize {
    let index = (attempt as usize).saturating_sub(1);
    if index < Report::HISTORY_MAX {
        return index;
    }
    HISTORY_FIRST + (index - HISTORY_FIRST) % (Report::HISTORY_MAX - HISTORY_FIRST)
}

impl History {
    pub(crate) const fn new(start: Ns) -> Self {
        History { start, records: Vec::new() }
    }

    /// The records in the order of starts.
    pub(crate) fn into_records(mut self) -> Vec<AttemptRecord> {
        if self.records.len() == Report::HISTORY_MAX {
            self.records[HISTORY_FIRST..].sort_unstable_by_key(|record| record.attempt);
        }
        self.records
    }

    /// Records an event; `error` is the text of the last error.
    pub(crate) fn record(&mut self, at: Ns, event: &Event, error: Option<&str>) {
        let since = duration(at.saturating_sub(self.start));
        let (attempt, end) = match *event {
            Event::AttemptStarted { attempt, .. } => {
                let end = AttemptEnd::Running;
                let error = None;
                let record = AttemptRecord { attempt, started: since, ended: since, end, error };
                match self.records.get_mut(index(attempt)) {
                    Some(oldest) => *oldest = record,
                    None => self.records.push(record),
                }
                return;
            }
            Event::AttemptOutcome { attempt, classification } => match classification.directive {
                Directive::Succeed => (attempt, AttemptEnd::Succeeded),
                Directive::Fail => (attempt, AttemptEnd::Fatal),
                Directive::Retry(failure) => (attempt, AttemptEnd::Failed(failure)),
            },
            Event::AttemptTimedOut { attempt } => (attempt, AttemptEnd::TimedOut),
            Event::AttemptCancelled { attempt } => (attempt, AttemptEnd::Cancelled),
            _ => return,
        };
        let record = self.records.get_mut(index(attempt));
        if let Some(record) = record
            && record.attempt == attempt
            && record.end == AttemptEnd::Running
        {
            (record.ended, record.end) = (since, end);
            if let Event::AttemptOutcome { .. } = event {
                record.error = error.map(Box::from);
            }
        }
    }
}

/// A duration for people: `1.2 s`, `250 ms`, `0 ms`.
pub(crate) struct HumanDuration(pub(crate) Duration);

impl fmt::Display for HumanDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let secs = self.0.as_secs_f64();
        match self.0.as_millis() {
            0 if self.0.as_micros() > 0 => write!(f, "{} µs", self.0.as_micros()),
            0 => f.write_str("0 ms"),
            millis @ 1..1000 => write!(f, "{millis} ms"),
            1000..60_000 => write!(f, "{secs:.1} s"),
            millis => write!(f, "{} min {} s", millis / 60_000, millis / 1000 % 60),
        }
    }
}

#[cfg(test)]
mod tests {
    //! Goal: the end of an attempt reads like a call log after "attempt 1", and a report like the text of an
    //! error.

    use super::*;

    #[test]
    fn report_prints_how_each_attempt_ended() {
        let ends = [
            (AttemptEnd::Succeeded, "succeeded"),
            (AttemptEnd::Fatal, "failed, not retryable"),
            (AttemptEnd::Failed(Failure::throttling()), "failed: throttling"),
            (AttemptEnd::TimedOut, "timed out"),
            (AttemptEnd::Cancelled, "was cancelled"),
            (AttemptEnd::Running, "is still running"),
        ];
        for (end, text) in ends {
            assert_eq!(end.to_string(), text);
        }
    }

    #[test]
    fn report_history_ignores_the_end_of_an_attempt_left_out() {
        let mut history = History::new(0);
        let last = u32::try_from(Report::HISTORY_MAX).unwrap() + 128;
        for attempt in 1..=last {
            history.record(0, &Event::AttemptStarted { attempt, number: attempt }, None);
        }
        // Hedges that still ran: 129 was left out for 257, and the latest one was not.
        for attempt in [0, 1, 129, last] {
            history.record(5, &Event::AttemptCancelled { attempt }, None);
        }
        let records = history.into_records();
        let ended = records.iter().filter(|record| record.end == AttemptEnd::Cancelled);
        assert!(ended.map(|record| record.attempt).eq([1, last]));
        assert_eq!((records.len(), records.last().unwrap().attempt), (Report::HISTORY_MAX, last));
    }

    #[test]
    fn report_prints_attempts_time_and_stop_reason() {
        let mut report =
            Report::not_started(PolicyName::new("fetch"), StopReason::AttemptsExhausted);
        (report.attempts, report.elapsed) = (3, Duration::from_millis(1200));
        assert_eq!(report.to_string(), "3 attempts in 1.2 s; gave up: no attempt left");
        (report.attempts, report.elapsed_exact) = (1, false);
        report.stop_reason = StopReason::Succeeded;
        assert_eq!(report.to_string(), "1 attempt in at least 1.2 s; succeeded");
        (report.stop_reason, report.tokens) = (StopReason::Throttled, Some(0.5));
        assert!(report.to_string().ends_with("is spent, 0.5 tokens left"), "{report}");
        report.attempts_max = Some(4);
        assert!(report.to_string().ends_with(", attempt 1 of 4, 0.5 tokens left"), "{report}");
        report.attempts = 5;
        assert!(report.to_string().ends_with("is spent, 0.5 tokens left"), "{report}");
    }
}
