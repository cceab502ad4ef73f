//! Problems of simulation files.

use redial_sim::file::{self, Format, Problem, Rule};

use super::Finding;
use crate::scenarios::source::Source;
use crate::simulate;

pub(super) fn check(source: &Source) -> Vec<Finding> {
    let format = Format::of(source.name(), source.text());
    match file::parse(source.text(), format, &simulate::files_beside(source.name())) {
        Ok(_) => Vec::new(),
        Err(problems) => {
            problems.as_slice().iter().map(|problem| finding(problem, format)).collect()
        }
    }
}

/// A problem says what is wrong, and after a semicolon what to write instead.
pub(super) fn finding(problem: &Problem, format: Format) -> Finding {
    let Problem { rule, range, path, text, .. } = problem;
    let (what, help) = match text.split_once("; ") {
        Some((what, help)) => (what, Some(help)),
        None => (text.as_str(), None),
    };
    let what = if path.is_empty() { what.to_owned() } else { format!("{path}: {what}") };
    let rule = match (rule, format) {
        (Rule::Syntax, Format::Json) => "json",
        (Rule::Syntax, Format::Toml) => "toml",
        (rule, _) => rule.name(),
    };
    let finding = Finding::error(rule, range.clone(), what).path(path.clone());
    match help {
        Some(help) => finding.help(help),
        None => finding,
    }
}
