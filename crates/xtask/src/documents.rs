//! What the documents name must exist: tests and scenarios, and an entry for every ruling.
//!
//! How a document marks names is said in [`names`](crate::names). In `docs/rulings.md` an entry begins
//! with `- **ID**` and goes on to the next entry or heading. Its ruling is covered if it names at least
//! one test or scenario that exists, or says `(comes with ...)`.
//!
//! In `docs/peer-suites.md` the tables with a column `ours` say which tests stand for those of others: each
//! row names tests in backticks there, or says in its last column why there is none.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::Path;

use crate::names::Names;

/// The sections whose rulings must have an entry each, and how many there are; none: the letter alone.
pub const EXPECTED: &[(&str, u32)] =
    &[("P", 12), ("L", 6), ("B", 0), ("S", 10), ("G", 42), ("C", 16), ("M", 9)];

/// The sections that may have entries already.
pub const LATER: &[(&str, u32)] = &[("H", 6)];

/// The names in every Markdown file of the folder that do not exist, each with its file.
///
/// # Errors
/// If a file cannot be read.
pub fn missing_in(folder: &Path, existing: &Names) -> io::Result<Vec<String>> {
    let mut missing = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "md") {
            let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let named = Names::marked_in(&fs::read_to_string(&path)?);
            missing
                .extend(named.missing_from(existing).iter().map(|line| format!("{file}: {line}")));
        }
    }
    missing.sort();
    Ok(missing)
}

/// What is wrong with the entries of `docs/rulings.md`: one is missing, there twice, or of no known ruling.
#[must_use]
pub fn problems_in(rulings: &str) -> Vec<String> {
    let mut counts = BTreeMap::new();
    for (id, _) in entries(rulings) {
        *counts.entry(id).or_insert(0) += 1;
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
    problems.extend(counts.keys().map(|id| format!("there is no ruling {id}")));
    problems
}

/// The expected rulings that neither name a test or scenario that exists nor say what they come with.
#[must_use]
pub fn uncovered_in(rulings: &str, existing: &Names) -> Vec<String> {
    let covered: BTreeSet<_> = entries(rulings)
        .into_iter()
        .filter(|(_, text)| {
            text.contains("(comes with ") || Names::marked_in(text).share_any(existing)
        })
        .map(|(id, _)| id)
        .collect();
    ids(EXPECTED).filter(|id| !covered.contains(id)).collect()
}

/// What is wrong with `docs/peer-suites.md`: a row names a test that does not exist, or none without a
/// reason, or what another row of its table has; or a test of `suite` stands in no row.
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
    problems.extend(suite.difference(&named).map(|test| format!("`{test}` stands in no row")));
    problems
}

/// A row of a table that says which tests stand for those of others.
struct Row {
    /// Which table of the document it is in.
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
            // Every second piece stands between backticks.
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

/// How many rulings are expected.
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

/// The entries of a rulings file: the id, and all that stands under it on one line.
fn entries(text: &str) -> Vec<(String, String)> {
    let mut entries: Vec<(String, String)> = Vec::new();
    let mut inside = false;
    for line in text.lines() {
        if let Some((id, rest)) = line.strip_prefix("- **").and_then(|line| line.split_once("**")) {
            entries.push((id.to_owned(), rest.to_owned()));
            inside = true;
        } else if line.starts_with('#') {
            inside = false;
        } else if inside && let Some((_, text)) = entries.last_mut() {
            // Joined, so that a remark is found where a line was broken.
            text.push(' ');
            text.push_str(line.trim());
        }
    }
    entries
}

#[cfg(test)]
mod tests {
    //! Goal: a ruling without an entry or a test, and a row without either, are found. Method: sample
    //! texts.

    use super::*;

    fn names(tests: &[&str], scenarios: &[&str]) -> Names {
        let set = |names: &[&str]| names.iter().map(ToString::to_string).collect();
        Names { tests: set(tests), scenarios: set(scenarios) }
    }

    /// A file with an entry for every ruling, where P1's is `first` and the rest say nothing.
    fn sample(first: &str) -> String {
        let rest: String =
            ids(EXPECTED).skip(1).map(|id| format!("- **{id}** Something.\n")).collect();
        format!("# Rulings\n\n## P\n- **P1** {first}\n{rest}")
    }

    #[test]
    fn a_row_of_the_suites_needs_a_test_that_exists_or_a_reason() {
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
            ["`One`, `Two`: there is no test `sample_gone`", "`sample_two` stands in no row"]
        );
        assert_eq!(
            problems(&text.replace("there is nothing like it", "")),
            ["`Three` has neither a test nor a reason"]
        );
        let twice = text.replace("| `Three`", "| `One`, `Two`");
        assert_eq!(problems(&twice), ["`One`, `Two` has several rows"]);
        assert_eq!(
            problems(""),
            ["`sample_one` stands in no row", "`sample_two` stands in no row"]
        );
    }

    #[test]
    fn every_expected_ruling_needs_one_entry() {
        assert_eq!(problems_in(&sample("Something.")), Vec::<String>::new());
        assert_eq!(problems_in(&sample("Something.").replace("**M9**", "M9")), ["M9 has no entry"]);
        let doubled = sample("Something.") + "- **P1** Again.\n- **P13** New.\n- **H6** Later.\n";
        assert_eq!(problems_in(&doubled), ["P1 has several entries", "there is no ruling P13"]);
        assert_eq!(problems_in("").len(), expected_count());
    }

    #[test]
    fn a_ruling_is_covered_by_an_existing_name_or_by_what_it_comes_with() {
        let existing = names(&["sample_one"], &["a scenario"]);
        let covers = |first: &str| !uncovered_in(&sample(first), &existing).contains(&"P1".into());
        assert!(covers("Tested.\n  tests: `sample_one`"));
        assert!(covers("Played; scenarios: \"a scenario\""));
        assert!(covers("Later (comes\n  with the clients)"));
        assert!(!covers("Not yet (tests: to be named)"));
        assert!(!covers("Gone; tests: `sample_gone`"));
        // What follows a heading belongs to no entry.
        assert!(!covers("Open.\n## L\ntests: `sample_one`"));
    }
}
