//! The deadline of an incoming call, and the layer that rejects calls whose deadline has passed.
//!
//! Rule: the deadline counts from the moment at which a layer first sees the call. No call starts
//! at or after its deadline.

mod future;
mod layer;

use std::time::Duration;

use redial_grpc::timeout;
use tokio::time::Instant;

pub use future::DeadlineFuture;
pub use layer::{DeadlineLayer, DeadlineService};

use super::IncomingRequest;

/// When the client stops waiting for the call: its arrival plus its `grpc-timeout`.
///
/// [`DeadlineLayer`] adds it to the extensions of each request that has a timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Deadline {
    at: Instant,
}

impl Deadline {
    /// The deadline of a request that passed a [`DeadlineLayer`]; `None` if the request has no
    /// timeout, or did not pass such a layer.
    #[must_use]
    pub fn of<R: IncomingRequest + ?Sized>(request: &R) -> Option<Self> {
        request.extension_map().get().copied()
    }

    /// The point in time.
    #[must_use]
    pub fn at(self) -> Instant {
        self.at
    }

    /// The remaining time; zero after the deadline.
    #[must_use]
    pub fn remaining(self) -> Duration {
        self.at.saturating_duration_since(Instant::now())
    }

    /// Whether the deadline has passed.
    #[must_use]
    pub fn has_passed(self) -> bool {
        self.at <= Instant::now()
    }

    /// The deadline of a request that arrives now. An invalid header, or a time beyond the range of
    /// the clock, means no deadline.
    fn from_headers<B>(request: &http::Request<B>) -> Option<Self> {
        let timeout = timeout::of_headers(request.headers())?;
        Instant::now().checked_add(timeout).map(|at| Self { at })
    }
}

/// The remaining time of the call; zero after its deadline. Use it for deadline propagation: a
/// handler passes it to the calls that it makes itself.
///
/// `None` if the client set no timeout, or the request did not pass a [`DeadlineLayer`].
/// ```
/// use redial_grpc_server as server;
///
/// fn onward<T>(incoming: &tonic::Request<T>) -> tonic::Request<()> {
///     let mut request = tonic::Request::new(());
///     if let Some(remaining) = server::remaining(incoming) {
///         request.set_timeout(remaining);
///     }
///     request
/// }
/// # assert!(onward(&tonic::Request::new(())).metadata().is_empty());
/// ```
#[must_use]
pub fn remaining<R: IncomingRequest + ?Sized>(request: &R) -> Option<Duration> {
    Deadline::of(request).map(Deadline::remaining)
}

#[cfg(test)]
mod tests;
