//! The error of a call: the last outcome, the number of attempts, the elapsed time and the stop reason.

use std::any::Any;
use std::fmt;
use std::time::Duration;

use redial_core::StopReason;

use crate::classify::{Last, NoValue};
use crate::report::{HumanDuration, Report};

/// Any error.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The error of a call that failed.
///
/// It prints as `connection refused (3 attempts in 1.2 s; gave up: no attempt left)`, has the same as
/// data ([`Error::report`]), and returns the operation's own error ([`Error::into_last`]). `V` is the
/// type of a rejected value, for calls that classify values (`until`, `classify`).
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
/// If the operation's error does not implement [`std::error::Error`] (`Box<dyn Error>`,
/// `anyhow::Error`, a string), use [`Error::boxed`].
///
/// `source` is the operation's error itself, so its type can be found in the chain. A printer of the
/// whole chain, such as `{:#}` of `anyhow`, therefore prints its text twice.
pub struct Error<E, V = NoValue>(Box<Inner<E, V>>);

struct Inner<E, V> {
    last: Option<Last<E, V>>,
    strategy: Option<BoxError>,
    report: Report,
}

impl<E, V> Error<E, V> {
    pub(crate) fn new(
        last: Option<Last<E, V>>,
        strategy: Option<BoxError>,
        report: Report,
    ) -> Self {
        Error(Box::new(Inner { last, strategy, report }))
    }

    /// The number of attempts.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.0.report.attempts
    }

    /// The duration of the call.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.0.report.elapsed
    }

    /// Why the call ended.
    #[must_use]
    pub fn stop_reason(&self) -> StopReason {
        self.0.report.stop_reason
    }

    /// The report of the call: attempts, elapsed time, stop reason, and the history if
    /// [`Retry::history`](crate::Retry::history) was set.
    #[must_use]
    pub fn report(&self) -> &Report {
        &self.0.report
    }

    /// The last error of the operation. `None` if the deadline came before the first error, or if the
    /// last outcome was a value.
    #[must_use]
    pub fn last(&self) -> Option<&E> {
        match &self.0.last {
            Some(Last::Error(error)) => Some(error),
            _ => None,
        }
    }

    /// The last error of the operation.
    #[must_use]
    pub fn into_last(self) -> Option<E> {
        match self.0.last {
            Some(Last::Error(error)) => Some(error),
            _ => None,
        }
    }

    /// The last value, if it was rejected.
    #[must_use]
    pub fn last_value(&self) -> Option<&V> {
        match &self.0.last {
            Some(Last::Value(value)) => Some(value),
            _ => None,
        }
    }

    /// The last value, if it was rejected.
    #[must_use]
    pub fn into_last_value(self) -> Option<V> {
        match self.0.last {
            Some(Last::Value(value)) => Some(value),
            _ => None,
        }
    }

    /// Converts the last error.
    #[must_use]
    pub fn map_last<F>(self, change: impl FnOnce(E) -> F) -> Error<F, V> {
        let Inner { last, strategy, report } = *self.0;
        let last = last.map(|last| match last {
            Last::Error(error) => Last::Error(change(error)),
            Last::Value(value) => Last::Value(value),
        });
        Error::new(last, strategy, report)
    }

    /// Wraps the last error in a type that implements [`std::error::Error`], for operations that return
    /// `Box<dyn Error>`, `anyhow::Error` or a string.
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
    /// assert_eq!(error.source().unwrap().to_string(), "connection refused");
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
        (self.0.last, self.0.report)
    }

    /// The error with which a strategy failed the call
    /// ([`Decision::Fail`](crate::strategy::Decision::Fail)).
    #[must_use]
    pub fn strategy_error(&self) -> Option<&(dyn std::error::Error + Send + Sync + 'static)> {
        self.0.strategy.as_deref()
    }

    /// Whether time ended the call: the deadline, an attempt timeout, or an attempt timeout in every
    /// attempt.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        let timed_out =
            matches!(self.stop_reason(), StopReason::Deadline | StopReason::AttemptTimeout);
        // Without a last outcome, no attempt has returned.
        timed_out || self.0.last.is_none() && self.0.strategy.is_none()
    }

    /// Whether the throttle ended the call.
    #[must_use]
    pub fn is_throttled(&self) -> bool {
        self.stop_reason() == StopReason::Throttled
    }
}

impl<E: fmt::Display, V> fmt::Display for Error<E, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.0.strategy, &self.0.last) {
            (Some(error), _) => write!(f, "{error}")?,
            (None, Some(Last::Error(error))) => write!(f, "{error}")?,
            (None, Some(Last::Value(_))) => f.write_str("no acceptable value")?,
            (None, None) => f.write_str("no answer")?,
        }
        let Report { attempts, elapsed, elapsed_exact, stop_reason, .. } = &self.0.report;
        let plural = if *attempts == 1 { "" } else { "s" };
        let bound = if *elapsed_exact { "" } else { "at least " };
        write!(f, " ({attempts} attempt{plural} in {bound}{}; ", HumanDuration(*elapsed))?;
        match stop_reason {
            StopReason::NotRetryable | StopReason::Succeeded | StopReason::Cancelled => {
                write!(f, "{stop_reason})")
            }
            _ => write!(f, "gave up: {stop_reason}{})", self.0.report.detail()),
        }
    }
}

impl<E: fmt::Debug, V> fmt::Debug for Error<E, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("Error");
        match &self.0.last {
            Some(Last::Error(error)) => out.field("last", error),
            Some(Last::Value(_)) => out.field("last", &"a value"),
            None => out.field("last", &None::<()>),
        };
        out.field("report", &self.0.report).finish()
    }
}

impl<E: std::error::Error + 'static, V> std::error::Error for Error<E, V> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match (&self.0.strategy, &self.0.last) {
            (Some(error), _) => Some(&**error),
            (None, Some(Last::Error(error))) => {
                // The error itself, so that its type can be found in the chain.
                let any = (error as &dyn Any).downcast_ref::<AnyError>();
                any.map_or(Some(error), |any| Some(&*any.0))
            }
            _ => None,
        }
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
