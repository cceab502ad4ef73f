//! A diary as JSON lines: one object that says the version, then one for each note.
//!
//! Moments and spans are whole nanoseconds. Unknown fields and notes are errors: a diary is
//! evidence, and what cannot be read must not be skipped.

use std::fmt;

use redial_core::{Note, Ns};
use serde::{Deserialize, Serialize};

use super::note::Written;
use super::{Diary, NoteDetail};

/// The version that is written and read.
const VERSION: u32 = 1;
/// The longest diary that is read, in notes.
const NOTES_MAX: usize = 1_000_000;

/// A diary that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DiaryError {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub text: String,
}

impl fmt::Display for DiaryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.text)
    }
}

impl std::error::Error for DiaryError {}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Head {
    redial_diary: u32,
}

#[derive(Serialize, Deserialize)]
struct Line {
    at: Ns,
    #[serde(flatten)]
    note: Written,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<Box<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    backend: Option<Box<str>>,
}

impl Diary {
    /// The diary as JSON lines.
    #[must_use]
    pub fn to_json_lines(&self) -> String {
        let mut text = format!("{{\"redial_diary\":{VERSION}}}\n");
        for (index, &(at, note)) in self.notes().iter().enumerate() {
            let NoteDetail { error, backend } = self.detail(index).cloned().unwrap_or_default();
            let line = Line { at, note: Written::from(note), error, backend };
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
    pub fn from_json_lines(text: &str) -> Result<Diary, DiaryError> {
        Diary::read(text, NOTES_MAX)
    }

    fn read(text: &str, notes_max: usize) -> Result<Diary, DiaryError> {
        let mut lines = text.lines().enumerate().map(|(index, line)| (index + 1, line));
        let wrong = |line: usize, text: String| DiaryError { line, text };
        let (_, head) = lines.next().ok_or_else(|| wrong(1, "nothing to read".into()))?;
        let head: Head = serde_json::from_str(head)
            .map_err(|_| wrong(1, format!("expected {{\"redial_diary\":{VERSION}}}")))?;
        if head.redial_diary != VERSION {
            let text = format!("version {} is not {VERSION}", head.redial_diary);
            return Err(wrong(1, text));
        }
        let mut diary = Diary::new();
        for (number, line) in lines {
            if diary.notes().len() >= notes_max {
                return Err(wrong(number, format!("more than {notes_max} notes")));
            }
            let line: Line =
                serde_json::from_str(line).map_err(|error| wrong(number, error.to_string()))?;
            let note = Note::try_from(line.note).map_err(|text| wrong(number, text))?;
            diary.push(line.at, note);
            diary.annotate(NoteDetail { error: line.error, backend: line.backend });
        }
        Ok(diary)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn details_are_written_and_read_again() {
        let mut diary = Diary::new();
        diary.push(1, Note::Started { attempt: 1, number: 1 });
        diary.push(2, Note::Cancelled { attempt: 1 });
        diary.annotate(NoteDetail::new().error("busy").backend("a"));
        let text = diary.to_json_lines();
        let line = r#"{"at":2,"note":"cancelled","attempt":1,"error":"busy","backend":"a"}"#;
        assert_eq!(text.lines().nth(2), Some(line));
        assert_eq!(Diary::from_json_lines(&text), Ok(diary));
        assert!(Diary::from_json_lines(&text.replace("backend", "bakend")).is_err());
    }

    /// Red if the head counts as a note: `number > notes_max`.
    #[test]
    fn a_diary_is_read_up_to_its_limit_and_not_one_note_beyond() {
        let text = |notes: usize| {
            format!("{{\"redial_diary\":1}}\n{}", "{\"at\":1,\"note\":\"sealed\"}\n".repeat(notes))
        };
        assert_eq!(Diary::read(&text(3), 3).map(|diary| diary.notes().len()), Ok(3));
        let error = DiaryError { line: 5, text: "more than 3 notes".into() };
        assert_eq!(Diary::read(&text(4), 3), Err(error));
    }
}
