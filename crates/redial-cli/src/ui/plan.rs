//! `redial plan` for the editors of policies.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use redial_sim::plan::{Assumptions, plan_watched};
use redial_sim::{CallPolicy, Error, Watch, chart};
use serde::Deserialize;
use serde_json::{Value, json};

use super::command_line::CommandLine;
use super::files::{self, File, problem};
use super::page::NARROW;
use super::request::{Refusal, answer, json_of};
use super::runs::{Progress, Runs};
use super::server::Shared;
use crate::plan::{is_service_config, name, policy, report, written_latency};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    policies: Vec<File>,
    method: Option<String>,
    failure_rate: f64,
    latency: Option<String>,
    seed: u64,
}

/// What the command prints with `--json`, its pictures, and the command.
pub(super) async fn plan(
    State(shared): State<Arc<Shared>>,
    request: Request,
) -> Result<Response, Refusal> {
    let asked: Asked = json_of(request).await?;
    files::check(&asked.policies)?;
    let permit = shared.plans.admit()?;
    let runs = shared.clone();
    let work = move |watch: &Watch<'_>| planned(&asked, watch, &runs.plans);
    let planned = shared.plans.run(permit, Progress::new(), work).await?;
    planned.map(|planned| answer(&planned))
}

fn planned(asked: &Asked, watch: &Watch<'_>, runs: &Runs) -> Result<Value, Refusal> {
    let mut problems = Vec::new();
    let field = |field: &str, text: String| json!({ "file": null, "field": field, "text": text });
    let mut assumptions = Assumptions { seed: asked.seed, ..Assumptions::default() };
    if (0.0..=1.0).contains(&asked.failure_rate) {
        assumptions.failure_rate = asked.failure_rate;
    } else {
        problems.push(field("failure_rate", "write a number from 0 to 1, like 0.1".to_owned()));
    }
    if let Some(latency) = &asked.latency {
        match written_latency(latency) {
            Ok(latency) => assumptions.latency = latency,
            Err(text) => problems.push(field("latency", text)),
        }
    }
    let policies = policies(&asked.policies, asked.method.as_deref(), &mut problems);
    if !problems.is_empty() {
        return Err(Refusal::problems(&problems));
    }
    let mut plans = Vec::new();
    for (file, policy) in asked.policies.iter().zip(&policies) {
        match plan_watched(&name(&file.name), policy, &assumptions, watch) {
            Ok(plan) => plans.push(plan),
            Err(Error::Stopped) => {
                return Err(Refusal::problems(&[problem(file, runs.stopped())]));
            }
            Err(error) => problems.push(problem(file, error.to_string())),
        }
    }
    if !problems.is_empty() {
        return Err(Refusal::problems(&problems));
    }
    Ok(json!({
        "result": report(&plans),
        "svg": chart::plan_svg(&plans),
        "narrow_svg": chart::plan_svg_of_width(&plans, NARROW),
        "command": command(asked),
    }))
}

/// The policies of the editors, as the command reads them.
pub(super) fn policies(
    files: &[File],
    method: Option<&str>,
    problems: &mut Vec<Value>,
) -> Vec<CallPolicy> {
    let mut policies = Vec::new();
    for file in files {
        match policy(&file.name, &file.text, method) {
            Ok(policy) => policies.push(policy),
            Err((_, text)) if is_service_config(&file.text) && method.is_none() => {
                problems.push(json!({ "file": file.name, "field": "method", "text": text }));
            }
            Err((_, text)) => problems.push(problem(file, text)),
        }
    }
    policies
}

fn command(asked: &Asked) -> String {
    let files = asked.policies.iter();
    let mut line = files.fold(CommandLine::new("plan"), |line, file| line.word(&file.name));
    let is_used = asked.policies.iter().any(|file| is_service_config(&file.text));
    if let Some(method) = asked.method.as_deref().filter(|_| is_used) {
        line = line.option("--method", method);
    }
    let defaults = Assumptions::default();
    if asked.failure_rate != defaults.failure_rate {
        line = line.option("--failure-rate", &asked.failure_rate.to_string());
    }
    if let Some(latency) = &asked.latency {
        line = line.option("--latency", latency);
    }
    if asked.seed != defaults.seed {
        line = line.option("--seed", &asked.seed.to_string());
    }
    line.finish()
}
