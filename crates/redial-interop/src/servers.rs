//! Our client against a server that was written with another language's library.
//!
//! Rule: the same is expected of all of them (`cases`), but for the rows of the list of differences
//! (`servers` in `interop/differences.json`). A difference without a row fails, and so does a row that makes
//! none.

mod cases;

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use crate::BoxError;
use crate::children::Served;

/// How many cases held, and how many did not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Those that held.
    pub passed: usize,
    /// Those that did not.
    pub failed: usize,
}

/// Plays all cases against the server that this command line starts, its words apart by blanks, and prints
/// one line for each that does not hold.
///
/// # Errors
/// The list cannot be read, is about a case that does not exist, or the server does not start.
pub async fn play(root: &Path, language: &str, command: &str) -> Result<Tally, BoxError> {
    let listed = std::fs::read_to_string(root.join("interop/differences.json"))?;
    let rows = Rows::read(&listed, language)?;
    let proto = root.join("crates/redial-echo/proto/echo.proto");
    let server = Served::start(command, &proto).await?;
    let mut tally = Tally::default();
    for case in cases::ALL {
        let holds = |seen: &str| rows.judge(case.name, case.expected, seen).is_none();
        let seen = case.play(server.port, holds).await?;
        match rows.judge(case.name, case.expected, &seen) {
            None => tally.passed += 1,
            Some(problem) => {
                tally.failed += 1;
                println!("FAILED {language}, {}: {problem}", case.name);
            }
        }
    }
    Ok(tally)
}

/// What one language's servers are known to do instead, by the name of the case.
struct Rows(BTreeMap<String, String>);

#[derive(Deserialize)]
struct Listed {
    #[serde(default)]
    servers: Vec<Row>,
}

/// A row of the list. What is for the reader alone is read all the same, so that none is misspelt.
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

    /// What is wrong with what was seen, if anything is.
    fn judge(&self, case: &str, expected: &str, seen: &str) -> Option<String> {
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
    //! Goal: no difference is overlooked, neither a new one nor one that has gone.

    use super::*;

    const LIST: &str = r#"{"differences": [], "servers": [{"what": "a", "ruling": "G6", "why": "b",
        "languages": ["go"], "cases": {"unary: a code that is not listed": "other"}}]}"#;
    const CASE: &str = "unary: a code that is not listed";

    #[test]
    fn what_is_not_listed_is_as_expected_and_what_is_listed_is_not() {
        let rows = Rows::read(LIST, "go").unwrap();
        assert_eq!(rows.judge("another", "as ever", "as ever"), None);
        let problem = rows.judge("another", "as ever", "new").unwrap();
        assert_eq!(problem, "expected \"as ever\", happened \"new\"");
        assert_eq!(rows.judge(CASE, "as ever", "other"), None);
        assert!(rows.judge(CASE, "as ever", "as ever").unwrap().contains("does not show"));
        assert!(rows.judge(CASE, "as ever", "new").unwrap().contains("the list says"));
    }

    #[test]
    fn a_row_is_for_its_languages_and_for_a_case_that_exists() {
        assert!(Rows::read(LIST, "java").unwrap().judge(CASE, "as ever", "other").is_some());
        let problem = Rows::read(&LIST.replace(CASE, "nothing"), "go").err().unwrap();
        assert_eq!(
            problem.to_string(),
            "a row is about the case \"nothing\", which does not exist"
        );
        assert!(Rows::read(&LIST.replace("why", "because"), "go").is_err());
    }
}
