//! The JSON format of scripts and records, with serde.
//!
//! An attempt of a `grpc` scenario has the same meaning here; further fields add faults that
//! scenarios cannot express. Unknown fields and invalid answers are errors, so a loaded script is
//! valid.

mod attempt;
mod step;
mod stream;
pub(crate) mod values;

use std::collections::HashSet;
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};

use self::values::{Ms, on_connect};
use super::action::OnConnect;
use super::answer::Answer;
use super::script::Script;
use super::server::Server;

/// A file with a script and the options of the server.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
struct File {
    #[serde(rename = "about")]
    _about: String,
    attempts: Vec<Answer>,
    calls: Ordered<Vec<Answer>>,
    in_turn: bool,
    #[serde(rename = "doors")]
    on_connect: Vec<ConnectPlan>,
    #[serde(deserialize_with = "default_answer")]
    otherwise: Option<Answer>,
    concurrent_streams: Option<u32>,
}

impl Default for File {
    fn default() -> Self {
        File {
            _about: String::new(),
            attempts: Vec::new(),
            calls: Ordered(Vec::new()),
            in_turn: false,
            on_connect: Vec::new(),
            otherwise: None,
            concurrent_streams: None,
        }
    }
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields, expecting = r#"an object like {"door": "refused"}"#)]
struct ConnectPlan {
    #[serde(rename = "door", deserialize_with = "on_connect")]
    action: OnConnect,
    #[serde(default)]
    after: Ms,
}

/// Checked here so that the error has a position in the file.
fn default_answer<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Answer>, D::Error> {
    let answer = Answer::deserialize(from)?;
    Script::new().default_answer(answer.clone()).check().map_err(D::Error::custom)?;
    Ok(Some(answer))
}

/// The JSON format of a script: see [the module](crate::grpc#scripts-as-json).
impl<'de> Deserialize<'de> for Server {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Server, D::Error> {
        let file: File = object(from, "a script: an object")?;
        let mut script = Script::new().attempts(file.attempts);
        for (name, answers) in file.calls.0 {
            script = script.call(&name, answers);
        }
        for ConnectPlan { action, after } in file.on_connect {
            script = script.on_connect(action, after.0);
        }
        if file.in_turn {
            script = script.in_turn();
        }
        if let Some(otherwise) = file.otherwise {
            script = script.default_answer(otherwise);
        }
        // Each answer was checked when it was read.
        let server = Server::new(script);
        Ok(match file.concurrent_streams {
            Some(max) => server.concurrent_streams(max),
            None => server,
        })
    }
}

/// The JSON format of an attempt: see [the module](crate::grpc#attempts).
impl<'de> Deserialize<'de> for Answer {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Answer, D::Error> {
        let attempt: attempt::Attempt = object(from, "an attempt: an object")?;
        Answer::try_from(attempt).map_err(D::Error::custom)
    }
}

/// Reads an object; serde alone would also accept a list of its fields.
pub(crate) fn object<'de, D, T>(from: D, expected: &'static str) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    struct Object<T>(&'static str, PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for Object<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }

        fn visit_map<M: MapAccess<'de>>(self, map: M) -> Result<T, M::Error> {
            T::deserialize(MapAccessDeserializer::new(map))
        }
    }

    from.deserialize_map(Object(expected, PhantomData))
}

/// An object as a list in file order; duplicate names are errors.
pub(crate) struct Ordered<T>(pub(crate) Vec<(String, T)>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Ordered<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Entries<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Entries<T> {
            type Value = Ordered<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Ordered<T>, M::Error> {
                let mut names = HashSet::new();
                let mut entries = Vec::new();
                while let Some((name, value)) = map.next_entry::<String, T>()? {
                    if !names.insert(name.clone()) {
                        return Err(M::Error::custom(format!("{name:?} is there twice")));
                    }
                    entries.push((name, value));
                }
                Ok(Ordered(entries))
            }
        }

        from.deserialize_map(Entries(PhantomData))
    }
}
