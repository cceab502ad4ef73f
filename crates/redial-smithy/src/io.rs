//! Classification of I/O errors: the step that Smithy's design leaves open ("TBD"; decision S8).

use std::error::Error;
use std::io::{self, ErrorKind};

use redial::classify::ClassifyRule;
use redial_core::{Directive, Failure, FailureKind, Stage};

use crate::classifier::WithHook;

/// The maximum number of errors of a source chain that are inspected.
pub const CHAIN_MAX: usize = 32;

/// The failure of an I/O error anywhere in the source chain. `None` if there is none, or if its kind is
/// not transient (a missing file stays missing).
///
/// | kinds | failure | stage |
/// | --- | --- | --- |
/// | `TimedOut`, `WouldBlock` (a socket's own timeout) | timeout | in flight |
/// | `ConnectionRefused`, `AddrNotAvailable` | client | unsent: no connection was accepted |
/// | `ConnectionReset`, `ConnectionAborted`, `BrokenPipe`, `UnexpectedEof`, `NotConnected`, `HostUnreachable`, `NetworkUnreachable`, `NetworkDown`, `Interrupted` | client | in flight |
///
/// Usable as the predicate of `when`:
/// ```
/// # use redial::{Policy, ms};
/// use redial_smithy::io_failure;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// static READ: Policy = Policy::exponential(ms(10)).build();
/// # let read = || async { std::io::Result::Ok(7) };
/// let seven = READ.retry(read).when(|error| io_failure(error)).await;
/// # assert_eq!(seven.ok(), Some(7));
/// # }
/// ```
#[must_use]
pub fn io_failure(error: &(dyn Error + 'static)) -> Option<Failure> {
    let mut next = Some(error);
    for _ in 0..CHAIN_MAX {
        let error = next?;
        next = match error.downcast_ref::<io::Error>() {
            Some(io) => match failure_of_kind(io.kind()) {
                Some(failure) => return Some(failure),
                // `source` of an I/O error skips the wrapped error, so take that one with `get_ref`.
                None => io.get_ref().map(|wrapped| wrapped as &(dyn Error + 'static)),
            },
            None => error.source(),
        };
    }
    None
}

/// The failure of a kind of I/O error. `Unsent` only for kinds that cannot occur after data was sent.
const fn failure_of_kind(kind: ErrorKind) -> Option<Failure> {
    let (kind, stage) = match kind {
        ErrorKind::TimedOut | ErrorKind::WouldBlock => (FailureKind::Timeout, Stage::InFlight),
        ErrorKind::ConnectionRefused | ErrorKind::AddrNotAvailable => {
            (FailureKind::Client, Stage::Unsent)
        }
        ErrorKind::ConnectionReset
        | ErrorKind::ConnectionAborted
        | ErrorKind::BrokenPipe
        | ErrorKind::UnexpectedEof
        | ErrorKind::NotConnected
        | ErrorKind::HostUnreachable
        | ErrorKind::NetworkUnreachable
        | ErrorKind::NetworkDown
        | ErrorKind::Interrupted => (FailureKind::Client, Stage::InFlight),
        _ => return None,
    };
    Some(Failure::new(kind).at(stage))
}

/// A classification rule for I/O errors only; see [`io_failure`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoErrors;

/// The classification rule for error types without service metadata: I/O errors by [`io_failure`].
#[must_use]
pub const fn io_errors() -> IoErrors {
    IoErrors
}

impl IoErrors {
    /// Adds a custom hook for other errors.
    #[must_use]
    pub const fn hook<F>(self, hook: F) -> WithHook<Self, F> {
        WithHook { rule: self, hook }
    }
}

impl<T, E: Error + 'static> ClassifyRule<T, E> for IoErrors {
    fn classify(&mut self, result: &Result<T, E>) -> Option<Directive> {
        let error = result.as_ref().err()?;
        io_failure(error).map(Directive::Retry)
    }
}
