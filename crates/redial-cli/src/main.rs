//! The command `redial`.
#![forbid(unsafe_code)]

use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
#[cfg(feature = "ui")]
use redial_cli::ui;
use redial_cli::{check, demo, explain, faults, manual, plan, replay, run, scenarios, simulate};

/// Run, show and check retry behaviour.
#[derive(Debug, Parser)]
#[command(name = "redial", version, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    #[command(about = RUN_ABOUT)]
    Run(Box<run::Arguments>),
    /// Check service configs, policies, scenarios and simulations before they ship.
    Check(check::Arguments),
    /// Replay a recorded call log: to the same decisions, or under another policy.
    Replay(replay::Arguments),
    /// Explain a recorded call log in words.
    Explain(explain::Arguments),
    /// Run scenario files: a policy, its inputs and the expected behaviour.
    Scenarios(scenarios::Arguments),
    /// Run a fault server: a scripted server for clients in any language.
    Faults(faults::Arguments),
    /// Simulate a fleet of clients that retry, in virtual time, and compare policies.
    Simulate(simulate::Arguments),
    /// Show what a policy will do: attempts over time, probability of success, load.
    Plan(plan::Arguments),
    /// Check, plan and simulate on a page in the browser, served on this machine only.
    #[cfg(feature = "ui")]
    Ui(ui::Arguments),
    /// Watch a flaky operation under one policy of each design, in real time.
    Demo,
    /// Print the completions for a shell.
    Completions(manual::CompletionsArguments),
    /// Print the manual page.
    Man(manual::ManArguments),
}

/// The exit code of a command whose reader has gone before its result was known: that of a program that
/// SIGPIPE has ended.
const CLOSED: u8 = 128 + 13;

const RUN_ABOUT: &str =
    "Run a command until it works: backoff, timeouts, a retry budget that processes share";

/// The arguments of `redial run` alone, which starts faster without those of the other commands.
#[derive(Debug, Parser)]
#[command(name = "redial", version)]
struct RunArguments {
    #[command(subcommand)]
    command: RunCommand,
}

#[derive(Debug, Subcommand)]
enum RunCommand {
    #[command(about = RUN_ABOUT)]
    Run(Box<run::Arguments>),
}

fn main() -> ExitCode {
    let parsed = match is_run() {
        true => RunArguments::try_parse()
            .map(|RunArguments { command: RunCommand::Run(it) }| Command::Run(it)),
        false => Arguments::try_parse().map(|arguments| arguments.command),
    };
    let command = match parsed {
        Ok(command) => command,
        Err(error) => return usage(&error),
    };
    // Not locked: `redial run` copies the streams of its command on threads of its own.
    let mut out = BufWriter::new(io::stdout());
    let mut err = BufWriter::new(io::stderr());
    let done = match command {
        // Without a flush: a thread that waits for a slow reader may hold the lock of a stream.
        Command::Run(arguments) => return run::run(&arguments).into(),
        Command::Check(arguments) => check::run(&arguments, &mut out, &mut err),
        Command::Replay(arguments) => replay::run(&arguments, columns(), &mut out, &mut err),
        Command::Explain(arguments) => explain::run(&arguments, columns(), &mut out, &mut err),
        Command::Scenarios(arguments) => scenarios::run(&arguments, &mut out, &mut err),
        Command::Faults(arguments) => faults::run(&arguments, &mut out, &mut err),
        Command::Simulate(arguments) => simulate::run(&arguments, &mut out, &mut err),
        Command::Plan(arguments) => plan::run(&arguments, &mut out, &mut err),
        #[cfg(feature = "ui")]
        Command::Ui(arguments) => ui::run(&arguments, &mut out, &mut err),
        Command::Demo => demo(&mut out).map(|()| 0),
        Command::Completions(arguments) => {
            manual::completions(&arguments, Arguments::command(), &mut out)
        }
        Command::Man(arguments) => {
            manual::man(&arguments, Arguments::command(), &mut out, &mut err)
        }
    };
    let flushed = out.flush().and_then(|()| err.flush());
    exit_code(done, flushed)
}

/// The exit code of a command. A reader that has closed the pipe, as in `| head`, does not change it: a
/// pipe must not turn a failure into a success.
fn exit_code(done: io::Result<u8>, flushed: io::Result<()>) -> ExitCode {
    let is_closed = |error: &io::Error| error.kind() == io::ErrorKind::BrokenPipe;
    match (done, flushed) {
        (Ok(code), Ok(())) => code.into(),
        (Ok(code), Err(error)) if is_closed(&error) => code.into(),
        (Err(error), _) if is_closed(&error) => ExitCode::from(CLOSED),
        (Err(error), _) | (Ok(_), Err(error)) => {
            // Standard error may be the one that cannot be written.
            let _ = writeln!(io::stderr(), "redial: cannot write: {error}");
            ExitCode::from(2)
        }
    }
}

/// Prints the help, or what is wrong with the arguments. `redial run` has exit codes of its own: 2
/// could be that of its command.
fn usage(error: &clap::Error) -> ExitCode {
    let _ = error.print();
    match error.exit_code() {
        0 => ExitCode::SUCCESS,
        _ if is_run() => run::OWN_ERROR.into(),
        _ => ExitCode::from(2),
    }
}

fn is_run() -> bool {
    std::env::args_os().nth(1).is_some_and(|word| word == "run")
}

/// Runs the demo in real time; each part is printed as it ends.
fn demo(out: &mut impl Write) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    runtime.block_on(demo::run(out, columns()))
}

/// The width of the terminal, or `COLUMNS` without one.
fn columns() -> usize {
    let terminal = terminal_size::terminal_size().map(|(width, _)| usize::from(width.0));
    let environment = || std::env::var("COLUMNS").ok()?.parse().ok();
    terminal.or_else(environment).unwrap_or(80)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use super::*;

    /// The pages of a folder and of the folders in it.
    fn pages(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                pages(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                found.push(path);
            }
        }
    }

    /// The command lines in the blocks for a shell: their number and their text.
    fn commands(page: &str) -> Vec<(usize, String)> {
        let mut commands = Vec::new();
        let mut is_shell = false;
        let mut lines = page.lines().enumerate();
        while let Some((index, line)) = lines.next() {
            if let Some(language) = line.trim_start().strip_prefix("```") {
                is_shell = ["sh", "console", "bash", "shell"].contains(&language);
            }
            let line = line.strip_prefix("$ ").unwrap_or(line);
            if is_shell && line.starts_with("redial ") {
                let mut command = line.to_owned();
                while let Some(rest) = command.strip_suffix('\\') {
                    let next = lines.next().map_or("", |(_, line)| line);
                    command = format!("{rest} {}", next.strip_prefix("> ").unwrap_or(next));
                }
                commands.push((index + 1, command));
            }
        }
        commands
    }

    /// The words of a command, up to what the shell reads: a pipe, a redirection, another command.
    fn words(command: &str) -> Vec<String> {
        let words = shlex::split(command).expect("the quotes are closed");
        let is_operator = |word: &String| {
            let plain = word.trim_start_matches(|c: char| c.is_ascii_digit());
            ["|", "||", "&", "&&", ";"].contains(&plain) || plain.starts_with(['<', '>'])
        };
        words.into_iter().take_while(|word| !is_operator(word)).collect()
    }

    #[test]
    fn command_lines_of_the_documentation_are_accepted() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut found = vec![root.join("README.md")];
        pages(&root.join("docs"), &mut found);
        for entry in fs::read_dir(root.join("crates")).expect("a folder") {
            let readme = entry.expect("an entry").path().join("README.md");
            found.extend(Some(readme).filter(|readme| readme.exists()));
        }
        let mut count = 0;
        for page in found {
            for (line, command) in commands(&fs::read_to_string(&page).expect("a page")) {
                count += 1;
                let words = words(&command);
                if !cfg!(feature = "ui") && words[1] == "ui" {
                    continue;
                }
                let error = Arguments::try_parse_from(&words).err();
                // docs/run.md shows what wrong usage prints.
                let is_meant = command.contains("--attempts 0");
                if let Some(error) = error.filter(|_| !is_meant) {
                    panic!("{}:{line}: {error}", page.display());
                }
            }
        }
        assert!(count > 40, "{count} command lines");
    }
}
