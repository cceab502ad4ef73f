//! Why a simulation cannot run, or was stopped.

use std::fmt;
use std::time::Duration;

use redial_core::PolicyError;

use crate::limits::{ATTEMPTS_MAX, IN_FLIGHT_MAX, SAME_TIME_MAX};

/// Why a simulation cannot run, or was stopped.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Error {
    /// The description is wrong: where, and what to write instead.
    Invalid {
        /// The path of the value, as in a simulation file.
        path: String,
        /// What is wrong, and what to write instead.
        problem: String,
    },
    /// The throttle of a policy cannot be built.
    Throttle {
        /// The name of the policy.
        policy: String,
        /// What is wrong.
        problem: PolicyError,
    },
    /// More requests than [`IN_FLIGHT_MAX`] are in flight.
    TooManyInFlight {
        /// The virtual time.
        at: Duration,
    },
    /// More attempts than [`SAME_TIME_MAX`] start at one moment.
    NoProgress {
        /// The virtual time.
        at: Duration,
    },
    /// More attempts than [`ATTEMPTS_MAX`].
    TooManyAttempts {
        /// The virtual time.
        at: Duration,
    },
    /// The caller stopped the run ([`Watch`](crate::Watch)).
    Stopped,
}

impl Error {
    pub(crate) fn invalid(path: impl Into<String>, problem: impl Into<String>) -> Error {
        Error::Invalid { path: path.into(), problem: problem.into() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Invalid { path, problem } => write!(f, "{path}: {problem}"),
            Error::Throttle { policy, problem } => {
                write!(f, "policies.{policy:?}: {problem}")
            }
            Error::TooManyInFlight { at } => write!(
                f,
                "more than {IN_FLIGHT_MAX} requests are in flight after {at:?}; lower the load, or \
                 limit the queues of the services"
            ),
            Error::NoProgress { at } => write!(
                f,
                "more than {SAME_TIME_MAX} attempts start at {at:?}; add a backoff, so that retries \
                 take time"
            ),
            Error::TooManyAttempts { at } => write!(
                f,
                "more than {ATTEMPTS_MAX} attempts within {at:?}; shorten the run or lower the load"
            ),
            Error::Stopped => f.write_str("the run was stopped before its end"),
        }
    }
}

impl std::error::Error for Error {}
