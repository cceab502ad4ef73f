//! Runs our client against a server written with another language's library.
//!
//! The expectations are the same for all servers (`cases`), except for the listed differences
//! (`servers` in `interop/differences.json`). An unlisted difference fails, and so does a listed
//! one that does not show.

mod cases;

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use crate::BoxError;
use crate::children::Served;

/// The counts of passed and failed cases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Passed.
    pub passed: usize,
    /// Failed.
    pub failed: usize,
}

/// Runs all cases against the server that this command line (split at blanks) starts, and prints
/// one line for each failure.
///
/// # Errors
/// The list cannot be read or names an unknown case, or the server does not start.
pub async fn play(root: &Path, language: &str, command: &str) -> Result<Tally, BoxError> {
    let listed = std::fs::read_to_string(root.join("interop/differences.json"))?;
    let rows = Rows::read(&listed, language)?;
    let proto = root.join("crates/redial-echo/proto/echo.proto");
    let server = Served::start(command, &proto).await?;
    let mut tally = Tally::default();
    for case in cases::ALL {
        let holds = |seen: &str| rows.check(case.name, case.expected, seen).is_none();
        let seen = case.play(server.port, holds).await?;
        match rows.check(case.name, case.expected, &seen) {
            None => tally.passed += 1,
            Some(problem) => {
                tally.failed += 1;
                println!("FAILED {language}, {}: {problem}", case.name);
            }
        }
    }
    Ok(tally)
}

/// The known differences of one language's server, by case name.
struct Rows(BTreeMap<String, String>);

#[derive(Deserialize)]
struct Listed {
    #[serde(default)]
    servers: Vec<Row>,
}

/// An entry of the list. Descriptions are read too, so that misspelt keys are errors.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    #[serde(rename = "what")]
    _what: String,
    #[serde(rename = "ruling")]
    _ruling: String,
    #[serde(rename = "why")]
    _why: String,
    languages: Vec<String>,
    cases: BTreeMap<String, String>,
}

impl Rows {
    fn read(text: &str, language: &str) -> Result<Self, BoxError> {
        let Listed { servers } = serde_json::from_str(text)?;
        let rows = servers.into_iter().filter(|row| row.languages.iter().any(|it| it == language));
        let rows: BTreeMap<_, _> = rows.flat_map(|row| row.cases).collect();
        let is_unknown = |name: &&String| !cases::ALL.iter().any(|case| case.name == **name);
        match rows.keys().find(is_unknown) {
            Some(name) => {
                Err(format!("a row is about the case {name:?}, which does not exist").into())
            }
            None => Ok(Rows(rows)),
        }
    }

    /// Compares the observed behaviour; returns the error, if any.
    fn check(&self, case: &str, expected: &str, seen: &str) -> Option<String> {
        match self.0.get(case).map(String::as_str) {
            None if seen == expected => None,
            None => Some(format!("expected {expected:?}, happened {seen:?}")),
            Some(_) if seen == expected => {
                Some("its difference does not show: take it out of the list".to_owned())
            }
            Some(instead) if seen == instead => None,
            Some(instead) => Some(format!("the list says {instead:?}, happened {seen:?}")),
        }
    }
}

#[cfg(test)]
mod tests {
    //! Goal: new differences and outdated entries are both detected.

    use super::*;

    const LIST: &str = r#"{"differences": [], "servers": [{"what": "a", "ruling": "G6", "why": "b",
        "languages": ["go"], "cases": {"unary: a code that is not listed": "other"}}]}"#;
    const CASE: &str = "unary: a code that is not listed";

    #[test]
    fn interop_servers_deviate_exactly_where_listed() {
        let rows = Rows::read(LIST, "go").unwrap();
        assert_eq!(rows.check("another", "as ever", "as ever"), None);
        let problem = rows.check("another", "as ever", "new").unwrap();
        assert_eq!(problem, "expected \"as ever\", happened \"new\"");
        assert_eq!(rows.check(CASE, "as ever", "other"), None);
        assert!(rows.check(CASE, "as ever", "as ever").unwrap().contains("does not show"));
        assert!(rows.check(CASE, "as ever", "new").unwrap().contains("the list says"));
    }

    #[test]
    fn interop_servers_list_is_checked_per_language_and_case() {
        assert!(Rows::read(LIST, "java").unwrap().check(CASE, "as ever", "other").is_some());
        let problem = Rows::read(&LIST.replace(CASE, "nothing"), "go").err().unwrap();
        assert_eq!(
            problem.to_string(),
            "a row is about the case \"nothing\", which does not exist"
        );
        assert!(Rows::read(&LIST.replace("why", "because"), "go").is_err());
    }
}
