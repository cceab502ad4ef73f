//! What a run keeps about its attempts: the last one, and more of them only if an option asks for
//! them, since a run can make attempts without end.

use std::collections::VecDeque;
use std::time::Duration;

use redial::call_log::EventDetail;
use redial::time::{Ns, duration};
use redial::{AttemptEnd, CallLog, Directive, Event};

use super::arguments::Arguments;
use super::attempt_end::Exit;

/// How many attempts `--json` reports: the last ones.
pub(super) const ATTEMPTS_MAX: usize = 10_000;
/// How many events `--log` keeps: the first ones, since a replay starts at the beginning.
pub(super) const EVENTS_MAX: usize = 200_000;

/// An attempt that was made.
#[derive(Clone, Debug)]
pub(super) struct Made {
    pub(super) attempt: u32,
    /// Since the start of the call.
    pub(super) started: Duration,
    pub(super) ended: Duration,
    pub(super) end: AttemptEnd,
    /// How its process ended, if it has ended by itself.
    pub(super) exit: Option<Exit>,
}

/// The attempts of a run.
#[derive(Debug)]
pub(super) struct Record {
    attempts_max: usize,
    events_max: usize,
    began: Option<Ns>,
    count: u64,
    attempts: VecDeque<Made>,
    /// The end of the last process, with the number of its attempt.
    exit: Option<(u32, Exit)>,
    call_log: CallLog,
    log_is_cut: bool,
}

impl Record {
    pub(super) fn new(arguments: &Arguments) -> Self {
        let attempts_max = if arguments.json { ATTEMPTS_MAX } else { 1 };
        let events_max = if arguments.log.is_some() { EVENTS_MAX } else { 0 };
        Record::with_limits(attempts_max, events_max)
    }

    fn with_limits(attempts_max: usize, events_max: usize) -> Self {
        Record {
            attempts_max,
            events_max,
            began: None,
            count: 0,
            attempts: VecDeque::new(),
            exit: None,
            call_log: CallLog::new(),
            log_is_cut: false,
        }
    }

    /// The process of an attempt has ended by itself.
    pub(super) fn process_ended(&mut self, attempt: u32, exit: Exit) {
        self.exit = Some((attempt, exit));
    }

    pub(super) fn event(&mut self, at: Ns, event: &Event) {
        self.log(at, event);
        let at = duration(at.saturating_sub(*self.began.get_or_insert(at)));
        let (attempt, end) = match *event {
            Event::AttemptStarted { attempt, .. } => {
                if self.attempts.len() == self.attempts_max {
                    self.attempts.pop_front();
                }
                let (started, ended) = (at, at);
                let end = AttemptEnd::Running;
                self.attempts.push_back(Made { attempt, started, ended, end, exit: None });
                self.count += 1;
                return;
            }
            Event::AttemptOutcome { attempt, classification } => {
                let end = match classification.directive {
                    Directive::Succeed => AttemptEnd::Succeeded,
                    Directive::Fail => AttemptEnd::Fatal,
                    Directive::Retry(failure) => AttemptEnd::Failed(failure),
                };
                (attempt, end)
            }
            Event::AttemptTimedOut { attempt } => (attempt, AttemptEnd::TimedOut),
            Event::AttemptCancelled { attempt } => (attempt, AttemptEnd::Cancelled),
            _ => return,
        };
        let exit = self.exit_of(attempt).cloned();
        // One runs at a time. The cancellation that follows a timeout does not change its end.
        let running = |made: &&mut Made| made.attempt == attempt && made.end == AttemptEnd::Running;
        if let Some(made) = self.attempts.back_mut().filter(running) {
            (made.ended, made.end, made.exit) = (at, end, exit);
        }
    }

    fn log(&mut self, at: Ns, event: &Event) {
        if self.call_log.events().len() >= self.events_max {
            self.log_is_cut = true;
            return;
        }
        self.call_log.push(at, *event);
        if let Some(text) = self.outcome_text(event) {
            self.call_log.annotate(EventDetail::new().error(text));
        }
    }

    fn exit_of(&self, attempt: u32) -> Option<&Exit> {
        self.exit.as_ref().filter(|(number, _)| *number == attempt).map(|(_, exit)| exit)
    }

    /// How the process of an outcome ended.
    pub(super) fn outcome_text(&self, event: &Event) -> Option<String> {
        let Event::AttemptOutcome { attempt, .. } = event else { return None };
        self.exit_of(*attempt).map(|exit| exit.end.to_string())
    }

    /// How many attempts were made.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// The attempts that are kept: the last ones.
    pub(super) fn attempts(&self) -> impl Iterator<Item = &Made> {
        self.attempts.iter()
    }

    pub(super) fn last(&self) -> Option<&Made> {
        self.attempts.back()
    }

    pub(super) fn call_log(&self) -> &CallLog {
        &self.call_log
    }

    /// Whether the call log has the first events only.
    pub(super) fn log_is_cut(&self) -> bool {
        self.log_is_cut && self.events_max > 0
    }
}

#[cfg(test)]
mod tests {
    use redial::Failure;

    use super::super::attempt_end::{End, Matched};
    use super::*;

    fn attempt(record: &mut Record, attempt: u32) {
        record.event(u64::from(attempt), &Event::AttemptStarted { attempt, number: attempt });
        let exit = Exit { end: End::Exited(7), matched: Matched::default(), last: None };
        record.process_ended(attempt, exit);
        let classification = Directive::Retry(Failure::server()).into();
        record.event(u64::from(attempt) + 1, &Event::AttemptOutcome { attempt, classification });
    }

    #[test]
    fn run_record_has_limits() {
        let mut record = Record::with_limits(3, 4);
        for number in 1..=3 {
            attempt(&mut record, number);
        }
        assert_eq!((record.count(), record.attempts().count()), (3, 3));
        assert_eq!((record.call_log().events().len(), record.log_is_cut()), (4, true));
        attempt(&mut record, 4);
        let kept: Vec<u32> = record.attempts().map(|made| made.attempt).collect();
        assert_eq!((record.count(), kept), (4, vec![2, 3, 4]));
        assert!(record.last().is_some_and(|made| made.exit.is_some()));
    }

    #[test]
    fn run_record_without_options_has_the_last_attempt() {
        let mut record = Record::with_limits(1, 0);
        for number in 1..=5 {
            attempt(&mut record, number);
        }
        assert_eq!((record.count(), record.attempts().count()), (5, 1));
        assert!(record.call_log().events().is_empty() && !record.log_is_cut());
    }
}
