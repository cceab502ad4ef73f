//! Checks of the documents: tests and scenarios that they name exist, and every decision is recorded.
//!
//! [`names`](crate::names) describes how a document marks names. In `docs/decisions.md` an entry starts
//! with `- **ID**`, or with `- *Title*` if it has no id, and extends to the next entry or heading. Each
//! entry has a sentence for users that starts with `You notice:`. An entry with an id is covered if it
//! names at least one existing test or scenario, or contains `(comes with ...)`.
//!
//! In `docs/peer-suites.md` the tables with a column `ours` map tests of other libraries to ours: each
//! row names tests in backticks in that column, or gives a reason in its last column. A test with a
//! comment that starts with [`PEER_TEST`] must be in a row.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::Path;

use crate::names::Names;

/// The sections whose decisions must have an entry each, with their number; 0 means the letter alone.
pub const EXPECTED: &[(&str, u32)] =
    &[("P", 14), ("L", 6), ("B", 0), ("S", 10), ("G", 42), ("C", 16), ("M", 9)];

/// The sections that may have entries already.
pub const LATER: &[(&str, u32)] = &[("H", 6)];

/// The start of the comment above a test that corresponds to a test of another library.
pub const PEER_TEST: &str = "// Peer test:";

/// The start of the sentence in each entry that describes the effect on users.
const USER_SENTENCE: &str = "You notice:";

/// The names in all Markdown files below the folder that do not exist, each with its file.
///
/// # Errors
/// If a file cannot be read.
pub fn missing_in(folder: &Path, existing: &Names) -> io::Result<Vec<String>> {
    let mut missing = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            missing.extend(missing_in(&path, existing)?);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let named = Names::marked_in(&fs::read_to_string(&path)?);
            missing
                .extend(named.missing_from(existing).iter().map(|line| format!("{file}: {line}")));
        }
    }
    missing.sort();
    Ok(missing)
}

/// The problems of `docs/decisions.md`: an id that is missing, has several entries or is unknown, and an
/// entry without its sentence for users.
#[must_use]
pub fn problems_in(decisions: &str) -> Vec<String> {
    let entries = entries(decisions);
    let mut counts = BTreeMap::new();
    for id in entries.iter().filter_map(|entry| entry.id.as_ref()) {
        *counts.entry(id.clone()).or_insert(0) += 1;
    }
    let mut problems = Vec::new();
    for id in ids(EXPECTED).chain(ids(LATER)) {
        match counts.remove(&id) {
            None if ids(EXPECTED).any(|expected| expected == id) => {
                problems.push(format!("{id} has no entry"));
            }
            Some(2..) => problems.push(format!("{id} has several entries")),
            _ => {}
        }
    }
    problems.extend(counts.keys().map(|id| format!("there is no decision {id}")));
    let silent = entries.iter().filter(|entry| !entry.has_user_sentence());
    problems.extend(
        silent.map(|entry| format!("{} has no sentence \"{USER_SENTENCE} ...\"", entry.name())),
    );
    problems
}

/// The expected decisions that neither name an existing test or scenario nor contain `(comes with ...)`.
#[must_use]
pub fn uncovered_in(decisions: &str, existing: &Names) -> Vec<String> {
    let covered: BTreeSet<_> = entries(decisions)
        .into_iter()
        .filter(|Entry { text, .. }| {
            text.contains("(comes with ") || Names::marked_in(text).share_any(existing)
        })
        .filter_map(|entry| entry.id)
        .collect();
    ids(EXPECTED).filter(|id| !covered.contains(id)).collect()
}

/// The problems of `docs/peer-suites.md`: a row that names a test that does not exist, that has neither a
/// test nor a reason, or that occurs twice in its table; and a test of `suite` that is in no row.
#[must_use]
pub fn problems_in_suites(text: &str, existing: &Names, suite: &BTreeSet<String>) -> Vec<String> {
    let mut problems = Vec::new();
    let mut named = BTreeSet::new();
    let mut seen = BTreeSet::new();
    for Row { table, theirs, ours, reason } in rows_in(text) {
        if !seen.insert((table, theirs.clone())) {
            problems.push(format!("{theirs} has several rows"));
        }
        if ours.is_empty() && reason.is_empty() {
            problems.push(format!("{theirs} has neither a test nor a reason"));
        }
        for test in ours.difference(&existing.tests) {
            problems.push(format!("{theirs}: there is no test `{test}`"));
        }
        named.extend(ours);
    }
    problems.extend(suite.difference(&named).map(|test| format!("`{test}` is in no row")));
    problems
}

/// A row of a table that maps tests of another library to ours.
struct Row {
    /// The number of its table in the document.
    table: usize,
    theirs: String,
    ours: BTreeSet<String>,
    reason: String,
}

fn rows_in(text: &str) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut tables = 0;
    // The column with our tests, inside a table that has one.
    let mut column = None;
    let mut inside = false;
    for line in text.lines().map(str::trim) {
        let Some(line) = line.strip_prefix('|').and_then(|line| line.strip_suffix('|')) else {
            inside = false;
            continue;
        };
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        if !inside {
            inside = true;
            tables += 1;
            column = cells.iter().position(|cell| *cell == "ours");
        } else if let Some(column) = column
            && let [theirs, .., reason] = &cells[..]
            && !theirs.starts_with("---")
        {
            // Every second piece is between backticks.
            let quoted = cells.get(column).unwrap_or(&"").split('`').skip(1).step_by(2);
            let ours = quoted.map(|path| path.rsplit("::").next().unwrap_or(path).to_owned());
            rows.push(Row {
                table: tables,
                theirs: (*theirs).to_owned(),
                ours: ours.collect(),
                reason: (*reason).to_owned(),
            });
        }
    }
    rows
}

/// The number of expected decisions.
#[must_use]
pub fn expected_count() -> usize {
    ids(EXPECTED).count()
}

fn ids(sections: &[(&str, u32)]) -> impl Iterator<Item = String> {
    sections.iter().flat_map(|&(letter, count)| match count {
        0 => vec![letter.to_owned()],
        _ => (1..=count).map(|number| format!("{letter}{number}")).collect(),
    })
}

/// An entry of `docs/decisions.md`.
struct Entry {
    /// `P1` and the like; entries of the last section have none.
    id: Option<String>,
    /// The entry on one line, without its id.
    text: String,
}

impl Entry {
    /// The id, or the title of an entry without one.
    fn name(&self) -> &str {
        let title = || self.text.split('*').nth(1).unwrap_or(&self.text);
        self.id.as_deref().unwrap_or_else(title)
    }

    fn has_user_sentence(&self) -> bool {
        let sentence = self.text.split_once(USER_SENTENCE).map(|(_, rest)| rest.trim_start());
        sentence.is_some_and(|rest| {
            !rest.is_empty() && !rest.starts_with("tests:") && !rest.starts_with("scenarios:")
        })
    }
}

fn entries(text: &str) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    let mut inside = false;
    for line in text.lines() {
        if let Some(entry) = line.strip_prefix("- **").and_then(|line| line.split_once("**")) {
            let (id, rest) = entry;
            entries.push(Entry { id: Some(id.to_owned()), text: rest.to_owned() });
            inside = true;
        } else if line.starts_with("- *") {
            entries.push(Entry { id: None, text: line.to_owned() });
            inside = true;
        } else if line.starts_with('#') {
            inside = false;
        } else if inside && let Some(entry) = entries.last_mut() {
            // Joined, so that a remark is found across a line break.
            entry.text.push(' ');
            entry.text.push_str(line.trim());
        }
    }
    entries
}

#[cfg(test)]
mod tests {
    //! Goal: a decision without an entry, a test or a sentence for users is found, and a row without a test
    //! or a reason. Method: sample texts.

    use super::*;

    fn names(tests: &[&str], scenarios: &[&str]) -> Names {
        let set = |names: &[&str]| names.iter().map(ToString::to_string).collect();
        Names { tests: set(tests), scenarios: set(scenarios) }
    }

    /// A file with an entry for every decision, where that of P1 is `first` and the rest name no test.
    fn sample(first: &str) -> String {
        let rest = ids(EXPECTED).skip(1).map(|id| format!("- **{id}** Rule.\n  You notice: it.\n"));
        let rest: String = rest.collect();
        format!("# Decisions\n\n## P\n- **P1** {first}\n{rest}")
    }

    #[test]
    fn documents_peer_suite_row_needs_a_test_or_a_reason() {
        let text = "\
            | theirs | ours | what differs |\n\
            | --- | --- | --- |\n\
            | `One`, `Two` | `part::sample_one`, `sample_two` | |\n\
            | `Three` | | there is nothing like it |\n\
            \n\
            | option | meaning |\n\
            | --- | --- |\n\
            | `sample_gone` | not a table of tests |\n";
        let suite = names(&["sample_one", "sample_two"], &[]);
        let problems = |text: &str| problems_in_suites(text, &suite, &suite.tests);
        assert_eq!(problems(text), Vec::<String>::new());
        assert_eq!(
            problems(&text.replace("sample_two", "sample_gone")),
            ["`One`, `Two`: there is no test `sample_gone`", "`sample_two` is in no row"]
        );
        assert_eq!(
            problems(&text.replace("there is nothing like it", "")),
            ["`Three` has neither a test nor a reason"]
        );
        let twice = text.replace("| `Three`", "| `One`, `Two`");
        assert_eq!(problems(&twice), ["`One`, `Two` has several rows"]);
        assert_eq!(problems(""), ["`sample_one` is in no row", "`sample_two` is in no row"]);
    }

    #[test]
    fn documents_every_expected_decision_needs_one_entry() {
        let text = sample("Rule. You notice: it.");
        assert_eq!(problems_in(&text), Vec::<String>::new());
        assert_eq!(problems_in(&text.replace("**M9**", "M9")), ["M9 has no entry"]);
        let more = ["P1", "P15", "H6"].map(|id| format!("- **{id}** You notice: it.\n")).concat();
        assert_eq!(
            problems_in(&(text + &more)),
            ["P1 has several entries", "there is no decision P15"]
        );
        assert_eq!(problems_in("").len(), expected_count());
    }

    #[test]
    fn documents_every_decision_needs_a_sentence_for_users() {
        let problems = |first: &str| problems_in(&sample(first));
        let missing = ["P1 has no sentence \"You notice: ...\""];
        assert_eq!(problems("Rule."), missing);
        assert_eq!(problems("Rule.\n\n  You notice:\n\n  tests: `sample_one`"), missing, "empty");
        assert_eq!(problems("Rule.\n\n  You\n  notice: it."), Vec::<String>::new());
        // Entries without an id need one as well.
        let text = sample("Rule. You notice: it.") + "\n## More\n- *A title* and a rule.\n";
        assert_eq!(problems_in(&text), ["A title has no sentence \"You notice: ...\""]);
        assert_eq!(problems_in(&(text + "  You notice: it.\n")), Vec::<String>::new());
    }

    #[test]
    fn documents_decision_is_covered_by_an_existing_name() {
        let existing = names(&["sample_one"], &["a scenario"]);
        let covers = |first: &str| !uncovered_in(&sample(first), &existing).contains(&"P1".into());
        assert!(covers("Tested.\n  tests: `sample_one`"));
        assert!(covers("Played; scenarios: \"a scenario\""));
        assert!(covers("Later (comes\n  with the clients)"));
        assert!(!covers("Not yet (tests: to be named)"));
        assert!(!covers("Gone; tests: `sample_gone`"));
        // Text after a heading belongs to no entry.
        assert!(!covers("Open.\n## L\ntests: `sample_one`"));
    }
}
