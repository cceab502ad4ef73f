//! `redial check`: finds every problem of service configs, policies, scenario files and simulation
//! files, and says what to write instead (docs/check.md).
//!
//! The problems of a service config come from `redial-service-config`, those of a policy from
//! `redial`, those of a scenario from [`crate::scenarios`], those of a simulation from `redial-sim`: a
//! file that passes here is loaded by the library. This module adds what only a file can show: policies that no client reads, names that
//! no service has, and what clients in other languages do with the same text.
//!
//! To check another kind of file, add it to [`Kind`].

mod finding;
mod json_file;
mod kind;
mod machine_readable;
mod policy;
mod proto;
mod rules;
mod runtimes;
mod scenario;
mod service_config;
mod simulation;
mod text;

use std::io::{self, Write};
use std::path::PathBuf;

use crate::output;
use crate::progress::Steps;
use crate::scenarios::source::Source;

pub use finding::{Checked, Finding, Severity};
pub use kind::Kind;
pub(crate) use policy::nearest;
pub use proto::Services;
pub use runtimes::Runtime;

/// The largest allowed file.
pub const FILE_BYTES_MAX: u64 = crate::scenarios::load::FILE_BYTES_MAX;

/// The most findings of each severity that are listed for a file.
pub const FINDINGS_MAX: usize = 1000;

/// The arguments of `redial check`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = EXIT_CODES)]
pub struct Arguments {
    /// The files: service configs and scenarios in JSON, policies and simulations in JSON or TOML; "-"
    /// is standard input.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<String>,
    /// Also report what gRPC clients in these languages reject, ignore or do differently.
    #[arg(long = "for", value_name = "LANGUAGE", value_delimiter = ',')]
    pub runtimes: Vec<Runtime>,
    /// Compare the names in service configs with the methods of a descriptor set, as
    /// `protoc --include_imports -o FILE` or `buf build -o FILE` write it.
    #[arg(long, value_name = "FILE")]
    pub proto: Option<PathBuf>,
    /// The kind of the files, if their content does not show it.
    #[arg(long, value_name = "KIND")]
    pub kind: Option<Kind>,
    /// How the problems are printed.
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub format: Format,
    /// The same as --format json.
    #[arg(long, conflicts_with = "format")]
    pub json: bool,
    /// Fail on warnings, too.
    #[arg(long)]
    pub strict: bool,
    /// Do not report warnings and notes of these rules, whose names are in brackets in the messages.
    #[arg(long, value_name = "RULE", value_delimiter = ',', value_parser = rules::known)]
    pub allow: Vec<String>,
}

const EXIT_CODES: &str = "\
Exit codes:
  0  no problem
  1  a file has problems, or with --strict warnings
  2  a file cannot be read, or the command was used wrongly";

/// How problems are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For people: with the line, and the position underlined.
    Text,
    /// One JSON object.
    Json,
    /// SARIF 2.1.0, for code hosts.
    Sarif,
}

/// Checks the files. Returns 0 if they have no problem, 1 if one has, and 2 if one cannot be read.
///
/// # Errors
/// The output cannot be written.
pub fn run(arguments: &Arguments, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<u8> {
    let services = match arguments.proto.as_deref().map(Services::open).transpose() {
        Ok(services) => services,
        Err(text) => {
            writeln!(err, "redial: {text}")?;
            return Ok(2);
        }
    };
    let mut checked = Vec::new();
    let mut unreadable = false;
    let mut steps = Steps::checking(arguments.files.len());
    for path in &arguments.files {
        match Source::open_or_stdin(path, FILE_BYTES_MAX) {
            Ok(source) => checked.push(check(source, arguments, services.as_ref())),
            // A text that is not UTF-8 has a position: that is a problem of the content.
            Err(diagnostic) if diagnostic.position.is_some() => {
                checked.push(Checked::not_text(path, &diagnostic));
            }
            Err(diagnostic) => {
                unreadable = true;
                writeln!(err, "redial: {diagnostic}")?;
            }
        }
        steps.step();
    }
    drop(steps);
    let result = match if arguments.json { Format::Json } else { arguments.format } {
        Format::Text => text::print(&checked, out, err),
        Format::Json => machine_readable::json(&checked, out),
        Format::Sarif => machine_readable::sarif(&checked, out),
    };
    let count = |severity| checked.iter().map(|file| file.count(severity)).sum::<usize>();
    let failed = count(Severity::Error) > 0 || arguments.strict && count(Severity::Warning) > 0;
    output::printed(if unreadable { 2 } else { u8::from(failed) }, result)
}

/// The JSON that `--format json` prints.
#[must_use]
pub fn report(checked: &[Checked]) -> serde_json::Value {
    machine_readable::report(checked)
}

/// Checks a file.
#[must_use]
pub fn check(source: Source, arguments: &Arguments, services: Option<&Services>) -> Checked {
    let kind = arguments.kind.unwrap_or_else(|| Kind::of(&source));
    let mut findings = match kind {
        Kind::ServiceConfig => service_config::check(&source, &arguments.runtimes, services),
        Kind::Policy => policy::check(&source),
        Kind::Scenarios => scenario::check(&source),
        Kind::Simulation => simulation::check(&source),
    };
    debug_assert!(
        findings.iter().all(|finding| rules::description(&finding.rule).is_some()),
        "a rule without a description: {findings:?}"
    );
    let is_allowed = |finding: &Finding| {
        finding.severity != Severity::Error && arguments.allow.contains(&finding.rule)
    };
    findings.retain(|finding| !is_allowed(finding));
    findings.sort_by_key(|finding| (finding.range.start, finding.severity));
    finding::truncate(&mut findings, source.text().len());
    Checked { source, kind, findings }
}
