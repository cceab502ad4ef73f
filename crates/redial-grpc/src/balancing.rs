//! For `redial-grpc-balance` alone, without any promise: a channel judges responses and errors as the
//! layer above it does, or the two would disagree about what a backend has done.

pub use crate::response_status::{Head, head, trailers};
pub use crate::service::CallStartTime;
pub use crate::unreachable::ConnectionEnded;

/// What the error of a connection proves.
pub mod transport_error {
    pub use crate::transport_error::{TransportFailure, chain_text, classify};
}
