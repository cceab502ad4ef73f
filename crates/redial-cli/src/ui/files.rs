//! The texts of the editors, as files of a command.

use serde::Deserialize;
use serde_json::{Value, json};

use super::limits::{NAME_BYTES_MAX, POLICIES_MAX};
use super::request::Refusal;
use crate::plan;

/// An editor: the name of its file, and the text.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) name: String,
    pub(super) text: String,
}

impl File {
    /// What is wrong with the name. It is a word on a command line, and the name of a download.
    fn problem(&self) -> Option<String> {
        let name = &self.name;
        let is_allowed = |c: char| !c.is_control() && !"/\\:*?\"<>|".contains(c);
        let text = if name.trim().is_empty() {
            "write a name, like policy.json".to_owned()
        } else if name.len() > NAME_BYTES_MAX {
            format!("the name has more than {NAME_BYTES_MAX} bytes")
        } else if name.starts_with(['-', '.', ' ']) || !name.chars().all(is_allowed) {
            format!("{name:?} is no name of a file here; write one like policy.json")
        } else {
            return None;
        };
        Some(text)
    }
}

/// Checks the number and the names of policies.
pub(super) fn check(policies: &[File]) -> Result<(), Refusal> {
    if policies.is_empty() || policies.len() > POLICIES_MAX {
        let text = format!("write 1 to {POLICIES_MAX} policies");
        return Err(Refusal::problems(&[json!({ "file": null, "text": text })]));
    }
    let mut problems = Vec::new();
    for (index, file) in policies.iter().enumerate() {
        let own = plan::name(&file.name);
        if let Some(text) = file.problem() {
            problems.push(problem(file, text));
        } else if policies[..index].iter().any(|other| plan::name(&other.name) == own) {
            let text = format!("another policy is called {own:?}, too; each needs its own name");
            problems.push(problem(file, text));
        }
    }
    if problems.is_empty() { Ok(()) } else { Err(Refusal::problems(&problems)) }
}

/// A problem of a file as a whole.
pub(super) fn problem(file: &File, text: impl Into<String>) -> Value {
    json!({ "file": file.name, "text": text.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str) -> File {
        File { name: name.to_owned(), text: String::new() }
    }

    #[test]
    fn ui_file_names_are_plain_and_short() {
        for name in ["a.json", "my policy.toml", "höher", &"a".repeat(NAME_BYTES_MAX)] {
            assert_eq!(file(name).problem(), None, "{name}");
        }
        for name in
            ["", " ", "-x", ".hidden", "a/b", "a\\b", "a\nb", &"a".repeat(NAME_BYTES_MAX + 1)]
        {
            assert!(file(name).problem().is_some(), "{name}");
        }
    }

    #[test]
    fn ui_policies_are_one_to_four_with_own_names() {
        assert!(check(&[]).is_err());
        let files: Vec<File> = ["a", "b", "c", "d", "e"].map(file).into();
        assert!(check(&files[..POLICIES_MAX]).is_ok());
        assert!(check(&files).is_err());
        // The name of a plan is that of the file without its extension.
        assert!(check(&[file("a.json"), file("a.toml")]).is_err());
    }
}
