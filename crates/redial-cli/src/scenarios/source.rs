//! The text of a file, and places in it: where a mistake is, as people count lines and columns.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};

use redial_service_config::json::LineIndex;

pub use redial_service_config::json::Position;

/// A file that was read.
#[derive(Debug)]
pub struct Source {
    name: String,
    text: String,
    lines: LineIndex,
}

/// Something in a file that is not as it must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// The file's name.
    pub file: String,
    /// Where; `None` if the file could not be read at all.
    pub place: Option<Position>,
    /// What is wrong, and what was expected.
    pub text: String,
}

impl Source {
    /// The text of the file of this name.
    #[must_use]
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Self {
        let text = text.into();
        let lines = LineIndex::new(&text);
        Source { name: name.into(), text, lines }
    }

    /// Reads the file at this path.
    ///
    /// # Errors
    /// It cannot be read, has more bytes than that, or is not text.
    pub fn open(path: &str, bytes_max: u64) -> Result<Self, Mistake> {
        let read = || {
            let mut bytes = Vec::new();
            // A pipe or a device does not say how long it is: one byte too many is enough to know.
            File::open(path)?.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
            if bytes.len() as u64 > bytes_max {
                return Err(io::Error::other(format!("it is larger than {bytes_max} bytes")));
            }
            Ok(bytes)
        };
        let bytes = read().map_err(|error| {
            let text = format!("cannot be read: {error}");
            Mistake { file: path.to_owned(), place: None, text }
        })?;
        String::from_utf8(bytes).map(|text| Source::new(path, text)).map_err(|error| {
            let valid = error.utf8_error().valid_up_to();
            let text = String::from_utf8_lossy(&error.as_bytes()[..valid]);
            Source::new(path, text).mistake(valid, "not UTF-8: save the text as UTF-8")
        })
    }

    /// The file's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The place of a byte.
    #[must_use]
    pub fn place(&self, offset: usize) -> Position {
        self.lines.position(&self.text, offset)
    }

    /// The line of a byte. Its column costs more: all of the line before it is looked at.
    #[must_use]
    pub fn line(&self, offset: usize) -> usize {
        self.lines.line(offset)
    }

    /// The byte at which a line begins, counted from 1.
    #[must_use]
    pub fn line_start(&self, line: usize) -> usize {
        self.lines.start(line)
    }

    /// A mistake at a byte.
    pub(super) fn mistake(&self, offset: usize, text: impl Into<String>) -> Mistake {
        Mistake { file: self.name.clone(), place: Some(self.place(offset)), text: text.into() }
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Mistake { file, place, text } = self;
        match place {
            Some(Position { line, column }) => write!(f, "{file}:{line}:{column}: {text}"),
            None => write!(f, "{file}: {text}"),
        }
    }
}

impl std::error::Error for Mistake {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_counted_in_lines_and_characters_from_one() {
        let source = Source::new("f", "{\n  \"µ\": x\n}");
        let at = |text: &str| source.place(source.text().find(text).unwrap());
        assert_eq!(at("{"), Position { line: 1, column: 1 });
        assert_eq!(at("x"), Position { line: 2, column: 8 });
        assert_eq!(at("}"), Position { line: 3, column: 1 });
        assert_eq!(source.place(1000), Position { line: 3, column: 2 });
        assert_eq!(Source::new("f", "").place(0), Position { line: 1, column: 1 });
    }
}
