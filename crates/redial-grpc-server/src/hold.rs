//! Response headers that wait for the first message, so that an error before it can be retried.
//!
//! Rule: headers go out once: with the first message, at the end, at a flush or when the time for it is over,
//! whichever comes first. Nothing of the handler's answer is lost, repeated or reordered.

mod future;
mod handle;
mod layer;
mod trailers_only;

pub use future::HoldFuture;
pub use handle::HeaderHold;
pub use layer::{HoldLayer, HoldService};

#[cfg(test)]
mod tests;
