//! The kind of a file, found from its content.

use jsonc_parser::ast::Value;
use toml::de::DeTable;

use super::json_file;
use crate::policy_file::Notation;
use crate::scenarios::source::Source;

/// The kinds of files that are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    /// A gRPC service config.
    ServiceConfig,
    /// A policy of `redial`.
    Policy,
    /// A scenario file.
    Scenarios,
    /// A simulation file.
    Simulation,
}

/// The keys that only a scenario file has.
const SCENARIOS: [&str; 2] = ["scenarios", "configs"];
/// The keys that only a simulation file has.
const SIMULATION: [&str; 5] = ["duration", "clients", "services", "disturbances", "policies"];
/// The keys that only a policy has.
const POLICY: [&str; 14] = [
    "preset",
    "attempts",
    "backoff",
    "jitter",
    "limits",
    "deadline",
    "attempt_timeout",
    "retry_timeouts",
    "late",
    "hint_max",
    "hint_jitter",
    "reset_after",
    "throttle",
    "hedge",
];

impl Kind {
    /// The name in messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Kind::ServiceConfig => "service config",
            Kind::Policy => "policy",
            Kind::Scenarios => "scenario file",
            Kind::Simulation => "simulation file",
        }
    }

    /// The kind of this file. A text that is not JSON is a service config, unless it is TOML.
    #[must_use]
    pub fn of(source: &Source) -> Self {
        if Notation::of(source.name(), source.text()) == Notation::Toml {
            let (table, errors) = DeTable::parse_recoverable(source.text());
            if errors.is_empty() || source.name().ends_with(".toml") {
                // A file with a syntax error is recognised by what can be read of it.
                let mut keys = table.get_ref().keys();
                let is_simulation = keys.any(|key| SIMULATION.contains(&key.get_ref().as_ref()));
                return if is_simulation { Kind::Simulation } else { Kind::Policy };
            }
        }
        let Ok(Value::Object(root)) = json_file::parse(source.text()) else {
            return Kind::ServiceConfig;
        };
        let has = |names: &[&str]| {
            root.properties.iter().any(|property| names.contains(&property.name.as_str()))
        };
        if has(&SCENARIOS) {
            Kind::Scenarios
        } else if has(&SIMULATION) {
            Kind::Simulation
        } else if has(&POLICY) {
            Kind::Policy
        } else {
            Kind::ServiceConfig
        }
    }
}
