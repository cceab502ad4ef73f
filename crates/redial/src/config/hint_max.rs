//! The written form of `hint_max`: the longest delay that is accepted from a server. Its default is
//! `redial_core::Rules::HINT_MAX`.

use std::fmt;
use std::time::Duration;

use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, Unexpected, Visitor};
use serde::ser::{SerializeMap, Serializer};

use super::span;

const UNLIMITED: &str = "unlimited";
const CLAMP: &str = "clamp";

/// The longest delay that is accepted from a server, and what happens to a longer one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HintMaxConfig {
    /// A longer one ends the call: `"60s"`.
    Stop(Duration),
    /// A longer one is cut: `{"clamp": "60s"}`.
    Clamp(Duration),
    /// There is no bound: `"unlimited"`.
    Unlimited,
}

struct HintMax;

impl<'de> Visitor<'de> for HintMax {
    type Value = Option<HintMaxConfig>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(r#"a longest hint like "60s", {"clamp": "60s"} or "unlimited""#)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        match text {
            UNLIMITED => Ok(Some(HintMaxConfig::Unlimited)),
            _ => match span::parse(text) {
                Ok(span) => Ok(Some(HintMaxConfig::Stop(span))),
                Err(_) => Err(E::invalid_value(Unexpected::Str(text), &self)),
            },
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        match map.next_key::<String>()? {
            Some(key) if key == CLAMP => {}
            Some(key) => return Err(A::Error::unknown_field(&key, &[CLAMP])),
            None => return Err(A::Error::missing_field(CLAMP)),
        }
        let most = map.next_value::<span::Span>()?.0;
        match map.next_key::<IgnoredAny>()? {
            None => Ok(Some(HintMaxConfig::Clamp(most))),
            Some(_) => Err(A::Error::invalid_length(2, &self)),
        }
    }
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<HintMaxConfig>, D::Error> {
    deserializer.deserialize_any(HintMax)
}

pub(super) fn serialize<S: Serializer>(
    hint_max: &Option<HintMaxConfig>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match hint_max {
        None => serializer.serialize_none(),
        Some(HintMaxConfig::Unlimited) => serializer.serialize_str(UNLIMITED),
        Some(HintMaxConfig::Stop(most)) => serializer.serialize_str(&span::write(*most)),
        Some(HintMaxConfig::Clamp(most)) => {
            let mut map = serializer.serialize_map(Some(1))?;
            map.serialize_entry(CLAMP, &span::write(*most))?;
            map.end()
        }
    }
}
