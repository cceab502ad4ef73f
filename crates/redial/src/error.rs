//! The error of a call: the last outcome, the number of attempts, the elapsed time and the stop reason.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redial_core::StopReason;

use crate::classify::{Last, NoValue};
use crate::report::Report;

/// Any error.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The error of a call that failed.
///
/// It prints as `connection refused (3 attempts in 1.2 s; gave up: no attempt left)`, has the same as
/// data ([`Error::report`]), and returns the operation's own error ([`Error::into_last`]). An async call
/// without a deadline and options reads no clock before it is pending or fails, so its text has `in at least
/// 1.2 s` ([`Report::elapsed_exact`]). `V` is the type of a rejected value, for calls that classify values
/// (`until`, `classify`).
///
/// To use `?` in a function with your own error type, implement `From`:
///
/// ```
/// # enum MyError { Db(DbError), GaveUp }
/// # struct DbError;
/// impl From<redial::Error<DbError>> for MyError {
///     fn from(error: redial::Error<DbError>) -> Self {
///         error.into_last().map_or(MyError::GaveUp, MyError::Db)
///     }
/// }
/// ```
///
/// If the operation's error does not implement [`std::error::Error`] (`Box<dyn Error + Send + Sync>`,
/// `anyhow::Error`, a string), use [`Error::boxed`].
///
/// # Text and source
///
/// The text begins with the operation's error, so `source` is what that error has as its source: a printer of
/// the whole chain, such as `{:#}` of `anyhow`, prints every cause once. The operation's error itself is
/// [`Error::last`]. In a chain of errors, [`find_error`] finds it.
///
/// If a strategy failed the call ([`Decision::Fail`](crate::strategy::Decision::Fail)), the text begins with the
/// strategy's error, and the operation's error is the source.
///
/// It can be cloned and compared where the operation's error can.
#[derive(Clone)]
pub struct Error<E, V = NoValue> {
    last: Option<Last<E, V>>,
    details: Box<Details>,
}

/// The part of an [`Error`] that does not depend on the operation, so that call sites share its code.
#[derive(Clone)]
pub(crate) struct Details {
    pub(crate) report: Report,
    pub(crate) strategy: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

impl Details {
    /// Writes the text of an error with this last outcome.
    #[inline(never)]
    fn fmt(&self, last: &dyn fmt::Display, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.strategy {
            Some(error) => write!(f, "{error}")?,
            None => write!(f, "{last}")?,
        }
        write!(f, " ({})", self.report)
    }

    #[inline(never)]
    fn debug(&self, last: &dyn fmt::Debug, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error").field("last", last).field("report", &self.report).finish()
    }
}

impl<E, V> Error<E, V> {
    pub(crate) fn new(last: Option<Last<E, V>>, details: Box<Details>) -> Self {
        Error { last, details }
    }

    /// The number of attempts.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.details.report.attempts
    }

    /// The duration of the call, or a lower bound of it: [`Report::elapsed_exact`] says which.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.details.report.elapsed
    }

    /// Why the call ended.
    #[must_use]
    pub fn stop_reason(&self) -> StopReason {
        self.details.report.stop_reason
    }

    /// The report of the call: attempts, elapsed time, stop reason, and the history if
    /// [`Retry::history`](crate::Retry::history) was set.
    #[must_use]
    pub fn report(&self) -> &Report {
        &self.details.report
    }

    /// The last error of the operation. `None` if the deadline came before the first error, or if the
    /// last outcome was a value.
    #[must_use]
    pub fn last(&self) -> Option<&E> {
        match &self.last {
            Some(Last::Error(error)) => Some(error),
            _ => None,
        }
    }

    /// The last error of the operation.
    #[must_use]
    pub fn into_last(self) -> Option<E> {
        match self.last {
            Some(Last::Error(error)) => Some(error),
            _ => None,
        }
    }

    /// The last value, if it was rejected.
    #[must_use]
    pub fn last_value(&self) -> Option<&V> {
        match &self.last {
            Some(Last::Value(value)) => Some(value),
            _ => None,
        }
    }

    /// The last value, if it was rejected.
    #[must_use]
    pub fn into_last_value(self) -> Option<V> {
        match self.last {
            Some(Last::Value(value)) => Some(value),
            _ => None,
        }
    }

    /// Converts the last error.
    #[must_use]
    pub fn map_last<F>(self, change: impl FnOnce(E) -> F) -> Error<F, V> {
        let Error { last, details } = self;
        let last = last.map(|last| match last {
            Last::Error(error) => Last::Error(change(error)),
            Last::Value(value) => Last::Value(value),
        });
        Error::new(last, details)
    }

    /// Converts the last value, if it was rejected. With `|_| ()`, an error whose value is not `Send` or
    /// `Sync` can be returned with `?` from a function that returns `anyhow::Error` or
    /// `Box<dyn Error + Send + Sync>`.
    ///
    /// ```
    /// use std::rc::Rc;
    ///
    /// fn poll() -> Result<Rc<u32>, Box<dyn std::error::Error + Send + Sync>> {
    ///     let job = || Ok::<_, std::io::Error>(Rc::new(7));
    ///     let call = redial::retry(job).until(|value| **value > 9).when(|_| false);
    ///     Ok(call.call().map_err(|error| error.map_value(|_| ()))?)
    /// }
    /// assert!(poll().unwrap_err().to_string().starts_with("no acceptable value (3 attempts in "));
    /// ```
    #[must_use]
    pub fn map_value<U>(self, change: impl FnOnce(V) -> U) -> Error<E, U> {
        let Error { last, details } = self;
        let last = last.map(|last| match last {
            Last::Error(error) => Last::Error(error),
            Last::Value(value) => Last::Value(change(value)),
        });
        Error::new(last, details)
    }

    /// Wraps the last error in a type that implements [`std::error::Error`], for operations that return
    /// `Box<dyn Error + Send + Sync>`, `anyhow::Error` or a string. (A `Box<dyn Error>` without `Send` and
    /// `Sync` cannot be wrapped so; convert it with [`Error::map_last`].)
    ///
    /// ```
    /// use std::error::Error;
    ///
    /// fn connect() -> Result<u32, Box<dyn Error + Send + Sync>> {
    ///     Err("connection refused".into())
    /// }
    ///
    /// fn run() -> Result<u32, Box<dyn Error + Send + Sync>> {
    ///     Ok(redial::retry(connect).when(|_| false).call().map_err(redial::Error::boxed)?)
    /// }
    ///
    /// let error = run().unwrap_err();
    /// assert!(error.to_string().starts_with("connection refused (1 attempt in "));
    /// let last = error.downcast_ref::<redial::Error<redial::parts::AnyError>>().unwrap().last().unwrap();
    /// assert_eq!(last.to_string(), "connection refused");
    /// ```
    #[must_use]
    pub fn boxed(self) -> Error<AnyError, V>
    where
        E: Into<BoxError>,
    {
        self.map_last(|error| AnyError(error.into()))
    }

    /// The last outcome and the report.
    #[must_use]
    pub fn into_parts(self) -> (Option<Last<E, V>>, Report) {
        (self.last, self.details.report)
    }

    /// The error with which a strategy failed the call
    /// ([`Decision::Fail`](crate::strategy::Decision::Fail)).
    #[must_use]
    pub fn strategy_error(&self) -> Option<&(dyn std::error::Error + Send + Sync + 'static)> {
        self.details.strategy.as_deref()
    }

    /// Whether time ended the call: the deadline, an attempt timeout, or an attempt timeout in every
    /// attempt.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        let timed_out =
            matches!(self.stop_reason(), StopReason::Deadline | StopReason::AttemptTimeout);
        // Without a last outcome, no attempt has returned.
        timed_out || self.last.is_none() && self.details.strategy.is_none()
    }

    /// Whether the throttle ended the call.
    #[must_use]
    pub fn is_throttled(&self) -> bool {
        self.stop_reason() == StopReason::Throttled
    }
}

impl<E: fmt::Display, V> fmt::Display for Error<E, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let last: &dyn fmt::Display = match &self.last {
            Some(Last::Error(error)) => error,
            Some(Last::Value(_)) => &"no acceptable value",
            None => &"no answer",
        };
        self.details.fmt(last, f)
    }
}

impl<E: fmt::Debug, V> fmt::Debug for Error<E, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let last: &dyn fmt::Debug = match &self.last {
            Some(Last::Error(error)) => error,
            Some(Last::Value(_)) => &"a value",
            None => &None::<()>,
        };
        self.details.debug(last, f)
    }
}

impl<E: std::error::Error + 'static, V> std::error::Error for Error<E, V> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match (&self.details.strategy, &self.last) {
            // The text of this error begins with that of the strategy, or else with that of the last error.
            (Some(_), Some(Last::Error(error))) => Some(error),
            (None, Some(Last::Error(error))) => error.source(),
            _ => None,
        }
    }
}

/// Finds the `E` in a chain of errors: an error of the chain, or the last error of a call in it. A handler that looks
/// for a cause of its own type uses it in place of `downcast_ref`.
///
/// ```
/// use std::io;
///
/// fn run() -> Result<u32, Box<dyn std::error::Error>> {
///     let connect = || Err(io::Error::from(io::ErrorKind::ConnectionRefused));
///     Ok(redial::retry(connect).when(|_| false).call()?)
/// }
///
/// let error = run().unwrap_err();
/// let refused = redial::find_error::<io::Error>(&*error);
/// assert_eq!(refused.unwrap().kind(), io::ErrorKind::ConnectionRefused);
/// ```
///
/// The error of a call with [`until`](crate::Retry::until) or [`classify`](crate::Retry::classify) has the type of the
/// value, which is not known here: return it with [`.map_value(|_| ())`](Error::map_value). Errors inside an
/// `anyhow::Error` that the operation returned are not found.
#[must_use]
pub fn find_error<'a, E>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a E>
where
    E: std::error::Error + 'static,
{
    fn last<'a, E: 'static, V: 'static>(
        error: &'a (dyn std::error::Error + 'static),
    ) -> Option<&'a E>
    where
        Error<E, V>: std::error::Error,
    {
        error.downcast_ref::<Error<E, V>>()?.last()
    }
    fn in_any<E: std::error::Error + 'static>(error: Option<&AnyError>) -> Option<&E> {
        error?.downcast_ref()
    }
    std::iter::successors(Some(error), |error| error.source()).find_map(|error| {
        error
            .downcast_ref()
            .or_else(|| last::<E, NoValue>(error))
            .or_else(|| last::<E, ()>(error))
            .or_else(|| in_any(last::<AnyError, NoValue>(error)))
            .or_else(|| in_any(last::<AnyError, ()>(error)))
    })
}

/// Errors are equal if their last outcomes and reports are; the error of a strategy counts by its text. The report
/// has the elapsed time, so two calls that failed alike are equal on virtual time only: compare
/// [`last`](Error::last) and [`stop_reason`](Error::stop_reason) for the rest.
impl<E: PartialEq, V: PartialEq> PartialEq for Error<E, V> {
    fn eq(&self, other: &Self) -> bool {
        let text = |details: &Details| details.strategy.as_ref().map(ToString::to_string);
        self.last == other.last
            && self.details.report == other.details.report
            && text(&self.details) == text(&other.details)
    }
}

/// An error of any type that implements [`std::error::Error`]; see [`Error::boxed`].
pub struct AnyError(BoxError);

impl AnyError {
    /// The error.
    #[must_use]
    pub fn into_inner(self) -> BoxError {
        self.0
    }

    /// The error, if it is of this type.
    #[must_use]
    pub fn downcast_ref<E: std::error::Error + 'static>(&self) -> Option<&E> {
        self.0.downcast_ref()
    }
}

impl fmt::Display for AnyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for AnyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for AnyError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source()
    }
}

impl<V: Send + Sync + 'static> From<Error<std::io::Error, V>> for std::io::Error {
    /// An `io::Error` of the same kind with this error inside. A call that ended without an error has the
    /// kind `TimedOut`.
    fn from(error: Error<std::io::Error, V>) -> Self {
        let kind = error.last().map_or(std::io::ErrorKind::TimedOut, std::io::Error::kind);
        std::io::Error::new(kind, error)
    }
}
