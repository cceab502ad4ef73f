//! `empty` of a cost bucket, which may be absent.

use redial_core::throttle::WhenEmpty;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

#[derive(Deserialize, Serialize)]
#[serde(remote = "WhenEmpty", rename_all = "lowercase")]
enum EmptyForm {
    Wait,
    Fail,
}

#[derive(Deserialize, Serialize)]
struct Field(#[serde(with = "EmptyForm")] WhenEmpty);

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<WhenEmpty>, D::Error> {
    Ok(Option::<Field>::deserialize(deserializer)?.map(|field| field.0))
}

pub(crate) fn serialize<S: Serializer>(
    empty: &Option<WhenEmpty>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    empty.map(Field).serialize(serializer)
}
