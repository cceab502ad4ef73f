//! `limits`: soft and hard limits (section L of the rulings).

use std::time::Duration;

use redial_core::{Limits, Measure, Over, Under};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::span;

#[derive(Serialize, Deserialize)]
#[serde(remote = "Limits", deny_unknown_fields, expecting = r#"limits like {"hard": "5s"}"#)]
struct LimitsForm {
    #[serde(with = "span::option", default, skip_serializing_if = "Option::is_none")]
    soft: Option<Duration>,
    #[serde(with = "span::option", default, skip_serializing_if = "Option::is_none")]
    hard: Option<Duration>,
    #[serde(with = "OverForm", default)]
    over: Over,
    #[serde(with = "UnderForm", default)]
    under: Under,
    #[serde(with = "MeasureForm", default)]
    measure: Measure,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Over", rename_all = "lowercase")]
enum OverForm {
    Drop,
    Truncate,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Under", rename_all = "lowercase")]
enum UnderForm {
    Leave,
    Fill,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Measure", rename_all = "lowercase")]
enum MeasureForm {
    Delays,
    Elapsed,
}

#[derive(Serialize, Deserialize)]
#[serde(transparent)]
struct Form(#[serde(with = "LimitsForm")] Limits);

pub(super) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Limits>, D::Error> {
    Ok(Option::<Form>::deserialize(deserializer)?.map(|form| form.0))
}

pub(super) fn serialize<S: Serializer>(
    limits: &Option<Limits>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    limits.map(Form).serialize(serializer)
}
