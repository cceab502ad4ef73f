//! The error of a call: what happened last, how often, how long, and why it ended.

use std::any::Any;
use std::fmt;
use std::time::Duration;

use redial_core::StopReason;

use crate::classify::{Last, NoValue};
use crate::report::{HumanDuration, Report};

/// Any error.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A call that did not get what it asked for.
///
/// It prints what a person needs, `connection refused (3 attempts in 1.2 s; gave up: no attempt
/// left)`, has all of it as data, and gives the last real error back ([`Error::into_last`]). `V` is
/// the type of a value that was not accepted, where values are judged (`until`, `classify`).
///
/// With `?` in a function that returns an error of your own, one line is yours to write:
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
/// Where the operation's own error is no [`std::error::Error`] (`Box<dyn Error>`, `anyhow::Error`, a
/// string), `?` takes it [`boxed`](Error::boxed).
///
/// Its `source` is the last error itself, so that its type is found in the chain; what prints the
/// whole chain, as `{:#}` of `anyhow` does, names it twice.
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

    /// How many attempts were made.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.0.report.attempts
    }

    /// How long the call took.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.0.report.elapsed
    }

    /// Why it ended.
    #[must_use]
    pub fn stop_reason(&self) -> StopReason {
        self.0.report.stop_reason
    }

    /// Attempts, time, why, and each attempt if the call was told to keep them.
    #[must_use]
    pub fn report(&self) -> &Report {
        &self.0.report
    }

    /// The last error that an attempt returned. There may be none: a deadline can come first, or
    /// the last outcome was a value.
    #[must_use]
    pub fn last(&self) -> Option<&E> {
        match &self.0.last {
            Some(Last::Error(error)) => Some(error),
            _ => None,
        }
    }

    /// The last error that an attempt returned.
    #[must_use]
    pub fn into_last(self) -> Option<E> {
        match self.0.last {
            Some(Last::Error(error)) => Some(error),
            _ => None,
        }
    }

    /// The last value, where that was not accepted.
    #[must_use]
    pub fn last_value(&self) -> Option<&V> {
        match &self.0.last {
            Some(Last::Value(value)) => Some(value),
            _ => None,
        }
    }

    /// The last value, where that was not accepted.
    #[must_use]
    pub fn into_last_value(self) -> Option<V> {
        match self.0.last {
            Some(Last::Value(value)) => Some(value),
            _ => None,
        }
    }

    /// The same with another last error, as `map_err` makes it of a result.
    #[must_use]
    pub fn map_last<F>(self, change: impl FnOnce(E) -> F) -> Error<F, V> {
        let Inner { last, strategy, report } = *self.0;
        let last = last.map(|last| match last {
            Last::Error(error) => Last::Error(change(error)),
            Last::Value(value) => Last::Value(value),
        });
        Error::new(last, strategy, report)
    }

    /// The same with a last error that is a [`std::error::Error`], which `Box<dyn Error>`,
    /// `anyhow::Error` or a string is not: for `?` where such errors are returned.
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

    /// What a strategy failed the call with ([`Decision::Fail`](crate::Decision::Fail)), if it did.
    #[must_use]
    pub fn strategy_error(&self) -> Option<&(dyn std::error::Error + Send + Sync + 'static)> {
        self.0.strategy.as_deref()
    }

    /// Whether time ended it.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        self.stop_reason() == StopReason::Deadline
    }

    /// Whether the throttle ended it.
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
        let Report { attempts, elapsed, stop_reason, .. } = &self.0.report;
        let plural = if *attempts == 1 { "" } else { "s" };
        write!(f, " ({attempts} attempt{plural} in {}; ", HumanDuration(*elapsed))?;
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
                // The error itself, so that whoever looks for its type in the chain finds it.
                let any = (error as &dyn Any).downcast_ref::<AnyError>();
                any.map_or(Some(error), |any| Some(&*any.0))
            }
            _ => None,
        }
    }
}

/// An error of any type, as a type that is one: what [`Error::boxed`] makes of the last error.
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
    /// An error of the same kind that holds the whole of this one; a call that ended without any
    /// error has the kind `TimedOut`.
    fn from(error: Error<std::io::Error, V>) -> Self {
        let kind = error.last().map_or(std::io::ErrorKind::TimedOut, std::io::Error::kind);
        std::io::Error::new(kind, error)
    }
}
