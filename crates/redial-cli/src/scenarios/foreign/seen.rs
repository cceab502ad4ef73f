//! What the server and the application saw of a scenario.
//!
//! Attempts and cancels are counted from the arrival of the call's first attempt, by the server's clock;
//! the end from the call's start, by the program's.

use std::collections::BTreeMap;

use redial::time::Ns;
use redial_faults::grpc::{Reason, Record, Stream};
use serde_json::{Value, json};

use super::super::live::LatencyEstimator;
use super::super::time::to_json;
use super::protocol::{Answer, AnswerCall};

const PREVIOUS: &str = "grpc-previous-rpc-attempts";

/// What was seen.
#[derive(Debug)]
pub(super) enum Seen {
    /// The library made no channel, and said this.
    Refused(String),
    Calls(Vec<SeenCall>),
}

#[derive(Debug)]
pub(super) struct SeenCall {
    pub(super) attempts: Vec<SeenAttempt>,
    /// `None`: it did not end.
    pub(super) end: Option<SeenEnd>,
}

/// An attempt, as the server saw it.
#[derive(Debug)]
pub(super) struct SeenAttempt {
    pub(super) at: Ns,
    pub(super) cancelled: Option<Ns>,
    pub(super) previous: Option<String>,
    pub(super) timeout: Option<Ns>,
    pub(super) sent: u64,
}

/// The end of a call, as the application saw it.
#[derive(Debug)]
pub(super) struct SeenEnd {
    pub(super) at: Ns,
    pub(super) outcome: String,
    pub(super) text: String,
    pub(super) attempt: Option<u32>,
    pub(super) previous: Option<String>,
}

impl Seen {
    pub(super) fn new(answer: Answer, record: &Record, estimator: LatencyEstimator) -> Self {
        if let Some(text) = answer.refused {
            return Seen::Refused(text);
        }
        let calls = answer.calls.into_iter().enumerate().map(|(index, call)| {
            let name = index.to_string();
            let mut streams =
                record.streams.iter().filter(|stream| stream.call.as_deref() == Some(&*name));
            let first = streams.clone().next().map(|stream| stream.arrived).unwrap_or_default();
            let since = |at: std::time::Duration| estimator.scenario(at.saturating_sub(first));
            let attempts =
                streams.by_ref().map(|stream| attempt(stream, since, estimator)).collect();
            SeenCall { attempts, end: end(call, estimator) }
        });
        Seen::Calls(calls.collect())
    }

    /// What the library has against the config, if it makes no calls with it: it says so when the channel
    /// is made, or with every call.
    pub(super) fn refusal(&self) -> Option<&str> {
        match self {
            Seen::Refused(text) => Some(text),
            Seen::Calls(calls) => calls.iter().find_map(|call| {
                let end = call.end.as_ref()?;
                // A config may say that a call has no time at all.
                let is_refused = !["OK", "DEADLINE_EXCEEDED"].contains(&&*end.outcome);
                (call.attempts.is_empty() && is_refused).then_some(&*end.text)
            }),
        }
    }

    /// What was seen, in the words of an expectation.
    pub(super) fn written(&self) -> Value {
        match self {
            Seen::Refused(text) => json!({ "refused": text }),
            Seen::Calls(calls) => {
                json!({ "calls": calls.iter().map(SeenCall::written).collect::<Vec<_>>() })
            }
        }
    }
}

fn attempt(
    stream: &Stream,
    since: impl Fn(std::time::Duration) -> Ns,
    estimator: LatencyEstimator,
) -> SeenAttempt {
    let previous = stream.headers.get(PREVIOUS).and_then(|value| value.to_str().ok());
    let reset = stream.reset.filter(|reset| reset.reason == Reason::CANCEL);
    SeenAttempt {
        at: since(stream.arrived),
        cancelled: reset.map(|reset| since(reset.at)),
        previous: previous.map(str::to_owned),
        timeout: stream.timeout().map(|span| estimator.scenario(span)),
        sent: stream.messages,
    }
}

fn end(call: AnswerCall, estimator: LatencyEstimator) -> Option<SeenEnd> {
    let (ended, outcome) = call.ended.zip(call.outcome)?;
    let took = std::time::Duration::try_from_secs_f64((ended - call.began) / 1e3);
    Some(SeenEnd {
        at: estimator.scenario(took.unwrap_or_default()),
        outcome,
        text: call.text,
        attempt: call.answered_by.and_then(|text| text.parse().ok()),
        previous: call.previous,
    })
}

impl SeenCall {
    /// The attempts that the client gave up, and when. When the program gives a call up that does not
    /// end, that is not the client's doing.
    pub(super) fn cancels(&self) -> BTreeMap<u32, Ns> {
        let attempts = (1..).zip(&self.attempts).filter(|_| self.end.is_some());
        attempts.filter_map(|(number, it)| Some((number, it.cancelled?))).collect()
    }

    fn written(&self) -> Value {
        let each = |value: fn(&SeenAttempt) -> Value| self.attempts.iter().map(value).collect();
        let (starts, previous, timeouts, sent): (Vec<_>, Vec<_>, Vec<_>, Vec<_>) = (
            each(|it| to_json(it.at)),
            each(|it| json!(it.previous)),
            each(|it| it.timeout.map_or(Value::Null, to_json)),
            each(|it| it.sent.into()),
        );
        let cancels = self.cancels().into_iter().map(|(it, at)| (it.to_string(), to_json(at)));
        let cancels: serde_json::Map<_, _> = cancels.collect();
        let end = self.end.as_ref().map(|end| {
            let SeenEnd { at, outcome, text, attempt, previous } = end;
            let at = to_json(*at);
            json!({ "at": at, "outcome": outcome, "text": text, "attempt": attempt, "previous": previous })
        });
        json!({ "starts": starts, "cancels": cancels, "previous": previous, "timeouts": timeouts,
            "sent": sent, "end": end })
    }
}
