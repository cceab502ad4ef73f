//! A problem of a file.

use std::ops::Range;

use super::{FINDINGS_MAX, Kind};
use crate::scenarios::source::{Diagnostic, Source};

/// The rule of a finding that stands for those beyond a limit.
pub(super) const LIMIT: &str = "limit";

/// How bad a problem is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The file is wrong, or does nothing.
    Error,
    /// Likely a mistake.
    Warning,
    /// Good to know.
    Note,
}

impl Severity {
    /// The word in messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
            Severity::Note => "note",
        }
    }
}

/// A problem of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The name of the rule.
    pub rule: String,
    /// How bad it is.
    pub severity: Severity,
    /// Where, in bytes.
    pub range: Range<usize>,
    /// The path of the value, where it has one.
    pub path: String,
    /// What is wrong.
    pub text: String,
    /// What to write instead.
    pub help: Option<String>,
}

impl Finding {
    /// An error.
    pub(super) fn error(rule: &str, range: Range<usize>, text: impl Into<String>) -> Self {
        let (rule, text) = (rule.to_owned(), text.into());
        Finding { rule, severity: Severity::Error, range, path: String::new(), text, help: None }
    }

    /// A warning.
    pub(super) fn warning(rule: &str, range: Range<usize>, text: impl Into<String>) -> Self {
        Finding { severity: Severity::Warning, ..Finding::error(rule, range, text) }
    }

    pub(super) fn path(mut self, path: impl Into<String>) -> Self {
        self.path = path.into();
        self
    }

    pub(super) fn help(mut self, text: impl Into<String>) -> Self {
        self.help = Some(text.into());
        self
    }
}

/// Keeps the first [`FINDINGS_MAX`] of each severity, and says how many more there are.
pub(super) fn truncate(findings: &mut Vec<Finding>, end: usize) {
    for severity in [Severity::Error, Severity::Warning, Severity::Note] {
        let mut count = 0;
        findings.retain(|finding| {
            // A limit that was met before is not one of those that are counted here.
            let is_counted = finding.severity == severity && finding.rule != LIMIT;
            count += usize::from(is_counted);
            !is_counted || count <= FINDINGS_MAX
        });
        if count > FINDINGS_MAX {
            let text = format!("and {} more {}s", count - FINDINGS_MAX, severity.name());
            findings.push(Finding { severity, ..Finding::error(LIMIT, end..end, text) });
        }
    }
}

/// A file that was checked.
#[derive(Debug)]
pub struct Checked {
    /// The file.
    pub source: Source,
    /// Its kind.
    pub kind: Kind,
    /// Its problems, in the order of the text.
    pub findings: Vec<Finding>,
}

impl Checked {
    /// How many problems of this severity it has.
    #[must_use]
    pub fn count(&self, severity: Severity) -> usize {
        self.findings.iter().filter(|finding| finding.severity == severity).count()
    }

    /// A file that is not text.
    pub(super) fn not_text(path: &str, diagnostic: &Diagnostic) -> Self {
        let findings = vec![Finding::error("utf-8", 0..0, diagnostic.text.clone())];
        Checked { source: Source::new(path, ""), kind: Kind::ServiceConfig, findings }
    }
}
