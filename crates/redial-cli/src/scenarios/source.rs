//! The text of a file, and positions in it by line and column.

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

/// An error in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// The file's name.
    pub file: String,
    /// Where; `None` if the file could not be read at all.
    pub position: Option<Position>,
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
    /// It cannot be read, is larger than `bytes_max`, or is not UTF-8.
    pub fn open(path: &str, bytes_max: u64) -> Result<Self, Diagnostic> {
        Source::read(path, bytes_max, || File::open(path))
    }

    /// The same; `-` is standard input.
    ///
    /// # Errors
    /// The same.
    pub fn open_or_stdin(path: &str, bytes_max: u64) -> Result<Self, Diagnostic> {
        match path {
            "-" => Source::read(path, bytes_max, || Ok(io::stdin().lock())),
            _ => Source::open(path, bytes_max),
        }
    }

    fn read<R: Read>(
        path: &str,
        bytes_max: u64,
        open: impl FnOnce() -> io::Result<R>,
    ) -> Result<Self, Diagnostic> {
        let read = || {
            let mut bytes = Vec::new();
            // The length of a pipe or device is unknown: reading one byte more than the limit is
            // enough.
            open()?.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
            if bytes.len() as u64 > bytes_max {
                return Err(io::Error::other(format!("it is larger than {bytes_max} bytes")));
            }
            Ok(bytes)
        };
        let bytes = read().map_err(|error| {
            let text = format!("cannot be read: {error}");
            Diagnostic { file: path.to_owned(), position: None, text }
        })?;
        String::from_utf8(bytes).map(|text| Source::new(path, text)).map_err(|error| {
            let valid = error.utf8_error().valid_up_to();
            let text = String::from_utf8_lossy(&error.as_bytes()[..valid]);
            Source::new(path, text).diagnostic(valid, "not UTF-8: save the text as UTF-8")
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

    /// The line and column of a byte.
    #[must_use]
    pub fn position(&self, offset: usize) -> Position {
        self.lines.position(&self.text, offset)
    }

    /// Positions of bytes that mostly follow each other: a long line is scanned once.
    #[must_use]
    pub fn positions(&self) -> Positions<'_> {
        Positions { source: self, offset: 0, position: Position { line: 1, column: 1 } }
    }

    /// The line of a byte. Cheaper than its column, which needs a scan of the line.
    #[must_use]
    pub fn line(&self, offset: usize) -> usize {
        self.lines.line(offset)
    }

    /// The byte at which a line begins, counted from 1.
    #[must_use]
    pub fn line_start(&self, line: usize) -> usize {
        self.lines.start(line)
    }

    /// An error at a byte.
    pub(super) fn diagnostic(&self, offset: usize, text: impl Into<String>) -> Diagnostic {
        Diagnostic {
            file: self.name.clone(),
            position: Some(self.position(offset)),
            text: text.into(),
        }
    }
}

/// Positions of bytes in their order.
#[derive(Clone, Debug)]
pub struct Positions<'s> {
    source: &'s Source,
    offset: usize,
    position: Position,
}

impl Positions<'_> {
    /// The line and column of a byte.
    pub fn at(&mut self, offset: usize) -> Position {
        let text = self.source.text();
        let offset = offset.min(text.len());
        let line = self.source.line(offset);
        if line == self.position.line && offset >= self.offset {
            let between = &text.as_bytes()[self.offset..offset];
            // Every byte that does not continue a character begins one.
            self.position.column += between.iter().filter(|byte| **byte & 0xc0 != 0x80).count();
        } else {
            self.position = self.source.position(offset);
        }
        self.offset = offset;
        self.position
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Diagnostic { file, position, text } = self;
        match position {
            Some(Position { line, column }) => write!(f, "{file}:{line}:{column}: {text}"),
            None => write!(f, "{file}: {text}"),
        }
    }
}

impl std::error::Error for Diagnostic {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_position_counts_lines_and_characters_from_one() {
        let source = Source::new("f", "{\n  \"µ\": x\n}");
        let at = |text: &str| source.position(source.text().find(text).unwrap());
        assert_eq!(at("{"), Position { line: 1, column: 1 });
        assert_eq!(at("x"), Position { line: 2, column: 8 });
        assert_eq!(at("}"), Position { line: 3, column: 1 });
        assert_eq!(source.position(1000), Position { line: 3, column: 2 });
        assert_eq!(Source::new("f", "").position(0), Position { line: 1, column: 1 });
    }

    #[test]
    fn source_positions_in_any_order_equal_single_ones() {
        let source = Source::new("f", "{\n  \"µµ\": x,\n \"y\": 1 }");
        let mut positions = source.positions();
        for offset in [0, 1, 4, 5, 7, 7, 9, 6, 2, 20, 14, 1000, 0] {
            assert_eq!(positions.at(offset), source.position(offset), "{offset}");
        }
    }
}
