//! `empty`, which may be left out.

use redial_core::throttle::Empty;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

#[derive(Deserialize, Serialize)]
#[serde(remote = "Empty", rename_all = "lowercase")]
enum EmptyForm {
    Wait,
    Fail,
}

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
