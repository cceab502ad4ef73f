//! An attempt in JSON: the fields of a scenario, and further faults.
//!
//! An attempt has exactly one outcome, and a field without effect is an error.

use bytes::Bytes;
use h2::Reason;
use http::StatusCode;
use http::header::CONTENT_TYPE;

use super::step::{JsonGoAway, JsonStep};
use super::values::{
    Content, Fields, Ms, Outcome, Texts, close, header_value, once, some_on_connect, some_reason,
    status,
};
use crate::grpc::action::{Action, AnswerStep, Close, OnConnect, ResponseHeaders, WaitFor};
use crate::grpc::answer::{Answer, PUSHBACK};
use crate::grpc::status_number::StatusNumber;

/// The fields of an attempt.
#[derive(Default, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Attempt {
    #[serde(deserialize_with = "some_once")]
    once: Option<WaitFor>,
    accepts: Option<u64>,
    after: Ms,
    headers: Option<Ms>,
    replies: Option<Vec<Content>>,
    outcome: Option<Outcome>,
    message: Option<String>,
    pushback: Option<Texts>,
    metadata: Option<Fields>,
    end_stream: Option<bool>,
    seen: Option<Proof>,
    #[serde(deserialize_with = "some_reason")]
    reset: Option<Reason>,
    goaway: Option<JsonGoAway>,
    #[serde(deserialize_with = "close")]
    close: Option<Close>,
    http: Option<Http>,
    #[serde(rename = "door", deserialize_with = "some_on_connect")]
    on_connect: Option<OnConnect>,
    steps: Option<Vec<JsonStep>>,
}

/// What the client can prove about a failed attempt.
#[derive(Clone, Copy, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
enum Proof {
    Unsent,
    Unprocessed,
    Unconnected,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields, expecting = r#"an object like {"status": 503}"#)]
struct Http {
    #[serde(deserialize_with = "status")]
    status: StatusCode,
    #[serde(rename = "type")]
    content_type: Option<String>,
    #[serde(default)]
    body: String,
}

fn some_once<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<WaitFor>, D::Error> {
    once(from).map(Some)
}

const ONE_OF: &str = "an attempt has one of \"outcome\", \"seen\", \"reset\", \"http\", \"door\", \
                      \"steps\", or \"goaway\", \"close\" or both of these";

impl Attempt {
    /// How many outcomes are given.
    fn outcome_count(&self) -> usize {
        let outcome_count = [
            self.outcome.is_some(),
            self.seen.is_some(),
            self.reset.is_some(),
            self.http.is_some(),
            self.on_connect.is_some(),
            self.steps.is_some(),
            self.goaway.is_some() || self.close.is_some(),
        ];
        outcome_count.into_iter().filter(|given| *given).count()
    }

    /// A field that would have no effect, if any.
    fn unused_field(&self) -> Option<&'static str> {
        let status = matches!(self.outcome, Some(Outcome::Status(_)));
        let streams = self.outcome.is_some()
            || self.reset.is_some()
            || self.goaway.is_some()
            || self.close.is_some();
        let no_stream = self.on_connect.is_some()
            || matches!(self.seen, Some(Proof::Unsent | Proof::Unconnected));
        let said = [
            (self.message.is_some() && !status, "message"),
            (self.pushback.is_some() && !status, "pushback"),
            (self.metadata.is_some() && !status, "metadata"),
            (
                self.end_stream.is_some()
                    && (!status || self.headers.is_some() || self.replies.is_some()),
                "end_stream",
            ),
            (self.headers.is_some() && !streams, "headers"),
            (self.replies.is_some() && !(streams && (status || self.headers.is_some())), "replies"),
            (self.after != Ms::default() && self.steps.is_some(), "after"),
            (self.accepts.is_some() && no_stream, "accepts"),
            (self.once.is_some() && no_stream, "once"),
        ];
        said.into_iter().find_map(|(unused_field, name)| unused_field.then_some(name))
    }
}

impl TryFrom<Attempt> for Answer {
    type Error = String;

    fn try_from(attempt: Attempt) -> Result<Answer, String> {
        if attempt.outcome_count() != 1 {
            return Err(ONE_OF.to_owned());
        }
        if let Some(name) = attempt.unused_field() {
            return Err(format!("{name:?} has no effect on such an attempt"));
        }
        let (once, accepts) = (attempt.once.unwrap_or_default(), attempt.accepts);
        let mut answer = Answer::of(steps(attempt)?).wait_for(once);
        answer.accepts = accepts;
        answer.check().map_err(|unplayable| unplayable.to_string())?;
        Ok(answer)
    }
}

fn steps(attempt: Attempt) -> Result<Vec<AnswerStep>, String> {
    let after = attempt.after.0;
    let at = |action| AnswerStep { after, action };
    if let Some(steps) = attempt.steps {
        return steps.into_iter().map(AnswerStep::try_from).collect();
    }
    if let Some(action) = attempt.on_connect {
        return Ok(vec![at(Action::OnConnect(action))]);
    }
    if let Some(seen) = attempt.seen {
        return Ok(vec![at(match seen {
            Proof::Unsent => Action::OnConnect(OnConnect::CloseAfterPreface),
            Proof::Unconnected => Action::OnConnect(OnConnect::Refuse),
            Proof::Unprocessed => Action::Reset(Reason::REFUSED_STREAM),
        })]);
    }
    if let Some(http) = attempt.http {
        return Ok(http_acts(http)?.into_iter().map(at).collect());
    }
    let (outcome, headers) = (attempt.outcome, attempt.headers);
    let mut steps = response(attempt.after, headers, attempt.replies, outcome)?;
    let said = StatusDetails {
        message: attempt.message,
        pushback: attempt.pushback,
        metadata: attempt.metadata,
    };
    match outcome {
        Some(Outcome::Hang) => {}
        Some(Outcome::Status(code)) => {
            let action = said.status(code, steps.is_empty(), attempt.end_stream.unwrap_or(true))?;
            steps.push(at(action));
        }
        None => {
            let reset = attempt.reset.map(Action::Reset);
            let go_away = attempt.goaway.map(|go_away| Action::GoAway(go_away.into()));
            let close = attempt.close.map(Action::Close);
            steps.extend([reset, go_away, close].into_iter().flatten().map(at));
        }
    }
    Ok(steps)
}

/// The headers and messages before the outcome.
fn response(
    after: Ms,
    headers: Option<Ms>,
    replies: Option<Vec<Content>>,
    outcome: Option<Outcome>,
) -> Result<Vec<AnswerStep>, String> {
    let replies = match (replies, outcome) {
        (Some(replies), _) => replies,
        // A unary client expects a message with OK.
        (None, Some(Outcome::Status(StatusNumber::OK))) => vec![Content::empty()],
        (None, _) => Vec::new(),
    };
    let first = replies.first().map(|reply| reply.after.unwrap_or(after));
    let Some(headers) = headers.or(first) else { return Ok(Vec::new()) };
    let action = Answer::headers().steps.remove(0).action;
    let mut steps = vec![AnswerStep { after: headers.0, action }];
    let mut latest = headers;
    for reply in replies {
        let moment = reply.after.unwrap_or(after.max(latest));
        if moment < latest {
            return Err("replies: they come in order, after the headers".to_owned());
        }
        latest = moment;
        steps.push(AnswerStep { after: moment.0, action: Action::Message(reply.payload()?) });
    }
    let hangs = outcome == Some(Outcome::Hang);
    if latest > after && !hangs {
        return Err("headers and replies come ahead of the end, not after it".to_owned());
    }
    Ok(steps)
}

/// The status message, metadata and pushback.
struct StatusDetails {
    message: Option<String>,
    pushback: Option<Texts>,
    metadata: Option<Fields>,
}

impl StatusDetails {
    /// Trailers-Only, or trailers if there were headers.
    fn status(self, code: StatusNumber, only: bool, end_stream: bool) -> Result<Action, String> {
        let mut answer =
            if only { Answer::trailers_only(code) } else { Answer::headers().trailers(code) };
        if let Some(text) = &self.message {
            answer = answer.text(text);
        }
        let mut action = answer.steps.pop().ok_or("no step")?.action;
        let fields = match &mut action {
            Action::Headers(headers) => {
                headers.end_stream = end_stream;
                &mut headers.fields
            }
            Action::Trailers(fields) => fields,
            _ => return Ok(action),
        };
        for text in self.pushback.map(Texts::into_vec).unwrap_or_default() {
            fields.append(PUSHBACK, header_value(&text)?);
        }
        fields.extend(self.metadata.map(|Fields(fields)| fields).unwrap_or_default());
        Ok(action)
    }
}

fn http_acts(http: Http) -> Result<Vec<Action>, String> {
    let Http { status, content_type, body } = http;
    let end_stream = body.is_empty();
    let mut headers = ResponseHeaders { status, fields: http::HeaderMap::new(), end_stream };
    if let Some(text) = content_type {
        headers.fields.insert(CONTENT_TYPE, header_value(&text)?);
    }
    let mut acts = vec![Action::Headers(headers)];
    if !end_stream {
        acts.extend([Action::Data(Bytes::from(body)), Action::EndStream]);
    }
    Ok(acts)
}
