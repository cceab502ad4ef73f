//! The notes of a call: what happened, when, and why, in order.
//!
//! Errors, traces, statistics, timelines and scenario results are derived from them. They hold
//! every input of the machine, grants and draws included, so that a diary can be replayed.
//!
//! Rule: what keeps or prints all notes names each of them, so that the compiler shows what a new
//! one still needs. That is why the enum is not `non_exhaustive`.

use core::fmt;

use crate::time::{Ns, duration};
use crate::{Advice, Directive, Failure, Grant, HedgeDelay, Judgement, Proof, Why};

/// One thing that happened in a call. Attempts are named by the order in which they started,
/// from 1; a transparent replacement starts one too.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Note {
    /// The call began.
    Began {
        /// When it must end; `None`: no deadline.
        deadline: Option<Ns>,
        /// Whether it may run twice.
        idempotent: bool,
    },
    /// The call itself says when its hedges follow, in place of its policy; comes after `Began`.
    Hedging(HedgeDelay),
    /// An attempt started.
    Started {
        /// Its place in the order of starts.
        attempt: u32,
        /// Its number as the policy counts: a replacement keeps that of what it replaces.
        number: u32,
    },
    /// An attempt's outcome came.
    Outcome {
        /// The attempt.
        attempt: u32,
        /// How it was judged.
        judgement: Judgement,
    },
    /// An attempt took longer than its own timeout.
    TimedOut {
        /// The attempt.
        attempt: u32,
    },
    /// The machine cancelled a running attempt.
    Cancelled {
        /// The attempt.
        attempt: u32,
    },
    /// A draw was used.
    Drew(f64),
    /// The throttle was asked, and answered.
    Granted(Grant),
    /// The strategy was asked about this failure.
    Asked(Failure),
    /// The strategy answered.
    Answered(Advice),
    /// A retry will follow after this long.
    Retrying {
        /// How long until it may start; what the throttle still adds is not in it.
        after: Ns,
        /// What it answers.
        failure: Failure,
    },
    /// What the machine will repeat because it provably did not run.
    Replacing {
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
    Sealed,
    /// The call ended.
    Ended {
        /// Why.
        why: Why,
        /// The attempt whose outcome is handed on, if there is one.
        attempt: Option<u32>,
    },
}

/// What people read of it, in one line. Spans are exact, so that notes that differ are seen to.
impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Note::Began { deadline, idempotent } => {
                let kind = if idempotent { "idempotent" } else { "not idempotent" };
                write!(f, "call started ({kind})")?;
                deadline.map_or(Ok(()), |at| write!(f, ", deadline at {:?}", duration(at)))
            }
            Note::Hedging(HedgeDelay::After(delay)) => {
                write!(f, "its hedges follow after {:?}", duration(delay))
            }
            Note::Hedging(HedgeDelay::Never) => f.write_str("its hedges follow failures alone"),
            Note::Started { attempt, number } if attempt == number => {
                write!(f, "attempt {attempt} started")
            }
            Note::Started { attempt, number } => {
                write!(f, "attempt {attempt} started as number {number}")
            }
            Note::Outcome { attempt, judgement: Judgement { directive, proof, drains } } => {
                match directive {
                    Directive::Succeed => write!(f, "attempt {attempt} succeeded")?,
                    Directive::Fail if proof.is_some() => write!(f, "attempt {attempt} failed")?,
                    Directive::Fail => write!(f, "attempt {attempt} failed, not retryable")?,
                    Directive::Retry(failure) => write!(f, "attempt {attempt} failed: {failure}")?,
                }
                proof.map_or(Ok(()), |proof| write!(f, ", {proof}"))?;
                f.write_str(if drains { ", at the throttle's cost" } else { "" })
            }
            Note::TimedOut { attempt } => write!(f, "attempt {attempt} took too long"),
            Note::Cancelled { attempt } => write!(f, "attempt {attempt} was cancelled"),
            Note::Drew(u) => write!(f, "a draw was {u}"),
            Note::Granted(Grant::Now(_)) => f.write_str("the throttle agreed"),
            Note::Granted(Grant::After(debt, _)) => {
                write!(f, "the throttle agreed, but only in {:?}", duration(debt))
            }
            Note::Granted(Grant::Later) => f.write_str("the throttle will answer"),
            Note::Granted(Grant::Refused) => f.write_str("the throttle refused"),
            Note::Asked(failure) => write!(f, "the strategy was asked about {failure}"),
            Note::Answered(Advice::None) => f.write_str("the strategy said nothing"),
            Note::Answered(Advice::After(span)) => {
                write!(f, "the strategy said to retry in {:?}", duration(span))
            }
            Note::Answered(Advice::Decline) => f.write_str("the strategy declined"),
            Note::Retrying { after, failure } => {
                write!(f, "a retry follows in {:?} because of {failure}", duration(after))
            }
            Note::Replacing { attempt, after, proof } => {
                write!(f, "attempt {attempt} is replaced in {:?}: {proof}", duration(after))
            }
            Note::Committed { attempt } => write!(f, "the call belongs to attempt {attempt}"),
            Note::Sealed => f.write_str("what was written can no longer be kept"),
            Note::Ended { why, attempt: Some(attempt) } => {
                write!(f, "the call ended with attempt {attempt}: {why}")
            }
            Note::Ended { why, attempt: None } => write!(f, "the call ended: {why}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Reason, Stage, Taken};
    use alloc::collections::BTreeSet;
    use alloc::string::ToString;
    use core::time::Duration;

    #[test]
    fn each_note_is_one_line_that_a_person_can_read() {
        let failure = Failure::client().at(Stage::Unsent).because(Reason::new("SOCKET_CLOSED"));
        let hinted = Failure::throttling().retry_after(Duration::from_micros(1500));
        let of = |directive, proof, drains| Judgement { directive, proof, drains };
        let judged = |judgement| Note::Outcome { attempt: 2, judgement };
        let table = [
            (Note::Began { deadline: None, idempotent: true }, "call started (idempotent)"),
            (
                Note::Began { deadline: Some(5_000_000_000), idempotent: false },
                "call started (not idempotent), deadline at 5s",
            ),
            (Note::Hedging(HedgeDelay::After(12_000_001)), "its hedges follow after 12.000001ms"),
            (Note::Hedging(HedgeDelay::Never), "its hedges follow failures alone"),
            (Note::Started { attempt: 2, number: 2 }, "attempt 2 started"),
            (Note::Started { attempt: 3, number: 2 }, "attempt 3 started as number 2"),
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
            (Note::TimedOut { attempt: 1 }, "attempt 1 took too long"),
            (Note::Cancelled { attempt: 1 }, "attempt 1 was cancelled"),
            (Note::Drew(0.25), "a draw was 0.25"),
            (Note::Granted(Grant::Now(Taken(5))), "the throttle agreed"),
            (Note::Granted(Grant::After(7, Taken(5))), "the throttle agreed, but only in 7ns"),
            (Note::Granted(Grant::Later), "the throttle will answer"),
            (Note::Granted(Grant::Refused), "the throttle refused"),
            (Note::Asked(Failure::timeout()), "the strategy was asked about a timeout, in flight"),
            (Note::Answered(Advice::None), "the strategy said nothing"),
            (Note::Answered(Advice::After(0)), "the strategy said to retry in 0ns"),
            (Note::Answered(Advice::Decline), "the strategy declined"),
            (
                Note::Retrying { after: 63_000_001, failure: hinted },
                "a retry follows in 63.000001ms because of throttling, with a hint to come back \
                 after 1.5ms",
            ),
            (
                Note::Retrying { after: 0, failure: Failure::server().stop() },
                "a retry follows in 0ns because of a server failure, with a hint not to come back",
            ),
            (
                Note::Replacing { attempt: 1, after: 0, proof: Proof::Unprocessed },
                "attempt 1 is replaced in 0ns: proven not to have been processed",
            ),
            (Note::Committed { attempt: 4 }, "the call belongs to attempt 4"),
            (Note::Sealed, "what was written can no longer be kept"),
            (
                Note::Ended { why: Why::Attempts, attempt: Some(3) },
                "the call ended with attempt 3: no attempt left",
            ),
            (Note::Ended { why: Why::Cancelled, attempt: None }, "the call ended: cancelled"),
        ];
        let lines: BTreeSet<_> = table.iter().map(|(_, line)| line).collect();
        assert_eq!(lines.len(), table.len(), "each is told from the others");
        for (note, line) in table {
            assert_eq!(note.to_string(), line);
        }
    }
}
