//! Internal interface for `redial-grpc-balance` and `redial-milvus`, without semver guarantees: the
//! balanced channel must classify responses and errors exactly as the layer above it does, and the
//! layer for Milvus as this one.

pub use crate::call::CallStartTime;
pub use crate::response_status::{Head, head, trailers};
pub use crate::unreachable::ConnectionEnded;

/// Classification of transport errors.
pub mod transport_error {
    pub use crate::transport_error::{TransportFailure, chain_text, classify};
}
