//! Which answers can be played.
//!
//! Rule: what HTTP/2 forbids a server to send on one stream is not played, since `h2` keeps the
//! stream's state; all else is.

use http::HeaderMap;

use super::act::{Act, Headers, Payload};
use super::answer::Answer;
use super::script::Unplayable;

/// The header fields that HTTP/2 does not know (RFC 9113, section 8.2.2).
const FORBIDDEN: [&str; 5] =
    ["connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"];

/// How far a stream has come on the server's side.
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
    /// HTTP/2 does not allow it, or nothing could come of it.
    pub fn check(&self) -> Result<(), Unplayable> {
        let mut stage = Stage::Idle;
        for step in &self.steps {
            stage = next(stage, &step.act, self.steps.len()).map_err(Unplayable)?;
        }
        Ok(())
    }

    /// Whether messages of the request are sent back.
    pub(super) fn echoes(&self) -> bool {
        let echo = |act: &Act| matches!(act, Act::Message(Payload::Echo | Payload::EchoRest));
        self.steps.iter().any(|step| echo(&step.act))
    }
}

fn next(stage: Stage, act: &Act, steps: usize) -> Result<Stage, &'static str> {
    if let Act::Door(_) = act {
        return if steps == 1 {
            Ok(Stage::Closed)
        } else {
            Err("a door has no other steps: no stream arrives")
        };
    }
    match stage {
        Stage::Closed => return Err("after the connection is closed there is nothing more to do"),
        Stage::Ended if !matches!(act, Act::GoAway(_) | Act::Close(_)) => {
            return Err(
                "the stream has ended already: only a GOAWAY or the connection's end can follow",
            );
        }
        _ => {}
    }
    match act {
        Act::Headers(Headers { status, fields, end_stream }) => {
            if stage != Stage::Idle {
                return Err("response headers are sent once");
            }
            if status.is_informational() {
                return Err("a status below 200 is no response");
            }
            known(fields)?;
            Ok(if *end_stream { Stage::Ended } else { Stage::Headers })
        }
        Act::Message(_) | Act::Data(_) | Act::Trailers(_) | Act::EndStream
            if stage == Stage::Idle =>
        {
            Err("response headers come before messages and trailers")
        }
        Act::Message(Payload::Bytes(payload)) if u32::try_from(payload.len()).is_err() => {
            Err("a message has less than 2^32 bytes")
        }
        Act::Trailers(fields) => known(fields).map(|()| Stage::Ended),
        Act::EndStream | Act::Reset(_) => Ok(Stage::Ended),
        Act::Close(_) => Ok(Stage::Closed),
        Act::Message(_) | Act::Data(_) | Act::GoAway(_) | Act::Door(_) => Ok(stage),
    }
}

fn known(fields: &HeaderMap) -> Result<(), &'static str> {
    let forbidden = FORBIDDEN.iter().any(|name| fields.contains_key(*name));
    if forbidden { Err("HTTP/2 has no header fields about the connection") } else { Ok(()) }
}
