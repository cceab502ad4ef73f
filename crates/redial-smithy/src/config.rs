//! Serialization of `attempts`: a number or `"unlimited"`.

use redial::config::fields;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::options::MaxAttempts;

impl<'de> Deserialize<'de> for MaxAttempts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let attempts = fields::attempts::deserialize(deserializer)?;
        Ok(attempts.map_or(MaxAttempts::Unlimited, MaxAttempts::Limited))
    }
}

impl Serialize for MaxAttempts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let attempts = match self {
            MaxAttempts::Limited(attempts) => Some(*attempts),
            MaxAttempts::Unlimited => None,
        };
        fields::attempts::serialize(&attempts, serializer)
    }
}
