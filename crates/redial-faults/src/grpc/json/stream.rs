//! The record of a stream as JSON: times in milliseconds, codes by name.

use std::time::Duration;

use serde::ser::{Serialize, SerializeMap, Serializer};

use super::values::{hex, reason_text};
use crate::grpc::record::{Reset, StreamEnd, StreamOutcome, StreamRecord};

/// The JSON format of a record: see [the module](crate::grpc#records-as-json).
impl Serialize for StreamRecord {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("stream", &self.number)?;
        map.serialize_entry("connection", &self.connection)?;
        map.serialize_entry("id", &self.id)?;
        map.serialize_entry("call", &self.call)?;
        map.serialize_entry("attempt", &self.attempt)?;
        map.serialize_entry("scripted", &self.scripted)?;
        map.serialize_entry("arrived", &ms(self.arrived))?;
        map.serialize_entry("path", &self.path)?;
        map.serialize_entry("headers", &Fields(self))?;
        map.serialize_entry("previous", &self.previous_attempts())?;
        map.serialize_entry("timeout", &self.timeout().map(ms))?;
        map.serialize_entry("messages", &self.messages)?;
        map.serialize_entry("bytes", &self.bytes)?;
        map.serialize_entry("digest", &format!("{:016x}", self.digest))?;
        let payloads: Vec<_> = self.payloads.iter().map(|payload| hex(payload)).collect();
        map.serialize_entry("payloads", &payloads)?;
        map.serialize_entry("half_closed", &self.half_closed.map(ms))?;
        map.serialize_entry("reset", &self.reset)?;
        map.serialize_entry("end", &self.end)?;
        map.end()
    }
}

impl Serialize for Reset {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(Some(2))?;
        map.serialize_entry("at", &ms(self.at))?;
        map.serialize_entry("code", &reason_text(self.reason))?;
        map.end()
    }
}

impl Serialize for StreamEnd {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("at", &ms(self.at))?;
        let how = match self.outcome {
            StreamOutcome::Answered(_) => "answered",
            StreamOutcome::Reset(_) => "reset",
            StreamOutcome::ResetByClient(_) => "reset-by-client",
            StreamOutcome::GoneAway(_) => "gone-away",
            StreamOutcome::TooManyStreams => "too-many",
            StreamOutcome::Closed => "closed",
            StreamOutcome::ClosedByClient => "closed-by-client",
        };
        map.serialize_entry("how", how)?;
        match self.outcome {
            StreamOutcome::Answered(status) => {
                map.serialize_entry("status", &status.map(|code| code.to_string()))?;
            }
            StreamOutcome::Reset(code)
            | StreamOutcome::ResetByClient(code)
            | StreamOutcome::GoneAway(code) => {
                map.serialize_entry("code", &reason_text(code))?;
            }
            StreamOutcome::TooManyStreams
            | StreamOutcome::Closed
            | StreamOutcome::ClosedByClient => {}
        }
        map.end()
    }
}

/// Each name with its values; non-ASCII bytes as in scripts, one character each.
struct Fields<'s>(&'s StreamRecord);

impl Serialize for Fields<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let headers = &self.0.headers;
        let mut map = to.serialize_map(Some(headers.keys_len()))?;
        for name in headers.keys() {
            let values = headers.get_all(name).iter();
            let texts: Vec<String> = values
                .map(|value| value.as_bytes().iter().copied().map(char::from).collect())
                .collect();
            map.serialize_entry(name.as_str(), &texts)?;
        }
        map.end()
    }
}

/// Milliseconds, exact to the microsecond.
fn ms(duration: Duration) -> f64 {
    duration.as_micros() as f64 / 1000.0
}
