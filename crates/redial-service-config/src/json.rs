//! A strict JSON parser whose values carry their position in the text, for this crate and for the
//! project's own tools.
//!
//! Invariant: a text that parses is JSON as RFC 8259 defines it, nested at most [`DEPTH_MAX`] deep. The
//! underlying parser accepts a lenient dialect (JSONC); all of its extensions are switched off, and
//! this module checks the two that have no switch: control characters and non-JSON whitespace.

use std::ops::Range;

use jsonc_parser::ast::Value;
use jsonc_parser::errors::ParseErrorKind;
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};

pub use crate::decimal::{Decimal, Scaled};

/// The maximum nesting depth of values.
pub const DEPTH_MAX: usize = 100;

const STRICT: ParseOptions = ParseOptions {
    allow_comments: false,
    allow_loose_object_property_names: false,
    allow_trailing_commas: false,
    allow_missing_commas: false,
    allow_single_quoted_strings: false,
    allow_hexadecimal_numbers: false,
    allow_unary_plus_numbers: false,
    allow_bare_decimal_point_numbers: false,
    allow_non_finite_numbers: false,
    allow_extended_string_escapes: false,
};

/// The error of a text that is not valid JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonError {
    /// The byte range of the error.
    pub range: Range<usize>,
    /// Whether the text was rejected for its nesting depth. It may be valid JSON otherwise.
    pub too_deep: bool,
    /// The description of the error.
    pub what: String,
    /// A suggested correction.
    pub hint: Option<&'static str>,
}

impl JsonError {
    fn new(range: Range<usize>, what: impl Into<String>, hint: Option<&'static str>) -> Self {
        JsonError { range, too_deep: false, what: what.into(), hint }
    }

    fn too_deep(range: Range<usize>) -> Self {
        let what = format!("values are nested deeper than {DEPTH_MAX}");
        JsonError { too_deep: true, ..JsonError::new(range, what, None) }
    }
}

/// Parses a text.
///
/// # Errors
/// The text is not JSON, or is nested too deep.
pub fn parse(text: &str) -> Result<Value<'_>, JsonError> {
    // A byte order mark is checked first: it is invisible, so it needs a message of its own.
    if text.starts_with('\u{feff}') {
        let hint = "save the text without it";
        return Err(JsonError::new(0..3, "a byte order mark before the JSON", Some(hint)));
    }
    check_depth(text)?;
    let parsed = parse_to_ast(text, &CollectOptions::default(), &STRICT).map_err(|error| {
        let range = error.range().start..error.range().end;
        let (what, hint) = error_text(error.kind());
        let yaml = "this looks like YAML, and JSON is needed: convert it to JSON";
        JsonError::new(range, what, if is_yaml(text) { Some(yaml) } else { hint })
    });
    let value = parsed?.value.ok_or_else(|| JsonError::new(0..0, "the text is empty", None))?;
    check_characters(text)?;
    Ok(value)
}

/// Rejects a text that is nested too deep before the recursive parser descends into it: the parser's
/// own limit is too high for small stacks.
///
/// Up to the first syntax error the counted brackets are exactly the nested ones, and the parser does
/// not descend further than that error.
fn check_depth(text: &str) -> Result<(), JsonError> {
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => {
                depth += 1;
                if depth > DEPTH_MAX {
                    return Err(JsonError::too_deep(at..at + 1));
                }
            }
            b'}' | b']' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    Ok(())
}

/// Whether a text that is not JSON looks like YAML: its first line of content is an unquoted key, a
/// list item or a document start.
fn is_yaml(text: &str) -> bool {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let Some(line) = lines.find(|line| !line.starts_with('#')) else { return false };
    let is_key = |key: &str| {
        !key.is_empty()
            && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte))
    };
    let has_key = line
        .split_once(':')
        .is_some_and(|(key, rest)| is_key(key) && (rest.is_empty() || rest.starts_with(' ')));
    has_key || line == "---" || line.starts_with("- ")
}

/// Finds control characters and non-JSON whitespace in a text that the parser has accepted: the two
/// extensions that the parser cannot switch off.
fn check_characters(text: &str) -> Result<(), JsonError> {
    let (mut in_string, mut escaped) = (false, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            0..0x20 if in_string => {
                let hint = "write it as an escape, like \\n or \\u0007";
                let what = "a control character in a string";
                return Err(JsonError::new(at..at + 1, what, Some(hint)));
            }
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b' ' | b'\t' | b'\n' | b'\r' => {}
            0..0x20 | 0x80.. => {
                let end = (at + 1..).find(|&end| text.is_char_boundary(end)).unwrap_or(text.len());
                let hint = "only spaces, tabs and line ends may stand between values";
                return Err(JsonError::new(at..end, "a character that is no JSON", Some(hint)));
            }
            _ => {}
        }
    }
    Ok(())
}

/// The description and hint for an error of the underlying parser.
fn error_text(kind: &ParseErrorKind) -> (String, Option<&'static str>) {
    let (what, hint) = match kind {
        ParseErrorKind::CommentsNotAllowed | ParseErrorKind::UnterminatedCommentBlock => {
            ("comments are not JSON", Some("remove the comment"))
        }
        ParseErrorKind::TrailingCommasNotAllowed => {
            ("a comma after the last value", Some("remove the comma"))
        }
        ParseErrorKind::ExpectedComma => ("a comma is missing here", None),
        ParseErrorKind::ExpectedStringObjectProperty | ParseErrorKind::UnexpectedTokenInObject => {
            ("expected a name in double quotes", Some("write names like \"name\""))
        }
        ParseErrorKind::SingleQuotedStringsNotAllowed => {
            ("single quotes are not JSON", Some("use double quotes"))
        }
        ParseErrorKind::MultipleRootJsonValues => ("something follows the end of the JSON", None),
        ParseErrorKind::UnterminatedObject => ("this object has no end", Some("add a }")),
        ParseErrorKind::UnterminatedArray => ("this list has no end", Some("add a ]")),
        other => {
            let text = other.to_string();
            let mut letters = text.chars();
            let first = letters.next().map(|letter| letter.to_ascii_lowercase());
            return (first.into_iter().chain(letters).collect(), None);
        }
    };
    (what.to_owned(), hint)
}

/// A line and a column, both from 1; columns count characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The line, from 1.
    pub line: usize,
    /// The column, from 1.
    pub column: usize,
}

/// The byte offsets at which the lines of a text begin.
#[derive(Clone, Debug)]
pub struct LineIndex(Vec<usize>);

impl LineIndex {
    /// Indexes the lines of a text.
    #[must_use]
    pub fn new(text: &str) -> Self {
        let ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        LineIndex(std::iter::once(0).chain(ends.map(|(at, _)| at + 1)).collect())
    }

    /// The line of a byte offset, from 1. Cheaper than [`position`](Self::position), which scans the
    /// line to find the column.
    #[must_use]
    pub fn line(&self, offset: usize) -> usize {
        self.0.partition_point(|start| *start <= offset)
    }

    /// The byte offset at which a line (from 1) begins.
    #[must_use]
    pub fn start(&self, line: usize) -> usize {
        self.0[line.clamp(1, self.0.len()) - 1]
    }

    /// The line and column of a byte offset.
    #[must_use]
    pub fn position(&self, text: &str, offset: usize) -> Position {
        let offset = offset.min(text.len());
        let line = self.line(offset);
        let before = &text.as_bytes()[self.start(line)..offset];
        // Counts characters: every byte that is not a UTF-8 continuation byte starts one.
        let column = before.iter().filter(|byte| **byte & 0xc0 != 0x80).count() + 1;
        Position { line, column }
    }
}
