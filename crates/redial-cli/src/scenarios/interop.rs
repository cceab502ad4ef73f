//! Runs gRPC scenarios through a client of another language, against the fault server, in real time
//! over loopback TCP.
//!
//! A program around that client's library receives one JSON line per scenario (interop/README.md).
//! The result combines the server's record with the program's answer. The expectation is the
//! behaviour of the core with the jitter of gRPC's libraries; where a library is known to differ,
//! the list of known differences replaces parts of it.
//!
//! An unlisted difference fails, and so does a listed one that does not show. Failed scenarios are
//! repeated alone first: a library is deterministic, a busy machine is not.

mod expected;
mod known_differences;
mod observed;
mod play;
mod program;
mod protocol;
mod test_case;

use std::io;
use std::path::Path;
use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::compare::Difference;
use super::model::File;
use super::report::{Shown, Verdict};
use expected::Expected;
use known_differences::KnownDifference;
pub(super) use known_differences::KnownDifferences;
use program::Program;
use test_case::TestCase;

use crate::progress::Steps;

/// How many scenarios run concurrently. They mostly wait.
const CONCURRENT_MAX: usize = 24;
/// How often a failed scenario is repeated alone.
const RETRIES: usize = 2;

/// The program to run, and the name of its language in the list of differences.
#[derive(Debug)]
pub(super) struct ClientUnderTest<'a> {
    pub(super) command: &'a str,
    pub(super) language: &'a str,
    pub(super) rows: &'a KnownDifferences,
}

/// A file's name, and the name, line and result of each of its scenarios or service configs.
pub(super) type Played = (String, Vec<(String, usize, Verdict)>);

/// Runs these files, and prints repeated scenarios to `err`. The scenarios get the jitter of gRPC's
/// libraries.
///
/// # Errors
/// The program cannot be started or violates the protocol; no socket is available; or a known
/// difference names an unknown scenario.
pub(super) fn play(
    files: &mut [File],
    client: &ClientUnderTest<'_>,
    err: &mut dyn io::Write,
) -> io::Result<Vec<Played>> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let program = Arc::new(Program::start(client.command, "client")?);
        let played = tokio::select! {
            played = play_all(files, client, &program, err) => played,
            _ = tokio::signal::ctrl_c() => Err(io::Error::other("interrupted")),
        };
        // The program must not outlive the run, whatever its result.
        let believed = program.end().await;
        let played = played?;
        believed.map(|()| played)
    })
}

async fn play_all(
    files: &mut [File],
    client: &ClientUnderTest<'_>,
    program: &Arc<Program>,
    err: &mut dyn io::Write,
) -> io::Result<Vec<Played>> {
    // The first call of a program is slow in many languages.
    play::play(program, &TestCase::warm_up()).await?;
    let turns = Arc::new(Semaphore::new(CONCURRENT_MAX));
    let mut running = JoinSet::new();
    let mut runs = Vec::new();
    let mut played: Vec<Played> = Vec::new();
    for file in files.iter_mut() {
        let file_name = file_name(&file.name);
        let file_index = played.len();
        played.push((file.name.clone(), Vec::new()));
        let scenarios = file
            .scenarios
            .iter_mut()
            .map(|scenario| (scenario.name.clone(), scenario.line, TestCase::of(scenario)));
        let configs = file
            .configs
            .iter()
            .map(|case| (case.name.clone(), case.line, Ok(TestCase::of_config(case))));
        let mut names = Vec::new();
        for (index, (name, line, test_case)) in scenarios.chain(configs).enumerate() {
            let verdict = match test_case {
                Ok(test_case) => {
                    names.push(name.clone());
                    let rows = client.rows.of(client.language, &file_name, &name);
                    let run = Arc::new(CaseRun::new(test_case, rows));
                    let number = runs.len();
                    runs.push((file_index, index, run.clone()));
                    let (program, turns) = (program.clone(), turns.clone());
                    running.spawn(async move {
                        let _turn = turns.acquire_owned().await.map_err(io::Error::other)?;
                        io::Result::Ok((number, run.play(&program).await?))
                    });
                    unplayed()
                }
                Err(because) => Verdict::Skipped { because },
            };
            played[file_index].1.push((name, line, verdict));
        }
        let unknown = client.rows.unknown(client.language, &file_name, &names);
        if let Some(name) = unknown.first() {
            let text = format!("a row is about {file_name}: {name}, which is not played");
            return Err(io::Error::other(text));
        }
    }
    let mut steps = Steps::playing(runs.len());
    while let Some(ended) = running.join_next().await {
        steps.step();
        let (number, verdict) = ended.map_err(io::Error::other)??;
        let (file_index, index, _) = runs[number];
        played[file_index].1[index].2 = verdict;
    }
    drop(steps);
    for _ in 0..RETRIES {
        for (file_index, index, run) in &runs {
            let (name, _, verdict) = &mut played[*file_index].1[*index];
            if verdict.differs() {
                writeln!(err, "played again by itself: {name:?}")?;
                *verdict = run.play(program).await?;
            }
        }
    }
    Ok(played)
}

fn file_name(path: &str) -> String {
    Path::new(path).file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// A placeholder until the verdict is known.
fn unplayed() -> Verdict {
    Verdict::Played { actual: Shown::Observed(serde_json::Value::Null), differences: Vec::new() }
}

/// A scenario with the known differences of a client.
#[derive(Debug)]
struct CaseRun {
    test_case: TestCase,
    /// The expectation without any known difference.
    ours: Expected,
    rows: Vec<KnownDifference>,
}

impl CaseRun {
    fn new(mut test_case: TestCase, rows: Vec<KnownDifference>) -> Self {
        let ours = test_case.expected.clone();
        test_case.expected = expected_with(&ours, rows.iter());
        CaseRun { test_case, ours, rows }
    }

    /// Runs the scenario once, and compares.
    async fn play(&self, program: &Program) -> io::Result<Verdict> {
        let CaseRun { test_case, ours, rows } = self;
        let observed = play::play(program, test_case).await?;
        let mut differences = test_case.expected.compare(&observed, test_case.tolerance);
        for (index, row) in rows.iter().enumerate() {
            let others = rows.iter().enumerate().filter(|(other, _)| *other != index);
            let without = expected_with(ours, others.map(|(_, row)| row));
            let says_something = without != test_case.expected;
            let shows =
                says_something && !without.compare(&observed, test_case.tolerance).is_empty();
            if !shows && (says_something || row.names_this) {
                let expected = format!("the difference {:?}", row.what);
                let actual = "it does not show: take it out of the list".to_owned();
                differences.push(Difference { call: None, what: "row", expected, actual });
            }
        }
        Ok(Verdict::Played { actual: Shown::Observed(observed.to_json()), differences })
    }
}

/// The expectation with these known differences.
fn expected_with<'r>(ours: &Expected, rows: impl Iterator<Item = &'r KnownDifference>) -> Expected {
    rows.fold(ours.clone(), |expected, row| expected.with_deviation(&row.deviation))
}
