//! gRPC's official interoperability cases, played with the layers of this project on our side.
//!
//! Rule: what a case does is said by gRPC's public description of its interoperability tests; here are its
//! client's part ([`cases`]), through a retry layer with a policy in force, and its server's part
//! ([`server`]), behind the layers for servers. [`official`] plays both against the programs of grpc-go, and
//! says of every case that is not played why not. [`servers`] plays our client against servers that were
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
// The generator has its own layout and its own idea of lints.
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
