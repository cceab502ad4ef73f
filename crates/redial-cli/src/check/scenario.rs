//! Problems of scenario files.

use std::ops::Range;

use super::Finding;
use crate::scenarios::load;
use crate::scenarios::source::{Position, Source};

pub(super) fn check(source: &Source) -> Vec<Finding> {
    let Err(diagnostics) = load::load(source) else { return Vec::new() };
    diagnostics
        .into_iter()
        .map(|diagnostic| {
            let range = diagnostic.position.map_or(0..0, |position| token(source, position));
            let rule = if diagnostic.text.starts_with("not JSON") { "json" } else { "scenario" };
            Finding::error(rule, range, diagnostic.text)
        })
        .collect()
}

/// The bytes of the token that begins at this position.
fn token(source: &Source, position: Position) -> Range<usize> {
    let text = source.text();
    let line = &text[source.line_start(position.line).min(text.len())..];
    let skipped = line.char_indices().nth(position.column.saturating_sub(1));
    let start = text.len() - line.len() + skipped.map_or(line.len(), |(at, _)| at);
    let rest = &text[start..];
    let length = match rest.strip_prefix('"') {
        Some(string) => string.find('"').map_or(1, |end| end + 2),
        None => rest.find(|c: char| c.is_whitespace() || ",:]}".contains(c)).unwrap_or(rest.len()),
    };
    let first = rest.chars().next().map_or(0, char::len_utf8);
    start..start + length.max(first)
}
