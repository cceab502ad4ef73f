//! Classification of results by Smithy's standard retry policy (decision S8). [`Classifier`] lists the
//! order of its steps.

use std::error::Error;
use std::io;

use redial::classify::ClassifyRule;
use redial_core::{Directive, Failure, FailureKind, Hint, Stage};

use crate::io::io_failure;

/// The fault of a service error: client or server (Smithy's `@error` trait).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorFault {
    /// The server is at fault.
    Server,
    /// The request is at fault.
    Client,
}

/// The retry metadata of an SDK error. Every method defaults to "not retryable".
///
/// ```
/// use std::fmt;
/// use redial_smithy::{ServiceError, ErrorFault};
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
///     fn fault(&self) -> Option<ErrorFault> {
///         Some(if matches!(self, StoreError::NoSuchKey) { ErrorFault::Client } else { ErrorFault::Server })
///     }
/// }
/// # impl fmt::Display for StoreError { fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { f.write_str("store") } }
/// # impl std::error::Error for StoreError {}
/// ```
pub trait ServiceError {
    /// Whether the service throttles requests.
    fn is_throttling(&self) -> bool {
        false
    }

    /// Whether the service model marks the error as retryable.
    fn is_retryable(&self) -> bool {
        false
    }

    /// The fault, if the error is a response of the service.
    fn fault(&self) -> Option<ErrorFault> {
        None
    }

    /// Whether the client library raised the error (Smithy's `ClientException`).
    fn is_client_error(&self) -> bool {
        false
    }

    /// How far the attempt got: `Answered` for an error response of the service, else `InFlight`, since
    /// the service may have processed the request.
    fn stage(&self) -> Stage {
        if self.is_throttling() || self.fault().is_some() {
            Stage::Answered
        } else {
            Stage::InFlight
        }
    }

    /// The server's retry-after hint.
    fn hint(&self) -> Hint {
        Hint::None
    }
}

/// An I/O error has no service metadata; step 4 of the classification handles it.
impl ServiceError for io::Error {}

/// Which client errors are retried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ClientErrors {
    /// All client errors, as in Smithy's design.
    #[default]
    All,
    /// Client errors that are marked retryable, as in today's AWS SDKs.
    RetryableOnly,
}

/// Smithy's standard classification of errors. The first matching step decides:
///
/// 1. Throttling errors are retried.
/// 2. Service errors that are marked retryable are retried; their fault determines the kind of failure.
/// 3. Client errors are retried: all, or those marked retryable ([`Classifier::client_errors`]).
/// 4. Transient I/O errors are retried ([`io_failure`]).
/// 5. A custom [`hook`](Classifier::hook) decides.
/// 6. Any other error fails.
///
/// Successful values are not classified, so a rule for values (a waiter) can be chained before or after
/// the classifier:
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

/// Smithy's standard classification, with retries of all client errors.
#[must_use]
pub const fn classifier() -> Classifier {
    Classifier { client_errors: ClientErrors::All }
}

impl Classifier {
    /// Which client errors are retried.
    #[must_use]
    pub const fn client_errors(mut self, which: ClientErrors) -> Self {
        self.client_errors = which;
        self
    }

    /// Adds a custom hook for errors that steps 1 to 4 do not classify.
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
    /// # assert!(redial::classify::ClassifyRule::classify(&mut rules, &result).is_some());
    /// ```
    #[must_use]
    pub const fn hook<F>(self, hook: F) -> WithHook<Self, F> {
        WithHook { rule: self, hook }
    }

    /// The failure by steps 1 to 4; `None` if none of them matches.
    #[must_use]
    pub fn failure<E: ServiceError + Error + 'static>(&self, error: &E) -> Option<Failure> {
        let kind = if error.is_throttling() {
            FailureKind::Throttling
        } else if let (true, Some(fault)) = (error.is_retryable(), error.fault()) {
            match fault {
                ErrorFault::Server => FailureKind::Server,
                ErrorFault::Client => FailureKind::Client,
            }
        } else if error.is_client_error() && self.retries_client_error(error.is_retryable()) {
            FailureKind::Client
        } else {
            return io_failure(error);
        };
        Some(Failure::new(kind).at(error.stage()).hint(error.hint()))
    }

    fn retries_client_error(&self, is_retryable: bool) -> bool {
        self.client_errors == ClientErrors::All || is_retryable
    }
}

impl<T, E: ServiceError + Error + 'static> ClassifyRule<T, E> for Classifier {
    fn classify(&mut self, result: &Result<T, E>) -> Option<Directive> {
        let error = result.as_ref().err()?;
        self.failure(error).map(Directive::Retry)
    }
}

/// A rule followed by a custom hook for errors; made by [`Classifier::hook`] and
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
    fn classify(&mut self, result: &Result<T, E>) -> Option<Directive> {
        let error = || result.as_ref().err();
        self.rule.classify(result).or_else(|| (self.hook)(error()?))
    }
}
