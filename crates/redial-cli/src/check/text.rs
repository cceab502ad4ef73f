//! Problems for people: the line, the position underlined, the rule, and what to write instead.

use std::io::{self, Write};
use std::ops::Range;

use annotate_snippets::{AnnotationKind, Level, Origin, Renderer, Snippet};

use super::policy::first_line;
use super::{Checked, Finding, Severity};
use crate::scenarios::source::Position;

/// How much of a line is shown before and after a finding.
const PART_MAX: usize = 500;
/// The width of messages without a terminal.
const COLUMNS: usize = 140;

pub(super) fn print(
    checked: &[Checked],
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> io::Result<()> {
    let columns = terminal_size::terminal_size().map_or(COLUMNS, |(width, _)| usize::from(width.0));
    let colored = crate::color::is_on(&io::stdout());
    let renderer = if colored { Renderer::styled() } else { Renderer::plain() };
    let renderer = renderer.term_width(columns);
    for file in checked {
        let mut positions = file.source.positions();
        for finding in &file.findings {
            let position = positions.at(finding.range.start);
            writeln!(out, "{}\n", render(file, finding, position, &renderer))?;
        }
    }
    if checked.is_empty() {
        return Ok(());
    }
    writeln!(err, "{}", summary(checked))
}

fn render(file: &Checked, finding: &Finding, position: Position, renderer: &Renderer) -> String {
    let level = match finding.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
        Severity::Note => Level::NOTE,
    };
    let text = file.source.text();
    // The text is shown from the line of the finding on: a minified file has one long line, and a
    // large file must not be searched for each finding.
    let line = file.source.line(finding.range.start.min(text.len()));
    let start = file.source.line_start(line);
    let range = first_line(text, finding.range.clone());
    let end = text[range.end..].find('\n').map_or(text.len(), |at| range.end + at);
    // The end of a line in a file from Windows is shown as a sign of its own otherwise.
    let end = if text[start..end].ends_with('\r') { end - 1 } else { end };
    let part = part_of_line(text, start..end, &range);
    let is_whole = part == (start..end);
    let underlined = range.start.min(part.end) - part.start..range.end.min(part.end) - part.start;
    let annotation = AnnotationKind::Primary.span(underlined);
    let snippet = Snippet::source(&text[part]).line_start(line).annotation(annotation);
    let title = level.primary_title(&finding.text).id(&finding.rule);
    let mut group = if is_whole {
        title.element(snippet.path(file.source.name()))
    } else {
        let origin = Origin::path(file.source.name()).line(line).char_column(position.column);
        title.element(origin).element(snippet)
    };
    if let Some(help) = &finding.help {
        group = group.element(Level::HELP.message(help));
    }
    renderer.render(&[group])
}

/// The part of a line that is shown. A terminal has no place for more, and a long line would be
/// searched for each of its findings.
fn part_of_line(text: &str, line: Range<usize>, range: &Range<usize>) -> Range<usize> {
    let mut start = range.start.saturating_sub(PART_MAX).max(line.start);
    let mut end = (range.start + PART_MAX).min(line.end).max(start);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    start..end
}

fn summary(checked: &[Checked]) -> String {
    let count = |severity| checked.iter().map(|file| file.count(severity)).sum::<usize>();
    let counted = |count: usize, word: &str| match count {
        0 => None,
        1 => Some(format!("1 {word}")),
        count => Some(format!("{count} {word}s")),
    };
    let found: Vec<_> = [Severity::Error, Severity::Warning, Severity::Note]
        .into_iter()
        .filter_map(|severity| counted(count(severity), severity.name()))
        .collect();
    let files = counted(checked.len(), "file").unwrap_or_default();
    match found.is_empty() {
        true => format!("{files} checked, no problem found"),
        false => format!("{files} checked: {}", found.join(", ")),
    }
}
