//! What is known of I/O errors: the step that the design leaves open ("TBD"; decision S8).

use std::error::Error;
use std::io::{self, ErrorKind};

use redial::classify::ClassifyRule;
use redial_core::{Directive, Failure, Kind, Stage};

use crate::classifier::WithHook;

/// How many errors of a chain are looked at; a longer one is cut there.
pub const CHAIN_MAX: usize = 32;

/// What an I/O error, anywhere in the chain of sources, says about trying again; `None` if there
/// is none, or if its kind promises nothing (a file that is missing stays missing).
///
/// | kinds | failure | stage |
/// | --- | --- | --- |
/// | `TimedOut`, `WouldBlock` (a socket's own timeout) | timeout | in flight |
/// | `ConnectionRefused`, `AddrNotAvailable` | client | unsent: nothing was accepted |
/// | `ConnectionReset`, `ConnectionAborted`, `BrokenPipe`, `UnexpectedEof`, `NotConnected`, `HostUnreachable`, `NetworkUnreachable`, `NetworkDown`, `Interrupted` | client | in flight |
///
/// It is enough for `when`:
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
            Some(io) => match of_kind(io.kind()) {
                Some(failure) => return Some(failure),
                // Its `source` is that of what it wraps: the wrapped error itself is here.
                None => io.get_ref().map(|wrapped| wrapped as &(dyn Error + 'static)),
            },
            None => error.source(),
        };
    }
    None
}

/// What a kind of I/O error says. Only what cannot happen once something was sent is unsent.
const fn of_kind(kind: ErrorKind) -> Option<Failure> {
    let (kind, stage) = match kind {
        ErrorKind::TimedOut | ErrorKind::WouldBlock => (Kind::Timeout, Stage::InFlight),
        ErrorKind::ConnectionRefused | ErrorKind::AddrNotAvailable => (Kind::Client, Stage::Unsent),
        ErrorKind::ConnectionReset
        | ErrorKind::ConnectionAborted
        | ErrorKind::BrokenPipe
        | ErrorKind::UnexpectedEof
        | ErrorKind::NotConnected
        | ErrorKind::HostUnreachable
        | ErrorKind::NetworkUnreachable
        | ErrorKind::NetworkDown
        | ErrorKind::Interrupted => (Kind::Client, Stage::InFlight),
        _ => return None,
    };
    Some(Failure::new(kind).at(stage))
}

/// A rule that knows I/O errors and nothing else; see [`io_failure`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoErrors;

/// The rule for errors that are no service errors: what [`io_failure`] knows, and nothing else.
#[must_use]
pub const fn io_errors() -> IoErrors {
    IoErrors
}

impl IoErrors {
    /// The same, with a hook of your own for other errors.
    #[must_use]
    pub const fn hook<F>(self, hook: F) -> WithHook<Self, F> {
        WithHook { rule: self, hook }
    }
}

impl<T, E: Error + 'static> ClassifyRule<T, E> for IoErrors {
    fn judge(&mut self, result: &Result<T, E>) -> Option<Directive> {
        let error = result.as_ref().err()?;
        io_failure(error).map(Directive::Retry)
    }
}
