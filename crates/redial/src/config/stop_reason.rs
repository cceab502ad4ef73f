//! A [`StopReason`] by its name, for `#[serde(with = "redial::config::stop_reason")]`.
//!
//! The type itself is defined in `redial-core`, which has no dependencies, so it cannot implement the
//! traits of serde.
//!
//! ```
//! use redial::StopReason;
//!
//! #[derive(serde::Serialize, serde::Deserialize)]
//! struct Line {
//!     #[serde(with = "redial::config::stop_reason")]
//!     stop_reason: StopReason,
//! }
//!
//! let line = Line { stop_reason: StopReason::AttemptsExhausted };
//! let json = serde_json::to_string(&line)?;
//! assert_eq!(json, r#"{"stop_reason":"attempts"}"#);
//! assert_eq!(serde_json::from_str::<Line>(&json)?.stop_reason, line.stop_reason);
//! # Ok::<(), serde_json::Error>(())
//! ```

use redial_core::StopReason;
use serde::de::{Deserialize, Deserializer, Error};
use serde::ser::Serializer;

/// Reads the name of a stop reason.
///
/// # Errors
/// The value is not a name of [`StopReason::ALL`].
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<StopReason, D::Error> {
    let name = String::deserialize(deserializer)?;
    let known = StopReason::ALL.into_iter().find(|known| known.name() == name);
    known.ok_or_else(|| D::Error::custom(format_args!("unknown stop reason `{name}`")))
}

/// Writes the name of the stop reason.
///
/// # Errors
/// The serializer fails.
pub fn serialize<S: Serializer>(
    stop_reason: &StopReason,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(stop_reason.name())
}
