//! `redial scenarios`: retry behaviour as data (docs/scenarios.md).
//!
//! A scenario says what a policy is given and what must then happen, at exact moments of virtual
//! time. Here it is read ([`load`]), played through the decision core or, live, through what users
//! run, and compared with what was expected.
//!
//! Invariant: nothing here decides about a retry. Policies are made by the crates of their designs,
//! and what happened is read from the diary of the call.

mod compare;
mod configs;
mod designs;
mod diary;
mod expect;
mod json;
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
    /// The files to play.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<String>,
}

/// Times are compared to within this at the first level: 0.001 ms.
const TOLERANCE: redial::Ns = 1_000;

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
    let mut counts = Counts::default();
    let mut skips = vec![0; traits::TRAITS.len()];
    for file in &files {
        counts += play_each(file, arguments, out, &mut skips)?;
    }
    // With `--json` whoever reads the standard output expects nothing but objects there.
    let summary: &mut dyn Write = if arguments.json { err } else { out };
    for (because, skipped) in traits::TRAITS.iter().zip(skips).filter(|(_, skipped)| *skipped > 0) {
        writeln!(summary, "{skipped} skipped, {because}")?;
    }
    write!(summary, "{} passed, {} failed", counts.passed, counts.failed)?;
    if arguments.live {
        write!(summary, ", {} skipped", counts.skipped)?;
    }
    writeln!(summary)?;
    Ok(u8::from(counts.failed > 0))
}

/// Plays one file, and prints what does not hold.
///
/// # Errors
/// The output cannot be written.
pub fn play_file(file: &File, arguments: &Arguments, out: &mut dyn Write) -> io::Result<Counts> {
    play_each(file, arguments, out, &mut vec![0; traits::TRAITS.len()])
}

/// Plays one file, and counts what is skipped because of each trait.
fn play_each(
    file: &File,
    arguments: &Arguments,
    out: &mut dyn Write,
    skips: &mut [usize],
) -> io::Result<Counts> {
    let mut counts = Counts::default();
    for scenario in &file.scenarios {
        let result = if arguments.live { play_live(scenario) } else { play(scenario) };
        counts.add(&result);
        if let Verdict::Skipped { because } = &result {
            let listed = traits::TRAITS.iter().zip(skips.iter_mut());
            let same = |listed: &traits::Trait| std::ptr::eq(listed, *because);
            listed.filter(|(listed, _)| same(listed)).for_each(|(_, skipped)| *skipped += 1);
        }
        let Scenario { name, line, .. } = scenario;
        tell(&Outcome { file: &file.name, name, line: *line, result }, arguments, out)?;
    }
    // A validator says the same at every level.
    for case in &file.configs {
        let judged = case.judge();
        let differences = case.compare(&judged);
        let result = Verdict::Played { actual: Shown::Config(judged), differences };
        counts.add(&result);
        let Case { name, line, .. } = case;
        tell(&Outcome { file: &file.name, name, line: *line, result }, arguments, out)?;
    }
    Ok(counts)
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
fn judged(scenario: &Scenario, live: live::Live, tolerance: redial::Ns) -> Verdict {
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
