//! Records as JSON: times in milliseconds, and no credentials.

use std::fmt;
use std::time::Duration;

use http::{HeaderMap, StatusCode};
use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::proxy::fault::{
    BreakKind, BreakPoint, ConnectionFault, ConnectionPoint, Fault, FaultAction, Upstream,
};
use crate::proxy::record::{Connection, Exchange, ExchangeOutcome};
use crate::proxy::script::FaultSource;

/// The headers whose values are not written.
const SECRETS: [&str; 4] =
    ["authorization", "cookie", "proxy-authorization", "x-amz-security-token"];

/// The JSON format of a record: see [the module](crate::proxy#records-as-json).
impl Serialize for Exchange {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("exchange", &self.number)?;
        map.serialize_entry("connection", &self.connection)?;
        map.serialize_entry("version", &format!("{:?}", self.version))?;
        map.serialize_entry("method", self.method.as_str())?;
        map.serialize_entry("path", &self.path)?;
        map.serialize_entry("headers", &Headers(&self.headers))?;
        map.serialize_entry("call", &self.call)?;
        map.serialize_entry("arrived", &ms(self.arrived))?;
        map.serialize_entry("request_bytes", &self.request_bytes)?;
        map.serialize_entry("request_digest", &format!("{:016x}", self.request_digest))?;
        map.serialize_entry("forwarded", &self.forwarded.map(ms))?;
        map.serialize_entry("upstream_status", &self.upstream_status.map(|it| it.as_u16()))?;
        map.serialize_entry("status", &self.status.map(|it| it.as_u16()))?;
        map.serialize_entry("response_bytes", &self.response_bytes)?;
        map.serialize_entry("fault", &self.fault.as_ref().map(ToString::to_string))?;
        map.serialize_entry("source", &self.source.map(|it| it.to_string()))?;
        map.serialize_entry("ended", &self.end.map(|it| ms(it.at)))?;
        map.serialize_entry("outcome", &self.end.map(|it| it.outcome.to_string()))?;
        map.end()
    }
}

/// The JSON format of a record: see [the module](crate::proxy#records-as-json).
impl Serialize for Connection {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("connection", &self.number)?;
        map.serialize_entry("peer", &self.peer.to_string())?;
        map.serialize_entry("opened", &ms(self.opened))?;
        map.serialize_entry("closed", &self.closed.map(ms))?;
        map.serialize_entry("bytes_up", &self.bytes_up)?;
        map.serialize_entry("bytes_down", &self.bytes_down)?;
        map.serialize_entry("fault", &self.fault.as_ref().map(ToString::to_string))?;
        map.end()
    }
}

/// Each name with its values; non-ASCII bytes as in scripts, one character each.
struct Headers<'h>(&'h HeaderMap);

impl Serialize for Headers<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(Some(self.0.keys_len()))?;
        for name in self.0.keys() {
            let secret = SECRETS.contains(&name.as_str());
            let text = |value: &http::HeaderValue| match secret {
                true => "[removed]".to_owned(),
                false => value.as_bytes().iter().copied().map(char::from).collect::<String>(),
            };
            let texts: Vec<String> = self.0.get_all(name).iter().map(text).collect();
            map.serialize_entry(name.as_str(), &texts)?;
        }
        map.end()
    }
}

/// Milliseconds, exact to the microsecond.
fn ms(duration: Duration) -> f64 {
    duration.as_micros() as f64 / 1000.0
}

/// `status 503 after upstream`, `reset at response byte 10`, `delay 5 ms`.
impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.action {
            FaultAction::Pass => f.write_str("pass")?,
            FaultAction::Respond(response) => match response.headers.get("grpc-status") {
                Some(code) if response.status == StatusCode::OK => {
                    write!(f, "grpc-status {}", code.to_str().unwrap_or("?"))?;
                }
                _ => write!(f, "status {}", response.status.as_u16())?,
            },
            FaultAction::Break(kind, point) => {
                write!(f, "{kind}")?;
                match point {
                    BreakPoint::BeforeResponse => {}
                    BreakPoint::RequestBytes(bytes) => write!(f, " at request byte {bytes}")?,
                    BreakPoint::ResponseBytes(bytes) => write!(f, " at response byte {bytes}")?,
                }
            }
        }
        if self.upstream == Upstream::Contacted {
            f.write_str(" after upstream")?;
        }
        delays(f, &[("delay", self.delay), ("delay response", self.delay_response)])
    }
}

/// `reset at byte 10 from the client`, `latency 5 ms`.
impl fmt::Display for ConnectionFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.breaks {
            None => f.write_str("pass")?,
            Some((kind, ConnectionPoint::Up(0))) => write!(f, "{kind}")?,
            Some((kind, ConnectionPoint::Up(bytes))) => {
                write!(f, "{kind} at byte {bytes} from the client")?;
            }
            Some((kind, ConnectionPoint::Down(bytes))) => {
                write!(f, "{kind} at byte {bytes} to the client")?;
            }
        }
        delays(f, &[("delay", self.delay), ("latency", self.latency)])
    }
}

fn delays(f: &mut fmt::Formatter<'_>, delays: &[(&str, Duration)]) -> fmt::Result {
    for (name, delay) in delays.iter().filter(|(_, delay)| !delay.is_zero()) {
        write!(f, ", {name} {} ms", ms(*delay))?;
    }
    Ok(())
}

impl fmt::Display for BreakKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BreakKind::Reset => "reset",
            BreakKind::Close => "close",
            BreakKind::Stall => "stall",
        })
    }
}

impl fmt::Display for FaultSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FaultSource::Header => f.write_str("header"),
            FaultSource::Call => f.write_str("call"),
            FaultSource::Requests => f.write_str("requests"),
            FaultSource::Rule(index) => write!(f, "rule {index}"),
        }
    }
}

impl fmt::Display for ExchangeOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ExchangeOutcome::Answered => "answered",
            ExchangeOutcome::Reset => "reset",
            ExchangeOutcome::Closed => "closed",
            ExchangeOutcome::ClientGone => "client-gone",
            ExchangeOutcome::UpstreamFailed => "upstream-failed",
            ExchangeOutcome::Stopped => "stopped",
        })
    }
}
