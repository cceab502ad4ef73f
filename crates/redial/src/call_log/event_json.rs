//! One event of a call log as a JSON object.
//!
//! Invariant: an event that was written is read back as the same event, or reading it is an error.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::Duration;

use redial_core::{
    Advice, Classification, Directive, Event, Failure, FailureKind, Grant, HedgeDelay, Hint, Ns,
    Proof, Reason, Stage, StopReason, Withdrawal,
};
use serde::{Deserialize, Serialize};

/// How many different reasons can be read in one process. A reason's name is `&'static str`, so each
/// new name is leaked once.
const REASONS_MAX: usize = 4096;
/// The longest name of a reason, in bytes.
const REASON_BYTES_MAX: usize = 256;

#[derive(Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case", deny_unknown_fields)]
pub(super) enum JsonEvent {
    CallStarted {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deadline: Option<Ns>,
        idempotent: bool,
    },
    HedgeDelay {
        /// Absent: no hedge is sent on a timer.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<Ns>,
    },
    AttemptStarted {
        attempt: u32,
        number: u32,
    },
    AttemptOutcome {
        attempt: u32,
        directive: JsonDirective,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        failure: Option<JsonFailure>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        proof: Option<JsonProof>,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        drains: bool,
    },
    AttemptTimedOut {
        attempt: u32,
    },
    AttemptCancelled {
        attempt: u32,
    },
    RandomDraw {
        u: f64,
    },
    ThrottleAnswered {
        grant: JsonGrant,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<Ns>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        withdrawn: Option<u64>,
    },
    StrategyAsked {
        failure: JsonFailure,
    },
    StrategyAnswered {
        advice: JsonAdvice,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<Ns>,
    },
    RetryScheduled {
        after: Ns,
        failure: JsonFailure,
    },
    TransparentRetryScheduled {
        attempt: u32,
        after: Ns,
        proof: JsonProof,
    },
    Committed {
        attempt: u32,
    },
    NotReplayable {},
    CallEnded {
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

#[derive(Serialize, Deserialize, Clone, Copy)]
#[serde(rename_all = "kebab-case")]
pub(super) enum JsonAdvice {
    After,
    Decline,
    None,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct JsonFailure {
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
    NotReady,
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
                JsonEvent::CallStarted { deadline, idempotent }
            }
            Event::HedgeDelay(HedgeDelay::After(after)) => {
                JsonEvent::HedgeDelay { after: Some(after) }
            }
            Event::HedgeDelay(HedgeDelay::Never) => JsonEvent::HedgeDelay { after: None },
            Event::AttemptStarted { attempt, number } => {
                JsonEvent::AttemptStarted { attempt, number }
            }
            Event::AttemptOutcome { attempt, classification } => {
                let Classification { directive, proof, drains } = classification;
                let (directive, failure) = match directive {
                    Directive::Succeed => (JsonDirective::Succeed, None),
                    Directive::Fail => (JsonDirective::Fail, None),
                    Directive::Retry(failure) => (JsonDirective::Retry, Some(failure.into())),
                };
                let proof = proof.map(JsonProof::from);
                JsonEvent::AttemptOutcome { attempt, directive, failure, proof, drains }
            }
            Event::AttemptTimedOut { attempt } => JsonEvent::AttemptTimedOut { attempt },
            Event::AttemptCancelled { attempt } => JsonEvent::AttemptCancelled { attempt },
            Event::RandomDraw(u) => JsonEvent::RandomDraw { u },
            Event::ThrottleAnswered(grant) => {
                let (grant, after, withdrawn) = match grant {
                    Grant::Now(Withdrawal(withdrawn)) => (JsonGrant::Now, None, Some(withdrawn)),
                    Grant::After(after, Withdrawal(withdrawn)) => {
                        (JsonGrant::After, Some(after), Some(withdrawn))
                    }
                    Grant::Later => (JsonGrant::Later, None, None),
                    Grant::Refused => (JsonGrant::Refused, None, None),
                };
                JsonEvent::ThrottleAnswered { grant, after, withdrawn }
            }
            Event::StrategyAsked(failure) => JsonEvent::StrategyAsked { failure: failure.into() },
            Event::StrategyAnswered(advice) => {
                let (advice, after) = match advice {
                    Advice::After(after) => (JsonAdvice::After, Some(after)),
                    Advice::Decline => (JsonAdvice::Decline, None),
                    Advice::None => (JsonAdvice::None, None),
                };
                JsonEvent::StrategyAnswered { advice, after }
            }
            Event::RetryScheduled { after, failure } => {
                JsonEvent::RetryScheduled { after, failure: failure.into() }
            }
            Event::TransparentRetryScheduled { attempt, after, proof } => {
                JsonEvent::TransparentRetryScheduled { attempt, after, proof: proof.into() }
            }
            Event::Committed { attempt } => JsonEvent::Committed { attempt },
            Event::NotReplayable => JsonEvent::NotReplayable {},
            Event::CallEnded { stop_reason, attempt } => {
                JsonEvent::CallEnded { stop_reason: stop_reason.name().into(), attempt }
            }
        }
    }
}

impl TryFrom<JsonEvent> for Event {
    type Error = String;

    fn try_from(event: JsonEvent) -> Result<Self, String> {
        Ok(match event {
            JsonEvent::CallStarted { deadline, idempotent } => {
                Event::CallStarted { deadline, idempotent }
            }
            JsonEvent::HedgeDelay { after: Some(after) } => {
                Event::HedgeDelay(HedgeDelay::After(after))
            }
            JsonEvent::HedgeDelay { after: None } => Event::HedgeDelay(HedgeDelay::Never),
            JsonEvent::AttemptStarted { attempt, number } => {
                Event::AttemptStarted { attempt, number }
            }
            JsonEvent::AttemptOutcome { attempt, directive, failure, proof, drains } => {
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
            JsonEvent::AttemptTimedOut { attempt } => Event::AttemptTimedOut { attempt },
            JsonEvent::AttemptCancelled { attempt } => Event::AttemptCancelled { attempt },
            JsonEvent::RandomDraw { u } if (0.0..1.0).contains(&u) => Event::RandomDraw(u),
            JsonEvent::RandomDraw { u } => return Err(format!("a draw of {u} is not in [0, 1)")),
            JsonEvent::ThrottleAnswered { grant, after, withdrawn } => {
                Event::ThrottleAnswered(match (grant, after, withdrawn) {
                    (JsonGrant::Now, None, Some(withdrawn)) => Grant::Now(Withdrawal(withdrawn)),
                    (JsonGrant::After, Some(after), Some(withdrawn)) => {
                        Grant::After(after, Withdrawal(withdrawn))
                    }
                    (JsonGrant::Later, None, None) => Grant::Later,
                    (JsonGrant::Refused, None, None) => Grant::Refused,
                    _ => return Err("`after` and `withdrawn` do not match this grant".into()),
                })
            }
            JsonEvent::StrategyAsked { failure } => Event::StrategyAsked(failure.try_into()?),
            JsonEvent::StrategyAnswered { advice, after } => {
                Event::StrategyAnswered(match (advice, after) {
                    (JsonAdvice::After, Some(after)) => Advice::After(after),
                    (JsonAdvice::Decline, None) => Advice::Decline,
                    (JsonAdvice::None, None) => Advice::None,
                    _ => return Err("`after` goes with the advice `after` alone".into()),
                })
            }
            JsonEvent::RetryScheduled { after, failure } => {
                Event::RetryScheduled { after, failure: failure.try_into()? }
            }
            JsonEvent::TransparentRetryScheduled { attempt, after, proof } => {
                Event::TransparentRetryScheduled { attempt, after, proof: proof.into() }
            }
            JsonEvent::Committed { attempt } => Event::Committed { attempt },
            JsonEvent::NotReplayable {} => Event::NotReplayable,
            JsonEvent::CallEnded { stop_reason, attempt } => {
                let known = StopReason::ALL.into_iter().find(|known| known.name() == stop_reason);
                let stop_reason =
                    known.ok_or_else(|| format!("unknown stop reason `{stop_reason}`"))?;
                Event::CallEnded { stop_reason, attempt }
            }
        })
    }
}

impl From<Failure> for JsonFailure {
    fn from(failure: Failure) -> Self {
        JsonFailure {
            kind: match failure.kind {
                FailureKind::Server => JsonKind::Server,
                FailureKind::Client => JsonKind::Client,
                FailureKind::Throttling => JsonKind::Throttling,
                FailureKind::Timeout => JsonKind::Timeout,
                FailureKind::NotReady => JsonKind::NotReady,
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

    fn try_from(json: JsonFailure) -> Result<Self, String> {
        let kind = match json.kind {
            JsonKind::Server => FailureKind::Server,
            JsonKind::Client => FailureKind::Client,
            JsonKind::Throttling => FailureKind::Throttling,
            JsonKind::Timeout => FailureKind::Timeout,
            JsonKind::NotReady => FailureKind::NotReady,
        };
        let stage = match json.stage {
            JsonStage::Unsent => Stage::Unsent,
            JsonStage::InFlight => Stage::InFlight,
            JsonStage::Answered => Stage::Answered,
        };
        let hint = match json.hint {
            None => Hint::None,
            Some(JsonHint::Stop) => Hint::Stop,
            Some(JsonHint::After { secs, nanos }) if nanos < 1_000_000_000 => {
                Hint::After(Duration::new(secs, nanos))
            }
            Some(JsonHint::After { .. }) => return Err("`nanos` is a second or more".into()),
        };
        let mut failure = Failure::new(kind).at(stage).hint(hint);
        if let Some(json) = json.reason {
            let mut reason = Reason::new(static_name(&json.name)?);
            if json.allows_non_idempotent {
                reason = reason.allow_non_idempotent();
            }
            if json.always {
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

/// The name of a reason as `&'static str`; each different name is leaked once.
fn static_name(text: &str) -> Result<&'static str, String> {
    static NAMES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut names = NAMES.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    intern(&mut names, text, REASONS_MAX)
}

fn intern(
    names: &mut BTreeSet<&'static str>,
    text: &str,
    names_max: usize,
) -> Result<&'static str, String> {
    if let Some(known) = names.get(text) {
        return Ok(known);
    }
    if text.len() > REASON_BYTES_MAX {
        return Err(format!("a reason of more than {REASON_BYTES_MAX} bytes"));
    }
    if names.len() >= names_max {
        return Err(format!("more than {names_max} different reasons"));
    }
    let name: &'static str = Box::leak(text.to_owned().into_boxed_str());
    names.insert(name);
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn call_log_reason_names_are_interned_up_to_limits() {
        let mut names = BTreeSet::new();
        assert_eq!(intern(&mut names, "A", 2), Ok("A"));
        assert_eq!(intern(&mut names, "A", 2), Ok("A"));
        let longest = "b".repeat(REASON_BYTES_MAX);
        let longer = format!("{longest}b");
        assert_eq!(intern(&mut names, &longer, 2), Err("a reason of more than 256 bytes".into()));
        assert_eq!(intern(&mut names, &longest, 2), Ok(longest.as_str()));
        assert_eq!(intern(&mut names, "C", 2), Err("more than 2 different reasons".into()));
        assert_eq!(intern(&mut names, "A", 2), Ok("A"), "a known name needs no room");
    }
}
