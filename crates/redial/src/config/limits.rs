//! `limits`: soft and hard limits (section L of the decisions).

use std::time::Duration;

use redial_core::{LastDelayAction, LimitBasis, Limits, OverLimitAction};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::span;

#[derive(Serialize, Deserialize)]
#[serde(remote = "Limits", deny_unknown_fields, expecting = r#"limits like {"hard": "5s"}"#)]
struct LimitsForm {
    #[serde(with = "span::option", default, skip_serializing_if = "Option::is_none")]
    soft: Option<Duration>,
    #[serde(with = "span::option", default, skip_serializing_if = "Option::is_none")]
    hard: Option<Duration>,
    #[serde(rename = "over", with = "OverLimitForm", default)]
    over_limit_action: OverLimitAction,
    #[serde(rename = "under", with = "LastDelayForm", default)]
    last_delay_action: LastDelayAction,
    #[serde(rename = "measure", with = "LimitBasisForm", default)]
    basis: LimitBasis,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "OverLimitAction", rename_all = "lowercase")]
enum OverLimitForm {
    #[serde(rename = "drop")]
    Stop,
    #[serde(rename = "truncate")]
    TruncateDelay,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "LastDelayAction", rename_all = "lowercase")]
enum LastDelayForm {
    #[serde(rename = "leave")]
    Keep,
    #[serde(rename = "fill")]
    ExtendToLimit,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "LimitBasis", rename_all = "lowercase")]
enum LimitBasisForm {
    #[serde(rename = "delays")]
    TotalDelay,
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
