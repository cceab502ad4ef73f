//! `redial scenarios`: retry behaviour as data (docs/scenarios.md).
//!
//! A scenario says what a policy is given and what must then happen, at exact moments of virtual
//! time. Here it is read ([`load`]), played through the decision core or, live, through what users
//! run, and compared with what was expected.
//!
//! Invariant: nothing here decides about a retry. Policies are made by the crates of their designs,
//! and what happened is read from the diary of the call.

mod call_log;
mod compare;
mod configs;
mod designs;
mod expect;
mod foreign;
pub(crate) mod json;
mod live;
pub mod load;
mod model;
mod play;
mod report;
pub mod source;
mod time;
mod traits;

use std::io::{self, Write};

pub use configs::Case;
pub use model::{File, Scenario};
pub use report::Counts;

use foreign::{Player, Rows};
use report::{Outcome, Shown, Verdict};

/// What `redial scenarios` is told.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Arguments {
    /// Play through what users run, on a paused clock, where that can show the scenario.
    #[arg(long)]
    pub live: bool,
    /// Print one JSON object for each scenario.
    #[arg(long)]
    pub json: bool,
    /// Play through a client of another language, in real time over loopback TCP: the command line of a
    /// program that speaks the protocol of interop/README.md, its words apart by blanks.
    #[arg(long, value_name = "PROGRAM", conflicts_with = "live")]
    pub with: Option<String>,
    /// What that language is called in the list of differences.
    #[arg(long = "as", value_name = "LANGUAGE", requires_all = ["with", "differences"])]
    pub language: Option<String>,
    /// The list of known differences: with one, it must hold what is listed for that language.
    #[arg(long, value_name = "FILE", requires = "language")]
    pub differences: Option<String>,
    /// The files to play.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<String>,
}

/// Times are compared to within this at the first level: 0.001 ms.
const TOLERANCE: redial::time::Ns = 1_000;

/// Plays the files. Gives 0 if every scenario holds, 1 if one does not, 2 if a file is not valid:
/// then nothing is played.
///
/// # Errors
/// The output cannot be written.
pub fn run(arguments: &Arguments, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<u8> {
    let mut files = Vec::new();
    let mut invalid = false;
    for path in &arguments.files {
        match load::open(path) {
            Ok(file) => files.push(file),
            Err(mistakes) => {
                invalid = true;
                for mistake in mistakes {
                    writeln!(err, "{mistake}")?;
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
        for file in &files {
            play_each(file, arguments, &mut tally, out)?;
        }
    }
    // With `--json` whoever reads the standard output expects nothing but objects there.
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

/// How many scenarios there were of each kind, and what those that were skipped have.
#[derive(Default)]
struct Tally {
    counts: Counts,
    skips: Vec<&'static traits::Trait>,
}

impl Tally {
    fn add(&mut self, verdict: &Verdict) {
        self.counts.add(verdict);
        if let Verdict::Skipped { because } = verdict {
            self.skips.push(because);
        }
    }

    /// How many were skipped because of each trait, in the order of the list.
    fn skipped(&self) -> impl Iterator<Item = (usize, &'static traits::Trait)> {
        let listed = traits::foreign::ALL.into_iter().chain(&traits::TRAITS);
        let count = |listed: &traits::Trait| {
            self.skips.iter().filter(|because| std::ptr::eq(**because, listed)).count()
        };
        listed.map(move |listed| (count(listed), listed)).filter(|(skipped, _)| *skipped > 0)
    }
}

/// Plays one file, and prints what does not hold.
///
/// # Errors
/// The output cannot be written.
pub fn play_file(file: &File, arguments: &Arguments, out: &mut dyn Write) -> io::Result<Counts> {
    let mut tally = Tally::default();
    play_each(file, arguments, &mut tally, out)?;
    Ok(tally.counts)
}

/// Plays one file, and adds what became of its scenarios to the tally.
fn play_each(
    file: &File,
    arguments: &Arguments,
    tally: &mut Tally,
    out: &mut dyn Write,
) -> io::Result<()> {
    for scenario in &file.scenarios {
        let result = if arguments.live { play_live(scenario) } else { play(scenario) };
        tally.add(&result);
        let Scenario { name, line, .. } = scenario;
        tell(&Outcome { file: &file.name, name, line: *line, result }, arguments, out)?;
    }
    // A validator says the same at every level.
    for case in &file.configs {
        let judged = case.judge();
        let differences = case.compare(&judged);
        let result = Verdict::Played { actual: Shown::Config(judged), differences };
        tally.add(&result);
        let Case { name, line, .. } = case;
        tell(&Outcome { file: &file.name, name, line: *line, result }, arguments, out)?;
    }
    Ok(())
}

/// Plays the files through a client of another language.
fn play_with(
    command: &str,
    files: &mut [File],
    arguments: &Arguments,
    tally: &mut Tally,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> io::Result<()> {
    let rows = arguments.differences.as_deref().map_or(Ok(Rows::default()), Rows::open)?;
    let language = arguments.language.as_deref().unwrap_or_default();
    let player = Player { command, language, rows: &rows };
    for (file, verdicts) in foreign::play(files, &player, err)? {
        for (name, line, result) in verdicts {
            tally.add(&result);
            tell(&Outcome { file: &file, name: &name, line, result }, arguments, out)?;
        }
    }
    Ok(())
}

fn tell(outcome: &Outcome<'_>, arguments: &Arguments, out: &mut dyn Write) -> io::Result<()> {
    if arguments.json { report::object(out, outcome) } else { report::text(out, outcome) }
}

fn play(scenario: &Scenario) -> Verdict {
    let actual = play::play(scenario);
    let differences = compare::compare(scenario, &actual, TOLERANCE);
    Verdict::Played { actual: Shown::Scenario(actual), differences }
}

fn play_live(scenario: &Scenario) -> Verdict {
    let core = play::play(scenario);
    if let Some(because) = traits::skips(scenario, &core) {
        return Verdict::Skipped { because };
    }
    judged(scenario, live::play(scenario, core), live::TOLERANCE)
}

/// What was played live against what is expected, and against what can be right at all.
fn judged(scenario: &Scenario, live: live::Live, tolerance: redial::time::Ns) -> Verdict {
    let live::Live { actual, differences: beyond } = live;
    let mut differences = compare::compare(scenario, &actual, tolerance);
    differences.extend(beyond);
    Verdict::Played { actual: Shown::Scenario(actual), differences }
}

/// Plays a scenario of gRPC in real time, over loopback TCP: ten times slower than it says, and with
/// a tolerance of 20 ms of its time. Prints what does not hold, and gives whether all does.
///
/// # Errors
/// There is no scenario of this name, a socket cannot be had or cannot show it, or the output cannot
/// be written.
pub fn play_over_tcp(file: &File, name: &str, out: &mut dyn Write) -> io::Result<bool> {
    let scenario = file.scenarios.iter().find(|scenario| scenario.name == name);
    let scenario = scenario.ok_or_else(|| io::Error::other(format!("no scenario {name:?}")))?;
    let live = live::play_over_tcp(scenario, &play::play(scenario))?;
    let result = judged(scenario, live, live::TCP_TOLERANCE);
    let mut counts = Counts::default();
    counts.add(&result);
    report::text(out, &Outcome { file: &file.name, name, line: scenario.line, result })?;
    Ok(counts.failed == 0)
}
