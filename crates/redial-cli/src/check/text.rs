//! Problems for people: the line, the position underlined, the rule, and what to write instead.

use std::io::{self, Write};

use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};

use super::policy::first_line;
use super::{Checked, Finding, Severity};

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
        for finding in &file.findings {
            writeln!(out, "{}\n", render(file, finding, &renderer))?;
        }
    }
    if checked.is_empty() {
        return Ok(());
    }
    writeln!(err, "{}", summary(checked))
}

fn render(file: &Checked, finding: &Finding, renderer: &Renderer) -> String {
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
    let annotation = AnnotationKind::Primary.span(range.start - start..range.end - start);
    let snippet = Snippet::source(&text[start..end])
        .line_start(line)
        .path(file.source.name())
        .annotation(annotation);
    let mut group = level.primary_title(&finding.text).id(&finding.rule).element(snippet);
    if let Some(help) = &finding.help {
        group = group.element(Level::HELP.message(help));
    }
    renderer.render(&[group])
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
