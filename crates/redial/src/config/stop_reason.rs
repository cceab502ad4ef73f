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
//!
//! For an `Option<StopReason>`, use [`option`]. In a `Vec` or as the key of a map, wrap it:
//!
//! ```
//! use redial::StopReason;
//! use std::collections::HashMap;
//!
//! #[derive(Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
//! #[serde(transparent)]
//! struct Stop(#[serde(with = "redial::config::stop_reason")] StopReason);
//!
//! let counts = HashMap::from([(Stop(StopReason::Throttled), 3)]);
//! assert_eq!(serde_json::to_string(&counts)?, r#"{"throttled":3}"#);
//! # let read: HashMap<Stop, u32> = serde_json::from_str(r#"{"throttled":3}"#)?;
//! # assert!(read == counts);
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

/// A [`StopReason`] that may be absent, for `#[serde(with = "redial::config::stop_reason::option", default)]`.
///
/// ```
/// use redial::StopReason;
///
/// #[derive(serde::Serialize, serde::Deserialize)]
/// struct Line {
///     #[serde(with = "redial::config::stop_reason::option", default)]
///     stop_reason: Option<StopReason>,
/// }
///
/// let line = Line { stop_reason: Some(StopReason::Deadline) };
/// assert_eq!(serde_json::to_string(&line)?, r#"{"stop_reason":"deadline"}"#);
/// assert_eq!(serde_json::to_string(&Line { stop_reason: None })?, r#"{"stop_reason":null}"#);
/// for (json, stop_reason) in [
///     (r#"{"stop_reason":"deadline"}"#, line.stop_reason),
///     (r#"{"stop_reason":null}"#, None),
///     ("{}", None),
/// ] {
///     assert_eq!(serde_json::from_str::<Line>(json)?.stop_reason, stop_reason);
/// }
/// # Ok::<(), serde_json::Error>(())
/// ```
pub mod option {
    use redial_core::StopReason;
    use serde::de::{Deserialize, Deserializer};
    use serde::ser::{Serialize, Serializer};

    /// A stop reason, with the traits of serde.
    #[derive(serde::Serialize, serde::Deserialize)]
    #[serde(transparent)]
    struct Named(#[serde(with = "super")] StopReason);

    /// Reads the name of a stop reason, or nothing.
    ///
    /// # Errors
    /// The value is not a name of [`StopReason::ALL`].
    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<StopReason>, D::Error> {
        Ok(Option::<Named>::deserialize(deserializer)?.map(|named| named.0))
    }

    /// Writes the name of the stop reason, or nothing.
    ///
    /// # Errors
    /// The serializer fails.
    pub fn serialize<S: Serializer>(
        stop_reason: &Option<StopReason>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        stop_reason.map(Named).serialize(serializer)
    }
}
