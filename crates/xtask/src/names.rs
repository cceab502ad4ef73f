//! Names of tests and scenarios: those that a document marks, and those that exist.
//!
//! The marking, in any file of `docs/`: the word `tests` or `scenarios`, a colon, and a list with commas;
//! tests in backticks (a path before the name is allowed), scenarios in double quotes.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;

/// The folders with tests; missing ones are ignored.
const TEST_FOLDERS: &[&str] = &["checks", "crates", "clients", "fuzz"];

/// The folders with scenarios: the shared ones, and those of `docs/decisions.md`.
const SCENARIO_FOLDERS: &[&str] = &["scenarios", "crates/redial-cli/tests/decisions"];

/// Names of tests and scenarios.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Names {
    /// Names of test functions.
    pub tests: BTreeSet<String>,
    /// Names of scenarios.
    pub scenarios: BTreeSet<String>,
}

impl Names {
    /// The names that `text` marks.
    #[must_use]
    pub fn marked_in(text: &str) -> Self {
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let tests = marked(&text, "tests:", '`')
            .map(|path| path.rsplit("::").next().unwrap_or(path).to_owned());
        let scenarios = marked(&text, "scenarios:", '"').map(str::to_owned);
        Self { tests: tests.collect(), scenarios: scenarios.collect() }
    }

    /// All tests and scenarios of the workspace at `root`.
    ///
    /// # Errors
    /// If a file cannot be read, or a scenario file is not JSON.
    pub fn existing_in(root: &Path) -> io::Result<Self> {
        let mut names = Self::default();
        for folder in TEST_FOLDERS.iter().map(|folder| root.join(folder)) {
            if folder.is_dir() {
                names.tests.extend(tests_below(&folder)?);
            }
        }
        for folder in SCENARIO_FOLDERS.iter().map(|folder| root.join(folder)) {
            if folder.is_dir() {
                visit(&folder, "json", &mut |text| {
                    names.scenarios.extend(scenarios_in(text)?);
                    Ok(())
                })?;
            }
        }
        Ok(names)
    }

    /// The names that are not in `existing`, as messages.
    #[must_use]
    pub fn missing_from(&self, existing: &Self) -> Vec<String> {
        let tests = self.tests.difference(&existing.tests);
        let scenarios = self.scenarios.difference(&existing.scenarios);
        tests
            .map(|name| format!("there is no test `{name}`"))
            .chain(scenarios.map(|name| format!("there is no scenario \"{name}\"")))
            .collect()
    }

    /// Whether there is no name at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tests.is_empty() && self.scenarios.is_empty()
    }

    pub(crate) fn share_any(&self, other: &Self) -> bool {
        !self.tests.is_disjoint(&other.tests) || !self.scenarios.is_disjoint(&other.scenarios)
    }
}

/// The names of all tests in a folder.
///
/// # Errors
/// If a file cannot be read.
pub fn tests_below(folder: &Path) -> io::Result<BTreeSet<String>> {
    let mut tests = BTreeSet::new();
    visit(folder, "rs", &mut |source| {
        tests.extend(tests_in(source));
        Ok(())
    })?;
    Ok(tests)
}

/// The names of the tests in a folder that have a line comment that starts with `mark` above their
/// attributes.
///
/// # Errors
/// If a file cannot be read.
pub fn tests_marked_below(folder: &Path, mark: &str) -> io::Result<BTreeSet<String>> {
    let mut tests = BTreeSet::new();
    visit(folder, "rs", &mut |source| {
        tests.extend(tests_marked_in(source, mark));
        Ok(())
    })?;
    Ok(tests)
}

fn tests_marked_in(source: &str, mark: &str) -> Vec<String> {
    let starts = source.match_indices(mark).map(|(at, _)| &source[at..]);
    starts.filter_map(|rest| tests_in(rest).into_iter().next()).collect()
}

/// The quoted names in the lists after each `mark`.
fn marked<'a>(text: &'a str, mark: &'a str, quote: char) -> impl Iterator<Item = &'a str> {
    text.match_indices(mark).flat_map(move |(at, _)| {
        let mut names = Vec::new();
        let mut rest = &text[at + mark.len()..];
        while let Some(name) = rest.trim_start_matches([' ', ',']).strip_prefix(quote) {
            let Some((name, after)) = name.split_once(quote) else { break };
            names.push(name);
            rest = after;
        }
        names
    })
}

/// The functions of a source file with a test attribute of any harness.
fn tests_in(source: &str) -> Vec<String> {
    tests_with_lines(source).map(|(_, name)| name.to_owned()).collect()
}

/// The names of the tests in a source file, each with the number of its line.
pub(crate) fn tests_with_lines(source: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_test = false;
    (1..).zip(source.lines()).filter_map(move |(number, line)| {
        let line = line.trim();
        if line.starts_with("//") {
            return None;
        }
        is_test |= is_test_attribute(line);
        if let Some(name) = function_in(line) {
            return std::mem::take(&mut is_test).then_some((number, name));
        }
        // At the end of another item: the attribute belonged to that one.
        is_test &= !line.ends_with(['}', ';']);
        None
    })
}

fn is_test_attribute(line: &str) -> bool {
    let Some(attribute) = line.strip_prefix("#[") else { return false };
    let path = attribute.split(['(', ']']).next().unwrap_or_default();
    path.rsplit("::").next() == Some("test")
}

fn function_in(line: &str) -> Option<&str> {
    let (before, after) = line.split_once("fn ")?;
    let is_word = before.is_empty() || before.ends_with(' ');
    let end = after.find(|c: char| !c.is_alphanumeric() && c != '_')?;
    (is_word && end > 0 && after[end..].starts_with(['(', '<'])).then(|| &after[..end])
}

/// The names of everything in a scenario file: the entries of its lists, whatever those are called.
fn scenarios_in(text: &str) -> io::Result<BTreeSet<String>> {
    let file: serde_json::Value = serde_json::from_str(text)?;
    let lists = file.as_object().into_iter().flat_map(serde_json::Map::values);
    let entries = lists.filter_map(serde_json::Value::as_array).flatten();
    Ok(entries.filter_map(|entry| entry["name"].as_str()).map(str::to_owned).collect())
}

/// Calls `see` with the text of every file below `folder` with this extension, except build output.
pub(crate) fn visit(
    folder: &Path,
    extension: &str,
    see: &mut dyn FnMut(&str) -> io::Result<()>,
) -> io::Result<()> {
    let at = |path: &Path, error: io::Error| {
        io::Error::new(error.kind(), format!("{}: {error}", path.display()))
    };
    for entry in fs::read_dir(folder).map_err(|error| at(folder, error))? {
        let path = entry?.path();
        if path.is_dir() {
            if !path.ends_with("target") {
                visit(&path, extension, see)?;
            }
        } else if path.extension().is_some_and(|found| found == extension) {
            fs::read_to_string(&path)
                .and_then(|text| see(&text))
                .map_err(|error| at(&path, error))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    //! Goal: names are found only where they are marked or defined. Method: sample texts.

    use super::*;

    fn names(tests: &[&str], scenarios: &[&str]) -> Names {
        let set = |names: &[&str]| names.iter().map(ToString::to_string).collect();
        Names { tests: set(tests), scenarios: set(scenarios) }
    }

    #[test]
    fn names_lists_are_read_across_lines() {
        let text = "A decision; tests: `sample_one`, `part::sample_two`,\n  `sample_three`; scenarios: \"a\n  \
                    long name\", \"other\". Then `code` and \"words\".";
        assert_eq!(
            Names::marked_in(text),
            names(&["sample_one", "sample_two", "sample_three"], &["a long name", "other"])
        );
    }

    #[test]
    fn names_are_read_only_from_lists() {
        assert_eq!(
            Names::marked_in("(tests: to be named) run tests: all `of` them"),
            Names::default()
        );
        assert_eq!(Names::marked_in("tests: `never closed"), Names::default());
    }

    #[test]
    fn names_missing_ones_are_listed() {
        let named = names(&["sample_one", "sample_two"], &["there", "gone"]);
        let existing = names(&["sample_one"], &["there"]);
        assert_eq!(
            named.missing_from(&existing),
            ["there is no test `sample_two`", "there is no scenario \"gone\""]
        );
    }

    #[test]
    fn names_tests_need_a_test_attribute() {
        let source = "
            fn sample_helper() {}
            #[cfg(test)]
            fn sample_configured() {}
            #[test]
            #[should_panic]
            fn sample_plain() {}
            #[tokio::test(start_paused = true)]
            async fn sample_async() {}
            #[test] fn sample_same_line() {}
            #[test]
            // fn sample_commented() {}
            fn sample_property(x in 0..10) {}
            #[test_helper]
            fn sample_other() {}
            #[test]
            const SAMPLE: fn() = sample;
            fn sample_last() {}
        ";
        assert_eq!(
            tests_in(source),
            ["sample_plain", "sample_async", "sample_same_line", "sample_property"]
        );
    }

    #[test]
    fn names_mark_belongs_to_the_next_test() {
        let source = "
            #[test]
            fn sample_before() {}
            // Peer test: one;
            // and more.
            /// Why.
            #[test]
            fn sample_marked() {}
            #[test]
            fn sample_after() {}
        ";
        assert_eq!(tests_marked_in(source, "// Peer test:"), ["sample_marked"]);
    }

    #[test]
    fn names_of_scenarios_come_from_every_list() {
        let text =
            r#"{"about": "x", "scenarios": [{"name": "one"}], "configs": [{"name": "two"}]}"#;
        assert_eq!(scenarios_in(text).unwrap(), names(&[], &["one", "two"]).scenarios);
        assert!(scenarios_in("{").is_err());
    }
}
