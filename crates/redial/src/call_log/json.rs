//! The written form of a note.
//!
//! Rule: what was written is read again as the same note, or not at all.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::Duration;

use redial_core::{
    Advice, Classification, Directive, Event, Failure, Grant, HedgeDelay, Hint, Kind, Ns, Proof,
    Reason, Stage, StopReason, Withdrawal,
};
use serde::{Deserialize, Serialize};

/// How many different reasons can be read in one process: their names live as long as it does.
const REASONS_MAX: usize = 4096;
/// The longest name of a reason that is read, in bytes.
const REASON_BYTES_MAX: usize = 256;

#[derive(Serialize, Deserialize)]
#[serde(tag = "note", rename_all = "kebab-case", deny_unknown_fields)]
pub(super) enum JsonEvent {
    Began {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deadline: Option<Ns>,
        idempotent: bool,
    },
    Hedging {
        /// Absent: never by time.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<Ns>,
    },
    Started {
        attempt: u32,
        number: u32,
    },
    Outcome {
        attempt: u32,
        directive: JsonDirective,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        failure: Option<JsonFailure>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        proof: Option<JsonProof>,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        drains: bool,
    },
    TimedOut {
        attempt: u32,
    },
    Cancelled {
        attempt: u32,
    },
    Drew {
        u: f64,
    },
    Granted {
        grant: JsonGrant,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<Ns>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        taken: Option<u64>,
    },
    Asked {
        failure: JsonFailure,
    },
    Answered {
        /// Absent: declined.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<Ns>,
        /// It neither agreed nor declined.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        silent: bool,
    },
    Retrying {
        after: Ns,
        failure: JsonFailure,
    },
    Replacing {
        attempt: u32,
        after: Ns,
        proof: JsonProof,
    },
    Committed {
        attempt: u32,
    },
    Sealed {},
    Ended {
        #[serde(rename = "why")]
        stop_reason: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        attempt: Option<u32>,
    },
}

#[derive(Serialize, Deserialize, Clone, Copy)]
#[serde(rename_all = "kebab-case")]
pub(super) enum JsonDirective {
    Succeed,
    Fail,
    Retry,
}

#[derive(Serialize, Deserialize, Clone, Copy)]
#[serde(rename_all = "kebab-case")]
pub(super) enum JsonProof {
    Unprocessed,
    Unsent,
}

#[derive(Serialize, Deserialize, Clone, Copy)]
#[serde(rename_all = "kebab-case")]
pub(super) enum JsonGrant {
    Now,
    After,
    Later,
    Refused,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct JsonFailure {
    kind: JsonKind,
    stage: JsonStage,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<JsonReason>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hint: Option<JsonHint>,
}

#[derive(Serialize, Deserialize, Clone, Copy)]
#[serde(rename_all = "kebab-case")]
pub(super) enum JsonKind {
    Server,
    Client,
    Throttling,
    Timeout,
}

#[derive(Serialize, Deserialize, Clone, Copy)]
#[serde(rename_all = "kebab-case")]
pub(super) enum JsonStage {
    Unsent,
    InFlight,
    Answered,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct JsonReason {
    name: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    allows_non_idempotent: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    always: bool,
}

#[derive(Serialize, Deserialize, Clone, Copy)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) enum JsonHint {
    After { secs: u64, nanos: u32 },
    Stop,
}

impl From<Event> for JsonEvent {
    fn from(event: Event) -> Self {
        match event {
            Event::CallStarted { deadline, idempotent } => {
                JsonEvent::Began { deadline, idempotent }
            }
            Event::HedgeDelay(HedgeDelay::After(after)) => {
                JsonEvent::Hedging { after: Some(after) }
            }
            Event::HedgeDelay(HedgeDelay::Never) => JsonEvent::Hedging { after: None },
            Event::AttemptStarted { attempt, number } => JsonEvent::Started { attempt, number },
            Event::AttemptOutcome { attempt, classification } => {
                let Classification { directive, proof, drains } = classification;
                let (directive, failure) = match directive {
                    Directive::Succeed => (JsonDirective::Succeed, None),
                    Directive::Fail => (JsonDirective::Fail, None),
                    Directive::Retry(failure) => (JsonDirective::Retry, Some(failure.into())),
                };
                let proof = proof.map(JsonProof::from);
                JsonEvent::Outcome { attempt, directive, failure, proof, drains }
            }
            Event::AttemptTimedOut { attempt } => JsonEvent::TimedOut { attempt },
            Event::AttemptCancelled { attempt } => JsonEvent::Cancelled { attempt },
            Event::RandomDraw(u) => JsonEvent::Drew { u },
            Event::ThrottleAnswered(grant) => {
                let (grant, after, taken) = match grant {
                    Grant::Now(Withdrawal(taken)) => (JsonGrant::Now, None, Some(taken)),
                    Grant::After(after, Withdrawal(taken)) => {
                        (JsonGrant::After, Some(after), Some(taken))
                    }
                    Grant::Later => (JsonGrant::Later, None, None),
                    Grant::Refused => (JsonGrant::Refused, None, None),
                };
                JsonEvent::Granted { grant, after, taken }
            }
            Event::StrategyAsked(failure) => JsonEvent::Asked { failure: failure.into() },
            Event::StrategyAnswered(advice) => {
                let (after, silent) = match advice {
                    Advice::After(after) => (Some(after), false),
                    Advice::Decline => (None, false),
                    Advice::None => (None, true),
                };
                JsonEvent::Answered { after, silent }
            }
            Event::RetryScheduled { after, failure } => {
                JsonEvent::Retrying { after, failure: failure.into() }
            }
            Event::TransparentRetryScheduled { attempt, after, proof } => {
                JsonEvent::Replacing { attempt, after, proof: proof.into() }
            }
            Event::Committed { attempt } => JsonEvent::Committed { attempt },
            Event::NotReplayable => JsonEvent::Sealed {},
            Event::CallEnded { stop_reason, attempt } => {
                JsonEvent::Ended { stop_reason: stop_reason.name().into(), attempt }
            }
        }
    }
}

impl TryFrom<JsonEvent> for Event {
    type Error = String;

    fn try_from(written: JsonEvent) -> Result<Self, String> {
        Ok(match written {
            JsonEvent::Began { deadline, idempotent } => {
                Event::CallStarted { deadline, idempotent }
            }
            JsonEvent::Hedging { after: Some(after) } => {
                Event::HedgeDelay(HedgeDelay::After(after))
            }
            JsonEvent::Hedging { after: None } => Event::HedgeDelay(HedgeDelay::Never),
            JsonEvent::Started { attempt, number } => Event::AttemptStarted { attempt, number },
            JsonEvent::Outcome { attempt, directive, failure, proof, drains } => {
                let directive = match (directive, failure) {
                    (JsonDirective::Succeed, None) => Directive::Succeed,
                    (JsonDirective::Fail, None) => Directive::Fail,
                    (JsonDirective::Retry, Some(failure)) => Directive::Retry(failure.try_into()?),
                    _ => return Err("`failure` goes with the directive `retry` alone".into()),
                };
                let proof = proof.map(Proof::from);
                Event::AttemptOutcome {
                    attempt,
                    classification: Classification { directive, proof, drains },
                }
            }
            JsonEvent::TimedOut { attempt } => Event::AttemptTimedOut { attempt },
            JsonEvent::Cancelled { attempt } => Event::AttemptCancelled { attempt },
            JsonEvent::Drew { u } if (0.0..1.0).contains(&u) => Event::RandomDraw(u),
            JsonEvent::Drew { u } => return Err(format!("a draw of {u} is not in [0, 1)")),
            JsonEvent::Granted { grant, after, taken } => {
                Event::ThrottleAnswered(match (grant, after, taken) {
                    (JsonGrant::Now, None, Some(taken)) => Grant::Now(Withdrawal(taken)),
                    (JsonGrant::After, Some(after), Some(taken)) => {
                        Grant::After(after, Withdrawal(taken))
                    }
                    (JsonGrant::Later, None, None) => Grant::Later,
                    (JsonGrant::Refused, None, None) => Grant::Refused,
                    _ => return Err("`after` and `taken` do not go with this grant".into()),
                })
            }
            JsonEvent::Asked { failure } => Event::StrategyAsked(failure.try_into()?),
            JsonEvent::Answered { after, silent } => {
                Event::StrategyAnswered(match (after, silent) {
                    (Some(after), false) => Advice::After(after),
                    (None, false) => Advice::Decline,
                    (None, true) => Advice::None,
                    (Some(_), true) => return Err("`after` does not go with `silent`".into()),
                })
            }
            JsonEvent::Retrying { after, failure } => {
                Event::RetryScheduled { after, failure: failure.try_into()? }
            }
            JsonEvent::Replacing { attempt, after, proof } => {
                Event::TransparentRetryScheduled { attempt, after, proof: proof.into() }
            }
            JsonEvent::Committed { attempt } => Event::Committed { attempt },
            JsonEvent::Sealed {} => Event::NotReplayable,
            JsonEvent::Ended { stop_reason, attempt } => {
                let known = StopReason::ALL.into_iter().find(|known| known.name() == stop_reason);
                let stop_reason = known.ok_or_else(|| format!("unknown why `{stop_reason}`"))?;
                Event::CallEnded { stop_reason, attempt }
            }
        })
    }
}

impl From<Failure> for JsonFailure {
    fn from(failure: Failure) -> Self {
        JsonFailure {
            kind: match failure.kind {
                Kind::Server => JsonKind::Server,
                Kind::Client => JsonKind::Client,
                Kind::Throttling => JsonKind::Throttling,
                Kind::Timeout => JsonKind::Timeout,
            },
            stage: match failure.stage {
                Stage::Unsent => JsonStage::Unsent,
                Stage::InFlight => JsonStage::InFlight,
                Stage::Answered => JsonStage::Answered,
            },
            reason: failure.reason.map(|reason| JsonReason {
                name: reason.name().into(),
                allows_non_idempotent: reason.allows_non_idempotent_retry(),
                always: reason.is_always_retried(),
            }),
            hint: match failure.hint {
                Hint::None => None,
                Hint::After(span) => {
                    Some(JsonHint::After { secs: span.as_secs(), nanos: span.subsec_nanos() })
                }
                Hint::Stop => Some(JsonHint::Stop),
            },
        }
    }
}

impl TryFrom<JsonFailure> for Failure {
    type Error = String;

    fn try_from(written: JsonFailure) -> Result<Self, String> {
        let kind = match written.kind {
            JsonKind::Server => Kind::Server,
            JsonKind::Client => Kind::Client,
            JsonKind::Throttling => Kind::Throttling,
            JsonKind::Timeout => Kind::Timeout,
        };
        let stage = match written.stage {
            JsonStage::Unsent => Stage::Unsent,
            JsonStage::InFlight => Stage::InFlight,
            JsonStage::Answered => Stage::Answered,
        };
        let hint = match written.hint {
            None => Hint::None,
            Some(JsonHint::Stop) => Hint::Stop,
            Some(JsonHint::After { secs, nanos }) if nanos < 1_000_000_000 => {
                Hint::After(Duration::new(secs, nanos))
            }
            Some(JsonHint::After { .. }) => return Err("`nanos` is a second or more".into()),
        };
        let mut failure = Failure::new(kind).at(stage).hint(hint);
        if let Some(written) = written.reason {
            let mut reason = Reason::new(name(&written.name)?);
            if written.allows_non_idempotent {
                reason = reason.allow_non_idempotent();
            }
            if written.always {
                reason = reason.always();
            }
            failure = failure.because(reason);
        }
        Ok(failure)
    }
}

impl From<Proof> for JsonProof {
    fn from(proof: Proof) -> Self {
        match proof {
            Proof::Unprocessed => JsonProof::Unprocessed,
            Proof::Unsent => JsonProof::Unsent,
        }
    }
}

impl From<JsonProof> for Proof {
    fn from(proof: JsonProof) -> Self {
        match proof {
            JsonProof::Unprocessed => Proof::Unprocessed,
            JsonProof::Unsent => Proof::Unsent,
        }
    }
}

/// The name of a reason for as long as the process lives; each is kept once.
fn name(text: &str) -> Result<&'static str, String> {
    static NAMES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut names = NAMES.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    kept(&mut names, text, REASONS_MAX)
}

fn kept(
    names: &mut BTreeSet<&'static str>,
    text: &str,
    most: usize,
) -> Result<&'static str, String> {
    if let Some(known) = names.get(text) {
        return Ok(known);
    }
    if text.len() > REASON_BYTES_MAX {
        return Err(format!("a reason of more than {REASON_BYTES_MAX} bytes"));
    }
    if names.len() >= most {
        return Err(format!("more than {most} different reasons"));
    }
    let name: &'static str = Box::leak(text.to_owned().into_boxed_str());
    names.insert(name);
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_reasons_are_kept_once_and_up_to_both_limits() {
        let mut names = BTreeSet::new();
        assert_eq!(kept(&mut names, "A", 2), Ok("A"));
        assert_eq!(kept(&mut names, "A", 2), Ok("A"));
        let longest = "b".repeat(REASON_BYTES_MAX);
        let longer = format!("{longest}b");
        assert_eq!(kept(&mut names, &longer, 2), Err("a reason of more than 256 bytes".into()));
        assert_eq!(kept(&mut names, &longest, 2), Ok(longest.as_str()));
        assert_eq!(kept(&mut names, "C", 2), Err("more than 2 different reasons".into()));
        assert_eq!(kept(&mut names, "A", 2), Ok("A"), "what is known stays known");
    }
}
