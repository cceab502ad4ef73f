//! For servers of tonic: what their clients' retries need of them, and what keeps retries bearable.
//!
//! Rule: each part works alone. A layer that is not there makes its handle or its value absent, and never an
//! error, so that a handler is the same with and without it.
//!
//! | a server wants to | use |
//! | --- | --- |
//! | know how many attempts came before | [`previous_attempts`] |
//! | say when to retry, or not to | [`PushbackExt`] on a [`Status`](tonic::Status) |
//! | let clients retry a stream that fails before its first message | [`HoldLayer`], [`HeaderHold`] |
//! | refuse what nobody waits for any more | [`DeadlineLayer`], [`remaining`] |
//! | keep its own calls from multiplying retries | [`InboundAttemptLayer`], [`InboundAttempt`] |
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

mod body;
mod deadline;
mod hold;
mod incoming;
mod pushback;
mod serving_layer;

pub use body::PeekedBody;
pub use deadline::{Deadline, DeadlineFuture, DeadlineLayer, DeadlineService, remaining};
pub use hold::{HeaderHold, HoldFuture, HoldLayer, HoldService};
pub use incoming::IncomingRequest;
pub use pushback::PushbackExt;
pub use redial_grpc::inbound_attempt::{Headers, InboundAttempt, previous_attempts};
pub use serving_layer::{
    InboundAttemptBody, InboundAttemptFuture, InboundAttemptLayer, InboundAttemptService,
};
