//! What an operation is, and what each attempt at it can know.

use std::time::Duration;

use redial_core::Failure;

/// What an attempt knows of itself.
#[derive(Clone, Copy, Debug)]
pub struct Attempt {
    pub(crate) number: u32,
    pub(crate) remaining: Option<Duration>,
    pub(crate) last: Option<Failure>,
}

impl Attempt {
    /// Its number, from 1.
    #[must_use]
    pub const fn number(&self) -> u32 {
        self.number
    }

    /// How long it has until the deadline or its own timeout; `None`: as long as it likes.
    #[must_use]
    pub const fn remaining(&self) -> Option<Duration> {
        self.remaining
    }

    /// What is known of the failure before it; `None` at the first.
    #[must_use]
    pub const fn last_failure(&self) -> Option<&Failure> {
        self.last.as_ref()
    }
}

/// Marks operations that return futures.
#[derive(Debug)]
pub enum Async {}
/// Marks operations that block.
#[derive(Debug)]
pub enum Blocking {}

/// What an operation returns: a `Result`, or a future of one. `K` keeps the two apart.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not what this operation must return",
    note = "an operation returns a `Result` or a future of one, and where it is hedged a future"
)]
pub trait Answer<K> {
    /// What was asked for.
    type Value;
    /// What came instead.
    type Error;
}

impl<T, E> Answer<Blocking> for Result<T, E> {
    type Value = T;
    type Error = E;
}

impl<T, E, F: Future<Output = Result<T, E>>> Answer<Async> for F {
    type Value = T;
    type Error = E;
}

/// Something that can be tried again and again.
pub trait Operation {
    /// What one try returns.
    type Answer;
    /// Whether it looks at its [`Attempt`], so that the clock must be read for it.
    const READS_ATTEMPT: bool;

    /// Starts one try.
    fn start(&mut self, attempt: Attempt) -> Self::Answer;
}

impl<R, F: FnMut() -> R> Operation for F {
    type Answer = R;
    const READS_ATTEMPT: bool = false;

    #[inline]
    fn start(&mut self, _attempt: Attempt) -> R {
        self()
    }
}

/// An operation that sees its [`Attempt`].
#[derive(Debug)]
pub struct WithAttempt<F>(pub(crate) F);

impl<R, F: FnMut(Attempt) -> R> Operation for WithAttempt<F> {
    type Answer = R;
    const READS_ATTEMPT: bool = true;

    #[inline]
    fn start(&mut self, attempt: Attempt) -> R {
        (self.0)(attempt)
    }
}
