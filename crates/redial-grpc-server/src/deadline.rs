//! The deadline of a call that arrived, and the layer that refuses what comes too late.
//!
//! Rule: a deadline is counted from the moment in which a layer first saw the call; at that deadline
//! nothing starts any more.

mod future;
mod layer;

use std::time::Duration;

use redial_grpc::timeout::{self, TIMEOUT};
use tokio::time::Instant;

pub use future::DeadlineFuture;
pub use layer::{DeadlineLayer, DeadlineService};

use super::IncomingRequest;

/// When the client of a call stops waiting for it: the moment of its arrival plus its `grpc-timeout`.
///
/// [`DeadlineLayer`] puts it into the extensions of each request that has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Deadline {
    at: Instant,
}

impl Deadline {
    /// The deadline of a request that came through a [`DeadlineLayer`]; `None` if it has none, or came
    /// through none.
    #[must_use]
    pub fn of<R: IncomingRequest + ?Sized>(request: &R) -> Option<Self> {
        request.extension_map().get().copied()
    }

    /// The moment itself.
    #[must_use]
    pub fn at(self) -> Instant {
        self.at
    }

    /// What is left of the time; zero once it has passed.
    #[must_use]
    pub fn remaining(self) -> Duration {
        self.at.saturating_duration_since(Instant::now())
    }

    /// Whether it is too late to begin.
    #[must_use]
    pub fn has_passed(self) -> bool {
        self.at <= Instant::now()
    }

    /// What the headers say, counted from now. A header that cannot be read, or that lies beyond what
    /// the clock can say, is no deadline.
    fn from_headers<B>(request: &http::Request<B>) -> Option<Self> {
        let timeout = timeout::parse(request.headers().get(TIMEOUT)?)?;
        Instant::now().checked_add(timeout).map(|at| Self { at })
    }
}

/// What is left of the time that the client of `request` gave it; zero once that has passed.
///
/// `None` if it gave none, or if the request did not come through a [`DeadlineLayer`]. A handler that
/// calls others hands it on:
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
