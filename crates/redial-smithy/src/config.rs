//! The written form of `attempts`.

use redial::config::fields;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::options::Attempts;

impl<'de> Deserialize<'de> for Attempts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let attempts = fields::attempts::deserialize(deserializer)?;
        Ok(attempts.map_or(Attempts::Unlimited, Attempts::AtMost))
    }
}

impl Serialize for Attempts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let attempts = match self {
            Attempts::AtMost(attempts) => Some(*attempts),
            Attempts::Unlimited => None,
        };
        fields::attempts::serialize(&attempts, serializer)
    }
}
