//! `attempts`: a number, or `"unlimited"`.

use std::fmt;

use serde::de::{Deserializer, Error, Unexpected, Visitor};
use serde::ser::Serializer;

const UNLIMITED: &str = "unlimited";

struct Attempts;

impl Visitor<'_> for Attempts {
    type Value = Option<u32>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "attempts as a number from 1 to {}, or {UNLIMITED:?}", u32::MAX)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Self::Value, E> {
        match u32::try_from(number) {
            Ok(attempts) => Ok(Some(attempts)),
            Err(_) => Err(E::invalid_value(Unexpected::Unsigned(number), &self)),
        }
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Self::Value, E> {
        match u32::try_from(number) {
            Ok(attempts) => Ok(Some(attempts)),
            Err(_) => Err(E::invalid_value(Unexpected::Signed(number), &self)),
        }
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        match text {
            UNLIMITED => Ok(None),
            _ => Err(E::invalid_value(Unexpected::Str(text), &self)),
        }
    }
}

/// For `#[serde(with = ..)]`; `None` is `"unlimited"`.
///
/// # Errors
/// The value is neither a number of attempts nor `"unlimited"`.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    deserializer.deserialize_any(Attempts)
}

/// For `#[serde(with = ..)]`; `None` is `"unlimited"`.
///
/// # Errors
/// The serializer fails.
pub fn serialize<S: Serializer>(attempts: &Option<u32>, serializer: S) -> Result<S::Ok, S::Error> {
    match attempts {
        Some(attempts) => serializer.serialize_u32(*attempts),
        None => serializer.serialize_str(UNLIMITED),
    }
}
