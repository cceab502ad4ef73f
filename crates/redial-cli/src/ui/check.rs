//! `redial check` for the editors of policies.

use axum::extract::Request;
use axum::response::Response;
use clap::ValueEnum;
use redial_service_config::ServiceConfig;
use serde::Deserialize;
use serde_json::{Value, json};

use super::command_line::CommandLine;
use super::files::{self, File};
use super::request::{Refusal, answer, json_of};
use crate::check::{Arguments, Format, Runtime, check as check_file, report};
use crate::plan::is_service_config;
use crate::scenarios::source::Source;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    policies: Vec<File>,
    /// Languages, as in `--for`.
    #[serde(default, rename = "for")]
    languages: Vec<String>,
}

/// What the command prints with `--json`, the command, and the methods that service configs name.
pub(super) async fn check(request: Request) -> Result<Response, Refusal> {
    let asked: Asked = json_of(request).await?;
    files::check(&asked.policies)?;
    let checked = tokio::task::spawn_blocking(move || checked(asked)).await;
    Ok(answer(&checked.map_err(|_| Refusal::internal())??))
}

fn checked(asked: Asked) -> Result<Value, Refusal> {
    let mut runtimes = Vec::new();
    for name in &asked.languages {
        match Runtime::from_str(name, false) {
            Ok(runtime) => runtimes.push(runtime),
            Err(_) => {
                let text = format!("{name:?} is no language that is compared");
                return Err(Refusal::problems(&[json!({ "file": null, "text": text })]));
            }
        }
    }
    let mut line = CommandLine::new("check");
    for file in &asked.policies {
        line = line.word(&file.name);
    }
    if !asked.languages.is_empty() {
        line = line.option("--for", &asked.languages.join(","));
    }
    let arguments = Arguments {
        files: Vec::new(),
        runtimes,
        proto: None,
        kind: None,
        format: Format::Json,
        json: true,
        strict: false,
        allow: Vec::new(),
    };
    let methods = methods(&asked.policies);
    let files: Vec<_> = asked
        .policies
        .into_iter()
        .map(|file| check_file(Source::new(file.name, file.text), &arguments, None))
        .collect();
    Ok(json!({ "result": report(&files), "methods": methods, "command": line.finish() }))
}

/// The methods and services that valid service configs name, in the form of `--method`; first those that
/// most configs have an entry for.
fn methods(files: &[File]) -> Vec<String> {
    let configs: Vec<ServiceConfig> = files
        .iter()
        .filter(|file| is_service_config(&file.text))
        .filter_map(|file| ServiceConfig::parse(&file.text).ok())
        .collect();
    let mut methods: Vec<String> = Vec::new();
    for entry in configs.iter().flat_map(ServiceConfig::entries) {
        for name in entry.names.iter().map(ToString::to_string) {
            if !methods.contains(&name) {
                methods.push(name);
            }
        }
    }
    let lacking = |method: &String| configs.iter().filter(|it| it.method(method).is_none()).count();
    methods.sort_by_key(lacking);
    methods
}
