//! Events of a call: what happened, when and why, in order.
//!
//! Errors, traces, metrics, timelines and scenario results are derived from events. They include
//! every input of the state machine, throttle grants and random draws too, so that a call log can
//! be replayed.
//!
//! The enum is not `non_exhaustive`: code that stores or prints events matches all of them, so the
//! compiler points to the places that a new event affects.

use core::fmt;

use crate::time::{Ns, duration};
use crate::{Advice, Classification, Directive, Failure, Grant, HedgeDelay, Proof, StopReason};

/// One event of a call. Attempts are numbered by the order in which they started, from 1,
/// transparent retries included.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Event {
    /// The call started.
    CallStarted {
        /// When the call must end; `None` without a deadline.
        deadline: Option<Ns>,
        /// Whether the call is idempotent.
        idempotent: bool,
    },
    /// The call overrides the policy's hedging delay; follows `CallStarted`.
    HedgeDelay(HedgeDelay),
    /// An attempt started.
    AttemptStarted {
        /// The position in the order of starts.
        attempt: u32,
        /// The attempt number that the policy counts; a transparent retry keeps the number of the
        /// attempt that it repeats.
        number: u32,
    },
    /// An attempt has an outcome.
    AttemptOutcome {
        /// The attempt.
        attempt: u32,
        /// The outcome as classified.
        classification: Classification,
    },
    /// An attempt exceeded the attempt timeout.
    AttemptTimedOut {
        /// The attempt.
        attempt: u32,
    },
    /// The call cancelled a running attempt.
    AttemptCancelled {
        /// The attempt.
        attempt: u32,
    },
    /// A random number was drawn for jitter.
    RandomDraw(f64),
    /// The throttle answered a request for a retry or hedge.
    ThrottleAnswered(Grant),
    /// The strategy was asked about this failure.
    StrategyAsked(Failure),
    /// The strategy answered.
    StrategyAnswered(Advice),
    /// A retry was scheduled.
    RetryScheduled {
        /// The delay until it may start, without a delay that the throttle adds later.
        after: Ns,
        /// The failure that is retried.
        failure: Failure,
    },
    /// A transparent retry was scheduled for an attempt that was provably not processed.
    TransparentRetryScheduled {
        /// The attempt that is repeated.
        attempt: u32,
        /// The delay.
        after: Ns,
        /// The proof.
        proof: Proof,
    },
    /// The call is committed to this attempt.
    Committed {
        /// The attempt.
        attempt: u32,
    },
    /// The request can no longer be replayed, so the next attempt to start is the last.
    NotReplayable,
    /// The call ended.
    CallEnded {
        /// Why call ended.
        stop_reason: StopReason,
        /// The attempt whose outcome is the result, if there is one.
        attempt: Option<u32>,
    },
}

/// One line for people to read. Durations are exact, so that different events have different texts.
impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Event::CallStarted { deadline, idempotent } => {
                let kind = if idempotent { "idempotent" } else { "not idempotent" };
                write!(f, "call started ({kind})")?;
                deadline.map_or(Ok(()), |at| write!(f, ", deadline at {:?}", duration(at)))
            }
            Event::HedgeDelay(HedgeDelay::After(delay)) => {
                write!(f, "hedging delay set to {:?}", duration(delay))
            }
            Event::HedgeDelay(HedgeDelay::Never) => f.write_str("hedging by time is off"),
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
                f.write_str(if drains { ", drains the throttle" } else { "" })
            }
            Event::AttemptTimedOut { attempt } => write!(f, "attempt {attempt} timed out"),
            Event::AttemptCancelled { attempt } => write!(f, "attempt {attempt} was cancelled"),
            Event::RandomDraw(u) => write!(f, "random draw {u}"),
            Event::ThrottleAnswered(Grant::Now(_)) => {
                f.write_str("throttle allowed another attempt")
            }
            Event::ThrottleAnswered(Grant::After(debt, _)) => {
                write!(f, "throttle allowed another attempt after {:?}", duration(debt))
            }
            Event::ThrottleAnswered(Grant::Later) => f.write_str("throttle deferred its answer"),
            Event::ThrottleAnswered(Grant::Refused) => {
                f.write_str("throttle refused another attempt")
            }
            Event::StrategyAsked(failure) => write!(f, "strategy asked about {failure}"),
            Event::StrategyAnswered(Advice::None) => f.write_str("strategy gave no answer"),
            Event::StrategyAnswered(Advice::After(span)) => {
                write!(f, "strategy chose to retry in {:?}", duration(span))
            }
            Event::StrategyAnswered(Advice::Decline) => f.write_str("strategy declined the retry"),
            Event::RetryScheduled { after, failure } => {
                write!(f, "retry scheduled in {:?} after {failure}", duration(after))
            }
            Event::TransparentRetryScheduled { attempt, after, proof } => {
                write!(
                    f,
                    "transparent retry of attempt {attempt} scheduled in {:?}: {proof}",
                    duration(after)
                )
            }
            Event::Committed { attempt } => write!(f, "committed to attempt {attempt}"),
            Event::NotReplayable => f.write_str("request can no longer be replayed"),
            Event::CallEnded { stop_reason, attempt: Some(attempt) } => {
                write!(f, "call ended with attempt {attempt}: {stop_reason}")
            }
            Event::CallEnded { stop_reason, attempt: None } => {
                write!(f, "call ended: {stop_reason}")
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
        let outcome = |classification| Event::AttemptOutcome { attempt: 2, classification };
        let table = [
            (Event::CallStarted { deadline: None, idempotent: true }, "call started (idempotent)"),
            (
                Event::CallStarted { deadline: Some(5_000_000_000), idempotent: false },
                "call started (not idempotent), deadline at 5s",
            ),
            (Event::HedgeDelay(HedgeDelay::After(12_000_001)), "hedging delay set to 12.000001ms"),
            (Event::HedgeDelay(HedgeDelay::Never), "hedging by time is off"),
            (Event::AttemptStarted { attempt: 2, number: 2 }, "attempt 2 started"),
            (Event::AttemptStarted { attempt: 3, number: 2 }, "attempt 3 started as number 2"),
            (outcome(Directive::Succeed.into()), "attempt 2 succeeded"),
            (
                outcome(of(Directive::Fail, None, true)),
                "attempt 2 failed, not retryable, drains the throttle",
            ),
            (
                outcome(of(Directive::Fail, Some(Proof::Unprocessed), false)),
                "attempt 2 failed, proven not to have been processed",
            ),
            (
                outcome(of(Directive::Retry(failure), Some(Proof::Unsent), false)),
                "attempt 2 failed: a client failure (SOCKET_CLOSED), never sent, proven not to have \
                 been sent",
            ),
            (Event::AttemptTimedOut { attempt: 1 }, "attempt 1 timed out"),
            (Event::AttemptCancelled { attempt: 1 }, "attempt 1 was cancelled"),
            (Event::RandomDraw(0.25), "random draw 0.25"),
            (
                Event::ThrottleAnswered(Grant::Now(Withdrawal(5))),
                "throttle allowed another attempt",
            ),
            (
                Event::ThrottleAnswered(Grant::After(7, Withdrawal(5))),
                "throttle allowed another attempt after 7ns",
            ),
            (Event::ThrottleAnswered(Grant::Later), "throttle deferred its answer"),
            (Event::ThrottleAnswered(Grant::Refused), "throttle refused another attempt"),
            (Event::StrategyAsked(Failure::timeout()), "strategy asked about a timeout, in flight"),
            (Event::StrategyAnswered(Advice::None), "strategy gave no answer"),
            (Event::StrategyAnswered(Advice::After(0)), "strategy chose to retry in 0ns"),
            (Event::StrategyAnswered(Advice::Decline), "strategy declined the retry"),
            (
                Event::RetryScheduled { after: 63_000_001, failure: hinted },
                "retry scheduled in 63.000001ms after throttling, server asked to retry after 1.5ms",
            ),
            (
                Event::RetryScheduled { after: 0, failure: Failure::server().stop() },
                "retry scheduled in 0ns after a server failure, server asked not to retry",
            ),
            (
                Event::TransparentRetryScheduled {
                    attempt: 1,
                    after: 0,
                    proof: Proof::Unprocessed,
                },
                "transparent retry of attempt 1 scheduled in 0ns: proven not to have been processed",
            ),
            (Event::Committed { attempt: 4 }, "committed to attempt 4"),
            (Event::NotReplayable, "request can no longer be replayed"),
            (
                Event::CallEnded { stop_reason: StopReason::AttemptsExhausted, attempt: Some(3) },
                "call ended with attempt 3: no attempt left",
            ),
            (
                Event::CallEnded { stop_reason: StopReason::Cancelled, attempt: None },
                "call ended: cancelled",
            ),
        ];
        let lines: BTreeSet<_> = table.iter().map(|(_, line)| line).collect();
        assert_eq!(lines.len(), table.len(), "texts differ");
        for (event, line) in table {
            assert_eq!(event.to_string(), line);
        }
    }
}
