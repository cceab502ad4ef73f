//! Fault injection for tests: scripted servers that fail in exactly the way a test asks for.
//!
//! They are test doubles. A real server cannot be made to reset its third stream after 40 ms and
//! then send a GOAWAY; these servers can, and they record everything the client did. They do not
//! show how a real server behaves under load.
//!
//! - [`grpc`] is an HTTP/2 server that answers the attempts of gRPC calls from a script. The
//!   command `redial faults grpc` runs it for clients in any language.
//! - [`couchbase`] (feature `couchbase`) is a cluster of Couchbase's KV service that answers from a
//!   script. The command `redial faults couchbase` runs it.
//! - [`proxy`] is a TCP and HTTP proxy that injects faults between a real client and a real server.
//!   The command is `redial faults proxy`.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

#[cfg(feature = "couchbase")]
pub mod couchbase;
pub mod grpc;
pub mod proxy;
mod tasks;
