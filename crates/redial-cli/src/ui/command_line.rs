//! The command line that prints the same as the page shows.

/// A command line for a shell.
pub(super) struct CommandLine(String);

impl CommandLine {
    /// A subcommand of `redial`.
    pub(super) fn new(command: &str) -> CommandLine {
        CommandLine(format!("redial {command}"))
    }

    /// Adds a word, in quotes if a shell would change it.
    pub(super) fn word(mut self, word: &str) -> CommandLine {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "_./:=,@%+-".contains(c);
        self.0.push(' ');
        if !word.is_empty() && word.chars().all(is_plain) {
            self.0.push_str(word);
        } else {
            self.0.push('\'');
            self.0.push_str(&word.replace('\'', "'\\''"));
            self.0.push('\'');
        }
        self
    }

    /// Adds an option with its value.
    pub(super) fn option(self, name: &str, value: &str) -> CommandLine {
        self.word(name).word(value)
    }

    pub(super) fn finish(self) -> String {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ui_command_line_quotes_words_for_a_shell() {
        let line = CommandLine::new("plan")
            .word("my policy.json")
            .option("--method", "/shop.Orders/Get")
            .option("--latency", "{ exponential = \"5ms\" }")
            .word("it's")
            .word("");
        let expected = "redial plan 'my policy.json' --method /shop.Orders/Get --latency \
                        '{ exponential = \"5ms\" }' 'it'\\''s' ''";
        assert_eq!(line.finish(), expected);
    }
}
