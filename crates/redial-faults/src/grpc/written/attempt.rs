//! What an attempt meets, in the words of a scenario and some more.
//!
//! Rule: exactly one thing becomes of an attempt, and no field is without effect.

use bytes::Bytes;
use h2::Reason;
use http::StatusCode;
use http::header::CONTENT_TYPE;

use super::step::{WrittenGoAway, WrittenStep};
use super::values::{
    Content, Fields, Ms, Outcome, Texts, close, header_value, once, some_door, some_reason, status,
};
use crate::grpc::act::{Act, Close, Door, Headers, Once, Step};
use crate::grpc::answer::{Answer, PUSHBACK};
use crate::grpc::status_number::StatusNumber;

/// The written form of an attempt.
#[derive(Default, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Attempt {
    #[serde(deserialize_with = "some_once")]
    once: Option<Once>,
    accepts: Option<u64>,
    after: Ms,
    headers: Option<Ms>,
    replies: Option<Vec<Content>>,
    outcome: Option<Outcome>,
    message: Option<String>,
    pushback: Option<Texts>,
    metadata: Option<Fields>,
    end_stream: Option<bool>,
    seen: Option<Seen>,
    #[serde(deserialize_with = "some_reason")]
    reset: Option<Reason>,
    goaway: Option<WrittenGoAway>,
    #[serde(deserialize_with = "close")]
    close: Option<Close>,
    http: Option<Http>,
    #[serde(deserialize_with = "some_door")]
    door: Option<Door>,
    steps: Option<Vec<WrittenStep>>,
}

/// What a client can prove of an attempt that failed.
#[derive(Clone, Copy, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
enum Seen {
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

fn some_once<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Once>, D::Error> {
    once(from).map(Some)
}

const ONE_OF: &str = "an attempt has one of \"outcome\", \"seen\", \"reset\", \"http\", \"door\", \
                      \"steps\", or \"goaway\", \"close\" or both of these";

impl Attempt {
    /// Which of the ways to end are given.
    fn fates(&self) -> usize {
        let fates = [
            self.outcome.is_some(),
            self.seen.is_some(),
            self.reset.is_some(),
            self.http.is_some(),
            self.door.is_some(),
            self.steps.is_some(),
            self.goaway.is_some() || self.close.is_some(),
        ];
        fates.into_iter().filter(|given| *given).count()
    }

    /// Fields that would have no effect.
    fn idle(&self) -> Option<&'static str> {
        let status = matches!(self.outcome, Some(Outcome::Status(_)));
        let streams = self.outcome.is_some()
            || self.reset.is_some()
            || self.goaway.is_some()
            || self.close.is_some();
        let no_stream =
            self.door.is_some() || matches!(self.seen, Some(Seen::Unsent | Seen::Unconnected));
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
        said.into_iter().find_map(|(idle, name)| idle.then_some(name))
    }
}

impl TryFrom<Attempt> for Answer {
    type Error = String;

    fn try_from(attempt: Attempt) -> Result<Answer, String> {
        if attempt.fates() != 1 {
            return Err(ONE_OF.to_owned());
        }
        if let Some(name) = attempt.idle() {
            return Err(format!("{name:?} has no effect on such an attempt"));
        }
        let (once, accepts) = (attempt.once.unwrap_or_default(), attempt.accepts);
        let mut answer = Answer::of(steps(attempt)?).once(once);
        answer.accepts = accepts;
        answer.check().map_err(|unplayable| unplayable.to_string())?;
        Ok(answer)
    }
}

fn steps(attempt: Attempt) -> Result<Vec<Step>, String> {
    let after = attempt.after.0;
    let at = |act| Step { after, act };
    if let Some(steps) = attempt.steps {
        return steps.into_iter().map(Step::try_from).collect();
    }
    if let Some(door) = attempt.door {
        return Ok(vec![at(Act::Door(door))]);
    }
    if let Some(seen) = attempt.seen {
        return Ok(vec![at(match seen {
            Seen::Unsent => Act::Door(Door::ClosedAfterPreface),
            Seen::Unconnected => Act::Door(Door::Refused),
            Seen::Unprocessed => Act::Reset(Reason::REFUSED_STREAM),
        })]);
    }
    if let Some(http) = attempt.http {
        return Ok(http_acts(http)?.into_iter().map(at).collect());
    }
    let (outcome, headers) = (attempt.outcome, attempt.headers);
    let mut steps = response(attempt.after, headers, attempt.replies, outcome)?;
    let said =
        Said { message: attempt.message, pushback: attempt.pushback, metadata: attempt.metadata };
    match outcome {
        Some(Outcome::Hang) => {}
        Some(Outcome::Status(code)) => {
            let act = said.status(code, steps.is_empty(), attempt.end_stream.unwrap_or(true))?;
            steps.push(at(act));
        }
        None => {
            let reset = attempt.reset.map(Act::Reset);
            let go_away = attempt.goaway.map(|go_away| Act::GoAway(go_away.into()));
            let close = attempt.close.map(Act::Close);
            steps.extend([reset, go_away, close].into_iter().flatten().map(at));
        }
    }
    Ok(steps)
}

/// The headers and messages ahead of the end.
fn response(
    after: Ms,
    headers: Option<Ms>,
    replies: Option<Vec<Content>>,
    outcome: Option<Outcome>,
) -> Result<Vec<Step>, String> {
    let replies = match (replies, outcome) {
        (Some(replies), _) => replies,
        // A unary client that is told OK expects a message.
        (None, Some(Outcome::Status(StatusNumber::OK))) => vec![Content::empty()],
        (None, _) => Vec::new(),
    };
    let first = replies.first().map(|reply| reply.after.unwrap_or(after));
    let Some(headers) = headers.or(first) else { return Ok(Vec::new()) };
    let act = Answer::headers().steps.remove(0).act;
    let mut steps = vec![Step { after: headers.0, act }];
    let mut latest = headers;
    for reply in replies {
        let moment = reply.after.unwrap_or(after.max(latest));
        if moment < latest {
            return Err("replies: they come in order, after the headers".to_owned());
        }
        latest = moment;
        steps.push(Step { after: moment.0, act: Act::Message(reply.payload()?) });
    }
    let hangs = outcome == Some(Outcome::Hang);
    if latest > after && !hangs {
        return Err("headers and replies come ahead of the end, not after it".to_owned());
    }
    Ok(steps)
}

/// What is said together with a status.
struct Said {
    message: Option<String>,
    pushback: Option<Texts>,
    metadata: Option<Fields>,
}

impl Said {
    /// Trailers-Only, or trailers if there were headers.
    fn status(self, code: StatusNumber, only: bool, end_stream: bool) -> Result<Act, String> {
        let mut answer =
            if only { Answer::trailers_only(code) } else { Answer::headers().trailers(code) };
        if let Some(text) = &self.message {
            answer = answer.text(text);
        }
        let mut act = answer.steps.pop().ok_or("no step")?.act;
        let fields = match &mut act {
            Act::Headers(headers) => {
                headers.end_stream = end_stream;
                &mut headers.fields
            }
            Act::Trailers(fields) => fields,
            _ => return Ok(act),
        };
        for text in self.pushback.map(Texts::into_vec).unwrap_or_default() {
            fields.append(PUSHBACK, header_value(&text)?);
        }
        fields.extend(self.metadata.map(|Fields(fields)| fields).unwrap_or_default());
        Ok(act)
    }
}

fn http_acts(http: Http) -> Result<Vec<Act>, String> {
    let Http { status, content_type, body } = http;
    let end_stream = body.is_empty();
    let mut headers = Headers { status, fields: http::HeaderMap::new(), end_stream };
    if let Some(text) = content_type {
        headers.fields.insert(CONTENT_TYPE, header_value(&text)?);
    }
    let mut acts = vec![Act::Headers(headers)];
    if !end_stream {
        acts.extend([Act::Data(Bytes::from(body)), Act::EndStream]);
    }
    Ok(acts)
}
