//! A command as data: printed in shell notation, run by `machine`.

use std::fmt;

/// A program, its arguments and its environment.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CommandLine {
    pub(crate) program: String,
    pub(crate) arguments: Vec<String>,
    pub(crate) environment: Vec<(String, String)>,
    /// Whether it downloads something and may fail temporarily.
    pub(crate) downloads: bool,
}

impl CommandLine {
    /// `words` is split at blanks; an argument with a blank is added with [`Self::arg`].
    pub(crate) fn new(words: &str) -> Self {
        let mut words = words.split_whitespace().map(str::to_owned);
        Self {
            program: words.next().unwrap_or_default(),
            arguments: words.collect(),
            environment: Vec::new(),
            downloads: false,
        }
    }

    pub(crate) fn arg(mut self, argument: impl Into<String>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// Marks it as a download, which is retried after a failure and must be idempotent.
    pub(crate) fn downloads(mut self) -> Self {
        self.downloads = true;
        self
    }

    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }
}

impl fmt::Display for CommandLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in &self.environment {
            write!(f, "{name}={} ", quoted(value))?;
        }
        write!(f, "{}", self.program)?;
        self.arguments.iter().try_for_each(|argument| write!(f, " {}", quoted(argument)))
    }
}

/// In shell quoting, so that the printed line can be copied.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=,:+@".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    //! Goal: the printed line can be pasted into a shell.

    use super::*;

    #[test]
    fn command_line_is_printed_with_shell_quoting() {
        let line = CommandLine::new("cargo test --release")
            .arg("it's two words")
            .arg("")
            .env("RUSTFLAGS", "--cfg loom");
        assert_eq!(
            line.to_string(),
            r"RUSTFLAGS='--cfg loom' cargo test --release 'it'\''s two words' ''"
        );
    }
}
