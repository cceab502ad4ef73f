//! The command line of xtask.

/// Printed for `help`, and after an invalid command line.
pub(crate) const USAGE: &str = "\
usage: cargo xtask test [--long] [--install] [--list] [STEP...]
       cargo xtask generate [--check]
       cargo xtask regressions

  STEP       run only these steps, long ones too; `interop` is all whose names begin with it
  --long     also run the steps that take long; their results are printed with the commit
  --install  install what a step lacks, with apt and rustup too
  --list     print the steps, what each is for and what it needs

Whatever fits into the target folder is installed there without asking. A step that
lacks something else is skipped by name; with CI=true nothing may be skipped.

generate makes the checked-in code of the proto files anew, without protoc.
  --check    only say whether it is up to date

regressions applies each patch in tests/regressions to a copy of the sources and requires
that the test which the patch names fails.
";

/// A parsed command line.
#[derive(Debug, PartialEq)]
pub(crate) enum Task {
    Help,
    List,
    Test(Arguments),
    Generate { check: bool },
    Regressions,
}

/// The arguments of `cargo xtask test`.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Arguments {
    pub(crate) long: bool,
    pub(crate) install: bool,
    /// Empty: all steps of this kind of run.
    pub(crate) names: Vec<String>,
}

pub(crate) fn parse(words: impl IntoIterator<Item = String>) -> Result<Task, String> {
    let mut words = words.into_iter();
    match words.next().as_deref() {
        Some("test") => {}
        Some("generate") => return generate(words),
        Some("regressions") => return regressions(words),
        None | Some("help" | "--help" | "-h") => return Ok(Task::Help),
        Some(other) => return Err(format!("there is no command `{other}`")),
    }
    let mut arguments = Arguments::default();
    let mut list = false;
    for word in words {
        match word.as_str() {
            "--long" => arguments.long = true,
            "--install" => arguments.install = true,
            "--list" => list = true,
            "--help" | "-h" => return Ok(Task::Help),
            option if option.starts_with('-') => {
                return Err(format!("there is no option `{option}`"));
            }
            _ => arguments.names.push(word),
        }
    }
    Ok(if list { Task::List } else { Task::Test(arguments) })
}

fn generate(words: impl Iterator<Item = String>) -> Result<Task, String> {
    let mut check = false;
    for word in words {
        match word.as_str() {
            "--check" => check = true,
            "--help" | "-h" => return Ok(Task::Help),
            other => return Err(format!("`generate` knows no `{other}`")),
        }
    }
    Ok(Task::Generate { check })
}

fn regressions(mut words: impl Iterator<Item = String>) -> Result<Task, String> {
    match words.next().as_deref() {
        None => Ok(Task::Regressions),
        Some("--help" | "-h") => Ok(Task::Help),
        Some(other) => Err(format!("`regressions` knows no `{other}`")),
    }
}

#[cfg(test)]
mod tests {
    //! Goal: every option of the usage text works, and unknown ones are errors.

    use super::*;

    fn parsed(line: &str) -> Result<Task, String> {
        parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn arguments_options_and_steps_may_be_mixed() {
        let expected =
            Arguments { long: true, install: true, names: vec!["fmt".into(), "loom".into()] };
        assert_eq!(parsed("test fmt --install loom --long"), Ok(Task::Test(expected)));
        assert_eq!(parsed("test"), Ok(Task::Test(Arguments::default())));
        assert_eq!(parsed("test --list --long"), Ok(Task::List));
    }

    #[test]
    fn arguments_generate_writes_unless_check_is_given() {
        assert_eq!(parsed("generate"), Ok(Task::Generate { check: false }));
        assert_eq!(parsed("generate --check"), Ok(Task::Generate { check: true }));
        assert_eq!(parsed("generate --help"), Ok(Task::Help));
    }

    #[test]
    fn arguments_unknown_word_is_an_error() {
        assert_eq!(parsed("test --lnog"), Err("there is no option `--lnog`".into()));
        assert_eq!(parsed("tset"), Err("there is no command `tset`".into()));
        assert_eq!(parsed("generate --chekc"), Err("`generate` knows no `--chekc`".into()));
    }

    #[test]
    fn arguments_regressions_takes_no_arguments() {
        assert_eq!(parsed("regressions"), Ok(Task::Regressions));
        assert_eq!(parsed("regressions --help"), Ok(Task::Help));
        assert_eq!(parsed("regressions a"), Err("`regressions` knows no `a`".into()));
    }

    #[test]
    fn arguments_empty_command_line_prints_help() {
        assert_eq!(parsed(""), Ok(Task::Help));
        assert_eq!(parsed("test -h"), Ok(Task::Help));
    }
}
