//! `redial scenarios`: retry behaviour as data (docs/scenarios.md).
//!
//! A scenario contains a policy, the outcomes of its attempts, and the expected behaviour at exact
//! points of virtual time. This module reads it ([`load`]), runs it through the core or, with
//! `--live`, through the public API, and compares the result.
//!
//! Invariant: nothing here makes a retry decision. Policies are built by the crates of their
//! designs, and the results come from call logs.

mod call_log;
mod compare;
mod configs;
mod designs;
mod expect;
mod interop;
pub(crate) mod json;
mod live;
pub mod load;
mod model;
mod play;
mod report;
mod skip;
pub mod source;
mod time;

use std::io::{self, Write};

pub use configs::Case;
pub use model::{File, Scenario};
pub use report::Counts;

use crate::progress::Steps;
use interop::{ClientUnderTest, KnownDifferences};
use report::{Outcome, Shown, Verdict};

/// The arguments of `redial scenarios`.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(after_long_help = EXIT_CODES)]
pub struct Arguments {
    /// Run through the public API on a paused clock, where that can reproduce the scenario.
    #[arg(long)]
    pub live: bool,
    /// Print one JSON object for each scenario.
    #[arg(long)]
    pub json: bool,
    /// Run through a client of another language, in real time over loopback TCP: the command line,
    /// split at blanks, of a program with the protocol of interop/README.md.
    #[arg(long, value_name = "PROGRAM", conflicts_with = "live")]
    pub with: Option<String>,
    /// The name of that language in the list of differences.
    #[arg(long = "as", value_name = "LANGUAGE", requires_all = ["with", "differences"])]
    pub language: Option<String>,
    /// The list of known differences: the run must show exactly those listed for the language.
    #[arg(long, value_name = "FILE", requires = "language")]
    pub differences: Option<String>,
    /// The files to run.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<String>,
}

const EXIT_CODES: &str = "\
Exit codes:
  0  all scenarios passed
  1  at least one scenario failed
  2  a file cannot be read, is invalid or is empty, or the command was used wrongly";

/// The tolerance of times in the core: 0.001 ms.
const TOLERANCE: redial::time::Ns = 1_000;

/// Runs the files. Returns 0 if every scenario passes, 1 if one fails, and 2 if a file is invalid,
/// in which case nothing runs.
///
/// # Errors
/// The output cannot be written.
pub fn run(arguments: &Arguments, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<u8> {
    let mut files = Vec::new();
    let mut invalid = false;
    for path in &arguments.files {
        match load::open(path) {
            Ok(file) => files.push(file),
            Err(diagnostics) => {
                invalid = true;
                for diagnostic in diagnostics {
                    writeln!(err, "{diagnostic}")?;
                }
            }
        }
    }
    if invalid {
        return Ok(2);
    }
    let mut tally = Tally::default();
    if let Some(command) = &arguments.with {
        if let Err(problem) = play_with(command, &mut files, arguments, &mut tally, out, err) {
            writeln!(err, "{problem}")?;
            return Ok(2);
        }
    } else {
        let mut steps = Steps::playing(files.iter().map(count).sum());
        for file in &files {
            play_each(file, arguments, &mut tally, &mut steps, out)?;
        }
    }
    // With `--json` the standard output contains only JSON objects.
    let summary: &mut dyn Write = if arguments.json { err } else { out };
    for (skipped, because) in tally.skipped() {
        writeln!(summary, "{skipped} skipped, {because}")?;
    }
    let Counts { passed, failed, skipped } = tally.counts;
    write!(summary, "{passed} passed, {failed} failed")?;
    if arguments.live || arguments.with.is_some() {
        write!(summary, ", {skipped} skipped")?;
    }
    writeln!(summary)?;
    Ok(u8::from(failed > 0))
}

/// The counts, and the reasons of skipped scenarios.
#[derive(Default)]
struct Tally {
    counts: Counts,
    skips: Vec<&'static skip::SkipReason>,
}

impl Tally {
    fn add(&mut self, verdict: &Verdict) {
        self.counts.add(verdict);
        if let Verdict::Skipped { because } = verdict {
            self.skips.push(because);
        }
    }

    /// How many scenarios were skipped for each reason, in list order.
    fn skipped(&self) -> impl Iterator<Item = (usize, &'static skip::SkipReason)> {
        let listed = skip::interop::ALL.into_iter().chain(&skip::SKIP_REASONS);
        let count = |listed: &skip::SkipReason| {
            self.skips.iter().filter(|because| std::ptr::eq(**because, listed)).count()
        };
        listed.map(move |listed| (count(listed), listed)).filter(|(skipped, _)| *skipped > 0)
    }
}

/// Runs one file, and prints its failures.
///
/// # Errors
/// The output cannot be written.
pub fn play_file(file: &File, arguments: &Arguments, out: &mut dyn Write) -> io::Result<Counts> {
    let mut tally = Tally::default();
    play_each(file, arguments, &mut tally, &mut Steps::hidden(), out)?;
    Ok(tally.counts)
}

/// The number of scenarios, or service configs, of a file.
fn count(file: &File) -> usize {
    file.scenarios.len() + file.configs.len()
}

/// Runs one file, and adds the results to the tally.
fn play_each(
    file: &File,
    arguments: &Arguments,
    tally: &mut Tally,
    steps: &mut Steps,
    out: &mut dyn Write,
) -> io::Result<()> {
    for scenario in &file.scenarios {
        let result = if arguments.live { play_live(scenario) } else { play(scenario) };
        tally.add(&result);
        let Scenario { name, line, .. } = scenario;
        let outcome = Outcome { file: &file.name, name, line: *line, result };
        steps.print(|| print(&outcome, arguments, out))?;
        steps.step();
    }
    // The validator is the same at every level.
    for case in &file.configs {
        let result = case.evaluate();
        let differences = case.compare(&result);
        let result = Verdict::Played { actual: Shown::Config(result), differences };
        tally.add(&result);
        let Case { name, line, .. } = case;
        let outcome = Outcome { file: &file.name, name, line: *line, result };
        steps.print(|| print(&outcome, arguments, out))?;
        steps.step();
    }
    Ok(())
}

/// Runs the files through a client of another language.
fn play_with(
    command: &str,
    files: &mut [File],
    arguments: &Arguments,
    tally: &mut Tally,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> io::Result<()> {
    let rows = arguments
        .differences
        .as_deref()
        .map_or(Ok(KnownDifferences::default()), KnownDifferences::open)?;
    let language = arguments.language.as_deref().unwrap_or_default();
    let client = ClientUnderTest { command, language, rows: &rows };
    for (file, verdicts) in interop::play(files, &client, err)? {
        for (name, line, result) in verdicts {
            tally.add(&result);
            print(&Outcome { file: &file, name: &name, line, result }, arguments, out)?;
        }
    }
    Ok(())
}

fn print(outcome: &Outcome<'_>, arguments: &Arguments, out: &mut dyn Write) -> io::Result<()> {
    if arguments.json { report::object(out, outcome) } else { report::text(out, outcome) }
}

fn play(scenario: &Scenario) -> Verdict {
    let actual = play::play(scenario);
    let differences = compare::compare(scenario, &actual, TOLERANCE);
    Verdict::Played { actual: Shown::Scenario(actual), differences }
}

fn play_live(scenario: &Scenario) -> Verdict {
    let core = play::play(scenario);
    if let Some(because) = skip::skips(scenario, &core) {
        return Verdict::Skipped { because };
    }
    result(scenario, live::play(scenario, core), live::TOLERANCE)
}

/// Compares a live run with the expectations, and adds its internal inconsistencies.
fn result(scenario: &Scenario, live: live::Live, tolerance: redial::time::Ns) -> Verdict {
    let live::Live { actual, differences: beyond } = live;
    let mut differences = compare::compare(scenario, &actual, tolerance);
    differences.extend(beyond);
    Verdict::Played { actual: Shown::Scenario(actual), differences }
}

/// Runs a gRPC scenario in real time over loopback TCP: ten times slower than written, with a
/// tolerance of 20 ms of scenario time. Prints failures, and returns whether it passed.
///
/// # Errors
/// There is no scenario with this name, no socket is available, TCP cannot reproduce it, or the
/// output cannot be written.
pub fn play_over_tcp(file: &File, name: &str, out: &mut dyn Write) -> io::Result<bool> {
    let scenario = file.scenarios.iter().find(|scenario| scenario.name == name);
    let scenario = scenario.ok_or_else(|| io::Error::other(format!("no scenario {name:?}")))?;
    let live = live::play_over_tcp(scenario, &play::play(scenario))?;
    let result = result(scenario, live, live::TCP_TOLERANCE);
    let mut counts = Counts::default();
    counts.add(&result);
    report::text(out, &Outcome { file: &file.name, name, line: scenario.line, result })?;
    Ok(counts.failed == 0)
}
