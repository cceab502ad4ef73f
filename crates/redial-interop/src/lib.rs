//! gRPC's official interoperability cases, with Redial's layers on our side.
//!
//! The cases are specified by gRPC's public description of its interoperability tests. This crate
//! has the client side ([`cases`]), through a retry layer with an active policy, and the server
//! side ([`server`]), behind the server layers. [`official`] runs both against the programs of
//! grpc-go, and gives a reason for every skipped case. [`servers`] runs our client against servers
//! written with the libraries of other languages.
//!
//! ```sh
//! cargo run -p redial-interop -- official
//! cargo run -p redial-interop -- servers go target/interop/go/peer
//! ```

pub mod caller;
pub mod cases;
mod children;
pub mod official;
pub mod server;
pub mod servers;
mod trailers;

/// The messages and the service of `proto/testing.proto`.
// Generated code is not formatted or linted.
#[allow(clippy::all, clippy::doc_markdown, missing_docs, unreachable_pub)]
#[rustfmt::skip]
#[path = "generated/testing.rs"]
pub mod testing;

/// The messages and the service of `proto/orca.proto`.
#[allow(clippy::all, clippy::doc_markdown, missing_docs, unreachable_pub)]
#[rustfmt::skip]
#[path = "generated/orca.rs"]
pub mod orca;

/// Why a case failed.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
