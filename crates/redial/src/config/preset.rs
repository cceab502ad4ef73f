//! `preset`: the name of a ready-made policy whose settings stand for the keys that are absent.

use std::fmt;

use serde::de::{Deserializer, Error, Unexpected, Visitor};

use super::{BackoffConfig, HintMaxConfig, PolicyConfig, ThrottleConfig};
use crate::presets::{self, Preset};

struct Name;

impl Visitor<'_> for Name {
    type Value = Option<Preset>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a preset:")?;
        Preset::ALL.iter().try_for_each(|preset| write!(f, " {:?}", preset.name()))
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Self::Value, E> {
        match presets::by_name(name) {
            Some(preset) => Ok(Some(preset)),
            None => Err(E::invalid_value(Unexpected::Str(name), &self)),
        }
    }
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Preset>, D::Error> {
    deserializer.deserialize_str(Name)
}

/// The configuration of a preset, with the throttle of its design.
pub(super) fn config(preset: Preset) -> PolicyConfig {
    let rules = preset.rules();
    let backoff = match rules.backoff {
        redial_core::Backoff::Exponential { first, factor, cap } => {
            BackoffConfig::Exponential { first, factor, cap }
        }
        // No preset has another series.
        _ => PolicyConfig::default().backoff,
    };
    PolicyConfig {
        attempts: rules.attempts,
        backoff,
        jitter: Some(rules.jitter),
        limits: Some(rules.limits),
        hint_max: Some(HintMaxConfig::Unlimited),
        throttle: Some(ThrottleConfig::None),
        ..PolicyConfig::default()
    }
}
