//! The inputs of a recorded call as a script for another policy.
//!
//! Rules for what the log does not know, which the output repeats: an attempt that was cut off never
//! ends; an attempt that was never made ends as `--beyond` says; after the recorded random draws
//! every draw is 0.5; the throttle of the policy is full at the start.

use std::time::Duration;

use redial::testing::{self, AttemptOutcome, Play, Played, Script};
use redial::time::{Ns, duration};
use redial::{AnyPolicy, CallLog, Event};

use super::Beyond;
use crate::log_file::human;

/// The most attempts of a replay.
pub(super) const ATTEMPTS_MAX: usize = 1000;

/// A call under another policy, and what was assumed for it.
pub(super) struct WhatIf {
    pub(super) played: Played,
    pub(super) assumptions: Vec<String>,
}

impl WhatIf {
    /// Whether the throttle was asked for an attempt.
    pub(super) fn asks_throttle(&self) -> bool {
        let asked = |event: &Event| matches!(event, Event::ThrottleAnswered(_));
        self.played.call_log().events().iter().any(|(_, event)| asked(event))
    }
}

/// The end of a recorded attempt.
#[derive(Clone, Copy)]
struct Recorded {
    attempt: u32,
    started: Ns,
    headers: Option<Ns>,
    outcome: Option<(Ns, redial::classify::Classification)>,
}

pub(super) fn play(
    log: &CallLog,
    policy: &AnyPolicy,
    beyond: Beyond,
    deadline: Option<Duration>,
) -> Result<WhatIf, String> {
    let idempotent = !log
        .events()
        .iter()
        .any(|(_, event)| matches!(event, Event::CallStarted { idempotent: false, .. }));
    if !idempotent && matches!(policy, AnyPolicy::Hedged(_)) {
        return Err("the call is not idempotent, so that it cannot be hedged".to_owned());
    }
    let recorded = recorded(log);
    let after = match (beyond, recorded.iter().rev().find(|it| it.outcome.is_some())) {
        (Beyond::Last, Some(last)) => outcome(last),
        (Beyond::Succeed, _) => testing::succeeds().after(usual(&recorded)),
        (Beyond::Fail, _) => testing::fails().after(usual(&recorded)),
        (Beyond::Hang, _) | (Beyond::Last, None) => testing::hangs(),
    };
    let mut attempts: Vec<_> = recorded.iter().map(outcome).collect();
    attempts.resize(ATTEMPTS_MAX.max(attempts.len()), after);
    let mut script = Script::new(policy, attempts);
    if !idempotent {
        script = script.not_idempotent();
    }
    if let Some(deadline) = deadline {
        script = script.deadline(deadline);
    }
    let draws = log.events().iter().filter_map(|(_, event)| match event {
        Event::RandomDraw(u) => Some(*u),
        _ => None,
    });
    let mut played = Play::new().draws(draws.chain([0.5])).call(script).run();
    let played = played.pop().ok_or("the call did not run")?;
    if played.unscripted().is_some() {
        return Err(format!("the call makes more than {ATTEMPTS_MAX} attempts under this policy"));
    }
    let mut assumptions = assumptions(&recorded, &played, beyond);
    assumptions.extend(rules_used(log, played.call_log(), deadline));
    Ok(WhatIf { played, assumptions })
}

/// The attempts in the order of their starts.
fn recorded(log: &CallLog) -> Vec<Recorded> {
    let mut attempts: Vec<Recorded> = Vec::new();
    for &(at, event) in log.events() {
        match event {
            Event::AttemptStarted { attempt, .. } => {
                attempts.push(Recorded { attempt, started: at, headers: None, outcome: None });
            }
            Event::AttemptOutcome { attempt, classification } => {
                if let Some(it) = attempts.iter_mut().find(|it| it.attempt == attempt) {
                    it.outcome = Some((at.saturating_sub(it.started), classification));
                }
            }
            Event::Committed { attempt } => {
                if let Some(it) = attempts.iter_mut().find(|it| it.attempt == attempt) {
                    it.headers = Some(at.saturating_sub(it.started));
                }
            }
            _ => {}
        }
    }
    attempts
}

fn outcome(recorded: &Recorded) -> AttemptOutcome {
    let outcome = match recorded.outcome {
        Some((after, classification)) => {
            testing::classified_as(classification).after(duration(after))
        }
        None => testing::hangs(),
    };
    match recorded.headers {
        Some(headers) => outcome.headers(duration(headers)),
        None => outcome,
    }
}

/// How long the last attempt with an outcome took.
fn usual(recorded: &[Recorded]) -> Duration {
    let last = recorded.iter().rev().find_map(|it| it.outcome);
    last.map_or(Duration::ZERO, |(after, _)| duration(after))
}

/// The rules that the played call used for draws and the deadline.
fn rules_used(log: &CallLog, played: &CallLog, deadline: Option<Duration>) -> Vec<String> {
    let draws = |log: &CallLog| {
        log.events().iter().filter(|(_, event)| matches!(event, Event::RandomDraw(_))).count()
    };
    let mut texts = Vec::new();
    let recorded = draws(log);
    if draws(played) > recorded {
        texts.push(format!("random draws after the {recorded} recorded ones are 0.5"));
    }
    if let Some(deadline) = deadline {
        let deadline = human(redial::time::ns(deadline));
        texts.push(format!("the recorded deadline of {deadline} still applied"));
    }
    texts
}

fn assumptions(recorded: &[Recorded], played: &Played, beyond: Beyond) -> Vec<String> {
    let made = played.starts().len();
    let mut texts = Vec::new();
    for it in recorded.iter().take(made).filter(|it| it.outcome.is_none()) {
        texts.push(format!("attempt {} was cut off, so it is taken to never end", it.attempt));
    }
    if made > recorded.len() {
        let first = recorded.len() + 1;
        let which = if made == first {
            format!("attempt {made}")
        } else {
            format!("attempts {first} to {made}")
        };
        let took = human(redial::time::ns(usual(recorded)));
        let last = recorded.iter().rev().find(|it| it.outcome.is_some());
        let how = match (beyond, last) {
            (Beyond::Last, Some(last)) => {
                format!("ended like attempt {}, after {took}", last.attempt)
            }
            (Beyond::Succeed, _) => format!("succeeded after {took}"),
            (Beyond::Fail, _) => format!("failed after {took}"),
            (Beyond::Hang, _) | (Beyond::Last, None) => "had no end".to_owned(),
        };
        texts.push(format!("{which} never happened: taken to have {how}"));
    }
    texts
}
