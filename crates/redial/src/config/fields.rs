//! Fields of the configuration, for `#[serde(with = "..")]` in other crates.

pub use super::span::option as span;

/// `attempts`: a number, or `"unlimited"`, which is `None`.
pub mod attempts {
    pub use crate::config::attempts::{deserialize, serialize};
}

/// `jitter`, which may be absent.
pub mod jitter {
    use redial_core::Jitter;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use crate::config::{JitterForm, choice};

    #[derive(Deserialize, Serialize)]
    struct Field(
        #[serde(deserialize_with = "choice::jitter", serialize_with = "JitterForm::serialize")]
        Jitter,
    );

    /// For `#[serde(with = ..)]`.
    ///
    /// # Errors
    /// The value is not a jitter.
    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Jitter>, D::Error> {
        Ok(Option::<Field>::deserialize(deserializer)?.map(|field| field.0))
    }

    /// For `#[serde(with = ..)]`.
    ///
    /// # Errors
    /// The serializer fails.
    pub fn serialize<S: Serializer>(
        jitter: &Option<Jitter>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        jitter.map(Field).serialize(serializer)
    }
}
