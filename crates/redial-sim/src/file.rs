//! Simulation files: TOML or JSON to a [`Simulation`], or every problem with its position.
//!
//! The format is documented in [`docs/simulation.md`][format].
//!
//! ```
//! use redial_sim::file::{Format, parse, no_files};
//!
//! let text = r#"
//! duration = "10s"
//! clients = { count = 100, calls_per_second = 50 }
//! services = [{ name = "backend", time = "5ms" }]
//! policies = [{ name = "default", policy = {} }]
//! "#;
//! let simulation = parse(text, Format::Toml, &no_files)?;
//! assert_eq!(simulation.clients.count, 100);
//!
//! let problems = parse("durration = \"10s\"", Format::Toml, &no_files).unwrap_err();
//! assert_eq!(
//!     problems.as_slice()[0].to_string(),
//!     "1:1: durration: unknown key; did you mean \"duration\"?"
//! );
//! # Ok::<(), redial_sim::file::Problems>(())
//! ```
//!
//! [format]: https://github.com/redial-rs/redial/blob/main/docs/simulation.md

mod distribution;
mod policy;
mod reader;
mod simulation;
mod tree;

use std::fmt;
use std::io;
use std::ops::Range;

use redial_service_config::json::LineIndex;

use self::reader::Reader;
use self::tree::Node;
use crate::model::{Service, Simulation, Variant};
use crate::{CallPolicy, Distribution, Error};

/// The largest file, in bytes.
pub const FILE_MAX: usize = 16 << 20;

/// The largest number of problems that are reported.
pub const PROBLEMS_MAX: usize = 100;

/// The format of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// TOML.
    Toml,
    /// JSON.
    Json,
}

impl Format {
    /// The format of a file by its name, or else by its text: a text that starts with a brace is JSON.
    ///
    /// ```
    /// use redial_sim::file::Format;
    ///
    /// assert_eq!(Format::of("outage.toml", ""), Format::Toml);
    /// assert_eq!(Format::of("outage", " {}"), Format::Json);
    /// ```
    #[must_use]
    pub fn of(name: &str, text: &str) -> Format {
        let is = |extension: &str| {
            name.rsplit_once('.').is_some_and(|(_, it)| it.eq_ignore_ascii_case(extension))
        };
        if is("toml") || !is("json") && !text.trim_start().starts_with('{') {
            Format::Toml
        } else {
            Format::Json
        }
    }
}

/// What a problem breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The text is not TOML, or not JSON.
    Syntax,
    /// The file is too large.
    Limit,
    /// A key that does not exist here.
    UnknownField,
    /// A key that is there twice.
    DuplicateKey,
    /// A required key that is absent.
    MissingField,
    /// A value of another type, such as a number in place of a text.
    Type,
    /// A value that is not possible here.
    Value,
}

impl Rule {
    /// The name, as `redial check` prints it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Rule::Syntax => "syntax",
            Rule::Limit => "limit",
            Rule::UnknownField => "unknown-field",
            Rule::DuplicateKey => "duplicate-key",
            Rule::MissingField => "missing-field",
            Rule::Type => "type",
            Rule::Value => "value",
        }
    }
}

/// A problem in a file: where, what, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The rule that is broken.
    pub rule: Rule,
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// The bytes of the file that it concerns.
    pub range: Range<usize>,
    /// The path of the value, such as `services[0].time`; empty for the whole file.
    pub path: String,
    /// What is wrong, and what to write instead.
    pub text: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Problem { line, column, path, text, .. } = self;
        write!(f, "{line}:{column}: ")?;
        if !path.is_empty() {
            write!(f, "{path}: ")?;
        }
        f.write_str(text)
    }
}

/// The problems of a file, in the order of the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems(Vec<Problem>);

impl Problems {
    /// All of them, at most [`PROBLEMS_MAX`].
    #[must_use]
    pub fn as_slice(&self) -> &[Problem] {
        &self.0
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "\n" };
            write!(f, "{separator}{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

/// Opens the files that a file names, such as `policy_file`. The name is passed as it is written.
pub type OpenFile<'o> = dyn Fn(&str) -> io::Result<String> + 'o;

/// Opens no file, for texts that may not name any.
///
/// # Errors
/// Always.
pub fn no_files(_name: &str) -> io::Result<String> {
    Err(io::Error::other("other files are not available here; write the content in this file"))
}

/// Reads a simulation.
///
/// # Errors
/// Every problem of the text.
pub fn parse(text: &str, format: Format, open: &OpenFile<'_>) -> Result<Simulation, Problems> {
    read(text, format, open, |reader, root| {
        let simulation = reader.simulation(root)?;
        for problem in simulation.problems() {
            // A list that is missing, or no list, is reported already.
            let unnamed = |it: &Service| it.name.starts_with(simulation::UNNAMED);
            let is_new = |path: &str| match path {
                "services" | "policies" => root.get(path).is_some_and(Node::is_list),
                // Which names there are is not known then.
                _ if path.starts_with("disturbances[") && path.ends_with(".service") => {
                    !simulation.services.is_empty()
                }
                _ if path.contains(".callers.") => !simulation.services.iter().any(unnamed),
                _ => true,
            };
            if let Error::Invalid { path, problem } = problem
                && is_new(&path)
            {
                reader.problem(root.find(&path), &path, problem);
            }
        }
        for (index, variant) in simulation.policies.iter().enumerate() {
            reader.check_throttles(root, index, &simulation, variant);
        }
        Some(simulation)
    })
}

/// Reads a policy in its written form ([`redial::config`]).
///
/// # Errors
/// Every problem of the text.
pub fn parse_policy(text: &str, format: Format) -> Result<CallPolicy, Problems> {
    read(text, format, &no_files, |reader, root| reader.written_policy(root, ""))
}

/// Reads a distribution, as a simulation file writes it, or a list of samples.
///
/// # Errors
/// Every problem of the text.
pub fn parse_distribution(text: &str, format: Format) -> Result<Distribution, Problems> {
    read(text, format, &no_files, |reader, root| {
        let distribution = reader.distribution(root, "")?;
        if let Some(problem) = distribution.problem() {
            reader.problem(root, "", problem);
        }
        Some(distribution)
    })
}

/// Reads a distribution as the value of a key in TOML, as a command line has it: `"5ms"`, or
/// `{ lognormal = { median = "5ms", sigma = 0.4 } }`.
///
/// # Errors
/// Every problem of the text.
pub fn parse_latency(value: &str) -> Result<Distribution, Problems> {
    let text = format!("latency = {value}");
    read(&text, Format::Toml, &no_files, |reader, root| {
        let node = root.get("latency")?;
        let distribution = reader.distribution(node, "")?;
        if let Some(problem) = distribution.problem() {
            reader.problem(node, "", problem);
        }
        Some(distribution)
    })
}

fn read<T>(
    text: &str,
    format: Format,
    open: &OpenFile<'_>,
    read: impl FnOnce(&Reader<'_>, &Node) -> Option<T>,
) -> Result<T, Problems> {
    let reader = Reader::new(open);
    let mut value = None;
    if text.len() > FILE_MAX {
        let problem = format!("{} bytes are too many; at most {FILE_MAX}", text.len());
        reader.problem_at(Rule::Limit, 0..0, "", problem);
    } else {
        match Node::parse(text, format) {
            Ok(root) => value = read(&reader, &root),
            Err(errors) => {
                for (range, error) in errors {
                    reader.problem_at(Rule::Syntax, range, "", error);
                }
            }
        }
    }
    let found = reader.into_problems();
    match value {
        Some(value) if found.is_empty() => Ok(value),
        _ => Err(Problems(located(text, found))),
    }
}

fn located(text: &str, mut found: Vec<reader::Found>) -> Vec<Problem> {
    found.sort_by_key(|found| found.range.start);
    found.dedup();
    found.truncate(PROBLEMS_MAX);
    let lines = LineIndex::new(text);
    let locate = |found: reader::Found| {
        let position = lines.position(text, found.range.start.min(text.len()));
        let reader::Found { rule, range, path, text } = found;
        Problem { rule, line: position.line, column: position.column, range, path, text }
    };
    found.into_iter().map(locate).collect()
}

impl Reader<'_> {
    /// Reports throttles that cannot be built.
    fn check_throttles(
        &self,
        root: &Node,
        index: usize,
        simulation: &Simulation,
        variant: &Variant,
    ) {
        if let Err(problem) = crate::engine::Throttles::check(simulation, variant) {
            let path = format!("policies[{index}]");
            self.problem(root.find(&path), &path, problem.to_string());
        }
    }
}
