//! The gRPC service that the project's own tests, examples, benchmarks and live scenarios call.
//!
//! Rule: `proto/echo.proto` says what the service is and what its fields steer; `generated.rs` is made
//! from it by `cargo xtask generate` and checked in, so that nobody needs a proto compiler.
//!
//! A server is a tower service, and so is what a client calls: both fit together without a network.
//! ```
//! use redial_echo::echo_client::EchoClient;
//! use redial_echo::echo_server::EchoServer;
//! use redial_echo::{EchoRequest, Responder};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tonic::Status> {
//! let mut client = EchoClient::new(EchoServer::new(Responder));
//! let answer = client.unary(EchoRequest { payload: "hello".into(), ..Default::default() }).await?;
//! assert_eq!(answer.into_inner().payload, "hello");
//! # Ok(()) }
//! ```

#![cfg_attr(docsrs, feature(doc_cfg))]

// The generator has its own layout and its own idea of lints.
#[allow(clippy::all, clippy::doc_markdown, missing_docs, unreachable_pub)]
#[rustfmt::skip]
mod generated;
mod responder;

pub use generated::*;
pub use responder::Responder;
