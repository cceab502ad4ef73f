//! Call logs as JSON lines. The format and its compatibility are documented in the module above.

use std::fmt;

use redial_core::{Event, Ns};
use serde::{Deserialize, Serialize};

use super::event_json::JsonEvent;
use super::{CallLog, EventDetail, version_1};

/// The version that is written.
const VERSION: u32 = 2;
/// The longest call log that is read, in events.
const EVENTS_MAX: usize = 1_000_000;

/// A call log cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallLogError {
    /// The line, from 1.
    pub line: usize,
    /// The problem with that line.
    pub text: String,
}

impl fmt::Display for CallLogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.text)
    }
}

impl std::error::Error for CallLogError {}

/// The first line. The key depends on the version.
#[derive(Deserialize)]
#[serde(untagged)]
enum Head {
    CallLog(CallLogHead),
    Version1(Version1Head),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CallLogHead {
    redial_call_log: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    policy: Option<Box<str>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Version1Head {
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

/// Parses one line after the head.
type ParseLine = fn(&str) -> Result<Line, String>;

impl Head {
    fn parse_line(&self) -> Result<ParseLine, String> {
        match *self {
            Head::CallLog(CallLogHead { redial_call_log: VERSION, .. }) => {
                Ok(|line| serde_json::from_str(line).map_err(|error| error.to_string()))
            }
            Head::Version1(Version1Head { redial_diary: 1 }) => Ok(|line| {
                let line = version_1::upgrade(line)?;
                serde_json::from_value(line).map_err(|error| error.to_string())
            }),
            Head::CallLog(CallLogHead { redial_call_log: version, .. })
            | Head::Version1(Version1Head { redial_diary: version }) => Err(format!(
                "version {version} of the call log is unknown; this release reads 1 and {VERSION}"
            )),
        }
    }
}

impl CallLog {
    /// The call log as JSON lines: a line with the version of the format, then a line per event.
    ///
    /// [`CallLog::from_json_lines`] reads the text back to an equal call log, in this release and in
    /// later ones. The [module](crate::call_log) documents the format and its compatibility.
    ///
    /// ```
    /// use redial::{CallLog, Policy, ms};
    ///
    /// static ONCE: Policy = Policy::constant(ms(10)).attempts(1).name("once").build();
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() {
    /// let mut call_log = CallLog::new();
    /// ONCE.retry(|| async { Ok::<_, ()>(7) }).when(|_| true).call_log(&mut call_log).await.unwrap();
    /// let text = call_log.to_json_lines();
    /// assert!(text.starts_with("{\"redial_call_log\":2,\"policy\":\"once\"}\n"));
    /// assert_eq!(CallLog::from_json_lines(&text), Ok(call_log));
    /// # }
    /// ```
    #[must_use]
    pub fn to_json_lines(&self) -> String {
        let head = CallLogHead { redial_call_log: VERSION, policy: self.policy.clone() };
        // Plain data with string keys: serialization cannot fail.
        let mut text = serde_json::to_string(&head).unwrap_or_default();
        text.push('\n');
        for (index, &(at, event)) in self.events().iter().enumerate() {
            let EventDetail { error, backend } = self.detail(index).cloned().unwrap_or_default();
            let line = Line { at, event: JsonEvent::from(event), error, backend };
            if let Ok(line) = serde_json::to_string(&line) {
                text.push_str(&line);
                text.push('\n');
            }
        }
        text
    }

    /// Reads a call log from JSON lines of version 2 or 1, up to a million events. An unknown event
    /// or field is an error, and so is a time before that of the event above it.
    ///
    /// # Errors
    /// The first line that is not valid, with its number.
    pub fn from_json_lines(text: &str) -> Result<CallLog, CallLogError> {
        CallLog::read(text, EVENTS_MAX)
    }

    fn read(text: &str, events_max: usize) -> Result<CallLog, CallLogError> {
        let mut lines = text.lines().enumerate().map(|(index, line)| (index + 1, line));
        let error_at = |line: usize| move |text: String| CallLogError { line, text };
        let head = lines.next().map_or("", |(_, line)| line);
        let head: Head = serde_json::from_str(head)
            .map_err(|_| error_at(1)(format!("expected {{\"redial_call_log\":{VERSION}}}")))?;
        let parse_line = head.parse_line().map_err(error_at(1))?;
        let mut call_log = CallLog::new();
        if let Head::CallLog(head) = head {
            call_log.policy = head.policy;
        }
        for (number, line) in lines {
            if call_log.events().len() >= events_max {
                return Err(error_at(number)(format!("more than {events_max} events")));
            }
            let line = parse_line(line).map_err(error_at(number))?;
            let event = Event::try_from(line.event).map_err(error_at(number))?;
            let last = call_log.events().last().map_or(0, |(at, _)| *at);
            if line.at < last {
                let text = format!("at {} is before {last}, the time of the event above", line.at);
                return Err(error_at(number)(text));
            }
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
    fn call_log_json_lines_keep_error_and_backend() {
        let mut call_log = CallLog::new();
        call_log.push(1, Event::AttemptStarted { attempt: 1, number: 1 });
        call_log.push(2, Event::AttemptCancelled { attempt: 1 });
        call_log.annotate(EventDetail::new().error("busy").backend("a"));
        let text = call_log.to_json_lines();
        let line =
            r#"{"at":2,"event":"attempt-cancelled","attempt":1,"error":"busy","backend":"a"}"#;
        assert_eq!(text.lines().nth(2), Some(line));
        assert_eq!(CallLog::from_json_lines(&text).as_ref(), Ok(&call_log));
        assert!(CallLog::from_json_lines(&text.replace("backend", "bakend")).is_err());
        let version_1 = concat!(
            "{\"redial_diary\":1}\n",
            "{\"at\":1,\"note\":\"started\",\"attempt\":1,\"number\":1}\n",
            "{\"at\":2,\"note\":\"cancelled\",\"attempt\":1,\"error\":\"busy\",\"backend\":\"a\"}\n",
        );
        assert_eq!(CallLog::from_json_lines(version_1), Ok(call_log));
    }

    #[test]
    fn call_log_json_lines_times_never_decrease() {
        let text = |second: u64| {
            format!(
                "{{\"redial_call_log\":2}}\n{{\"at\":7,\"event\":\"not-replayable\"}}\n\
                 {{\"at\":{second},\"event\":\"not-replayable\"}}\n"
            )
        };
        assert!(CallLog::from_json_lines(&text(7)).is_ok());
        let text = CallLog::from_json_lines(&text(6)).expect_err("the time decreases");
        assert_eq!(text.to_string(), "line 3: at 6 is before 7, the time of the event above");
    }

    #[test]
    fn call_log_json_lines_are_read_up_to_event_limit() {
        let versions = [
            (
                "{\"redial_call_log\":2,\"policy\":\"fetch\"}",
                "{\"at\":1,\"event\":\"not-replayable\"}\n",
            ),
            ("{\"redial_diary\":1}", "{\"at\":1,\"note\":\"sealed\"}\n"),
        ];
        for (head, line) in versions {
            let text = |events: usize| format!("{head}\n{}", line.repeat(events));
            assert_eq!(CallLog::read(&text(3), 3).map(|call_log| call_log.events().len()), Ok(3));
            let error = CallLogError { line: 5, text: "more than 3 events".into() };
            assert_eq!(CallLog::read(&text(4), 3), Err(error));
        }
    }
}
