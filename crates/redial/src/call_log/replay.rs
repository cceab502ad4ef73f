//! Replay: feeds the recorded inputs into the state machine and compares its decisions with the
//! recorded ones.

use std::collections::VecDeque;
use std::fmt;

use redial_core::{
    Call, CallParams, Command, Cost, Environment, Event, Grant, Ns, Policy, StopReason, Withdrawal,
    duration,
};

use super::{CallLog, from_start};

/// The first difference between a replay and its call log: under this policy, the call would have
/// decided differently.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ReplayMismatch {
    /// The index of the first event that differs.
    pub index: usize,
    /// The recorded start of the call.
    pub started_at: Ns,
    /// The recorded event; `None`: the log has ended.
    pub recorded: Option<(Ns, Event)>,
    /// The event of the replay; `None`: there was none.
    pub replayed: Option<(Ns, Event)>,
}

impl fmt::Display for ReplayMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let one = |f: &mut fmt::Formatter<'_>, event: &Option<(Ns, Event)>| match event {
            Some((at, event)) => {
                let event = from_start(*event, self.started_at);
                write!(f, "\"{event}\" at {:?}", duration(at.saturating_sub(self.started_at)))
            }
            None => f.write_str("nothing"),
        };
        write!(f, "event {}: the call log has ", self.index + 1)?;
        one(f, &self.recorded)?;
        f.write_str(", the replay has ")?;
        one(f, &self.replayed)
    }
}

impl std::error::Error for ReplayMismatch {}

/// The environment as the call log recorded it: draws and grants come from the log.
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
    fn forget(&mut self) {
        self.previous = None;
    }
    fn remember(&mut self, delay: Ns) {
        self.previous = Some(delay);
    }
    fn record(&mut self, at: Ns, event: Event) {
        self.events.push((at, event));
    }
}

impl CallLog {
    /// Replays the call under this policy. The inputs (times, outcomes, random draws, answers of the
    /// throttle and of the strategy) come from the call log, and every decision is compared with it.
    ///
    /// The policy can be a [`Policy`](crate::Policy), a [`Hedged`](crate::Hedged) one, an
    /// [`AnyPolicy`](crate::AnyPolicy), or one of `redial-core`. The policy behind
    /// [`retry`](crate::retry) is `Policy::exponential(ms(100)).build()`.
    ///
    /// A log that stops in the middle of a call is replayed up to that point.
    ///
    /// # Errors
    /// The first event that differs.
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
        // The parameters of the call are recorded before the first attempt.
        let initial = || {
            let events = recorded.iter().skip(1).map(|(_, event)| event);
            events.take_while(|event| matches!(event, Event::HedgeDelay(_) | Event::NotReplayable))
        };
        let params = CallParams {
            deadline: deadline.map(|at| duration(at.saturating_sub(start))),
            idempotent,
            not_replayable: initial().any(|event| *event == Event::NotReplayable),
            ends_at_attempt_timeout: recorded.iter().any(|(_, event)| {
                matches!(event, Event::CallEnded { stop_reason: StopReason::AttemptTimeout, .. })
            }),
            hedge: initial().find_map(|event| {
                if let Event::HedgeDelay(hedge) = event { Some(*hedge) } else { None }
            }),
            uses_strategy: recorded
                .iter()
                .any(|(_, event)| matches!(event, Event::StrategyAsked(_))),
        };
        let starts = !matches!(
            recorded.get(1 + initial().count()),
            Some((_, Event::CallEnded { stop_reason: StopReason::Cancelled, attempt: None }))
        );
        let begin = if starts { Call::begin } else { Call::cancelled_before_start };
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
                    call.granted(grant, at, &mut env);
                }
                // The driver took the next command, or a timer fired and led to one. A driver may
                // report an outcome before it has taken all commands, so a command is taken only
                // when the log shows it.
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
