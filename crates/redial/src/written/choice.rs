//! `backoff` and `throttle`: one of several, written as an object with one field.
//!
//! Rule: whatever is there instead, the message shows what could be. A derived reader would name
//! kinds of variants, which nobody has written.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, Unexpected, Visitor,
};

use super::{Backoff, Throttle};

pub(super) fn backoff<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Backoff, D::Error> {
    let like = r#"a backoff like {"constant": "250ms"}"#;
    deserializer.deserialize_any(Choice { like, word: None, chosen: PhantomData })
}

/// What is there and null is left out.
pub(super) fn throttle<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Throttle>, D::Error> {
    struct Field(Throttle);
    impl<'de> Deserialize<'de> for Field {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            let like = r#""none", or a throttle like {"budget": {"reserve": 10}}"#;
            let word = Some(("none", Throttle::None));
            let choice = Choice { like, word, chosen: PhantomData };
            deserializer.deserialize_any(choice).map(Field)
        }
    }
    Ok(Option::<Field>::deserialize(deserializer)?.map(|field| field.0))
}

struct Choice<T> {
    like: &'static str,
    /// The one that is a word alone.
    word: Option<(&'static str, T)>,
    chosen: PhantomData<T>,
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for Choice<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.like)
    }

    fn visit_str<E: Error>(mut self, text: &str) -> Result<T, E> {
        match self.word.take() {
            Some((word, chosen)) if word == text => Ok(chosen),
            _ => Err(E::invalid_value(Unexpected::Str(text), &self)),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        let mut map = Seen { map, any: false };
        let chosen = T::deserialize(MapAccessDeserializer::new(&mut map));
        if !map.any {
            return Err(A::Error::invalid_value(Unexpected::Other("an empty object"), &self));
        }
        let chosen = chosen?;
        match map.next_key::<IgnoredAny>()? {
            None => Ok(chosen),
            Some(_) => Err(A::Error::invalid_length(2, &self)),
        }
    }
}

/// A map that knows whether it has anything.
struct Seen<A> {
    map: A,
    any: bool,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Seen<A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, A::Error> {
        let key = self.map.next_key_seed(seed);
        self.any |= !matches!(key, Ok(None));
        key
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.map.next_value_seed(seed)
    }
}
