//! The list of known differences: what the clients of other languages do instead.
//!
//! A row says in words what differs and why, names the decision that is ours, and states for each scenario
//! in which it shows what is seen there in place of what our client does.

use std::collections::BTreeMap;
use std::io;

use serde::{Deserialize, Deserializer};

use super::expected::Span;
use crate::scenarios::load::FILE_BYTES_MAX;
use crate::scenarios::source::Source;

/// The list.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in super::super) struct Rows {
    #[serde(rename = "about")]
    _about: String,
    differences: Vec<JsonRow>,
    /// What our client meets at their servers; not for this level.
    #[serde(default, rename = "servers")]
    _servers: Vec<serde_json::Value>,
}

/// A row as it is written. Texts that are for the reader only are read so that none is misspelt.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct JsonRow {
    what: String,
    #[serde(rename = "ruling")]
    _ruling: String,
    #[serde(rename = "why")]
    _why: String,
    languages: Vec<String>,
    /// In every call, where it makes a difference.
    #[serde(default)]
    everywhere: Option<InsteadCall>,
    /// By `file: name`.
    #[serde(default)]
    scenarios: BTreeMap<String, WrittenInstead>,
    /// By `file: name`: service configs that are taken though they are wrong, or refused though they are
    /// right.
    #[serde(default)]
    configs: Vec<String>,
}

/// `"refused"`, `"otherwise"`, or what is seen of each call.
#[derive(Clone, Debug)]
struct WrittenInstead(Instead);

impl<'de> Deserialize<'de> for WrittenInstead {
    fn deserialize<D: Deserializer<'de>>(value: D) -> Result<Self, D::Error> {
        let value = serde_json::Value::deserialize(value)?;
        let instead = match value.as_str() {
            Some("refused") => Instead::Refused,
            Some("otherwise") => Instead::Otherwise,
            _ => Instead::Calls(serde_json::from_value(value).map_err(serde::de::Error::custom)?),
        };
        Ok(WrittenInstead(instead))
    }
}

/// What a row says of one scenario.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) what: String,
    /// Whether it names this scenario, and so must show in it.
    pub(super) names_this: bool,
    pub(super) instead: Instead,
}

/// What is seen instead.
#[derive(Clone, Debug)]
pub(super) enum Instead {
    Refused,
    /// Something else than with us, which is a matter of luck.
    Otherwise,
    /// Of a service config: it is taken, not refused, or the other way round.
    Opposite,
    /// In these calls, in their order.
    Calls(Vec<InsteadCall>),
    /// In each call.
    EachCall(Box<InsteadCall>),
}

/// What is seen of a call instead; what is absent is as ours.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct InsteadCall {
    pub(super) starts: Option<Vec<When>>,
    pub(super) cancels: Option<BTreeMap<u32, When>>,
    pub(super) previous: Option<Vec<Option<String>>>,
    pub(super) timeouts: Option<Vec<Option<When>>>,
    pub(super) sent: Option<Vec<u64>>,
    /// `null`: it never ends.
    #[serde(default, deserialize_with = "there")]
    pub(super) end: Option<Option<InsteadEnd>>,
}

/// How a call ends instead.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct InsteadEnd {
    pub(super) at: Option<When>,
    pub(super) outcome: Option<String>,
    #[serde(default, deserialize_with = "there")]
    pub(super) attempt: Option<Option<u32>>,
    pub(super) text: Option<String>,
    #[serde(default, deserialize_with = "there")]
    pub(super) previous: Option<Option<String>>,
}

/// A moment in milliseconds, or the first and the last that it may be.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum When {
    At(f64),
    Between(f64, f64),
}

impl When {
    pub(super) fn span(self) -> Span {
        let ns = |ms: f64| (ms * 1e6) as redial::time::Ns;
        match self {
            When::At(at) => Span::at(ns(at)),
            When::Between(from, to) => Span { from: ns(from), to: ns(to) },
        }
    }
}

/// What is there, be it `null`.
fn there<'de, D: Deserializer<'de>, T: Deserialize<'de>>(value: D) -> Result<Option<T>, D::Error> {
    T::deserialize(value).map(Some)
}

impl Rows {
    /// Reads the list.
    ///
    /// # Errors
    /// The file cannot be read, or is not such a list.
    pub(in super::super) fn open(path: &str) -> io::Result<Self> {
        let source = Source::open(path, FILE_BYTES_MAX).map_err(io::Error::other)?;
        let told = |error| io::Error::other(format!("{path}: {error}"));
        serde_json::from_str(source.text()).map_err(told)
    }

    /// What the rows say of this scenario, or service config, when this language plays it.
    pub(super) fn of(&self, language: &str, file: &str, name: &str) -> Vec<Row> {
        let key = format!("{file}: {name}");
        let mine =
            self.differences.iter().filter(|row| row.languages.iter().any(|it| it == language));
        let rows = mine.filter_map(|row| {
            let instead = match row.scenarios.get(&key) {
                Some(WrittenInstead(instead)) => Some(instead.clone()),
                None if row.configs.contains(&key) => Some(Instead::Opposite),
                None => None,
            };
            let names_this = instead.is_some();
            let instead = instead
                .or_else(|| row.everywhere.clone().map(|it| Instead::EachCall(Box::new(it))))?;
            Some(Row { what: row.what.clone(), names_this, instead })
        });
        rows.collect()
    }

    /// What this language's rows name of a file and is not among these.
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
