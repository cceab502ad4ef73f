//! The project's own tasks: `cargo xtask test` runs all checks that a change must pass, `cargo
//! xtask generate` generates the checked-in code of the proto files, and `cargo xtask regressions`
//! checks the patches in `tests/regressions`.
//!
//! A step is data (`steps`), and only `machine` runs programs; so selection, skipping and counting
//! are tested without building anything.

mod arguments;
mod aws;
mod client_crate;
mod command_line;
mod couchbase_sdk;
mod disk;
pub mod documents;
mod features;
pub mod item_docs;
pub mod languages;
mod machine;
pub mod names;
mod needs;
pub mod published;
mod regressions;
mod run;
pub mod statements;
mod steps;
pub mod words;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use arguments::{Arguments, Task};
use command_line::CommandLine;
use machine::{Machine as _, Real};
use run::Settings;

/// Runs the command line: exit code 0 if everything passed, 1 if something failed, 2 if the command
/// line is invalid.
#[must_use]
pub fn main() -> ExitCode {
    let task = match arguments::parse(std::env::args().skip(1)) {
        Ok(task) => task,
        Err(problem) => return misunderstood(&problem),
    };
    match task {
        Task::Help => {
            print!("{}", arguments::USAGE);
            ExitCode::SUCCESS
        }
        Task::List => {
            print!("{}", steps::list(steps::STEPS));
            ExitCode::SUCCESS
        }
        Task::Test(arguments) => test(&arguments),
        Task::Generate { check } => generate(check),
        Task::Regressions => check_regressions(),
    }
}

/// The root folder of the workspace.
#[must_use]
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn test(arguments: &Arguments) -> ExitCode {
    let selected = match steps::select(steps::STEPS, arguments) {
        Ok(selected) => selected,
        Err(problem) => return misunderstood(&problem),
    };
    let ci = std::env::var("CI").is_ok_and(|value| value == "true" || value == "1");
    let settings = Settings { ci, install: arguments.install, named: !arguments.names.is_empty() };
    let mut machine = Real::new(root());
    let question = disk::question(root().join("target").exists());
    let answer = machine::output(&root(), &question).unwrap_or_default();
    machine.say(&disk::message(disk::free_mb(&answer), arguments.names.is_empty()));
    let reports = run::run(&selected, &settings, &mut machine);

    if arguments.long {
        // Makes the printed table complete enough to be pasted into a release or a review.
        let describe = CommandLine::new("git describe --always --dirty");
        let commit = machine::output(&root(), &describe).unwrap_or_default();
        machine.say(&run::long_run_heading(commit.trim()));
    }
    machine.say(&format!("\n{}", run::table(&reports)));
    machine.say(&run::last_line(&reports));
    if run::any_failed(&reports) { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn generate(check: bool) -> ExitCode {
    let mut machine = Real::new(root());
    match machine.run(&steps::generator(check)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            machine.say(&format!("the generator failed: {problem}"));
            ExitCode::FAILURE
        }
    }
}

fn check_regressions() -> ExitCode {
    let root = root();
    let (found, mut problems) = regressions::read(&root);
    let folder = Path::new(regressions::FOLDER);
    match regressions::Worktree::create(&root, &folder.join("tree"), &folder.join("build")) {
        Ok(mut tree) => {
            problems.extend(regressions::check(&found, &mut tree, &mut |text| println!("{text}")));
        }
        Err(reason) => problems.push(format!("the sources cannot be copied: {reason}")),
    }
    for problem in &problems {
        println!("error: {problem}");
    }
    println!("{} regression tests, {} problems", found.len(), problems.len());
    if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn misunderstood(problem: &str) -> ExitCode {
    eprint!("error: {problem}\n\n{}", arguments::USAGE);
    ExitCode::from(2)
}
