//! Feeds the events of one call to a latency estimator.
//!
//! Only the first attempt is measured, from its start to the start of its response. Later attempts
//! start because something was slow or failed, so they are not a representative sample. Failures
//! give no latency, and neither does a request that can no longer be replayed, because it commits
//! the call before its response.

use super::LatencyEstimator;
use crate::time::Ns;
use crate::{Directive, Event, HedgeDelay};

/// The state of one call that a [`LatencyEstimator`] needs to measure the first attempt and to
/// score its hedge.
#[derive(Clone, Copy, Debug)]
pub struct CallLatency {
    started_at: Ns,
    /// Whether the hedging delay came from the estimator.
    hedged_by_estimate: bool,
    /// Whether the first hedge has started.
    hedged: bool,
    stage: Stage,
}

/// The state of the first attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Running,
    /// It was counted when its hedge started.
    Counted,
    Done,
}

impl CallLatency {
    /// The state of a call with this delay from the estimator.
    #[must_use]
    pub const fn new(delay: Option<HedgeDelay>) -> Self {
        CallLatency {
            started_at: 0,
            hedged_by_estimate: delay.is_some(),
            hedged: false,
            stage: Stage::Running,
        }
    }

    /// Whether further events matter.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.stage != Stage::Done
    }

    /// Processes an event of the call.
    pub fn record(&mut self, at: Ns, event: &Event, estimator: &LatencyEstimator) {
        if self.stage == Stage::Done {
            return;
        }
        let took = at.saturating_sub(self.started_at);
        match *event {
            Event::AttemptStarted { attempt: 1, .. } => self.started_at = at,
            Event::AttemptStarted { .. } if !self.hedged => {
                self.hedged = true;
                if estimator.record_hedge_sent(took) {
                    self.stage = Stage::Counted;
                }
            }
            Event::Committed { attempt } => self.record_answer(attempt, took, estimator),
            Event::AttemptOutcome { attempt, classification }
                if classification.directive == Directive::Succeed =>
            {
                self.record_answer(attempt, took, estimator);
            }
            Event::AttemptCancelled { attempt: 1 } => {
                self.record_unanswered(took, estimator);
                self.end(estimator, LatencyEstimator::hedge_lost);
            }
            Event::AttemptOutcome { attempt: 1, .. } | Event::NotReplayable => {
                self.stage = Stage::Done;
            }
            _ => {}
        }
    }

    fn record_answer(&mut self, attempt: u32, took: Ns, estimator: &LatencyEstimator) {
        if attempt > 1 {
            self.record_unanswered(took, estimator);
            self.end(estimator, LatencyEstimator::hedge_won);
        } else {
            if self.stage == Stage::Running {
                estimator.record_latency(took);
            }
            self.end(estimator, LatencyEstimator::hedge_lost);
        }
    }

    /// Records that the first attempt will not be waited for.
    fn record_unanswered(&self, took: Ns, estimator: &LatencyEstimator) {
        if self.stage == Stage::Running {
            estimator.record_latency_above(took);
        }
    }

    fn end(&mut self, estimator: &LatencyEstimator, hedge: fn(&LatencyEstimator)) {
        // A hedge at another delay says nothing about hedging at the estimate.
        if self.hedged && self.hedged_by_estimate {
            hedge(estimator);
        }
        self.stage = Stage::Done;
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::{Classification, Failure, HedgeAt, LatencyEstimate};

    const MS: Ns = 1_000_000;
    const FIRST: Event = Event::AttemptStarted { attempt: 1, number: 1 };
    const HEDGE: Event = Event::AttemptStarted { attempt: 2, number: 2 };

    fn outcome(attempt: u32, directive: Directive) -> Event {
        Event::AttemptOutcome { attempt, classification: Classification::from(directive) }
    }

    /// Estimate in whole ms, samples and win rate after these events, for an estimator with one
    /// sample of 10 ms.
    fn estimate_after(events: &[(Ns, Event)]) -> (u128, u32, Option<f64>) {
        let estimator = LatencyEstimator::new(HedgeAt::quantile(0.9).samples(1).build());
        estimator.record_latency(10 * MS);
        let mut call_latency = CallLatency::new(estimator.delay());
        for (at, event) in events {
            call_latency.record(1_000_000_007 + at * MS, event, &estimator);
        }
        let LatencyEstimate { estimate, samples, win_rate, .. } = estimator.read();
        (estimate.unwrap().as_millis(), samples, win_rate)
    }

    #[test]
    fn call_latency_runs_from_start_to_headers_or_status() {
        let headers = Event::Committed { attempt: 1 };
        let ended = outcome(1, Directive::Succeed);
        assert_eq!(estimate_after(&[(0, FIRST), (20, headers), (900, ended)]), (18, 2, None));
        assert_eq!(estimate_after(&[(0, FIRST), (20, ended)]), (18, 2, None));
        assert_eq!(estimate_after(&[(0, FIRST), (10, ended)]), (9, 2, None), "not above is below");
        assert_eq!(estimate_after(&[(5, FIRST), (15, headers), (900, ended)]), (9, 2, None));
    }

    #[test]
    fn call_latency_hedged_attempt_counts_once_as_above() {
        let cancelled = (12, Event::AttemptCancelled { attempt: 1 });
        let won = [(0, FIRST), (10, HEDGE), (12, Event::Committed { attempt: 2 }), cancelled];
        assert_eq!(estimate_after(&won[..2]), (18, 2, None), "as soon as the hedge is sent");
        assert_eq!(estimate_after(&won), (18, 2, Some(1.0)));
        let trailers = [won[0], won[1], (12, outcome(2, Directive::Succeed)), cancelled];
        assert_eq!(estimate_after(&trailers), (18, 2, Some(1.0)));
        let lost = [won[0], won[1], (12, Event::Committed { attempt: 1 })];
        assert_eq!(estimate_after(&lost), (18, 2, Some(0.0)));
        let deadline = [won[0], won[1], (900, Event::AttemptCancelled { attempt: 1 })];
        assert_eq!(estimate_after(&deadline), (18, 2, Some(0.0)));
    }

    #[test]
    fn call_latency_further_hedges_add_no_sample() {
        let third = (20, Event::AttemptStarted { attempt: 3, number: 3 });
        assert_eq!(estimate_after(&[(0, FIRST), (10, HEDGE), third]), (18, 2, None));
    }

    #[test]
    fn call_latency_hedge_before_the_estimate_counts_only_certainties() {
        // The hedge starts at 5 ms, below the estimate, for example because of a cap.
        let early = [(0, FIRST), (5, HEDGE)];
        assert_eq!(estimate_after(&early), (10, 1, None));
        let won = |at| estimate_after(&[early[0], early[1], (at, Event::Committed { attempt: 2 })]);
        assert_eq!(won(7), (10, 2, Some(1.0)), "it may have answered at 8 ms or at 80");
        assert_eq!(won(10), (18, 2, Some(1.0)), "it is slower than 10 ms for certain");
        let itself =
            |at| estimate_after(&[early[0], early[1], (at, Event::Committed { attempt: 1 })]);
        assert_eq!(itself(7), (9, 2, Some(0.0)));
        assert_eq!(itself(70), (18, 2, Some(0.0)));
    }

    #[test]
    fn call_latency_cancelled_attempt_is_a_lower_bound() {
        assert_eq!(
            estimate_after(&[(0, FIRST), (9, Event::AttemptCancelled { attempt: 1 })]),
            (10, 2, None)
        );
        assert_eq!(
            estimate_after(&[(0, FIRST), (11, Event::AttemptCancelled { attempt: 1 })]),
            (18, 2, None)
        );
        let timed_out = [(0, FIRST), (11, Event::AttemptTimedOut { attempt: 1 })];
        let cancelled = (11, Event::AttemptCancelled { attempt: 1 });
        assert_eq!(estimate_after(&[timed_out[0], timed_out[1], cancelled]), (18, 2, None));
    }

    #[test]
    fn call_latency_ignores_failures_transparent_retries_and_unreplayable_requests() {
        let failed = outcome(1, Directive::Retry(Failure::server()));
        let answered = (30, Event::Committed { attempt: 2 });
        assert_eq!(
            estimate_after(&[(0, FIRST), (20, failed), (20, HEDGE), answered]),
            (10, 1, None)
        );
        let transparent_retry = (20, Event::AttemptStarted { attempt: 2, number: 1 });
        assert_eq!(
            estimate_after(&[(0, FIRST), (20, failed), transparent_retry, answered]),
            (10, 1, None)
        );
        assert_eq!(estimate_after(&[(0, FIRST), (20, outcome(1, Directive::Fail))]), (10, 1, None));
        let not_replayable =
            [(0, FIRST), (20, Event::NotReplayable), (20, Event::Committed { attempt: 1 })];
        assert_eq!(estimate_after(&not_replayable), (10, 1, None));
    }

    #[test]
    fn call_latency_hedge_by_policy_delay_is_not_scored() {
        let estimator = LatencyEstimator::new(HedgeAt::quantile(0.9).samples(9).build());
        estimator.record_latency(10 * MS);
        let mut call_latency = CallLatency::new(estimator.delay());
        assert!(call_latency.is_running());
        for (at, event) in [(0, FIRST), (10, HEDGE), (12, Event::Committed { attempt: 2 })] {
            call_latency.record(at * MS, &event, &estimator);
        }
        assert!(!call_latency.is_running());
        assert_eq!((estimator.read().samples, estimator.read().win_rate), (2, None));
    }
}
