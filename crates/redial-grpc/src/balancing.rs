//! For `redial-grpc-balance` alone, without any promise: a channel judges responses and errors as the
//! layer above it does, or the two would disagree about what a backend has done.

pub use crate::response_status::{Head, head, trailers};
pub use crate::service::CallBegan;
pub use crate::unreachable::Spent;

/// What the error of a connection proves.
pub mod evidence {
    pub use crate::evidence::{Evidence, of, text};
}
