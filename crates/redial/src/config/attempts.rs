//! `attempts`: a number, `"unlimited"`, or in written policies `"forever"`.

use std::fmt;

use serde::de::{Deserializer, Error, Unexpected, Visitor};
use serde::ser::Serializer;

const UNLIMITED: &str = "unlimited";
const FOREVER: &str = "forever";

/// Whether `"forever"` is allowed.
struct AttemptsVisitor {
    forever: bool,
}

impl Visitor<'_> for AttemptsVisitor {
    type Value = Attempts;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "attempts as a number from 1 to {}", u32::MAX)?;
        match self.forever {
            true => write!(f, ", {UNLIMITED:?} or {FOREVER:?}"),
            false => write!(f, ", or {UNLIMITED:?}"),
        }
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Self::Value, E> {
        match u32::try_from(number) {
            Ok(attempts) => Ok(Attempts::Max(attempts)),
            Err(_) => Err(E::invalid_value(Unexpected::Unsigned(number), &self)),
        }
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Self::Value, E> {
        match u32::try_from(number) {
            Ok(attempts) => Ok(Attempts::Max(attempts)),
            Err(_) => Err(E::invalid_value(Unexpected::Signed(number), &self)),
        }
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        match text {
            UNLIMITED => Ok(Attempts::Unlimited),
            FOREVER if self.forever => Ok(Attempts::Forever),
            _ => Err(E::invalid_value(Unexpected::Str(text), &self)),
        }
    }
}

/// For `#[serde(with = ..)]`; `None` is `"unlimited"`.
///
/// # Errors
/// The value is neither a number of attempts nor `"unlimited"`.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    match deserializer.deserialize_any(AttemptsVisitor { forever: false })? {
        Attempts::Max(attempts) => Ok(Some(attempts)),
        Attempts::Unlimited | Attempts::Forever => Ok(None),
    }
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

/// `attempts` of a written policy.
#[derive(Clone, Copy)]
pub(crate) enum Attempts {
    Max(u32),
    /// A deadline or a limit ends the call.
    Unlimited,
    Forever,
}

/// `attempts` of a written policy, which may be absent; `"forever"` is allowed.
pub(crate) mod option {
    use super::{Attempts, AttemptsVisitor, Deserializer, FOREVER, Serializer, UNLIMITED};

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Attempts>, D::Error> {
        deserializer.deserialize_any(AttemptsVisitor { forever: true }).map(Some)
    }

    pub(crate) fn serialize<S: Serializer>(
        attempts: &Option<Attempts>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match attempts {
            None => serializer.serialize_none(),
            Some(Attempts::Max(attempts)) => serializer.serialize_u32(*attempts),
            Some(Attempts::Unlimited) => serializer.serialize_str(UNLIMITED),
            Some(Attempts::Forever) => serializer.serialize_str(FOREVER),
        }
    }
}
