//! Plays scenarios of gRPC through a client of another language, against the scripted server, in real
//! time over loopback TCP.
//!
//! A program around that client's library is told what to do line by line (interop/README.md). What
//! happened is what the server saw and what the program says. What is expected is what the core does
//! under the jitter that gRPC's libraries have; where a library is known to do something else, that is
//! a row of a list of differences, and then that is expected.
//!
//! Rule: a difference without a row fails, and so does a row that makes no difference. What failed among
//! others is played again by itself first: a library does the same thing every time, a busy machine does
//! not.

mod expected;
mod play;
mod program;
mod protocol;
mod rows;
mod scene;
mod seen;

use std::io;
use std::path::Path;
use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::compare::Difference;
use super::model::File;
use super::report::{Shown, Verdict};
use expected::Expected;
use program::Program;
use rows::Row;
pub(super) use rows::Rows;
use scene::Scene;

/// How many scenarios are under way at a time. They mostly wait.
const AT_ONCE: usize = 24;
/// How often a scenario that failed is played again, with nothing beside it.
const AGAIN: usize = 2;

/// Who plays: a command line, and the name of the language in the list of differences.
#[derive(Debug)]
pub(super) struct Player<'a> {
    pub(super) command: &'a str,
    pub(super) language: &'a str,
    pub(super) rows: &'a Rows,
}

/// A file's name, and of each scenario or service config its name, its line and what became of it.
pub(super) type Played = (String, Vec<(String, usize, Verdict)>);

/// Plays these files, and tells `err` what is played again. Their scenarios get the jitter of gRPC's
/// libraries.
///
/// # Errors
/// The program cannot be started, or is not one that speaks the protocol; a socket cannot be had; or a row
/// is about nothing that these files have.
pub(super) fn play(
    files: &mut [File],
    player: &Player<'_>,
    err: &mut dyn io::Write,
) -> io::Result<Vec<Played>> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let program = Arc::new(Program::start(player.command, "client")?);
        let played = tokio::select! {
            played = play_all(files, player, &program, err) => played,
            _ = tokio::signal::ctrl_c() => Err(io::Error::other("interrupted")),
        };
        // Whatever became of it, the program does not outlive this.
        let believed = program.end().await;
        let played = played?;
        believed.map(|()| played)
    })
}

async fn play_all(
    files: &mut [File],
    player: &Player<'_>,
    program: &Arc<Program>,
    err: &mut dyn io::Write,
) -> io::Result<Vec<Played>> {
    // The first call of a program is slow in many languages.
    play::play(program, &Scene::warm_up()).await?;
    let turns = Arc::new(Semaphore::new(AT_ONCE));
    let mut running = JoinSet::new();
    let mut trials = Vec::new();
    let mut played: Vec<Played> = Vec::new();
    for file in files.iter_mut() {
        let file_name = file_name(&file.name);
        let place = played.len();
        played.push((file.name.clone(), Vec::new()));
        let scenarios = file
            .scenarios
            .iter_mut()
            .map(|scenario| (scenario.name.clone(), scenario.line, Scene::of(scenario)));
        let configs = file
            .configs
            .iter()
            .map(|case| (case.name.clone(), case.line, Ok(Scene::of_config(case))));
        let mut names = Vec::new();
        for (index, (name, line, scene)) in scenarios.chain(configs).enumerate() {
            let verdict = match scene {
                Ok(scene) => {
                    names.push(name.clone());
                    let rows = player.rows.of(player.language, &file_name, &name);
                    let trial = Arc::new(Trial::new(scene, rows));
                    let number = trials.len();
                    trials.push((place, index, trial.clone()));
                    let (program, turns) = (program.clone(), turns.clone());
                    running.spawn(async move {
                        let _turn = turns.acquire_owned().await.map_err(io::Error::other)?;
                        io::Result::Ok((number, trial.play(&program).await?))
                    });
                    unplayed()
                }
                Err(because) => Verdict::Skipped { because },
            };
            played[place].1.push((name, line, verdict));
        }
        let unknown = player.rows.unknown(player.language, &file_name, &names);
        if let Some(name) = unknown.first() {
            let text = format!("a row is about {file_name}: {name}, which is not played");
            return Err(io::Error::other(text));
        }
    }
    while let Some(ended) = running.join_next().await {
        let (number, verdict) = ended.map_err(io::Error::other)??;
        let (place, index, _) = trials[number];
        played[place].1[index].2 = verdict;
    }
    for _ in 0..AGAIN {
        for (place, index, trial) in &trials {
            let (name, _, verdict) = &mut played[*place].1[*index];
            if verdict.differs() {
                writeln!(err, "played again by itself: {name:?}")?;
                *verdict = trial.play(program).await?;
            }
        }
    }
    Ok(played)
}

fn file_name(path: &str) -> String {
    Path::new(path).file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// What stands in the place of a verdict until it is there.
fn unplayed() -> Verdict {
    Verdict::Played { actual: Shown::Seen(serde_json::Value::Null), differences: Vec::new() }
}

/// A scenario, and what is expected of a client for which some rows are right.
#[derive(Debug)]
struct Trial {
    scene: Scene,
    /// What is expected without any row.
    ours: Expected,
    rows: Vec<Row>,
}

impl Trial {
    fn new(mut scene: Scene, rows: Vec<Row>) -> Self {
        let ours = scene.expected.clone();
        scene.expected = expected_with(&ours, rows.iter());
        Trial { scene, ours, rows }
    }

    /// Plays it once, and judges what was seen.
    async fn play(&self, program: &Program) -> io::Result<Verdict> {
        let Trial { scene, ours, rows } = self;
        let seen = play::play(program, scene).await?;
        let mut differences = scene.expected.compare(&seen, scene.tolerance);
        for (index, row) in rows.iter().enumerate() {
            let others = rows.iter().enumerate().filter(|(other, _)| *other != index);
            let without = expected_with(ours, others.map(|(_, row)| row));
            let says_something = without != scene.expected;
            let shows = says_something && !without.compare(&seen, scene.tolerance).is_empty();
            if !shows && (says_something || row.names_this) {
                let expected = format!("the difference {:?}", row.what);
                let actual = "it does not show: take it out of the list".to_owned();
                differences.push(Difference { call: None, what: "row", expected, actual });
            }
        }
        Ok(Verdict::Played { actual: Shown::Seen(seen.written()), differences })
    }
}

/// What is expected of a client for which these rows are right.
fn expected_with<'r>(ours: &Expected, rows: impl Iterator<Item = &'r Row>) -> Expected {
    rows.fold(ours.clone(), |expected, row| expected.instead(&row.instead))
}
