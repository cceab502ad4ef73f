//! What the client did.

use std::time::Duration;

use serde::{Serialize, Serializer};

/// How many requests a server keeps; further ones are counted only.
pub const REQUESTS_KEPT: usize = 100_000;

/// A request that arrived, other than those of the handshake and polls of the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RequestRecord {
    /// When it arrived, since the start of the server.
    #[serde(serialize_with = "milliseconds")]
    pub at: Duration,
    /// The node, from 0.
    pub node: usize,
    /// The connection, from 0, over all nodes.
    pub connection: usize,
    /// The command: `get`, `upsert`, ...
    pub command: String,
    /// The key, with the prefix of its collection if the client sent one.
    #[serde(serialize_with = "text")]
    pub key: Vec<u8>,
    /// The vbucket.
    pub vbucket: u16,
    /// What it met.
    #[serde(flatten)]
    pub outcome: RequestOutcome,
}

/// What a request met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RequestOutcome {
    /// It was answered with this status.
    Status(u16),
    /// Its connection was closed.
    Closed,
    /// It was never answered.
    Hung,
    /// It got the answer of another command.
    WrongCommand,
    /// Its answer was cut after so many bytes.
    Truncated(usize),
}

fn milliseconds<S: Serializer>(at: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(at.as_secs_f64() * 1e3)
}

fn text<S: Serializer>(key: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&String::from_utf8_lossy(key))
}
