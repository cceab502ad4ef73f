//! How the standard policy judges a result, in its documented order (decision S8).
//!
//! 1. Throttling, whatever else the error is.
//! 2. A service error that is marked retryable, by its side.
//! 3. Client errors: all of them, or those that are marked retryable ([`ClientErrors`]).
//! 4. What is known of I/O errors ([`io_failure`](crate::io_failure)).
//! 5. The user's own hook.
//! 6. Else it fails.
//!
//! A value succeeds, unless a rule that is chained with it says otherwise (waiters).

use std::error::Error;
use std::io;

use redial::classify::ClassifyRule;
use redial_core::{Directive, Failure, Hint, Kind, Stage};

use crate::io::io_failure;

/// Whose fault a service says it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The server's.
    Server,
    /// The caller's.
    Client,
}

/// An error as the SDKs know it: what its metadata says. Everything is "no" until you say so.
///
/// ```
/// use std::fmt;
/// use redial_smithy::{ServiceError, Fault};
///
/// #[derive(Debug)]
/// enum StoreError { SlowDown, Internal, NoSuchKey }
///
/// impl ServiceError for StoreError {
///     fn is_throttling(&self) -> bool {
///         matches!(self, StoreError::SlowDown)
///     }
///     fn is_retryable(&self) -> bool {
///         !matches!(self, StoreError::NoSuchKey)
///     }
///     fn fault(&self) -> Option<Fault> {
///         Some(if matches!(self, StoreError::NoSuchKey) { Fault::Client } else { Fault::Server })
///     }
/// }
/// # impl fmt::Display for StoreError { fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { f.write_str("store") } }
/// # impl std::error::Error for StoreError {}
/// ```
pub trait ServiceError {
    /// Whether the service asks for fewer requests.
    fn is_throttling(&self) -> bool {
        false
    }

    /// Whether it is marked as one that may get better.
    fn is_retryable(&self) -> bool {
        false
    }

    /// Whose fault the service says it was; `None` if no service said anything.
    fn fault(&self) -> Option<Fault> {
        None
    }

    /// Whether the client library raised it (the design's `ClientException`).
    fn is_client_error(&self) -> bool {
        false
    }

    /// How far the attempt got. What a service said was answered; of the rest nothing is known.
    fn stage(&self) -> Stage {
        if self.is_throttling() || self.fault().is_some() {
            Stage::Answered
        } else {
            Stage::InFlight
        }
    }

    /// What the server asked for about the next attempt.
    fn hint(&self) -> Hint {
        Hint::None
    }
}

/// An I/O error is no service error: step 4 knows it.
impl ServiceError for io::Error {}

/// Which client errors are repeated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ClientErrors {
    /// All of them, as the design has it.
    #[default]
    All,
    /// Those that are marked retryable, as today's SDKs have it.
    RetryableOnly,
}

/// The standard policy's judgement; see the order in [`smithy`](super).
///
/// 1. Throttling, whatever else the error is.
/// 2. A service error that is marked retryable, by its side.
/// 3. Client errors: all of them, or those marked retryable ([`Classifier::client_errors`]).
/// 4. What is known of I/O errors ([`io_failure`]).
/// 5. Your own [`hook`](Classifier::hook).
/// 6. Else it fails.
///
/// It has nothing to say about values, so that a rule for them (a waiter) can be chained before or
/// after it:
/// ```
/// use std::io;
/// use redial_smithy::{StandardRetryStrategy, classifier};
/// use redial::{Directive, Failure, classify::ClassifyRule};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let policy = StandardRetryStrategy::standard().policy()?;
/// # let mut progress = 0;
/// let state = policy
///     .retry(|| { progress += 50; std::future::ready(io::Result::Ok(progress)) })
///     .classify(classifier().or(|state: &io::Result<u32>| match state {
///         Ok(percent) if *percent < 100 => Some(Directive::Retry(Failure::server())),
///         _ => None,
///     }))
///     .await?;
/// assert_eq!(state, 100);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Classifier {
    client_errors: ClientErrors,
}

/// The standard policy's judgement, as the design has it.
#[must_use]
pub const fn classifier() -> Classifier {
    Classifier { client_errors: ClientErrors::All }
}

impl Classifier {
    /// Which client errors are repeated.
    #[must_use]
    pub const fn client_errors(mut self, which: ClientErrors) -> Self {
        self.client_errors = which;
        self
    }

    /// The same, with a hook of your own for errors that steps 1 to 4 do not know.
    ///
    /// ```
    /// # use std::io;
    /// use redial::{Directive, Failure};
    /// use redial_smithy::classifier;
    ///
    /// let rules = classifier().hook(|error: &io::Error| {
    ///     (error.raw_os_error() == Some(35)).then_some(Directive::Retry(Failure::server()))
    /// });
    /// # let mut rules = rules;
    /// # let result: io::Result<()> = Err(io::Error::from_raw_os_error(35));
    /// # assert!(redial::classify::ClassifyRule::judge(&mut rules, &result).is_some());
    /// ```
    #[must_use]
    pub const fn hook<F>(self, hook: F) -> WithHook<Self, F> {
        WithHook { rule: self, hook }
    }

    /// What steps 1 to 4 know of an error; `None` if they know nothing.
    #[must_use]
    pub fn failure<E: ServiceError + Error + 'static>(&self, error: &E) -> Option<Failure> {
        let kind = if error.is_throttling() {
            Kind::Throttling
        } else if let (true, Some(fault)) = (error.is_retryable(), error.fault()) {
            match fault {
                Fault::Server => Kind::Server,
                Fault::Client => Kind::Client,
            }
        } else if error.is_client_error() && self.repeats_client_error(error.is_retryable()) {
            Kind::Client
        } else {
            return io_failure(error);
        };
        Some(Failure::new(kind).at(error.stage()).hint(error.hint()))
    }

    fn repeats_client_error(&self, is_retryable: bool) -> bool {
        self.client_errors == ClientErrors::All || is_retryable
    }
}

impl<T, E: ServiceError + Error + 'static> ClassifyRule<T, E> for Classifier {
    fn judge(&mut self, result: &Result<T, E>) -> Option<Directive> {
        let error = result.as_ref().err()?;
        self.failure(error).map(Directive::Retry)
    }
}

/// A rule with a hook of your own after it, for errors alone: made by [`Classifier::hook`] and
/// [`IoErrors::hook`](crate::IoErrors::hook).
#[derive(Clone, Copy, Debug)]
pub struct WithHook<C, F> {
    pub(crate) rule: C,
    pub(crate) hook: F,
}

impl<T, E, C, F> ClassifyRule<T, E> for WithHook<C, F>
where
    C: ClassifyRule<T, E>,
    F: FnMut(&E) -> Option<Directive>,
{
    fn judge(&mut self, result: &Result<T, E>) -> Option<Directive> {
        let error = || result.as_ref().err();
        self.rule.judge(result).or_else(|| (self.hook)(error()?))
    }
}
