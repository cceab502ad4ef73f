//! `backoff`, `jitter` and `throttle`: each is a string or an object with one field.
//!
//! The error of an invalid value shows an example of a valid one. A derived deserializer would name
//! Rust variants, which do not appear in the file.

use std::fmt;
use std::marker::PhantomData;

use redial_core::Jitter;
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{
    DeserializeSeed, Deserializer, Error, IgnoredAny, IntoDeserializer, MapAccess, Unexpected,
    Visitor,
};

use super::{BackoffConfig, JitterForm, ThrottleConfig};

pub(super) fn backoff<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BackoffConfig, D::Error> {
    deserializer.deserialize_any(Choice {
        example: r#"a backoff like {"constant": "250ms"}"#,
        needs_object: &["constant", "arithmetic", "exponential", "fibonacci", "table"],
        output: PhantomData,
    })
}

pub(crate) fn jitter<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Jitter, D::Error> {
    #[derive(Deserialize)]
    #[serde(transparent)]
    struct Form(#[serde(with = "JitterForm")] Jitter);
    let choice: Choice<Form> = Choice {
        example: r#"a jitter like "full" or {"proportional": 0.2}"#,
        needs_object: &["proportional"],
        output: PhantomData,
    };
    deserializer.deserialize_any(choice).map(|form| form.0)
}

/// A jitter that is present; null is an error.
pub(super) fn some_jitter<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Jitter>, D::Error> {
    jitter(deserializer).map(Some)
}

/// A throttle; null is the same as an absent one.
pub(super) fn throttle<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<ThrottleConfig>, D::Error> {
    #[derive(Deserialize)]
    #[serde(transparent)]
    struct Field(#[serde(deserialize_with = "one_throttle")] ThrottleConfig);
    Ok(Option::<Field>::deserialize(deserializer)?.map(|field| field.0))
}

fn one_throttle<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ThrottleConfig, D::Error> {
    deserializer.deserialize_any(Choice {
        example: r#"a throttle like "none" or {"budget": {"reserve": 10}}"#,
        needs_object: &["budget", "tokens", "cost"],
        output: PhantomData,
    })
}

struct Choice<T> {
    example: &'static str,
    /// The variants that need an object, not only their name.
    needs_object: &'static [&'static str],
    output: PhantomData<T>,
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for Choice<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.example)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        if self.needs_object.contains(&text) {
            return Err(E::invalid_value(Unexpected::Str(text), &self));
        }
        T::deserialize(text.into_deserializer())
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        let mut map = NonEmptyMap { map, non_empty: false };
        let output = T::deserialize(MapAccessDeserializer::new(&mut map));
        if !map.non_empty {
            return Err(A::Error::invalid_value(Unexpected::Other("an empty object"), &self));
        }
        let output = output?;
        match map.next_key::<IgnoredAny>()? {
            None => Ok(output),
            Some(_) => Err(A::Error::invalid_length(2, &self)),
        }
    }
}

/// A map that records whether it has an entry.
struct NonEmptyMap<A> {
    map: A,
    non_empty: bool,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for NonEmptyMap<A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, A::Error> {
        let key = self.map.next_key_seed(seed);
        self.non_empty |= !matches!(key, Ok(None));
        key
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.map.next_value_seed(seed)
    }
}
