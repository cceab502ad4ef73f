//! Words that this project does not use in comments, documents and test names.
//!
//! The reader is an engineer who knows gRPC, AWS, Envoy and tower, and who searches for their terms. Each
//! entry of [`BANNED`] comes with what to write instead. Names of scenarios are data, so an existing
//! scenario name in double quotes is exempt; so is text in backticks and in fenced code. In files of other
//! languages every word is checked, names in camel case or with underscores too.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::io;
use std::path::Path;

use crate::command_line::CommandLine;
use crate::machine;
use crate::names::{self, Names};

/// A word or phrase, and what to write instead.
pub const BANNED: &[(&str, &str)] = &[
    ("somebody", CALLER),
    ("nobody", "say what is missing: \"no caller\", \"no server\", \"unused\""),
    ("whoever", CALLER),
    ("everybody", "name the group: \"all callers\", \"all streams\""),
    ("anybody", CALLER),
    ("shall", "\"must\", \"should\", or the present tense"),
    (
        "told",
        "\"receives\", \"is passed\", \"is configured\"; \"distinguished\" for \"told apart\"",
    ),
    ("tells of", "\"reports\", \"records\""),
    ("tell of", "\"report\", \"record\""),
    ("hear", RECEIVE),
    ("hears", RECEIVE),
    ("heard", RECEIVE),
    ("heed", "\"obey\", \"respect\", \"follow\""),
    ("heeds", "\"obeys\", \"respects\", \"follows\""),
    ("heeded", "\"obeyed\", \"respected\", \"followed\""),
    ("in vain", "say what the work does not achieve: \"without a later attempt\""),
    ("for ever", "\"forever\", \"without a limit\""),
    ("surely", "\"likely\", \"always\", or leave it out"),
    ("hardly", "\"rarely\", or the number"),
    ("of its own accord", "\"without a request\", \"by itself\""),
    ("elsewhere", "name the place: \"in the transport\", \"on another backend\""),
    ("handed on", "\"returned\", \"passed\", \"forwarded\""),
    ("hand on", "\"return\", \"pass\", \"forward\""),
    ("hands on", "\"returns\", \"passes\", \"forwards\""),
    ("what became of", "\"the result of\", \"the outcome of\""),
    ("one's own", "name the owner"),
];

/// The extensions of the files that are checked: no lock files, and no data.
const CHECKED: &[&str] = &["rs", "md", "toml", "js", "mjs", "go", "py", "java"];

const CALLER: &str = "name the party: \"the caller\", \"the application\", \"the server\"";
const RECEIVE: &str = "\"receive\", \"is notified\"";

/// Lines that may contain a banned word: the file, and a part of the line. An entry without such a line
/// is reported, so that the list does not outlive its reasons.
pub const EXCEPTIONS: &[(&str, &str)] = &[];

/// A banned word in a line of prose.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// Its path below the root.
    pub file: String,
    /// Its number, from 1.
    pub line: usize,
    /// The entry of the list.
    pub word: &'static str,
    /// What to write instead.
    pub instead: &'static str,
    /// The line, without its indentation.
    pub text: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Finding { file, line, word, instead, text } = self;
        write!(f, "{file}:{line}: \"{word}\" in `{text}`; write {instead}")
    }
}

/// The findings in all tracked files below `root` that are sources or documents, and the exceptions that match nothing.
///
/// # Errors
/// Git does not list the files, or one cannot be read.
pub fn problems_in(root: &Path) -> io::Result<Vec<String>> {
    let scenarios = Names::existing_in(root)?.scenarios;
    let listed = machine::output(root, &CommandLine::new("git ls-files -z"));
    let listed = listed.map_err(io::Error::other)?;
    let mut findings = Vec::new();
    for file in listed.split('\0').filter(|file| is_checked(file)) {
        let path = root.join(file);
        // A tracked file may have been deleted in the working tree.
        if path.is_file() {
            findings.extend(findings_in(file, &fs::read_to_string(path)?, &scenarios));
        }
    }
    Ok(problems(findings, EXCEPTIONS))
}

fn is_checked(file: &str) -> bool {
    let extension = Path::new(file).extension().and_then(|extension| extension.to_str());
    extension.is_some_and(|it| CHECKED.contains(&it)) && !file.contains("generated")
}

/// The findings that remain, and the exceptions that match none.
fn problems(findings: Vec<Finding>, exceptions: &[(&str, &str)]) -> Vec<String> {
    let matches = |(file, part): &(&str, &str), finding: &Finding| {
        finding.file == *file && finding.text.contains(part)
    };
    let unused = exceptions
        .iter()
        .filter(|exception| !findings.iter().any(|finding| matches(exception, finding)));
    let unused = unused.map(|(file, part)| format!("{file}: no exception is needed for `{part}`"));
    let unused: Vec<_> = unused.collect();
    let remaining = findings
        .into_iter()
        .filter(|finding| !exceptions.iter().any(|exception| matches(exception, finding)));
    remaining.map(|finding| finding.to_string()).chain(unused).collect()
}

/// The banned words in the prose of one file.
#[must_use]
pub fn findings_in(file: &str, text: &str, scenarios: &BTreeSet<String>) -> Vec<Finding> {
    let lines: Vec<&str> = text.lines().collect();
    let without_names = without_scenario_names(text, scenarios);
    let prose = if file.ends_with(".md") {
        prose_of_document(&without_names)
    } else if file.ends_with(".rs") {
        prose_of_source(&without_names)
    } else {
        (1..).zip(without_names.lines().map(split_names)).collect()
    };
    let mut findings = Vec::new();
    for (line, prose) in prose {
        for (word, instead) in BANNED.iter().filter(|(word, _)| has_phrase(&prose, word)) {
            let text = lines.get(line - 1).unwrap_or(&"").trim().to_owned();
            findings.push(Finding { file: file.to_owned(), line, word, instead, text });
        }
    }
    findings
}

/// Whether the words of `phrase` occur in this order, whatever their case.
fn has_phrase(prose: &str, phrase: &str) -> bool {
    let is_separator = |c: char| !c.is_alphanumeric() && c != '\'';
    let words = |text: &str| -> Vec<String> {
        let words = text.split(is_separator).filter(|word| !word.is_empty());
        words.map(str::to_lowercase).collect()
    };
    let phrase = words(phrase);
    words(prose).windows(phrase.len()).any(|window| window == phrase)
}

/// The lines outside of fenced code, without what is in backticks.
fn prose_of_document(text: &str) -> Vec<(usize, String)> {
    let mut is_fenced = false;
    let mut prose = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim_start().starts_with("```") {
            is_fenced = !is_fenced;
        } else if !is_fenced {
            prose.push((number, without_code(line)));
        }
    }
    prose
}

/// The comments, and the names of tests.
fn prose_of_source(text: &str) -> Vec<(usize, String)> {
    let mut prose: Vec<_> = names::tests_with_lines(text)
        .map(|(number, name)| (number, name.replace('_', " ")))
        .collect();
    for (number, line) in (1..).zip(text.lines()) {
        // After a blank or at the start: `//` in an address is not a comment.
        let comment = line.match_indices("//").map(|(at, _)| at);
        let mut comment = comment.filter(|at| line[..*at].ends_with([' ', '\t']) || *at == 0);
        if let Some(at) = comment.next() {
            prose.push((number, without_code(&line[at..])));
        }
    }
    prose.sort();
    prose
}

/// A line with a blank before each capital after a small letter, and for each underscore.
fn split_names(line: &str) -> String {
    let mut split = String::with_capacity(line.len());
    let mut after_small = false;
    for letter in line.chars() {
        if letter.is_uppercase() && after_small {
            split.push(' ');
        }
        split.push(if letter == '_' { ' ' } else { letter });
        after_small = letter.is_lowercase();
    }
    split
}

/// A line without what is in backticks.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join(" ")
}

/// The text with blanks in place of quoted scenario names. Lines keep their numbers.
fn without_scenario_names(text: &str, scenarios: &BTreeSet<String>) -> String {
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, quoted)) = rest.split_once('"') {
        result.push_str(before);
        let name = quoted.split_once('"').map(|(name, _)| name);
        let is_name = |name: &&str| {
            let name = name.split_whitespace().filter(|word| !word.starts_with("//"));
            scenarios.contains(&name.collect::<Vec<_>>().join(" "))
        };
        if let Some(name) = name.filter(is_name) {
            result.extend(name.chars().filter(|c| *c == '\n').chain([' ']));
            rest = &quoted[name.len() + 1..];
        } else {
            result.push('"');
            rest = quoted;
        }
    }
    result + rest
}

#[cfg(test)]
mod tests {
    //! Goal: prose is searched and code is not, and a report has everything that is needed to fix it.

    use super::*;

    fn found(file: &str, text: &str) -> Vec<(usize, &'static str)> {
        let scenarios = BTreeSet::from(["nobody waits for it".to_owned()]);
        let findings = findings_in(file, text, &scenarios);
        findings.into_iter().map(|finding| (finding.line, finding.word)).collect()
    }

    #[test]
    fn words_are_found_in_comments_and_test_names() {
        // On few lines, so that this file's own check does not read them as prose.
        let source =
            "//! Whoever reads this.\nlet a = 1;\t// It is told.\n/// Is handed\n/// on.\n";
        let tests = "#[test]\nfn nobody_reads_it() {}\nfn nobody_calls_it() {}\n";
        let source = &format!("{source}{tests}");
        assert_eq!(found("a.rs", source), [(1, "whoever"), (2, "told"), (6, "nobody")]);
        assert_eq!(found("a.rs", "// It is handed on,\n"), [(1, "handed on")]);
    }

    #[test]
    fn words_in_code_strings_and_addresses_are_ignored() {
        let source = "let told = \"somebody\";\nlet address = \"http://nobody\";\n// see `told`\n";
        assert_eq!(found("a.rs", source), []);
    }

    #[test]
    fn words_are_found_in_the_prose_of_documents_only() {
        let text = "Nobody.\n```rust\nlet told = 1;\n```\n`whoever` and elsewhere\n";
        assert_eq!(found("a.md", text), [(1, "nobody"), (5, "elsewhere")]);
    }

    #[test]
    fn words_are_found_in_names_of_other_languages() {
        let text = "# Nobody.\nwho_told = \"x\"\nrecord CallTold(int foretold) {}\n";
        assert_eq!(found("a.py", text), [(1, "nobody"), (2, "told"), (3, "told")]);
    }

    #[test]
    fn words_match_whole_and_in_any_case() {
        assert_eq!(
            found("a.md", "foretold, shear, Surely-not, FOR\tever\n"),
            [(1, "for ever"), (1, "surely")]
        );
        assert_eq!(found("a.md", "for everything\n"), []);
    }

    #[test]
    fn words_in_quoted_scenario_names_are_exempt_across_lines() {
        let text = "scenarios: \"nobody waits\n  for it\", then told\n\"nobody waits\"\n";
        assert_eq!(found("a.md", text), [(2, "told"), (3, "nobody")]);
        assert_eq!(found("a.rs", "// scenario \"nobody waits\n// for it\"\n"), []);
    }

    #[test]
    fn words_report_names_the_line_and_the_alternative() {
        let findings = findings_in("docs/a.md", "x\n  It hardly matters.\n", &BTreeSet::new());
        assert_eq!(
            problems(findings, &[]),
            ["docs/a.md:2: \"hardly\" in `It hardly matters.`; write \"rarely\", or the number"]
        );
    }

    #[test]
    fn words_exceptions_must_match_a_line() {
        let findings = || findings_in("a.md", "told one\ntold two\n", &BTreeSet::new());
        let exceptions = [("a.md", "told one"), ("b.md", "told two")];
        let problems = problems(findings(), &exceptions);
        assert!(problems[0].starts_with("a.md:2: \"told\""), "{problems:?}");
        assert_eq!(problems[1..], ["b.md: no exception is needed for `told two`"]);
    }

    #[test]
    fn words_check_reads_sources_and_documents_but_no_generated_code() {
        let checked =
            ["crates/a/src/lib.rs", "README.md", "Cargo.toml", "a.js", "a.go", "a.py", "A.java"];
        assert!(checked.into_iter().all(is_checked));
        let unchecked = ["crates/a/src/generated/b.rs", "scenarios/a.json", "Cargo.lock"];
        assert!(!unchecked.into_iter().any(is_checked));
    }
}
