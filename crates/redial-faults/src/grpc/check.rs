//! Validation of answers.
//!
//! An answer is invalid if HTTP/2 forbids its frame sequence: `h2` tracks the stream's state and
//! would refuse it.

use http::HeaderMap;

use super::action::{Action, Payload, ResponseHeaders};
use super::answer::Answer;
use super::script::InvalidAnswer;

/// The header fields that HTTP/2 forbids (RFC 9113, section 8.2.2).
const FORBIDDEN: [&str; 5] =
    ["connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"];

/// The state of the server's half of a stream.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Idle,
    Headers,
    Ended,
    Closed,
}

impl Answer {
    /// Checks the order of the steps.
    ///
    /// # Errors
    /// HTTP/2 does not allow it, or a step would have no effect.
    pub fn check(&self) -> Result<(), InvalidAnswer> {
        let mut stage = Stage::Idle;
        for step in &self.steps {
            stage = next(stage, &step.action, self.steps.len()).map_err(InvalidAnswer)?;
        }
        Ok(())
    }

    /// Whether request messages are echoed.
    pub(super) fn echoes(&self) -> bool {
        let echo =
            |action: &Action| matches!(action, Action::Message(Payload::Echo | Payload::EchoRest));
        self.steps.iter().any(|step| echo(&step.action))
    }
}

fn next(stage: Stage, action: &Action, steps: usize) -> Result<Stage, &'static str> {
    if let Action::OnConnect(_) = action {
        return if steps == 1 {
            Ok(Stage::Closed)
        } else {
            Err("a connect action (`door`) has no other steps: no stream arrives")
        };
    }
    match stage {
        Stage::Closed => return Err("after the connection is closed there is nothing more to do"),
        Stage::Ended if !matches!(action, Action::GoAway(_) | Action::Close(_)) => {
            return Err(
                "the stream has ended already: only a GOAWAY or the connection's end can follow",
            );
        }
        _ => {}
    }
    match action {
        Action::Headers(ResponseHeaders { status, fields, end_stream }) => {
            if stage != Stage::Idle {
                return Err("response headers are sent once");
            }
            if status.is_informational() {
                return Err("a status below 200 is no response");
            }
            known(fields)?;
            Ok(if *end_stream { Stage::Ended } else { Stage::Headers })
        }
        Action::Message(_) | Action::Data(_) | Action::Trailers(_) | Action::EndStream
            if stage == Stage::Idle =>
        {
            Err("response headers come before messages and trailers")
        }
        Action::Message(Payload::Bytes(payload)) if u32::try_from(payload.len()).is_err() => {
            Err("a message has less than 2^32 bytes")
        }
        Action::Trailers(fields) => known(fields).map(|()| Stage::Ended),
        Action::EndStream | Action::Reset(_) => Ok(Stage::Ended),
        Action::Close(_) => Ok(Stage::Closed),
        Action::Message(_) | Action::Data(_) | Action::GoAway(_) | Action::OnConnect(_) => {
            Ok(stage)
        }
    }
}

fn known(fields: &HeaderMap) -> Result<(), &'static str> {
    let forbidden = FORBIDDEN.iter().any(|name| fields.contains_key(*name));
    if forbidden { Err("HTTP/2 has no header fields about the connection") } else { Ok(()) }
}
