//! The keys of a written policy. Every key may be absent; the preset, or else the defaults, supply what
//! is.

use std::time::Duration;

use redial_core::{DeadlineAction, Jitter, Limits};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::attempts::Attempts;
use super::hint_max::HintMaxConfig;
use super::{
    BackoffConfig, DeadlineActionForm, HedgeConfig, PolicyConfig, ThrottleConfig, attempts, choice,
    fields, hint_max, limits, preset, span,
};
use crate::presets::Preset;

#[derive(Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct PolicyFields {
    #[serde(with = "preset", skip_serializing)]
    preset: Option<Preset>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(with = "attempts::option")]
    attempts: Option<Attempts>,
    #[serde(deserialize_with = "some_backoff")]
    backoff: Option<BackoffConfig>,
    #[serde(
        deserialize_with = "choice::some_jitter",
        serialize_with = "fields::jitter::serialize",
        skip_serializing_if = "Option::is_none"
    )]
    jitter: Option<Jitter>,
    #[serde(with = "limits", skip_serializing_if = "Option::is_none")]
    limits: Option<Limits>,
    #[serde(with = "span::option", skip_serializing_if = "Option::is_none")]
    deadline: Option<Duration>,
    #[serde(with = "span::option", skip_serializing_if = "Option::is_none")]
    attempt_timeout: Option<Duration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_timeouts: Option<bool>,
    #[serde(deserialize_with = "some_late", serialize_with = "write_late")]
    late: Option<DeadlineAction>,
    #[serde(with = "hint_max", skip_serializing_if = "Option::is_none")]
    hint_max: Option<HintMaxConfig>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint_jitter: Option<f64>,
    #[serde(with = "span::option", skip_serializing_if = "Option::is_none")]
    reset_after: Option<Duration>,
    #[serde(deserialize_with = "choice::throttle", skip_serializing_if = "Option::is_none")]
    throttle: Option<ThrottleConfig>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hedge: Option<HedgeConfig>,
}

fn some_backoff<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<BackoffConfig>, D::Error> {
    choice::backoff(deserializer).map(Some)
}

#[derive(Serialize, Deserialize)]
#[serde(transparent)]
struct DeadlineActionText(#[serde(with = "DeadlineActionForm")] DeadlineAction);

fn some_late<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<DeadlineAction>, D::Error> {
    DeadlineActionText::deserialize(deserializer).map(|late| Some(late.0))
}

fn write_late<S: Serializer>(
    late: &Option<DeadlineAction>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    late.map(DeadlineActionText).serialize(serializer)
}

impl From<PolicyFields> for PolicyConfig {
    fn from(written: PolicyFields) -> Self {
        let base = written.preset.map_or_else(PolicyConfig::default, preset::config);
        let (attempts, forever) = match written.attempts {
            None => (base.attempts, base.forever),
            Some(Attempts::Max(attempts)) => (Some(attempts), false),
            Some(Attempts::Unlimited) => (None, false),
            Some(Attempts::Forever) => (None, true),
        };
        // The jitter of a preset belongs to its backoff.
        let jitter = if written.backoff.is_some() { None } else { base.jitter };
        PolicyConfig {
            name: written.name.or(base.name),
            attempts,
            forever,
            backoff: written.backoff.unwrap_or(base.backoff),
            jitter: written.jitter.or(jitter),
            limits: written.limits.or(base.limits),
            deadline: written.deadline.or(base.deadline),
            attempt_timeout: written.attempt_timeout.or(base.attempt_timeout),
            retry_timeouts: written.retry_timeouts.unwrap_or(base.retry_timeouts),
            deadline_action: written.late.unwrap_or(base.deadline_action),
            hint_max: written.hint_max.or(base.hint_max),
            hint_jitter: written.hint_jitter.unwrap_or(base.hint_jitter),
            reset_after: written.reset_after.or(base.reset_after),
            throttle: written.throttle.or(base.throttle),
            hedge: written.hedge.or(base.hedge),
        }
    }
}

impl From<PolicyConfig> for PolicyFields {
    fn from(config: PolicyConfig) -> Self {
        PolicyFields {
            preset: None,
            name: config.name,
            attempts: Some(match config.attempts {
                Some(attempts) => Attempts::Max(attempts),
                None if config.forever => Attempts::Forever,
                None => Attempts::Unlimited,
            }),
            backoff: Some(config.backoff),
            jitter: config.jitter,
            limits: config.limits,
            deadline: config.deadline,
            attempt_timeout: config.attempt_timeout,
            retry_timeouts: (!config.retry_timeouts).then_some(false),
            late: Some(config.deadline_action),
            hint_max: config.hint_max,
            hint_jitter: (config.hint_jitter != 0.0).then_some(config.hint_jitter),
            reset_after: config.reset_after,
            throttle: config.throttle,
            hedge: config.hedge,
        }
    }
}
