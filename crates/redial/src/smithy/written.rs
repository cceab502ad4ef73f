//! The parts of the written form that are the core's types, which know nothing of serde.

use redial_core::Jitter;
use redial_core::throttle::Empty;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::options::Attempts;

impl<'de> Deserialize<'de> for Attempts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let attempts = crate::written::attempts::deserialize(deserializer)?;
        Ok(attempts.map_or(Attempts::Unlimited, Attempts::AtMost))
    }
}

impl Serialize for Attempts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let attempts = match self {
            Attempts::AtMost(attempts) => Some(*attempts),
            Attempts::Unlimited => None,
        };
        crate::written::attempts::serialize(&attempts, serializer)
    }
}

#[derive(Deserialize, Serialize)]
#[serde(remote = "Empty", rename_all = "lowercase")]
enum EmptyForm {
    Wait,
    Fail,
}

/// `empty`, which may be left out.
pub(super) mod empty {
    use super::{Deserialize, Deserializer, Empty, EmptyForm, Serialize, Serializer};

    #[derive(Deserialize, Serialize)]
    struct Field(#[serde(with = "EmptyForm")] Empty);

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Empty>, D::Error> {
        Ok(Option::<Field>::deserialize(deserializer)?.map(|field| field.0))
    }

    pub(crate) fn serialize<S: Serializer>(
        empty: &Option<Empty>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        empty.map(Field).serialize(serializer)
    }
}

/// `jitter`, which may be left out; written as in every other policy.
pub(super) mod jitter {
    use super::{Deserialize, Deserializer, Jitter, Serialize, Serializer};
    use crate::written::{JitterForm, choice};

    #[derive(Deserialize, Serialize)]
    struct Field(
        #[serde(deserialize_with = "choice::jitter", serialize_with = "JitterForm::serialize")]
        Jitter,
    );

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Jitter>, D::Error> {
        Ok(Option::<Field>::deserialize(deserializer)?.map(|field| field.0))
    }

    pub(crate) fn serialize<S: Serializer>(
        jitter: &Option<Jitter>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        jitter.map(Field).serialize(serializer)
    }
}
