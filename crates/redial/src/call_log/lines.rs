//! A diary as JSON lines: one object that says the version, then one for each note.
//!
//! Moments and spans are whole nanoseconds. Unknown fields and notes are errors: a diary is
//! evidence, and what cannot be read must not be skipped.

use std::fmt;

use redial_core::{Event, Ns};
use serde::{Deserialize, Serialize};

use super::json::JsonEvent;
use super::{CallLog, EventDetail};

/// The version that is written and read.
const VERSION: u32 = 1;
/// The longest diary that is read, in notes.
const EVENTS_MAX: usize = 1_000_000;

/// A diary that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallLogError {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub text: String,
}

impl fmt::Display for CallLogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.text)
    }
}

impl std::error::Error for CallLogError {}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Head {
    redial_diary: u32,
}

#[derive(Serialize, Deserialize)]
struct Line {
    at: Ns,
    #[serde(flatten)]
    event: JsonEvent,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<Box<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    backend: Option<Box<str>>,
}

impl CallLog {
    /// The diary as JSON lines.
    #[must_use]
    pub fn to_json_lines(&self) -> String {
        let mut text = format!("{{\"redial_diary\":{VERSION}}}\n");
        for (index, &(at, event)) in self.events().iter().enumerate() {
            let EventDetail { error, backend } = self.detail(index).cloned().unwrap_or_default();
            let line = Line { at, event: JsonEvent::from(event), error, backend };
            // Plain data with string keys: there is nothing that JSON could refuse.
            if let Ok(line) = serde_json::to_string(&line) {
                text.push_str(&line);
                text.push('\n');
            }
        }
        text
    }

    /// Reads a diary from JSON lines, of up to a million notes.
    ///
    /// # Errors
    /// The first line that is not what it should be.
    pub fn from_json_lines(text: &str) -> Result<CallLog, CallLogError> {
        CallLog::read(text, EVENTS_MAX)
    }

    fn read(text: &str, events_max: usize) -> Result<CallLog, CallLogError> {
        let mut lines = text.lines().enumerate().map(|(index, line)| (index + 1, line));
        let wrong = |line: usize, text: String| CallLogError { line, text };
        let (_, head) = lines.next().ok_or_else(|| wrong(1, "nothing to read".into()))?;
        let head: Head = serde_json::from_str(head)
            .map_err(|_| wrong(1, format!("expected {{\"redial_diary\":{VERSION}}}")))?;
        if head.redial_diary != VERSION {
            let text = format!("version {} is not {VERSION}", head.redial_diary);
            return Err(wrong(1, text));
        }
        let mut call_log = CallLog::new();
        for (number, line) in lines {
            if call_log.events().len() >= events_max {
                return Err(wrong(number, format!("more than {events_max} notes")));
            }
            let line: Line =
                serde_json::from_str(line).map_err(|error| wrong(number, error.to_string()))?;
            let event = Event::try_from(line.event).map_err(|text| wrong(number, text))?;
            call_log.push(line.at, event);
            call_log.annotate(EventDetail { error: line.error, backend: line.backend });
        }
        Ok(call_log)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn details_are_written_and_read_again() {
        let mut call_log = CallLog::new();
        call_log.push(1, Event::AttemptStarted { attempt: 1, number: 1 });
        call_log.push(2, Event::AttemptCancelled { attempt: 1 });
        call_log.annotate(EventDetail::new().error("busy").backend("a"));
        let text = call_log.to_json_lines();
        let line = r#"{"at":2,"note":"cancelled","attempt":1,"error":"busy","backend":"a"}"#;
        assert_eq!(text.lines().nth(2), Some(line));
        assert_eq!(CallLog::from_json_lines(&text), Ok(call_log));
        assert!(CallLog::from_json_lines(&text.replace("backend", "bakend")).is_err());
    }

    /// Red if the head counts as a note: `number > events_max`.
    #[test]
    fn a_diary_is_read_up_to_its_limit_and_not_one_note_beyond() {
        let text = |events: usize| {
            format!("{{\"redial_diary\":1}}\n{}", "{\"at\":1,\"note\":\"sealed\"}\n".repeat(events))
        };
        assert_eq!(CallLog::read(&text(3), 3).map(|call_log| call_log.events().len()), Ok(3));
        let error = CallLogError { line: 5, text: "more than 3 notes".into() };
        assert_eq!(CallLog::read(&text(4), 3), Err(error));
    }
}
