//! `redial simulate`: the editor of the simulation file, and its runs.
//!
//! A run answers with lines of JSON: its progress, and at last its result. If it compares the policies of
//! the page, these replace the policies of the simulation file, and the result is that of the new file,
//! which the page can save.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use redial_service_config::json::LineIndex;
use redial_sim::file::{self, Format, Problems};
use redial_sim::{Error, Simulation, SimulationReport, chart, scenarios};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;
use tokio_stream::wrappers::ReceiverStream;

use super::command_line::CommandLine;
use super::files::{self, File};
use super::limits::INTERVALS_MAX;
use super::page::NARROW;
use super::plan::policies;
use super::request::{Refusal, answer, json_of};
use super::runs::{Progress, RunPermit};
use super::server::Shared;
use crate::plan;

/// How often the progress is sent.
const STEP: Duration = Duration::from_millis(100);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    /// The simulation file.
    simulation: File,
    /// The policies to compare; those of the file if there are none.
    policies: Option<Vec<File>>,
    method: Option<String>,
    seed: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AskedCheck {
    simulation: File,
}

/// The problems of a simulation file, in the form of those of `redial check`.
pub(super) async fn check(request: Request) -> Result<Response, Refusal> {
    let AskedCheck { simulation } = json_of(request).await?;
    let findings = tokio::task::spawn_blocking(move || match read(&simulation) {
        Ok(_) => Vec::new(),
        Err(problems) => findings(&simulation, &problems),
    });
    let findings = findings.await.map_err(|_| Refusal::internal())?;
    Ok(answer(&json!({ "findings": findings })))
}

/// Reads a simulation file. It cannot name other files: the page may not read them.
fn read(file: &File) -> Result<Simulation, Problems> {
    let format = Format::of(&file.name, &file.text);
    let mut simulation = file::parse(&file.text, format, &file::no_files)?;
    if simulation.name.is_empty() {
        simulation.name = plan::name(&file.name);
    }
    Ok(simulation)
}

fn findings(file: &File, problems: &Problems) -> Vec<Value> {
    let lines = LineIndex::new(&file.text);
    let finding = |problem: &file::Problem| {
        let end = lines.position(&file.text, problem.range.end.min(file.text.len()));
        json!({
            "rule": "simulation",
            "severity": "error",
            "line": problem.line,
            "column": problem.column,
            "end_line": end.line,
            "end_column": end.column,
            "path": problem.path,
            "text": match problem.path.as_str() {
                "" => problem.text.clone(),
                path => format!("{path}: {}", problem.text),
            },
            "help": null,
        })
    };
    problems.as_slice().iter().map(finding).collect()
}

/// Runs a simulation, and answers with lines.
pub(super) async fn run(
    State(shared): State<Arc<Shared>>,
    request: Request,
) -> Result<Response, Refusal> {
    let asked: Asked = json_of(request).await?;
    if let Some(policies) = &asked.policies {
        files::check(policies)?;
    }
    let prepared = tokio::task::spawn_blocking(move || Prepared::new(&asked)).await;
    let prepared = prepared.map_err(|_| Refusal::internal())??;
    let permit = shared.simulations.admit()?;
    let (lines, receiver) = mpsc::channel(1);
    tokio::spawn(async move {
        let mut lines = Lines(lines);
        if let Some(last) = lines.follow(&shared, prepared, permit).await {
            lines.send(&last).await;
        }
    });
    let headers = [(header::CONTENT_TYPE, "application/x-ndjson")];
    Ok((headers, Body::from_stream(ReceiverStream::new(receiver))).into_response())
}

/// The lines of a response. Sending fails once the page is gone.
struct Lines(mpsc::Sender<Result<Bytes, Infallible>>);

impl Lines {
    async fn send(&mut self, line: &Value) -> bool {
        self.0.send(Ok(format!("{line}\n").into())).await.is_ok()
    }

    /// Sends the progress of a run and returns its last line, or `None` if the page is gone.
    async fn follow(&mut self, shared: &Shared, run: Prepared, permit: RunPermit) -> Option<Value> {
        let progress = Progress::new();
        let runs = &shared.simulations;
        let (simulation, command, file) = (run.simulation, run.command, run.file);
        let running = runs.run(permit, progress.clone(), move |watch| {
            simulation.run_watched(watch).map(|report| drawn(&report, &command, file))
        });
        let mut running = std::pin::pin!(running);
        let mut ticks = tokio::time::interval(STEP);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                () = self.0.closed() => return None,
                ended = &mut running => return Some(match ended {
                    Ok(Ok(drawn)) => drawn,
                    Ok(Err(Error::Stopped)) => json!({ "error": runs.stopped() }),
                    Ok(Err(error)) => json!({ "error": error.to_string() }),
                    Err(refusal) => refusal.into_line(),
                }),
                _ = ticks.tick() => {}
            }
            if !self.send(&json!({ "progress": progress.share() })).await {
                return None;
            }
        }
    }
}

/// What the command prints with `--json`, its pictures, the command, and the file that it reads.
fn drawn(report: &SimulationReport, command: &str, file: Option<(String, String)>) -> Value {
    json!({
        "result": report,
        "svg": chart::report_svg(report),
        "narrow_svg": chart::report_svg_of_width(report, NARROW),
        "command": command,
        "file": file.map(|(name, text)| json!({ "name": name, "text": text })),
    })
}

/// A run before it starts.
struct Prepared {
    simulation: Simulation,
    command: String,
    /// The name and text of the simulation file, unless it is a scenario.
    file: Option<(String, String)>,
}

impl Prepared {
    fn new(asked: &Asked) -> Result<Prepared, Refusal> {
        let own = &asked.simulation;
        let at = |file: &File, problems: &Problems| {
            let problem = |finding: Value| json!({ "file": file.name, "finding": finding });
            let problems: Vec<Value> = findings(file, problems).into_iter().map(problem).collect();
            Refusal::problems(&problems)
        };
        let mut simulation = read(own).map_err(|problems| at(own, &problems))?;
        let mut file = Some((own.name.clone(), own.text.clone()));
        if let Some(policies) = &asked.policies {
            let composed = composed(own, policies, asked.method.as_deref())?;
            simulation = read(&composed).map_err(|problems| at(&composed, &problems))?;
            file = Some((composed.name, composed.text));
        } else if let Some(scenario) = scenarios::by_name(&plan::name(&own.name))
            && scenario.text == own.text
        {
            file = None;
        }
        let intervals =
            simulation.duration.as_nanos() / simulation.series_interval().as_nanos().max(1);
        if intervals > INTERVALS_MAX {
            let text = format!(
                "{intervals} intervals are too many for the page, which shows {INTERVALS_MAX}; write a longer \
                 `interval`, or use the command"
            );
            return Err(Refusal::problems(&[files::problem(own, text)]));
        }
        let name = file.as_ref().map_or(plan::name(&own.name), |(name, _)| name.clone());
        let mut line = CommandLine::new("simulate").word(&name);
        if let Some(seed) = asked.seed.filter(|seed| *seed != simulation.seed) {
            simulation.seed = seed;
            line = line.option("--seed", &seed.to_string());
        }
        Ok(Prepared { simulation, command: line.finish(), file })
    }
}

/// The simulation file with these policies in place of its own.
fn composed(own: &File, policies_of_page: &[File], method: Option<&str>) -> Result<File, Refusal> {
    let mut problems = Vec::new();
    // The same problems as those of a plan.
    policies(policies_of_page, method, &mut problems);
    if !problems.is_empty() {
        return Err(Refusal::problems(&problems));
    }
    // All of these texts were read before.
    let value = |file: &File| -> Result<Value, Refusal> {
        let value = match Format::of(&file.name, &file.text) {
            Format::Json => serde_json::from_str(&file.text).map_err(|error| error.to_string()),
            Format::Toml => toml::from_str(&file.text).map_err(|error| error.to_string()),
        };
        value.map_err(|error| Refusal::problems(&[files::problem(file, error)]))
    };
    let mut entries = Vec::new();
    for file in policies_of_page {
        let name = plan::name(&file.name);
        entries.push(match (plan::is_service_config(&file.text), method) {
            (true, Some(method)) => {
                json!({ "name": name, "service_config": file.text, "method": method })
            }
            (true, None) => json!({ "name": name, "service_config": file.text }),
            (false, _) => json!({ "name": name, "policy": value(file)? }),
        });
    }
    let mut simulation = value(own)?;
    simulation["policies"] = Value::Array(entries);
    let name = format!("{}-compared.json", plan::name(&own.name));
    Ok(File { name, text: format!("{simulation:#}\n") })
}
