//! The list of known differences of clients in other languages.
//!
//! Each entry describes a difference and its reason, names our decision, and lists for each
//! affected scenario the observed behaviour of the other client.

use std::collections::BTreeMap;
use std::io;

use serde::{Deserialize, Deserializer};

use super::expected::Span;
use crate::scenarios::load::FILE_BYTES_MAX;
use crate::scenarios::source::Source;

/// The list.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in super::super) struct KnownDifferences {
    #[serde(rename = "about")]
    _about: String,
    differences: Vec<JsonRow>,
    /// Differences of servers; not used here.
    #[serde(default, rename = "servers")]
    _servers: Vec<serde_json::Value>,
}

/// An entry in JSON. Descriptions are read too, so that misspelt keys are errors.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct JsonRow {
    what: String,
    #[serde(rename = "ruling")]
    _ruling: String,
    #[serde(rename = "why")]
    _why: String,
    languages: Vec<String>,
    /// Applies to every call of every scenario.
    #[serde(default)]
    everywhere: Option<CallDeviation>,
    /// By `file: name`.
    #[serde(default)]
    scenarios: BTreeMap<String, JsonDeviation>,
    /// By `file: name`: invalid service configs that are accepted, or valid ones that are refused.
    #[serde(default)]
    configs: Vec<String>,
}

/// `"refused"`, `"otherwise"`, or the behaviour of each call.
#[derive(Clone, Debug)]
struct JsonDeviation(Deviation);

impl<'de> Deserialize<'de> for JsonDeviation {
    fn deserialize<D: Deserializer<'de>>(value: D) -> Result<Self, D::Error> {
        let value = serde_json::Value::deserialize(value)?;
        let deviation = match value.as_str() {
            Some("refused") => Deviation::Refused,
            Some("otherwise") => Deviation::Otherwise,
            _ => Deviation::Calls(serde_json::from_value(value).map_err(serde::de::Error::custom)?),
        };
        Ok(JsonDeviation(deviation))
    }
}

/// A known difference in one scenario.
#[derive(Clone, Debug)]
pub(super) struct KnownDifference {
    pub(super) what: String,
    /// Whether it lists this scenario and must show in it.
    pub(super) names_this: bool,
    pub(super) deviation: Deviation,
}

/// The behaviour that replaces the expectation.
#[derive(Clone, Debug)]
pub(super) enum Deviation {
    Refused,
    /// Nondeterministic: anything but our behaviour.
    Otherwise,
    /// A service config is accepted instead of refused, or refused instead of accepted.
    Opposite,
    /// In these calls, in their order.
    Calls(Vec<CallDeviation>),
    /// In each call.
    EachCall(Box<CallDeviation>),
}

/// The differences in a call; absent fields are as in our client.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CallDeviation {
    pub(super) starts: Option<Vec<ExpectedTime>>,
    pub(super) cancels: Option<BTreeMap<u32, ExpectedTime>>,
    pub(super) previous: Option<Vec<Option<String>>>,
    pub(super) timeouts: Option<Vec<Option<ExpectedTime>>>,
    pub(super) sent: Option<Vec<u64>>,
    /// `null`: it never ends.
    #[serde(default, deserialize_with = "present")]
    pub(super) end: Option<Option<EndDeviation>>,
}

/// The differences in the end of a call.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EndDeviation {
    pub(super) at: Option<ExpectedTime>,
    pub(super) outcome: Option<String>,
    #[serde(default, deserialize_with = "present")]
    pub(super) attempt: Option<Option<u32>>,
    pub(super) text: Option<String>,
    #[serde(default, deserialize_with = "present")]
    pub(super) previous: Option<Option<String>>,
}

/// A time in milliseconds, or a range.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum ExpectedTime {
    At(f64),
    Between(f64, f64),
}

impl ExpectedTime {
    pub(super) fn span(self) -> Span {
        let ns = |ms: f64| (ms * 1e6) as redial::time::Ns;
        match self {
            ExpectedTime::At(at) => Span::at(ns(at)),
            ExpectedTime::Between(from, to) => Span { from: ns(from), to: ns(to) },
        }
    }
}

/// Distinguishes `null` from an absent field.
fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    value: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(value).map(Some)
}

impl KnownDifferences {
    /// Reads the list.
    ///
    /// # Errors
    /// The file cannot be read, or is not a list of differences.
    pub(in super::super) fn open(path: &str) -> io::Result<Self> {
        let source = Source::open(path, FILE_BYTES_MAX).map_err(io::Error::other)?;
        let invalid = |error| io::Error::other(format!("{path}: {error}"));
        serde_json::from_str(source.text()).map_err(invalid)
    }

    /// The known differences of this language in a scenario or service config.
    pub(super) fn of(&self, language: &str, file: &str, name: &str) -> Vec<KnownDifference> {
        let key = format!("{file}: {name}");
        let mine =
            self.differences.iter().filter(|row| row.languages.iter().any(|it| it == language));
        let rows = mine.filter_map(|row| {
            let deviation = match row.scenarios.get(&key) {
                Some(JsonDeviation(deviation)) => Some(deviation.clone()),
                None if row.configs.contains(&key) => Some(Deviation::Opposite),
                None => None,
            };
            let names_this = deviation.is_some();
            let deviation = deviation
                .or_else(|| row.everywhere.clone().map(|it| Deviation::EachCall(Box::new(it))))?;
            Some(KnownDifference { what: row.what.clone(), names_this, deviation })
        });
        rows.collect()
    }

    /// The scenarios of a file that this language's entries name and that do not exist.
    pub(in super::super) fn unknown(
        &self,
        language: &str,
        file: &str,
        played: &[String],
    ) -> Vec<String> {
        let mine =
            self.differences.iter().filter(|row| row.languages.iter().any(|it| it == language));
        let keys = mine.flat_map(|row| row.scenarios.keys().chain(&row.configs));
        let names = keys.filter_map(|key| key.strip_prefix(file)?.strip_prefix(": "));
        let names = names.filter(|name| !played.iter().any(|played| played == name));
        names.map(str::to_owned).collect()
    }
}
