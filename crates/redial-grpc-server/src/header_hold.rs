//! Delays response headers until the first message, so that clients can retry an error before it.
//!
//! Rule: the headers are sent once: with the first message, at the end of the stream, at a flush,
//! or at the time limit, whichever comes first. No part of the response is lost, repeated or
//! reordered.

mod future;
mod handle;
mod layer;
mod trailers_only;

pub use future::HoldFuture;
pub use handle::HeaderHold;
pub use layer::{HoldLayer, HoldService};

#[cfg(test)]
mod tests;
