//! Policy files: the notation of [`redial::config`], in JSON or TOML.

use std::path::Path;

use redial::config::PolicyConfig;

use crate::scenarios::source::Source;

/// The largest policy file.
pub const POLICY_BYTES_MAX: u64 = 1 << 20;

/// The notation of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notation {
    /// JSON.
    Json,
    /// TOML.
    Toml,
}

impl Notation {
    /// The notation of this file: by its name, else by its first character.
    #[must_use]
    pub fn of(name: &str, text: &str) -> Self {
        let extension = Path::new(name).extension().and_then(|it| it.to_str());
        match extension {
            Some("toml") => Notation::Toml,
            Some("json") => Notation::Json,
            _ if text.trim_start().starts_with(['{', '['])
                && !text.trim_start().starts_with("[[") =>
            {
                Notation::Json
            }
            _ => Notation::Toml,
        }
    }
}

/// Reads a policy.
///
/// # Errors
/// The first problem, with its position. `redial check` shows all of them.
pub fn open(path: &Path) -> Result<PolicyConfig, String> {
    let name = path.to_string_lossy();
    let source = Source::open(&name, POLICY_BYTES_MAX).map_err(|error| error.to_string())?;
    let config: Result<PolicyConfig, String> = match Notation::of(&name, source.text()) {
        Notation::Json => serde_json::from_str(source.text()).map_err(|error| error.to_string()),
        Notation::Toml => toml::from_str(source.text()).map_err(|error| error.to_string()),
    };
    let check = |text: String| format!("{name}: {}", text.trim_end());
    let config = config.map_err(check)?;
    config.load().map_err(|error| check(error.to_string()))?;
    Ok(config)
}
