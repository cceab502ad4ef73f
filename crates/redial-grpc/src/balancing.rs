//! Internal interface for `redial-grpc-balance` and `redial-milvus`, without semver guarantees: the
//! balanced channel must classify responses and errors exactly as the layer above it does, and the
//! layer for Milvus as this one.

use tokio::time::Instant;

use crate::CallOptions;
pub use crate::response_status::{Head, head, trailers};
pub use crate::unreachable::ConnectionEnded;

/// Classification of transport errors.
pub mod transport_error {
    pub use crate::transport_error::{TransportFailure, chain_text, classify};
}

/// Sets the start time of a call that had to wait for its config. The `grpc-timeout` of its request is the
/// remaining time.
pub fn set_start_time(extensions: &mut http::Extensions, began: Instant) {
    let options = extensions.remove::<CallOptions>().unwrap_or_default();
    extensions.insert(CallOptions { began: Some(began), ..options });
}
