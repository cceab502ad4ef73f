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

mod deadline;
mod hold;
mod inbound_attempt;
mod incoming_request;
mod peeked_body;
mod pushback;

pub use deadline::{Deadline, DeadlineFuture, DeadlineLayer, DeadlineService, remaining};
pub use hold::{HeaderHold, HoldFuture, HoldLayer, HoldService};
pub use inbound_attempt::{
    InboundAttemptBody, InboundAttemptFuture, InboundAttemptLayer, InboundAttemptService,
};
pub use incoming_request::IncomingRequest;
pub use peeked_body::PeekedBody;
pub use pushback::PushbackExt;
pub use redial_grpc::serving::{Headers, InboundAttempt, previous_attempts};
