//! Playing a diary again: its inputs go into the machine, and what comes out must be what is
//! written.

use std::collections::VecDeque;
use std::fmt;

use redial_core::{
    Call, Command, Cost, Grant, LIVE_MAX, Note, Ns, Policy, Taken, Terms, Why, World, duration,
};

use super::Diary;

/// Where a replay differs from the diary: with this policy, the call would have gone another way.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Divergence {
    /// The index of the first note that differs.
    pub index: usize,
    /// When the call began, by the diary.
    pub began: Ns,
    /// What the diary says; `None`: nothing more.
    pub written: Option<(Ns, Note)>,
    /// What the replay did; `None`: nothing.
    pub played: Option<(Ns, Note)>,
}

impl fmt::Display for Divergence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let one = |f: &mut fmt::Formatter<'_>, note: &Option<(Ns, Note)>| match note {
            Some((at, note)) => {
                write!(f, "\"{note}\" at {:?}", duration(at.saturating_sub(self.began)))
            }
            None => f.write_str("nothing"),
        };
        write!(f, "note {}: the diary says ", self.index + 1)?;
        one(f, &self.written)?;
        f.write_str(", the replay ")?;
        one(f, &self.played)
    }
}

impl std::error::Error for Divergence {}

/// The world as the diary recorded it.
struct Recorded {
    draws: VecDeque<f64>,
    grants: VecDeque<Grant>,
    previous: Option<Ns>,
    notes: Vec<(Ns, Note)>,
}

impl World for Recorded {
    fn draw(&mut self) -> f64 {
        self.draws.pop_front().unwrap_or(0.5)
    }
    fn take(&mut self, _cost: Cost, _now: Ns) -> Grant {
        self.grants.pop_front().unwrap_or(Grant::Now(Taken(0)))
    }
    fn granted(&mut self, _grant: Grant) {
        self.grants.pop_front();
    }
    fn previous(&self) -> Option<Ns> {
        self.previous
    }
    fn remember(&mut self, delay: Ns) {
        self.previous = Some(delay);
    }
    fn note(&mut self, at: Ns, note: Note) {
        self.notes.push((at, note));
    }
}

impl Diary {
    /// Plays the call again under this policy: draws, grants, answers, outcomes and moments are
    /// those of the diary, and every decision must be too. Any policy will do: a
    /// [`Policy`](crate::Policy), a [`Hedged`](crate::Hedged) one, one that was loaded, or the core's
    /// own. The one behind [`retry`](crate::retry) is `Policy::exponential(ms(100)).checked()`.
    ///
    /// A diary that stops in the middle of a call is played as far as it goes.
    ///
    /// # Errors
    /// The first note that differs.
    pub fn replay(&self, policy: impl AsRef<Policy>) -> Result<(), Box<Divergence>> {
        self.play(policy.as_ref())
    }

    fn play(&self, policy: &Policy) -> Result<(), Box<Divergence>> {
        let written = self.notes();
        let Some(&(start, Note::Began { deadline, idempotent })) = written.first() else {
            let Some(&first) = written.first() else { return Ok(()) };
            return Err(divergence(first.0, 0, Some(first), None));
        };
        let mut world = Recorded {
            draws: written
                .iter()
                .filter_map(|(_, note)| if let Note::Drew(u) = note { Some(*u) } else { None })
                .collect(),
            grants: written
                .iter()
                .filter_map(
                    |(_, note)| if let Note::Granted(grant) = note { Some(*grant) } else { None },
                )
                .collect(),
            previous: None,
            notes: Vec::new(),
        };
        // What the terms said is noted before anything starts.
        let said = || {
            let notes = written.iter().skip(1).map(|(_, note)| note);
            notes.take_while(|note| matches!(note, Note::Hedging(_) | Note::Sealed))
        };
        let terms = Terms {
            deadline: deadline.map(|at| duration(at.saturating_sub(start))),
            idempotent,
            sealed: said().any(|note| *note == Note::Sealed),
            hedge: said()
                .find_map(|note| if let Note::Hedging(hedge) = note { Some(*hedge) } else { None }),
            asks: written.iter().any(|(_, note)| matches!(note, Note::Asked(_))),
        };
        let starts = !matches!(
            written.get(1 + said().count()),
            Some((_, Note::Ended { why: Why::Cancelled, attempt: None }))
        );
        let begin = if starts { Call::<_, LIVE_MAX>::begin } else { Call::unstarted };
        let mut call = begin(policy, terms, start, &mut world);
        let mut slots = vec![0; written.len() + 1];
        let mut checked = 0;
        loop {
            while let Some(&played) = world.notes.get(checked) {
                match written.get(checked) {
                    None => return Ok(()),
                    Some(note) if *note == played => checked += 1,
                    note => return Err(divergence(start, checked, note.copied(), Some(played))),
                }
            }
            let Some(&(at, note)) = written.get(checked) else { return Ok(()) };
            let slot = |attempt: u32| slots.get(attempt as usize).copied().unwrap_or(0);
            let cancelled = || {
                let end = written.iter().rev().find_map(|(_, note)| {
                    if let Note::Ended { why, .. } = note { Some(*why) } else { None }
                });
                end == Some(Why::Cancelled)
            };
            match note {
                Note::Outcome { attempt, judgement } => {
                    call.outcome(slot(attempt), judgement, at, &mut world);
                }
                Note::Answered(advice) => call.answered(advice, at, &mut world),
                Note::Committed { attempt } => call.committed(slot(attempt), at, &mut world),
                Note::Sealed => {
                    let chosen = match written.get(checked + 1) {
                        Some(&(then, Note::Committed { attempt })) if then == at => {
                            Some(slot(attempt))
                        }
                        _ => None,
                    };
                    call.sealed(chosen, at, &mut world);
                }
                Note::Cancelled { .. } | Note::Ended { why: Why::Cancelled, .. } if cancelled() => {
                    call.cancel(at, &mut world);
                }
                Note::Granted(grant) if call.awaits_grant() => call.granted(grant, at, &mut world),
                // The driver took the next command, or came back to a timer and took what that
                // commanded. It may have reported an outcome before it took all commands, so no
                // command is taken before the diary shows it.
                _ => {
                    let command = call.command(&mut world).or_else(|| {
                        call.wake_once(at, &mut world);
                        call.command(&mut world)
                    });
                    if let Some(Command::Start(started)) = command
                        && let Some(slot) = slots.get_mut(started.attempt as usize)
                    {
                        *slot = started.slot;
                    }
                    if command.is_some() {
                        continue;
                    }
                }
            }
            if world.notes.len() == checked {
                return Err(divergence(start, checked, Some((at, note)), None));
            }
        }
    }
}

fn divergence(
    began: Ns,
    index: usize,
    written: Option<(Ns, Note)>,
    played: Option<(Ns, Note)>,
) -> Box<Divergence> {
    Box::new(Divergence { index, began, written, played })
}
