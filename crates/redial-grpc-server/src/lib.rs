//! Layers and helpers for tonic servers whose clients retry.
//!
//! Rule: each part works alone. Without its layer, a handle does nothing and a value is absent, but
//! neither is an error, so a handler works the same with and without the layer.
//!
//! | goal | use |
//! | --- | --- |
//! | know how many attempts came before | [`previous_attempts`] |
//! | server pushback: say when to retry, or not to retry | [`PushbackExt`] on a [`Status`](tonic::Status) |
//! | let clients retry a stream that fails before its first message | [`HoldLayer`], [`HeaderHold`] |
//! | reject calls whose deadline has passed, propagate deadlines | [`DeadlineLayer`], [`remaining`] |
//! | avoid retry amplification in calls that handlers make | [`InboundAttemptLayer`], [`InboundAttempt`] |
//!
//! ```no_run
//! use redial_echo::Responder;
//! use redial_echo::echo_server::EchoServer;
//! use redial_grpc_server::{DeadlineLayer, HoldLayer, InboundAttemptLayer};
//! use tonic::transport::Server;
//!
//! # async fn serve() -> Result<(), tonic::transport::Error> {
//! Server::builder()
//!     .layer(DeadlineLayer::new())
//!     .layer(InboundAttemptLayer::new())
//!     .layer(HoldLayer::new())
//!     .add_service(EchoServer::new(Responder))
//!     .serve(([127, 0, 0, 1], 50051).into())
//!     .await
//! # }
//! ```

#![cfg_attr(docsrs, feature(doc_cfg))]

mod deadline;
mod header_hold;
mod inbound_attempt;
mod incoming_request;
mod peeked_body;
mod pushback;

pub use deadline::{Deadline, DeadlineFuture, DeadlineLayer, DeadlineService, remaining};
pub use header_hold::{HeaderHold, HoldFuture, HoldLayer, HoldService};
pub use inbound_attempt::{
    InboundAttemptBody, InboundAttemptFuture, InboundAttemptLayer, InboundAttemptService,
};
pub use incoming_request::IncomingRequest;
pub use peeked_body::PeekedBody;
pub use pushback::PushbackExt;
pub use redial_grpc::InboundAttempt;
pub use redial_grpc::inbound_attempt::{Headers, previous_attempts};
