//! The written form of a note.
//!
//! Rule: what was written is read again as the same note, or not at all.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::Duration;

use redial_core::{
    Advice, Directive, Failure, Grant, HedgeDelay, Hint, Judgement, Kind, Note, Ns, Proof, Reason,
    Stage, Taken, Why,
};
use serde::{Deserialize, Serialize};

/// How many different reasons can be read in one process: their names live as long as it does.
const REASONS_MAX: usize = 4096;
/// The longest name of a reason that is read, in bytes.
const REASON_BYTES_MAX: usize = 256;

#[derive(Serialize, Deserialize)]
#[serde(tag = "note", rename_all = "kebab-case", deny_unknown_fields)]
pub(super) enum Written {
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
        directive: WrittenDirective,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        failure: Option<WrittenFailure>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        proof: Option<WrittenProof>,
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
        grant: WrittenGrant,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<Ns>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        taken: Option<u64>,
    },
    Asked {
        failure: WrittenFailure,
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
        failure: WrittenFailure,
    },
    Replacing {
        attempt: u32,
        after: Ns,
        proof: WrittenProof,
    },
    Committed {
        attempt: u32,
    },
    Sealed {},
    Ended {
        why: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        attempt: Option<u32>,
    },
}

#[derive(Serialize, Deserialize, Clone, Copy)]
#[serde(rename_all = "kebab-case")]
pub(super) enum WrittenDirective {
    Succeed,
    Fail,
    Retry,
}

#[derive(Serialize, Deserialize, Clone, Copy)]
#[serde(rename_all = "kebab-case")]
pub(super) enum WrittenProof {
    Unprocessed,
    Unsent,
}

#[derive(Serialize, Deserialize, Clone, Copy)]
#[serde(rename_all = "kebab-case")]
pub(super) enum WrittenGrant {
    Now,
    After,
    Later,
    Refused,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenFailure {
    kind: WrittenKind,
    stage: WrittenStage,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<WrittenReason>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hint: Option<WrittenHint>,
}

#[derive(Serialize, Deserialize, Clone, Copy)]
#[serde(rename_all = "kebab-case")]
pub(super) enum WrittenKind {
    Server,
    Client,
    Throttling,
    Timeout,
}

#[derive(Serialize, Deserialize, Clone, Copy)]
#[serde(rename_all = "kebab-case")]
pub(super) enum WrittenStage {
    Unsent,
    InFlight,
    Answered,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenReason {
    name: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    allows_non_idempotent: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    always: bool,
}

#[derive(Serialize, Deserialize, Clone, Copy)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) enum WrittenHint {
    After { secs: u64, nanos: u32 },
    Stop,
}

impl From<Note> for Written {
    fn from(note: Note) -> Self {
        match note {
            Note::Began { deadline, idempotent } => Written::Began { deadline, idempotent },
            Note::Hedging(HedgeDelay::After(after)) => Written::Hedging { after: Some(after) },
            Note::Hedging(HedgeDelay::Never) => Written::Hedging { after: None },
            Note::Started { attempt, number } => Written::Started { attempt, number },
            Note::Outcome { attempt, judgement } => {
                let Judgement { directive, proof, drains } = judgement;
                let (directive, failure) = match directive {
                    Directive::Succeed => (WrittenDirective::Succeed, None),
                    Directive::Fail => (WrittenDirective::Fail, None),
                    Directive::Retry(failure) => (WrittenDirective::Retry, Some(failure.into())),
                };
                let proof = proof.map(WrittenProof::from);
                Written::Outcome { attempt, directive, failure, proof, drains }
            }
            Note::TimedOut { attempt } => Written::TimedOut { attempt },
            Note::Cancelled { attempt } => Written::Cancelled { attempt },
            Note::Drew(u) => Written::Drew { u },
            Note::Granted(grant) => {
                let (grant, after, taken) = match grant {
                    Grant::Now(Taken(taken)) => (WrittenGrant::Now, None, Some(taken)),
                    Grant::After(after, Taken(taken)) => {
                        (WrittenGrant::After, Some(after), Some(taken))
                    }
                    Grant::Later => (WrittenGrant::Later, None, None),
                    Grant::Refused => (WrittenGrant::Refused, None, None),
                };
                Written::Granted { grant, after, taken }
            }
            Note::Asked(failure) => Written::Asked { failure: failure.into() },
            Note::Answered(advice) => {
                let (after, silent) = match advice {
                    Advice::After(after) => (Some(after), false),
                    Advice::Decline => (None, false),
                    Advice::None => (None, true),
                };
                Written::Answered { after, silent }
            }
            Note::Retrying { after, failure } => {
                Written::Retrying { after, failure: failure.into() }
            }
            Note::Replacing { attempt, after, proof } => {
                Written::Replacing { attempt, after, proof: proof.into() }
            }
            Note::Committed { attempt } => Written::Committed { attempt },
            Note::Sealed => Written::Sealed {},
            Note::Ended { why, attempt } => Written::Ended { why: why.name().into(), attempt },
        }
    }
}

impl TryFrom<Written> for Note {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        Ok(match written {
            Written::Began { deadline, idempotent } => Note::Began { deadline, idempotent },
            Written::Hedging { after: Some(after) } => Note::Hedging(HedgeDelay::After(after)),
            Written::Hedging { after: None } => Note::Hedging(HedgeDelay::Never),
            Written::Started { attempt, number } => Note::Started { attempt, number },
            Written::Outcome { attempt, directive, failure, proof, drains } => {
                let directive = match (directive, failure) {
                    (WrittenDirective::Succeed, None) => Directive::Succeed,
                    (WrittenDirective::Fail, None) => Directive::Fail,
                    (WrittenDirective::Retry, Some(failure)) => {
                        Directive::Retry(failure.try_into()?)
                    }
                    _ => return Err("`failure` goes with the directive `retry` alone".into()),
                };
                let proof = proof.map(Proof::from);
                Note::Outcome { attempt, judgement: Judgement { directive, proof, drains } }
            }
            Written::TimedOut { attempt } => Note::TimedOut { attempt },
            Written::Cancelled { attempt } => Note::Cancelled { attempt },
            Written::Drew { u } if (0.0..1.0).contains(&u) => Note::Drew(u),
            Written::Drew { u } => return Err(format!("a draw of {u} is not in [0, 1)")),
            Written::Granted { grant, after, taken } => {
                Note::Granted(match (grant, after, taken) {
                    (WrittenGrant::Now, None, Some(taken)) => Grant::Now(Taken(taken)),
                    (WrittenGrant::After, Some(after), Some(taken)) => {
                        Grant::After(after, Taken(taken))
                    }
                    (WrittenGrant::Later, None, None) => Grant::Later,
                    (WrittenGrant::Refused, None, None) => Grant::Refused,
                    _ => return Err("`after` and `taken` do not go with this grant".into()),
                })
            }
            Written::Asked { failure } => Note::Asked(failure.try_into()?),
            Written::Answered { after, silent } => Note::Answered(match (after, silent) {
                (Some(after), false) => Advice::After(after),
                (None, false) => Advice::Decline,
                (None, true) => Advice::None,
                (Some(_), true) => return Err("`after` does not go with `silent`".into()),
            }),
            Written::Retrying { after, failure } => {
                Note::Retrying { after, failure: failure.try_into()? }
            }
            Written::Replacing { attempt, after, proof } => {
                Note::Replacing { attempt, after, proof: proof.into() }
            }
            Written::Committed { attempt } => Note::Committed { attempt },
            Written::Sealed {} => Note::Sealed,
            Written::Ended { why, attempt } => {
                let known = Why::ALL.into_iter().find(|known| known.name() == why);
                let why = known.ok_or_else(|| format!("unknown why `{why}`"))?;
                Note::Ended { why, attempt }
            }
        })
    }
}

impl From<Failure> for WrittenFailure {
    fn from(failure: Failure) -> Self {
        WrittenFailure {
            kind: match failure.kind {
                Kind::Server => WrittenKind::Server,
                Kind::Client => WrittenKind::Client,
                Kind::Throttling => WrittenKind::Throttling,
                Kind::Timeout => WrittenKind::Timeout,
            },
            stage: match failure.stage {
                Stage::Unsent => WrittenStage::Unsent,
                Stage::InFlight => WrittenStage::InFlight,
                Stage::Answered => WrittenStage::Answered,
            },
            reason: failure.reason.map(|reason| WrittenReason {
                name: reason.name().into(),
                allows_non_idempotent: reason.allows_non_idempotent_retry(),
                always: reason.is_always_retried(),
            }),
            hint: match failure.hint {
                Hint::None => None,
                Hint::After(span) => {
                    Some(WrittenHint::After { secs: span.as_secs(), nanos: span.subsec_nanos() })
                }
                Hint::Stop => Some(WrittenHint::Stop),
            },
        }
    }
}

impl TryFrom<WrittenFailure> for Failure {
    type Error = String;

    fn try_from(written: WrittenFailure) -> Result<Self, String> {
        let kind = match written.kind {
            WrittenKind::Server => Kind::Server,
            WrittenKind::Client => Kind::Client,
            WrittenKind::Throttling => Kind::Throttling,
            WrittenKind::Timeout => Kind::Timeout,
        };
        let stage = match written.stage {
            WrittenStage::Unsent => Stage::Unsent,
            WrittenStage::InFlight => Stage::InFlight,
            WrittenStage::Answered => Stage::Answered,
        };
        let hint = match written.hint {
            None => Hint::None,
            Some(WrittenHint::Stop) => Hint::Stop,
            Some(WrittenHint::After { secs, nanos }) if nanos < 1_000_000_000 => {
                Hint::After(Duration::new(secs, nanos))
            }
            Some(WrittenHint::After { .. }) => return Err("`nanos` is a second or more".into()),
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

impl From<Proof> for WrittenProof {
    fn from(proof: Proof) -> Self {
        match proof {
            Proof::Unprocessed => WrittenProof::Unprocessed,
            Proof::Unsent => WrittenProof::Unsent,
        }
    }
}

impl From<WrittenProof> for Proof {
    fn from(proof: WrittenProof) -> Self {
        match proof {
            WrittenProof::Unprocessed => Proof::Unprocessed,
            WrittenProof::Unsent => Proof::Unsent,
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
