//! One step in JSON: a time and exactly one action.

use bytes::Bytes;
use h2::Reason;
use http::StatusCode;

use super::values::{Content, Fields, Ms, True, close, last, reason, some_reason, status};
use crate::grpc::action::{Action, AnswerStep, Close, GoAway, LastStream, ResponseHeaders};

#[derive(Default, serde::Deserialize)]
#[serde(deny_unknown_fields, default, expecting = r#"an object like {"end_stream": true}"#)]
pub(super) struct JsonStep {
    after: Ms,
    headers: Option<JsonHeaders>,
    message: Option<Content>,
    data: Option<Content>,
    trailers: Option<Fields>,
    end_stream: Option<True>,
    #[serde(deserialize_with = "some_reason")]
    reset: Option<Reason>,
    goaway: Option<JsonGoAway>,
    #[serde(deserialize_with = "close")]
    close: Option<Close>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields, expecting = r#"an object like {"status": 200}"#)]
struct JsonHeaders {
    #[serde(default = "ok", deserialize_with = "status")]
    status: StatusCode,
    #[serde(default)]
    fields: Fields,
    #[serde(default)]
    end_stream: bool,
}

fn ok() -> StatusCode {
    StatusCode::OK
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields, expecting = r#"an object like {"last": "below"}"#)]
pub(super) struct JsonGoAway {
    #[serde(deserialize_with = "last")]
    last: LastStream,
    #[serde(default = "no_error", deserialize_with = "reason")]
    code: Reason,
    #[serde(default)]
    debug: String,
}

fn no_error() -> Reason {
    Reason::NO_ERROR
}

impl From<JsonGoAway> for GoAway {
    fn from(written: JsonGoAway) -> GoAway {
        let JsonGoAway { last, code, debug } = written;
        GoAway { last, reason: code, debug: Bytes::from(debug) }
    }
}

impl TryFrom<JsonStep> for AnswerStep {
    type Error = String;

    fn try_from(step: JsonStep) -> Result<AnswerStep, String> {
        let headers = step.headers.map(|headers| {
            let JsonHeaders { status, fields: Fields(fields), end_stream } = headers;
            Action::Headers(ResponseHeaders { status, fields, end_stream })
        });
        let message = step.message.map(Content::timeless).transpose()?.map(Action::Message);
        let data = step.data.map(Content::bytes).transpose()?.map(Action::Data);
        let acts = [
            headers,
            message,
            data,
            step.trailers.map(|Fields(fields)| Action::Trailers(fields)),
            step.end_stream.map(|True| Action::EndStream),
            step.reset.map(Action::Reset),
            step.goaway.map(|go_away| Action::GoAway(go_away.into())),
            step.close.map(Action::Close),
        ];
        let mut acts = acts.into_iter().flatten();
        match (acts.next(), acts.next()) {
            (Some(action), None) => Ok(AnswerStep { after: step.after.0, action }),
            _ => Err("a step has \"after\" and one of \"headers\", \"message\", \"data\", \"trailers\", \
                      \"end_stream\", \"reset\", \"goaway\", \"close\""
                .to_owned()),
        }
    }
}
