//! A cluster of Couchbase's KV service that follows a script, and records what the client sent.
//!
//! It is a test double for clients. It speaks real frames of the memcached binary protocol: HELLO,
//! SASL (SCRAM and PLAIN), SELECT BUCKET, error map, cluster configuration with vbuckets, collections,
//! and TLS with certificates of its own. Documents are kept in memory, so that a client can work with
//! it; the script says which requests fail, and how. It shows nothing about the durability, timing or
//! load of a real server.
//!
//! ```
//! use redial_faults::couchbase::{Answer, Script, Server};
//!
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! let script = Script::new().answers([Answer::status(0x86), Answer::close()]);
//! let server = Server::new(script).listen("127.0.0.1").await?;
//! let address = server.address(0);
//! // A client connects to `address`: its first request for a document gets status 0x86, its second
//! // one loses the connection, and further ones are served.
//! # let _ = address;
//! # std::io::Result::Ok(()) })?;
//! # std::io::Result::Ok(())
//! ```
//!
//! # How a request finds its answer
//! Requests for documents, NOOP and GET COLLECTION ID take the answers of the script in order of
//! arrival; an answer that names a command waits for that command. The handshake, the manifest and
//! polls of the cluster configuration take none, and neither do requests that the state of the cluster
//! refuses (a vbucket of another node, an unknown collection); what they meet is set on the [`Script`] and the
//! [`Handle`]: wrong passwords, refused buckets, missing collections, moved vbuckets.
//!
//! # Timing
//! Answers come after a time since the arrival of the request, on tokio's clock: exact on a paused clock
//! and a pipe ([`Server::on_pipe`]), in real time over TCP.
//!
//! # Scripts as JSON
//! ```
//! use redial_faults::couchbase::Script;
//!
//! let text = r#"{
//!   "about": "two temporary failures, a lost connection, then all is served",
//!   "bucket": "travel",
//!   "users": { "app": "secret" },
//!   "nodes": 2,
//!   "collections": { "inventory": ["airline", "hotel"] },
//!   "error_map": { "7ff0": ["temp", "retry-later"] },
//!   "attempts": [
//!     { "status": 134 },
//!     { "after": 5, "status": 134, "command": "get" },
//!     { "close": true },
//!     { "serve": true } ]
//! }"#;
//! let script: Script = serde_json::from_str(text)?;
//! # let _ = script;
//! # serde_json::Result::Ok(())
//! ```
//! | field | meaning |
//! | --- | --- |
//! | `about` | a description, ignored by the server |
//! | `bucket` | the bucket; default `default` |
//! | `users` | names and passwords; without any, no client has to authenticate |
//! | `token` | the token that OAUTHBEARER accepts, which is the only mechanism then; default none |
//! | `mechanisms` | the offered SASL mechanisms; default all |
//! | `nodes` | the number of nodes, 1 to 16; default 1 |
//! | `vbuckets` | a power of two up to 1024; default 64 |
//! | `replicas` | the number of replicas, below the number of nodes; default 0 |
//! | `collections` | the collections of each scope; without it the server has no collections |
//! | `error_map` | the attributes of statuses, which are hexadecimal |
//! | `attempts` | the answers in order |
//!
//! | field of an attempt | meaning |
//! | --- | --- |
//! | `after` | when the answer comes, in ms since the request; default 0 |
//! | `command` | the answer is for this command only: `get`, `upsert`, `unlock`, ... |
//! | `status` | this status, with an empty body |
//! | `close` | `true`: the connection is closed |
//! | `hang` | `true`: no answer comes |
//! | `serve` | `true`: the request is served |
//! | `execute_and_close` | `true`: the request is executed, but the connection is closed instead of an answer |
//! | `wrong_command` | `true`: a success of another command, which no server sends |
//! | `truncate` | the request is served, but only so many bytes of the answer come |

mod connection;
mod frames;
mod record;
mod scram;
mod script;
mod server;
mod state;
mod store;
mod subdoc;
mod tls;

pub use record::{REQUESTS_KEPT, RequestOutcome, RequestRecord};
pub use script::{
    Answer, AnswerAction, InvalidScript, NODES_MAX, SCRIPT_ANSWERS_MAX, Script, VBUCKETS_MAX,
};
pub use server::{CONNECTIONS_OPEN_MAX, Handle, PIPE_BYTES, Server};
pub use tls::Identity;
