//! The observed behaviour: the server's record and the program's answer.
//!
//! Times of attempts and cancellations count from the arrival of the call's first attempt on the
//! server's clock; the end counts from the call's start on the program's clock.

use std::collections::BTreeMap;

use redial::time::Ns;
use redial_faults::grpc::{Reason, Record, StreamRecord};
use serde_json::{Value, json};

use super::super::live::TimeScale;
use super::super::time::to_json;
use super::protocol::{Answer, AnswerCall};

const PREVIOUS: &str = "grpc-previous-rpc-attempts";

/// The observed behaviour of a scenario.
#[derive(Debug)]
pub(super) enum Observed {
    /// The library refused the config with this error.
    Refused(String),
    Calls(Vec<ObservedCall>),
}

#[derive(Debug)]
pub(super) struct ObservedCall {
    pub(super) attempts: Vec<ObservedAttempt>,
    /// `None`: it did not end.
    pub(super) end: Option<ObservedEnd>,
}

/// An attempt, from the server's record.
#[derive(Debug)]
pub(super) struct ObservedAttempt {
    pub(super) at: Ns,
    pub(super) cancelled: Option<Ns>,
    pub(super) previous: Option<String>,
    pub(super) timeout: Option<Ns>,
    pub(super) sent: u64,
}

/// The end of a call, from the program's answer.
#[derive(Debug)]
pub(super) struct ObservedEnd {
    pub(super) at: Ns,
    pub(super) outcome: String,
    pub(super) text: String,
    pub(super) attempt: Option<u32>,
    pub(super) previous: Option<String>,
}

impl Observed {
    pub(super) fn new(answer: Answer, record: &Record, time_scale: TimeScale) -> Self {
        if let Some(text) = answer.refused {
            return Observed::Refused(text);
        }
        let calls = answer.calls.into_iter().enumerate().map(|(index, call)| {
            let name = index.to_string();
            let mut streams =
                record.streams.iter().filter(|stream| stream.call.as_deref() == Some(&*name));
            let first = streams.clone().next().map(|stream| stream.arrived).unwrap_or_default();
            let since = |at: std::time::Duration| time_scale.scenario(at.saturating_sub(first));
            let attempts =
                streams.by_ref().map(|stream| attempt(stream, since, time_scale)).collect();
            ObservedCall { attempts, end: end(call, time_scale) }
        });
        Observed::Calls(calls.collect())
    }

    /// The error of the library if it refuses the config, either for the channel or for every call.
    pub(super) fn refusal(&self) -> Option<&str> {
        match self {
            Observed::Refused(text) => Some(text),
            Observed::Calls(calls) => calls.iter().find_map(|call| {
                let end = call.end.as_ref()?;
                // A config may have a timeout of zero.
                let is_refused = !["OK", "DEADLINE_EXCEEDED"].contains(&&*end.outcome);
                (call.attempts.is_empty() && is_refused).then_some(&*end.text)
            }),
        }
    }

    /// The behaviour, in the notation of expectations.
    pub(super) fn to_json(&self) -> Value {
        match self {
            Observed::Refused(text) => json!({ "refused": text }),
            Observed::Calls(calls) => {
                json!({ "calls": calls.iter().map(ObservedCall::to_json).collect::<Vec<_>>() })
            }
        }
    }
}

fn attempt(
    stream: &StreamRecord,
    since: impl Fn(std::time::Duration) -> Ns,
    time_scale: TimeScale,
) -> ObservedAttempt {
    let previous = stream.headers.get(PREVIOUS).and_then(|value| value.to_str().ok());
    let reset = stream.reset.filter(|reset| reset.reason == Reason::CANCEL);
    ObservedAttempt {
        at: since(stream.arrived),
        cancelled: reset.map(|reset| since(reset.at)),
        previous: previous.map(str::to_owned),
        timeout: stream.timeout().map(|span| time_scale.scenario(span)),
        sent: stream.messages,
    }
}

fn end(call: AnswerCall, time_scale: TimeScale) -> Option<ObservedEnd> {
    let (ended, outcome) = call.ended.zip(call.outcome)?;
    let took = std::time::Duration::try_from_secs_f64((ended - call.began) / 1e3);
    Some(ObservedEnd {
        at: time_scale.scenario(took.unwrap_or_default()),
        outcome,
        text: call.text,
        attempt: call.answered_by.and_then(|text| text.parse().ok()),
        previous: call.previous,
    })
}

impl ObservedCall {
    /// The cancelled attempts and their times. Cancellations by the program's own time limit do not
    /// count.
    pub(super) fn cancels(&self) -> BTreeMap<u32, Ns> {
        let attempts = (1..).zip(&self.attempts).filter(|_| self.end.is_some());
        attempts.filter_map(|(number, it)| Some((number, it.cancelled?))).collect()
    }

    fn to_json(&self) -> Value {
        let each = |value: fn(&ObservedAttempt) -> Value| self.attempts.iter().map(value).collect();
        let (starts, previous, timeouts, sent): (Vec<_>, Vec<_>, Vec<_>, Vec<_>) = (
            each(|it| to_json(it.at)),
            each(|it| json!(it.previous)),
            each(|it| it.timeout.map_or(Value::Null, to_json)),
            each(|it| it.sent.into()),
        );
        let cancels = self.cancels().into_iter().map(|(it, at)| (it.to_string(), to_json(at)));
        let cancels: serde_json::Map<_, _> = cancels.collect();
        let end = self.end.as_ref().map(|end| {
            let ObservedEnd { at, outcome, text, attempt, previous } = end;
            let at = to_json(*at);
            json!({ "at": at, "outcome": outcome, "text": text, "attempt": attempt, "previous": previous })
        });
        json!({ "starts": starts, "cancels": cancels, "previous": previous, "timeouts": timeouts,
            "sent": sent, "end": end })
    }
}
