//! The line printed for each stream, as text or JSON.

use std::fmt::Display;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::time::Duration;

use redial_faults::grpc::{StreamOutcome, StreamRecord};
use serde_json::json;

pub(super) fn address(out: &mut dyn Write, address: SocketAddr, json: bool) -> io::Result<()> {
    if json {
        writeln!(out, "{}", json!({ "listening": address.to_string() }))
    } else {
        writeln!(out, "{address}")
    }
}

pub(super) fn stream(out: &mut dyn Write, stream: &StreamRecord, json: bool) -> io::Result<()> {
    if json {
        serde_json::to_writer(&mut *out, stream)?;
        return writeln!(out);
    }
    write!(out, "{:>9} {}", ms(stream.arrived), stream.path)?;
    if let Some(call) = &stream.call {
        write!(out, " call {call:?}")?;
    }
    if let Some(attempt) = stream.attempt {
        write!(out, " attempt {attempt}")?;
    }
    if let Some(previous) = stream.previous_attempts() {
        write!(out, " previous {previous}")?;
    }
    if let Some(timeout) = stream.timeout() {
        write!(out, " timeout {}", ms(timeout))?;
    }
    write!(out, ": {}, {}", count(stream.messages, "message"), count(stream.bytes, "byte"))?;
    if stream.half_closed.is_some() {
        write!(out, ", half-closed")?;
    }
    if let Some(end) = stream.end {
        write!(
            out,
            "; {} after {}",
            outcome(end.outcome),
            ms(end.at.saturating_sub(stream.arrived))
        )?;
    }
    if stream.attempt.is_some() && !stream.scripted {
        write!(out, " (not in the script)")?;
    }
    writeln!(out)
}

pub(super) fn count(number: u64, what: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {what}{plural}")
}

pub(super) fn ms(duration: Duration) -> impl Display {
    format!("{:.1} ms", duration.as_secs_f64() * 1000.0)
}

fn outcome(outcome: StreamOutcome) -> String {
    match outcome {
        StreamOutcome::Answered(Some(code)) => format!("answered {code}"),
        StreamOutcome::Answered(None) => "answered without a status".to_owned(),
        StreamOutcome::Reset(reason) => format!("reset with {reason:?}"),
        StreamOutcome::ResetByClient(reason) => format!("reset by the client with {reason:?}"),
        StreamOutcome::GoneAway(reason) => format!("sent away with {reason:?}"),
        StreamOutcome::TooManyStreams => "refused: too many streams".to_owned(),
        StreamOutcome::Closed => "connection closed".to_owned(),
        StreamOutcome::ClosedByClient => "connection closed by the client".to_owned(),
        other => format!("{other:?}"),
    }
}
