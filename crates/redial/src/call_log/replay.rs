//! Playing a diary again: its inputs go into the machine, and what comes out must be what is
//! written.

use std::collections::VecDeque;
use std::fmt;

use redial_core::{
    Call, CallParams, Command, Cost, Environment, Event, Grant, LIVE_MAX, Ns, Policy, StopReason,
    Withdrawal, duration,
};

use super::CallLog;

/// Where a replay differs from the diary: with this policy, the call would have gone another way.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ReplayMismatch {
    /// The index of the first note that differs.
    pub index: usize,
    /// When the call began, by the diary.
    pub began: Ns,
    /// What the diary says; `None`: nothing more.
    pub written: Option<(Ns, Event)>,
    /// What the replay did; `None`: nothing.
    pub played: Option<(Ns, Event)>,
}

impl fmt::Display for ReplayMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let one = |f: &mut fmt::Formatter<'_>, event: &Option<(Ns, Event)>| match event {
            Some((at, event)) => {
                write!(f, "\"{event}\" at {:?}", duration(at.saturating_sub(self.began)))
            }
            None => f.write_str("nothing"),
        };
        write!(f, "note {}: the diary says ", self.index + 1)?;
        one(f, &self.written)?;
        f.write_str(", the replay ")?;
        one(f, &self.played)
    }
}

impl std::error::Error for ReplayMismatch {}

/// The world as the diary recorded it.
struct Recorded {
    draws: VecDeque<f64>,
    grants: VecDeque<Grant>,
    previous: Option<Ns>,
    events: Vec<(Ns, Event)>,
}

impl Environment for Recorded {
    fn draw(&mut self) -> f64 {
        self.draws.pop_front().unwrap_or(0.5)
    }
    fn withdraw(&mut self, _cost: Cost, _now: Ns) -> Grant {
        self.grants.pop_front().unwrap_or(Grant::Now(Withdrawal(0)))
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
    fn record(&mut self, at: Ns, event: Event) {
        self.events.push((at, event));
    }
}

impl CallLog {
    /// Plays the call again under this policy: draws, grants, answers, outcomes and moments are
    /// those of the diary, and every decision must be too. Any policy will do: a
    /// [`Policy`](crate::Policy), a [`Hedged`](crate::Hedged) one, one that was loaded, or the core's
    /// own. The one behind [`retry`](crate::retry) is `Policy::exponential(ms(100)).build()`.
    ///
    /// A diary that stops in the middle of a call is played as far as it goes.
    ///
    /// # Errors
    /// The first note that differs.
    pub fn replay(&self, policy: impl AsRef<Policy>) -> Result<(), Box<ReplayMismatch>> {
        self.play(policy.as_ref())
    }

    fn play(&self, policy: &Policy) -> Result<(), Box<ReplayMismatch>> {
        let written = self.events();
        let Some(&(start, Event::CallStarted { deadline, idempotent })) = written.first() else {
            let Some(&first) = written.first() else { return Ok(()) };
            return Err(divergence(first.0, 0, Some(first), None));
        };
        let mut env = Recorded {
            draws: written
                .iter()
                .filter_map(
                    |(_, event)| if let Event::RandomDraw(u) = event { Some(*u) } else { None },
                )
                .collect(),
            grants: written
                .iter()
                .filter_map(|(_, event)| {
                    if let Event::ThrottleAnswered(grant) = event { Some(*grant) } else { None }
                })
                .collect(),
            previous: None,
            events: Vec::new(),
        };
        // What the terms said is noted before anything starts.
        let said = || {
            let events = written.iter().skip(1).map(|(_, event)| event);
            events.take_while(|event| matches!(event, Event::HedgeDelay(_) | Event::NotReplayable))
        };
        let params = CallParams {
            deadline: deadline.map(|at| duration(at.saturating_sub(start))),
            idempotent,
            not_replayable: said().any(|event| *event == Event::NotReplayable),
            hedge: said().find_map(|event| {
                if let Event::HedgeDelay(hedge) = event { Some(*hedge) } else { None }
            }),
            uses_strategy: written
                .iter()
                .any(|(_, event)| matches!(event, Event::StrategyAsked(_))),
        };
        let starts = !matches!(
            written.get(1 + said().count()),
            Some((_, Event::CallEnded { stop_reason: StopReason::Cancelled, attempt: None }))
        );
        let begin = if starts { Call::<_, LIVE_MAX>::begin } else { Call::cancelled_before_start };
        let mut call = begin(policy, params, start, &mut env);
        let mut slots = vec![0; written.len() + 1];
        let mut checked = 0;
        loop {
            while let Some(&played) = env.events.get(checked) {
                match written.get(checked) {
                    None => return Ok(()),
                    Some(event) if *event == played => checked += 1,
                    event => return Err(divergence(start, checked, event.copied(), Some(played))),
                }
            }
            let Some(&(at, event)) = written.get(checked) else { return Ok(()) };
            let slot = |attempt: u32| slots.get(attempt as usize).copied().unwrap_or(0);
            let cancelled = || {
                let end = written.iter().rev().find_map(|(_, event)| {
                    if let Event::CallEnded { stop_reason, .. } = event {
                        Some(*stop_reason)
                    } else {
                        None
                    }
                });
                end == Some(StopReason::Cancelled)
            };
            match event {
                Event::AttemptOutcome { attempt, classification } => {
                    call.outcome(slot(attempt), classification, at, &mut env);
                }
                Event::StrategyAnswered(advice) => call.answered(advice, at, &mut env),
                Event::Committed { attempt } => call.committed(slot(attempt), at, &mut env),
                Event::NotReplayable => {
                    let chosen = match written.get(checked + 1) {
                        Some(&(then, Event::Committed { attempt })) if then == at => {
                            Some(slot(attempt))
                        }
                        _ => None,
                    };
                    call.not_replayable(chosen, at, &mut env);
                }
                Event::AttemptCancelled { .. }
                | Event::CallEnded { stop_reason: StopReason::Cancelled, .. }
                    if cancelled() =>
                {
                    call.cancel(at, &mut env);
                }
                Event::ThrottleAnswered(grant) if call.awaits_grant() => {
                    call.granted(grant, at, &mut env)
                }
                // The driver took the next command, or came back to a timer and took what that
                // commanded. It may have reported an outcome before it took all commands, so no
                // command is taken before the diary shows it.
                _ => {
                    let command = call.command(&mut env).or_else(|| {
                        call.wake_once(at, &mut env);
                        call.command(&mut env)
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
            if env.events.len() == checked {
                return Err(divergence(start, checked, Some((at, event)), None));
            }
        }
    }
}

fn divergence(
    began: Ns,
    index: usize,
    written: Option<(Ns, Event)>,
    played: Option<(Ns, Event)>,
) -> Box<ReplayMismatch> {
    Box::new(ReplayMismatch { index, began, written, played })
}
