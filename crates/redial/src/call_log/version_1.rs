//! Version 1 of the JSON lines, translated to version 2 before a line is parsed.
//!
//! Version 1 had other names for the events and for three fields; the values are the same.

use serde_json::{Map, Value};

/// The name of each event in version 1, and in version 2.
const EVENTS: [(&str, &str); 15] = [
    ("began", "call-started"),
    ("hedging", "hedge-delay"),
    ("started", "attempt-started"),
    ("outcome", "attempt-outcome"),
    ("timed-out", "attempt-timed-out"),
    ("cancelled", "attempt-cancelled"),
    ("drew", "random-draw"),
    ("granted", "throttle-answered"),
    ("asked", "strategy-asked"),
    ("answered", ANSWERED),
    ("retrying", "retry-scheduled"),
    ("replacing", "transparent-retry-scheduled"),
    ("committed", "committed"),
    ("sealed", "not-replayable"),
    ("ended", "call-ended"),
];

/// The fields with another name: in version 1, and in version 2.
const FIELDS: [(&str, &str); 2] = [("taken", "withdrawn"), ("why", "stop_reason")];

const ANSWERED: &str = "strategy-answered";

/// A line of version 1 as one of version 2. Fields that version 1 did not have are left as they are,
/// so the parser of version 2 reports them.
pub(super) fn upgrade(line: &str) -> Result<Value, String> {
    let mut line: Map<String, Value> =
        serde_json::from_str(line).map_err(|error| error.to_string())?;
    let note = line.remove("note").ok_or("missing field `note`")?;
    let known = EVENTS.iter().find(|(name, _)| note == *name);
    let (_, event) = known.ok_or_else(|| format!("unknown note {note}"))?;
    for (old, new) in FIELDS {
        if let Some(value) = line.remove(old) {
            line.insert(new.to_owned(), value);
        }
    }
    if *event == ANSWERED {
        let advice = advice(&mut line)?;
        line.insert("advice".to_owned(), advice.into());
    }
    line.insert("event".to_owned(), (*event).into());
    Ok(Value::Object(line))
}

/// The advice of a strategy, which version 1 wrote as a flag and an optional delay.
fn advice(line: &mut Map<String, Value>) -> Result<&'static str, String> {
    Ok(match line.remove("silent") {
        Some(Value::Bool(true)) => "none",
        Some(Value::Bool(false)) | None => match line.get("after") {
            Some(Value::Null) | None => "decline",
            Some(_) => "after",
        },
        Some(other) => return Err(format!("`silent` must be true or false, not {other}")),
    })
}
