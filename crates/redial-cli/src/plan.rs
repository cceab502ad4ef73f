//! `redial plan`: what a policy will do before it ships (docs/simulation.md).

use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use redial::PolicyError;
use redial_service_config::ServiceConfig;
use redial_sim::file::{self, Format};
use redial_sim::plan::{Assumptions, PolicyPlan, plan_watched};
use redial_sim::{CallPolicy, Distribution, chart};

use crate::output::{self, PROBLEMS, Pictures, UNREADABLE};
use crate::presets::{self, Preset};
use crate::{check, progress};

/// The largest number of policies side by side.
pub const FILES_MAX: usize = 5;

/// The arguments of `redial plan`.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "Exit codes: 0 success, 1 problems in a file, 2 a file that cannot be read or \
written, or wrong usage."
)]
pub struct Arguments {
    /// Policies in JSON or TOML, gRPC service configs, or names of presets (smithy-standard, aws-2026,
    /// aws-2026-dynamodb, milvus, couchbase-best-effort, limits); several are shown side by side. `-` is
    /// standard input.
    #[arg(required = true, value_name = "FILE|PRESET", num_args = 1..=FILES_MAX)]
    pub files: Vec<String>,
    /// The method of a service config, such as /shop.Orders/Get; not needed if it has one entry.
    #[arg(long, value_name = "METHOD")]
    pub method: Option<String>,
    /// The deadline of the calls under a preset, such as 2.5s; couchbase-best-effort needs one.
    #[arg(long, value_name = "DURATION", value_parser = crate::run::duration)]
    pub deadline: Option<Duration>,
    /// The share of attempts that fail, from 0 to 1.
    #[arg(long, value_name = "P", default_value_t = 0.1, value_parser = share)]
    pub failure_rate: f64,
    /// The latency of an attempt: a duration like 20ms, a distribution like
    /// `{ lognormal = { median = "20ms", sigma = 0.4 } }`, or a file with a distribution or a list of
    /// samples.
    #[arg(long, value_name = "LATENCY")]
    pub latency: Option<String>,
    /// The seed of the random numbers.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// The pictures to write.
    #[command(flatten)]
    pub pictures: Pictures,
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err("write a number from 0 to 1, like 0.1".to_owned()),
    }
}

/// An exit code, and what is wrong.
type Failure = (u8, String);

/// Runs the command. Returns 0, 1 if a file has problems, or 2 if a file cannot be read or written.
///
/// # Errors
/// The output cannot be written.
pub fn run(arguments: &Arguments, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<u8> {
    let plans = match progress::with_bar(|progress| Ok(plans(arguments, progress))) {
        Ok(Ok(plans)) => plans,
        Ok(Err((code, text))) => return output::fail(err, code, &text),
        Err(error) => return output::fail(err, PROBLEMS, &error.to_string()),
    };
    let json = serde_json::to_string(&report(&plans)).map_err(io::Error::other)?;
    let text = |style| chart::plan_text(&plans, style);
    let svg = chart::plan_svg(&plans);
    arguments.pictures.show("redial plan", &svg, &text, &json, out, err)
}

/// What `--json` prints.
pub(crate) fn report(plans: &[PolicyPlan]) -> serde_json::Value {
    serde_json::json!({ "plans": plans })
}

fn plans(
    arguments: &Arguments,
    progress: &(dyn Fn(f64) + Sync),
) -> Result<Vec<PolicyPlan>, Failure> {
    let mut assumptions = Assumptions::default();
    (assumptions.failure_rate, assumptions.seed) = (arguments.failure_rate, arguments.seed);
    if let Some(text) = &arguments.latency {
        assumptions.latency = latency(text)?;
    }
    if arguments.deadline.is_some() && !arguments.files.iter().any(|it| preset(it).is_some()) {
        let text = "--deadline is for presets; a file has the deadline of its policy";
        return Err((UNREADABLE, text.to_owned()));
    }
    let mut plans = Vec::new();
    for (index, (path, name)) in arguments.files.iter().zip(names(&arguments.files)).enumerate() {
        let policy = match preset(path) {
            Some(preset) => policy_of_preset(preset, arguments.deadline)?,
            None => policy_of_file(path, arguments.method.as_deref())?,
        };
        let plan = plan_watched(&name, &policy, &assumptions, &|share| {
            progress((index as f64 + share) / arguments.files.len() as f64);
            ControlFlow::Continue(())
        });
        plans.push(plan.map_err(|error| (PROBLEMS, format!("{path}: {error}")))?);
    }
    Ok(plans)
}

/// The preset with this name; a file with the same name is read instead.
fn preset(name: &str) -> Option<Preset> {
    presets::by_name(name).filter(|_| !Path::new(name).exists())
}

fn policy_of_preset(preset: Preset, deadline: Option<Duration>) -> Result<CallPolicy, Failure> {
    preset.call_policy(deadline).map_err(|error| {
        let text = match error {
            PolicyError::Unlimited => {
                "it retries until the deadline; add --deadline 2.5s".to_owned()
            }
            error => error.to_string(),
        };
        (UNREADABLE, format!("{}: {text}", preset.name()))
    })
}

fn policy_of_file(path: &str, method: Option<&str>) -> Result<CallPolicy, Failure> {
    let is_file = path == "-" || Path::new(path).exists() || path.contains(['.', '/', '\\']);
    if !is_file {
        let names = Preset::ALL.map(Preset::name);
        let meant = check::nearest(path, &names).map(|name| format!(" did you mean {name:?}?"));
        let (meant, names) = (meant.unwrap_or_default(), names.join(", "));
        let text = "neither a file nor a preset has this name;";
        return Err((UNREADABLE, format!("{path}: {text}{meant} the presets are {names}")));
    }
    let text = output::read(path).map_err(|error| (UNREADABLE, error))?;
    let only = if method.is_none() { only_method(&text) } else { None };
    policy(path, &text, method.or(only.as_deref()))
}

/// A method of the only entry of a service config.
fn only_method(text: &str) -> Option<String> {
    let config = ServiceConfig::parse(text).ok().filter(|_| is_service_config(text))?;
    let [entry] = config.entries() else { return None };
    entry.names.first().map(ToString::to_string)
}

/// The names of the policies: those of their files, or the paths of files with the same name.
fn names(paths: &[String]) -> Vec<String> {
    let shared = |name: &str| paths.iter().filter(|path| self::name(path) == name).count() > 1;
    let of = |path: &String| Some(name(path)).filter(|name| !shared(name));
    paths.iter().map(|path| of(path).unwrap_or_else(|| path.clone())).collect()
}

/// The name of a policy: that of its file, or of the preset.
pub(crate) fn name(path: &str) -> String {
    Path::new(path).file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// A latency from the command line.
fn latency(text: &str) -> Result<Distribution, Failure> {
    if Path::new(text).is_file() {
        let content = output::read(text).map_err(|error| (UNREADABLE, error))?;
        let format = Format::of(text, &content);
        // A list of samples is JSON, too; `[[histogram]]` is TOML.
        let start = content.trim_start();
        let is_list = start.starts_with('[') && !start.starts_with("[[");
        let format = if is_list { Format::Json } else { format };
        return file::parse_distribution(&content, format)
            .map_err(|problems| (PROBLEMS, format!("{text}:{problems}")));
    }
    written_latency(text).map_err(|problem| {
        let looks_like_file = text.contains(['/', '\\']) || Path::new(text).extension().is_some();
        let missing = match looks_like_file && !text.starts_with(|c: char| c.is_ascii_digit()) {
            true => "there is no such file; ",
            false => "",
        };
        (UNREADABLE, format!("--latency {text}: {missing}{problem}"))
    })
}

/// A latency as it is written in a simulation file; a duration needs no quotes.
pub(crate) fn written_latency(text: &str) -> Result<Distribution, String> {
    let value = match text.trim_start().starts_with(['{', '[', '"']) {
        true => text.to_owned(),
        false => format!("{text:?}"),
    };
    // The value of a key, as in a simulation file.
    file::parse_latency(&value).map_err(|problems| {
        problems.as_slice().first().map_or(String::new(), |problem| problem.text.clone())
    })
}

/// Whether a text is a gRPC service config.
pub(crate) fn is_service_config(text: &str) -> bool {
    ["methodConfig", "retryThrottling", "loadBalancingConfig"]
        .iter()
        .any(|key| text.contains(&format!("\"{key}\"")))
}

/// The policy of a file: a written policy, or a method of a service config.
pub(crate) fn policy(path: &str, text: &str, method: Option<&str>) -> Result<CallPolicy, Failure> {
    if !is_service_config(text) {
        return file::parse_policy(text, Format::of(path, text)).map_err(|problems| {
            let lines: Vec<String> =
                problems.as_slice().iter().map(|problem| format!("{path}:{problem}")).collect();
            (PROBLEMS, lines.join("\n"))
        });
    }
    let config = ServiceConfig::parse(text).map_err(|problems| {
        let lines: Vec<String> =
            problems.iter().map(|problem| format!("{path}:{problem}")).collect();
        (PROBLEMS, lines.join("\n"))
    })?;
    let Some(method) = method else {
        let text = "this is a service config; name a method with --method /package.Service/Method";
        return Err((UNREADABLE, format!("{path}: {text}{}", entries(&config))));
    };
    if config.method(method).is_none() {
        let text = format!(
            "{path}: no entry of the service config matches the method {method}{}",
            entries(&config)
        );
        return Err((PROBLEMS, text));
    }
    Ok(CallPolicy::from_service_config(&config, method))
}

/// The names of the entries, as the end of a sentence.
fn entries(config: &ServiceConfig) -> String {
    const LISTED_MAX: usize = 5;
    let names = config.entries().iter().flat_map(|entry| &entry.names);
    let names: Vec<String> = names.map(ToString::to_string).collect();
    let listed = names.iter().take(LISTED_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
    match names.len() {
        0 => "; none of its entries has a name".to_owned(),
        1..=LISTED_MAX => format!("; its entries are for {listed}"),
        count => format!("; its entries are for {listed} and {} more", count - LISTED_MAX),
    }
}
