//! The gRPC service that the project's own tests, examples, benchmarks and live scenarios call.
//!
//! `proto/echo.proto` defines the service and the meaning of its fields; `cargo xtask generate`
//! generates `generated.rs` from it, which is checked in so that a build needs no protoc.
//!
//! The server is a tower service, so a client can call it without a network.
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

// Generated code is not formatted or linted.
#[allow(clippy::all, clippy::doc_markdown, missing_docs, unreachable_pub)]
#[rustfmt::skip]
mod generated;
mod responder;

pub use generated::*;
pub use responder::Responder;
