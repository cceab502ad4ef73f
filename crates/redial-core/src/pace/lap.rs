//! One call as its pace hears of it, read from the call's notes.
//!
//! Only the first attempt is timed, from its start until its answer begins: later ones start when
//! something is slow or failed already, and would say more about that than about the method. What
//! failed says nothing about latency, and what could not be kept commits a call before its answer.

use super::Pace;
use crate::time::Ns;
use crate::{Directive, HedgeDelay, Note};

/// What is remembered of one call so that its notes tell a [`Pace`] how long its first attempt took
/// and whether its hedge won.
#[derive(Clone, Copy, Debug)]
pub struct Lap {
    began: Ns,
    /// The delay of its hedges is the pace's.
    paced: bool,
    /// Its hedge was sent by the delay.
    hedged: bool,
    stage: Stage,
}

/// What is known of the first attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Running,
    /// It was counted when its hedge was sent.
    Counted,
    Over,
}

impl Lap {
    /// A call that begins with this word of its pace.
    #[must_use]
    pub const fn new(delay: Option<HedgeDelay>) -> Self {
        Lap { began: 0, paced: delay.is_some(), hedged: false, stage: Stage::Running }
    }

    /// Whether the moments of further notes matter.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.stage != Stage::Over
    }

    /// Takes a note of the call.
    pub fn note(&mut self, at: Ns, note: &Note, pace: &Pace) {
        if self.stage == Stage::Over {
            return;
        }
        let took = at.saturating_sub(self.began);
        match *note {
            Note::Started { attempt: 1, .. } => self.began = at,
            Note::Started { .. } if !self.hedged => {
                self.hedged = true;
                if pace.hedged(took) {
                    self.stage = Stage::Counted;
                }
            }
            Note::Committed { attempt } => self.answered(attempt, took, pace),
            Note::Outcome { attempt, judgement } if judgement.directive == Directive::Succeed => {
                self.answered(attempt, took, pace);
            }
            Note::Cancelled { attempt: 1 } => {
                self.still_running(took, pace);
                self.end(pace, Pace::hedge_lost);
            }
            Note::Outcome { attempt: 1, .. } | Note::Sealed => self.stage = Stage::Over,
            _ => {}
        }
    }

    fn answered(&mut self, attempt: u32, took: Ns, pace: &Pace) {
        if attempt > 1 {
            self.still_running(took, pace);
            self.end(pace, Pace::hedge_won);
        } else {
            if self.stage == Stage::Running {
                pace.took(took);
            }
            self.end(pace, Pace::hedge_lost);
        }
    }

    /// The first attempt has not answered, and will not be waited for.
    fn still_running(&self, took: Ns, pace: &Pace) {
        if self.stage == Stage::Running {
            pace.longer(took);
        }
    }

    fn end(&mut self, pace: &Pace, hedge: fn(&Pace)) {
        // Another delay says nothing about hedges at this one.
        if self.hedged && self.paced {
            hedge(pace);
        }
        self.stage = Stage::Over;
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::{Failure, HedgeAt, Judgement, PaceReading};

    const MS: Ns = 1_000_000;
    const FIRST: Note = Note::Started { attempt: 1, number: 1 };
    const HEDGE: Note = Note::Started { attempt: 2, number: 2 };

    fn outcome(attempt: u32, directive: Directive) -> Note {
        Note::Outcome { attempt, judgement: Judgement::from(directive) }
    }

    /// What a pace that has heard of one latency of 10 ms knows after these notes, which begin at
    /// some moment: estimate in whole ms, samples, share of wins.
    fn told(notes: &[(Ns, Note)]) -> (u128, u32, Option<f64>) {
        let pace = Pace::new(HedgeAt::quantile(0.9).samples(1).build().unwrap());
        pace.took(10 * MS);
        let mut lap = Lap::new(pace.delay());
        for (at, note) in notes {
            lap.note(1_000_000_007 + at * MS, note, &pace);
        }
        let PaceReading { estimate, samples, win_rate, .. } = pace.read();
        (estimate.unwrap().as_millis(), samples, win_rate)
    }

    #[test]
    fn an_answer_is_timed_from_its_start_to_its_headers_or_its_status() {
        let headers = Note::Committed { attempt: 1 };
        let ended = outcome(1, Directive::Succeed);
        assert_eq!(told(&[(0, FIRST), (20, headers), (900, ended)]), (18, 2, None));
        assert_eq!(told(&[(0, FIRST), (20, ended)]), (18, 2, None));
        assert_eq!(told(&[(0, FIRST), (10, ended)]), (9, 2, None), "not above is below");
        assert_eq!(told(&[(5, FIRST), (15, headers), (900, ended)]), (9, 2, None));
    }

    #[test]
    fn an_attempt_whose_hedge_was_sent_counts_once_as_above_whoever_answers() {
        let cancelled = (12, Note::Cancelled { attempt: 1 });
        let won = [(0, FIRST), (10, HEDGE), (12, Note::Committed { attempt: 2 }), cancelled];
        assert_eq!(told(&won[..2]), (18, 2, None), "as soon as the hedge is sent");
        assert_eq!(told(&won), (18, 2, Some(1.0)));
        let trailers = [won[0], won[1], (12, outcome(2, Directive::Succeed)), cancelled];
        assert_eq!(told(&trailers), (18, 2, Some(1.0)));
        let lost = [won[0], won[1], (12, Note::Committed { attempt: 1 })];
        assert_eq!(told(&lost), (18, 2, Some(0.0)));
        let deadline = [won[0], won[1], (900, Note::Cancelled { attempt: 1 })];
        assert_eq!(told(&deadline), (18, 2, Some(0.0)));
    }

    #[test]
    fn further_hedges_say_nothing_more_of_the_first_attempt() {
        let third = (20, Note::Started { attempt: 3, number: 3 });
        assert_eq!(told(&[(0, FIRST), (10, HEDGE), third]), (18, 2, None));
    }

    #[test]
    fn a_hedge_before_the_estimate_says_only_what_is_certain() {
        // The hedge was sent at 5 ms, say by a cap, when nobody knew.
        let early = [(0, FIRST), (5, HEDGE)];
        assert_eq!(told(&early), (10, 1, None));
        let won = |at| told(&[early[0], early[1], (at, Note::Committed { attempt: 2 })]);
        assert_eq!(won(7), (10, 2, Some(1.0)), "it may have answered at 8 ms or at 80");
        assert_eq!(won(10), (18, 2, Some(1.0)), "it is slower than 10 ms for certain");
        let itself = |at| told(&[early[0], early[1], (at, Note::Committed { attempt: 1 })]);
        assert_eq!(itself(7), (9, 2, Some(0.0)));
        assert_eq!(itself(70), (18, 2, Some(0.0)));
    }

    #[test]
    fn who_is_cancelled_or_runs_into_the_deadline_took_longer_than_that() {
        assert_eq!(told(&[(0, FIRST), (9, Note::Cancelled { attempt: 1 })]), (10, 2, None));
        assert_eq!(told(&[(0, FIRST), (11, Note::Cancelled { attempt: 1 })]), (18, 2, None));
        let timed_out = [(0, FIRST), (11, Note::TimedOut { attempt: 1 })];
        let cancelled = (11, Note::Cancelled { attempt: 1 });
        assert_eq!(told(&[timed_out[0], timed_out[1], cancelled]), (18, 2, None));
    }

    #[test]
    fn failures_replacements_and_what_is_sealed_say_nothing() {
        let failed = outcome(1, Directive::Retry(Failure::server()));
        let answered = (30, Note::Committed { attempt: 2 });
        assert_eq!(told(&[(0, FIRST), (20, failed), (20, HEDGE), answered]), (10, 1, None));
        let replaced = (20, Note::Started { attempt: 2, number: 1 });
        assert_eq!(told(&[(0, FIRST), (20, failed), replaced, answered]), (10, 1, None));
        assert_eq!(told(&[(0, FIRST), (20, outcome(1, Directive::Fail))]), (10, 1, None));
        let sealed = [(0, FIRST), (20, Note::Sealed), (20, Note::Committed { attempt: 1 })];
        assert_eq!(told(&sealed), (10, 1, None));
    }

    #[test]
    fn a_hedge_by_another_delay_does_not_count_as_won_or_lost() {
        let pace = Pace::new(HedgeAt::quantile(0.9).samples(9).build().unwrap());
        pace.took(10 * MS);
        let mut lap = Lap::new(pace.delay());
        assert!(lap.is_running());
        for (at, note) in [(0, FIRST), (10, HEDGE), (12, Note::Committed { attempt: 2 })] {
            lap.note(at * MS, &note, &pace);
        }
        assert!(!lap.is_running());
        assert_eq!((pace.read().samples, pace.read().win_rate), (2, None));
    }
}
