//! The notes of a call: what happened, when, and why, in order.
//!
//! Errors, traces, statistics, timelines and scenario results are derived from them. They hold
//! every input of the machine, grants and draws included, so that a diary can be replayed.
//!
//! Rule: what keeps or prints all notes names each of them, so that the compiler shows what a new
//! one still needs. That is why the enum is not `non_exhaustive`.

use core::fmt;

use crate::time::{Ns, duration};
use crate::{Advice, Classification, Directive, Failure, Grant, HedgeDelay, Proof, StopReason};

/// One thing that happened in a call. Attempts are named by the order in which they started,
/// from 1; a transparent replacement starts one too.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Event {
    /// The call began.
    CallStarted {
        /// When it must end; `None`: no deadline.
        deadline: Option<Ns>,
        /// Whether it may run twice.
        idempotent: bool,
    },
    /// The call itself says when its hedges follow, in place of its policy; comes after `Began`.
    HedgeDelay(HedgeDelay),
    /// An attempt started.
    AttemptStarted {
        /// Its place in the order of starts.
        attempt: u32,
        /// Its number as the policy counts: a replacement keeps that of what it replaces.
        number: u32,
    },
    /// An attempt's outcome came.
    AttemptOutcome {
        /// The attempt.
        attempt: u32,
        /// How it was judged.
        classification: Classification,
    },
    /// An attempt took longer than its own timeout.
    AttemptTimedOut {
        /// The attempt.
        attempt: u32,
    },
    /// The machine cancelled a running attempt.
    AttemptCancelled {
        /// The attempt.
        attempt: u32,
    },
    /// A draw was used.
    RandomDraw(f64),
    /// The throttle was asked, and answered.
    ThrottleAnswered(Grant),
    /// The strategy was asked about this failure.
    StrategyAsked(Failure),
    /// The strategy answered.
    StrategyAnswered(Advice),
    /// A retry will follow after this long.
    RetryScheduled {
        /// How long until it may start; what the throttle still adds is not in it.
        after: Ns,
        /// What it answers.
        failure: Failure,
    },
    /// What the machine will repeat because it provably did not run.
    TransparentRetryScheduled {
        /// The attempt that is replaced.
        attempt: u32,
        /// After how long.
        after: Ns,
        /// The proof.
        proof: Proof,
    },
    /// The call belongs to this attempt from now on.
    Committed {
        /// The attempt.
        attempt: u32,
    },
    /// What was written can no longer be kept: the next attempt to start is the last.
    NotReplayable,
    /// The call ended.
    CallEnded {
        /// Why.
        stop_reason: StopReason,
        /// The attempt whose outcome is handed on, if there is one.
        attempt: Option<u32>,
    },
}

/// What people read of it, in one line. Spans are exact, so that notes that differ are seen to.
impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Event::CallStarted { deadline, idempotent } => {
                let kind = if idempotent { "idempotent" } else { "not idempotent" };
                write!(f, "call started ({kind})")?;
                deadline.map_or(Ok(()), |at| write!(f, ", deadline at {:?}", duration(at)))
            }
            Event::HedgeDelay(HedgeDelay::After(delay)) => {
                write!(f, "its hedges follow after {:?}", duration(delay))
            }
            Event::HedgeDelay(HedgeDelay::Never) => f.write_str("its hedges follow failures alone"),
            Event::AttemptStarted { attempt, number } if attempt == number => {
                write!(f, "attempt {attempt} started")
            }
            Event::AttemptStarted { attempt, number } => {
                write!(f, "attempt {attempt} started as number {number}")
            }
            Event::AttemptOutcome {
                attempt,
                classification: Classification { directive, proof, drains },
            } => {
                match directive {
                    Directive::Succeed => write!(f, "attempt {attempt} succeeded")?,
                    Directive::Fail if proof.is_some() => write!(f, "attempt {attempt} failed")?,
                    Directive::Fail => write!(f, "attempt {attempt} failed, not retryable")?,
                    Directive::Retry(failure) => write!(f, "attempt {attempt} failed: {failure}")?,
                }
                proof.map_or(Ok(()), |proof| write!(f, ", {proof}"))?;
                f.write_str(if drains { ", at the throttle's cost" } else { "" })
            }
            Event::AttemptTimedOut { attempt } => write!(f, "attempt {attempt} took too long"),
            Event::AttemptCancelled { attempt } => write!(f, "attempt {attempt} was cancelled"),
            Event::RandomDraw(u) => write!(f, "a draw was {u}"),
            Event::ThrottleAnswered(Grant::Now(_)) => f.write_str("the throttle agreed"),
            Event::ThrottleAnswered(Grant::After(debt, _)) => {
                write!(f, "the throttle agreed, but only in {:?}", duration(debt))
            }
            Event::ThrottleAnswered(Grant::Later) => f.write_str("the throttle will answer"),
            Event::ThrottleAnswered(Grant::Refused) => f.write_str("the throttle refused"),
            Event::StrategyAsked(failure) => write!(f, "the strategy was asked about {failure}"),
            Event::StrategyAnswered(Advice::None) => f.write_str("the strategy said nothing"),
            Event::StrategyAnswered(Advice::After(span)) => {
                write!(f, "the strategy said to retry in {:?}", duration(span))
            }
            Event::StrategyAnswered(Advice::Decline) => f.write_str("the strategy declined"),
            Event::RetryScheduled { after, failure } => {
                write!(f, "a retry follows in {:?} because of {failure}", duration(after))
            }
            Event::TransparentRetryScheduled { attempt, after, proof } => {
                write!(f, "attempt {attempt} is replaced in {:?}: {proof}", duration(after))
            }
            Event::Committed { attempt } => write!(f, "the call belongs to attempt {attempt}"),
            Event::NotReplayable => f.write_str("what was written can no longer be kept"),
            Event::CallEnded { stop_reason, attempt: Some(attempt) } => {
                write!(f, "the call ended with attempt {attempt}: {stop_reason}")
            }
            Event::CallEnded { stop_reason, attempt: None } => {
                write!(f, "the call ended: {stop_reason}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Reason, Stage, Withdrawal};
    use alloc::collections::BTreeSet;
    use alloc::string::ToString;
    use core::time::Duration;

    #[test]
    fn event_display_is_one_distinct_line_each() {
        let failure = Failure::client().at(Stage::Unsent).because(Reason::new("SOCKET_CLOSED"));
        let hinted = Failure::throttling().retry_after(Duration::from_micros(1500));
        let of = |directive, proof, drains| Classification { directive, proof, drains };
        let judged = |classification| Event::AttemptOutcome { attempt: 2, classification };
        let table = [
            (Event::CallStarted { deadline: None, idempotent: true }, "call started (idempotent)"),
            (
                Event::CallStarted { deadline: Some(5_000_000_000), idempotent: false },
                "call started (not idempotent), deadline at 5s",
            ),
            (
                Event::HedgeDelay(HedgeDelay::After(12_000_001)),
                "its hedges follow after 12.000001ms",
            ),
            (Event::HedgeDelay(HedgeDelay::Never), "its hedges follow failures alone"),
            (Event::AttemptStarted { attempt: 2, number: 2 }, "attempt 2 started"),
            (Event::AttemptStarted { attempt: 3, number: 2 }, "attempt 3 started as number 2"),
            (judged(Directive::Succeed.into()), "attempt 2 succeeded"),
            (
                judged(of(Directive::Fail, None, true)),
                "attempt 2 failed, not retryable, at the throttle's cost",
            ),
            (
                judged(of(Directive::Fail, Some(Proof::Unprocessed), false)),
                "attempt 2 failed, proven not to have been processed",
            ),
            (
                judged(of(Directive::Retry(failure), Some(Proof::Unsent), false)),
                "attempt 2 failed: a client failure (SOCKET_CLOSED), never sent, proven not to have \
                 been sent",
            ),
            (Event::AttemptTimedOut { attempt: 1 }, "attempt 1 took too long"),
            (Event::AttemptCancelled { attempt: 1 }, "attempt 1 was cancelled"),
            (Event::RandomDraw(0.25), "a draw was 0.25"),
            (Event::ThrottleAnswered(Grant::Now(Withdrawal(5))), "the throttle agreed"),
            (
                Event::ThrottleAnswered(Grant::After(7, Withdrawal(5))),
                "the throttle agreed, but only in 7ns",
            ),
            (Event::ThrottleAnswered(Grant::Later), "the throttle will answer"),
            (Event::ThrottleAnswered(Grant::Refused), "the throttle refused"),
            (
                Event::StrategyAsked(Failure::timeout()),
                "the strategy was asked about a timeout, in flight",
            ),
            (Event::StrategyAnswered(Advice::None), "the strategy said nothing"),
            (Event::StrategyAnswered(Advice::After(0)), "the strategy said to retry in 0ns"),
            (Event::StrategyAnswered(Advice::Decline), "the strategy declined"),
            (
                Event::RetryScheduled { after: 63_000_001, failure: hinted },
                "a retry follows in 63.000001ms because of throttling, with a hint to come back \
                 after 1.5ms",
            ),
            (
                Event::RetryScheduled { after: 0, failure: Failure::server().stop() },
                "a retry follows in 0ns because of a server failure, with a hint not to come back",
            ),
            (
                Event::TransparentRetryScheduled {
                    attempt: 1,
                    after: 0,
                    proof: Proof::Unprocessed,
                },
                "attempt 1 is replaced in 0ns: proven not to have been processed",
            ),
            (Event::Committed { attempt: 4 }, "the call belongs to attempt 4"),
            (Event::NotReplayable, "what was written can no longer be kept"),
            (
                Event::CallEnded { stop_reason: StopReason::AttemptsExhausted, attempt: Some(3) },
                "the call ended with attempt 3: no attempt left",
            ),
            (
                Event::CallEnded { stop_reason: StopReason::Cancelled, attempt: None },
                "the call ended: cancelled",
            ),
        ];
        let lines: BTreeSet<_> = table.iter().map(|(_, line)| line).collect();
        assert_eq!(lines.len(), table.len(), "each is told from the others");
        for (event, line) in table {
            assert_eq!(event.to_string(), line);
        }
    }
}
