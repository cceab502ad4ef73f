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
    pub started_at: Ns,
    /// What the diary says; `None`: nothing more.
    pub recorded: Option<(Ns, Event)>,
    /// What the replay did; `None`: nothing.
    pub replayed: Option<(Ns, Event)>,
}

impl fmt::Display for ReplayMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let one = |f: &mut fmt::Formatter<'_>, event: &Option<(Ns, Event)>| match event {
            Some((at, event)) => {
                write!(f, "\"{event}\" at {:?}", duration(at.saturating_sub(self.started_at)))
            }
            None => f.write_str("nothing"),
        };
        write!(f, "note {}: the diary says ", self.index + 1)?;
        one(f, &self.recorded)?;
        f.write_str(", the replay ")?;
        one(f, &self.replayed)
    }
}

impl std::error::Error for ReplayMismatch {}

/// The world as the diary recorded it.
struct RecordedEnvironment {
    draws: VecDeque<f64>,
    grants: VecDeque<Grant>,
    previous: Option<Ns>,
    events: Vec<(Ns, Event)>,
}

impl Environment for RecordedEnvironment {
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
        self.replay_core(policy.as_ref())
    }

    fn replay_core(&self, policy: &Policy) -> Result<(), Box<ReplayMismatch>> {
        let recorded = self.events();
        let Some(&(start, Event::CallStarted { deadline, idempotent })) = recorded.first() else {
            let Some(&first) = recorded.first() else { return Ok(()) };
            return Err(mismatch(first.0, 0, Some(first), None));
        };
        let mut env = RecordedEnvironment {
            draws: recorded
                .iter()
                .filter_map(
                    |(_, event)| if let Event::RandomDraw(u) = event { Some(*u) } else { None },
                )
                .collect(),
            grants: recorded
                .iter()
                .filter_map(|(_, event)| {
                    if let Event::ThrottleAnswered(grant) = event { Some(*grant) } else { None }
                })
                .collect(),
            previous: None,
            events: Vec::new(),
        };
        // What the terms said is noted before anything starts.
        let initial = || {
            let events = recorded.iter().skip(1).map(|(_, event)| event);
            events.take_while(|event| matches!(event, Event::HedgeDelay(_) | Event::NotReplayable))
        };
        let params = CallParams {
            deadline: deadline.map(|at| duration(at.saturating_sub(start))),
            idempotent,
            not_replayable: initial().any(|event| *event == Event::NotReplayable),
            hedge: initial().find_map(|event| {
                if let Event::HedgeDelay(hedge) = event { Some(*hedge) } else { None }
            }),
            asks: recorded.iter().any(|(_, event)| matches!(event, Event::StrategyAsked(_))),
        };
        let starts = !matches!(
            recorded.get(1 + initial().count()),
            Some((_, Event::CallEnded { stop_reason: StopReason::Cancelled, attempt: None }))
        );
        let begin = if starts { Call::<_, LIVE_MAX>::begin } else { Call::cancelled_before_start };
        let mut call = begin(policy, params, start, &mut env);
        let mut slots = vec![0; recorded.len() + 1];
        let mut checked = 0;
        loop {
            while let Some(&replayed) = env.events.get(checked) {
                match recorded.get(checked) {
                    None => return Ok(()),
                    Some(event) if *event == replayed => checked += 1,
                    event => return Err(mismatch(start, checked, event.copied(), Some(replayed))),
                }
            }
            let Some(&(at, event)) = recorded.get(checked) else { return Ok(()) };
            let slot = |attempt: u32| slots.get(attempt as usize).copied().unwrap_or(0);
            let cancelled = || {
                let end = recorded.iter().rev().find_map(|(_, event)| {
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
                    let chosen = match recorded.get(checked + 1) {
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
                return Err(mismatch(start, checked, Some((at, event)), None));
            }
        }
    }
}

fn mismatch(
    started_at: Ns,
    index: usize,
    recorded: Option<(Ns, Event)>,
    replayed: Option<(Ns, Event)>,
) -> Box<ReplayMismatch> {
    Box::new(ReplayMismatch { index, started_at, recorded, replayed })
}
