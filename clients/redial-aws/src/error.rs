//! Errors of the installation.

use std::error::Error;
use std::fmt;

use redial::PolicyError;

/// Why a policy cannot run inside an SDK client.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum SetupError {
    /// The policy withdraws tokens after the backoff, and the SDK decides before it.
    ChargedAfterBackoff,
    /// The options of the strategy contradict each other.
    Policy(PolicyError),
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SetupError::ChargedAfterBackoff => f.write_str(
                "the policy withdraws tokens after the backoff, and the SDK decides before it: use \
                 `TokenOrder::TokenFirst`, or retry around the operation with `sdk_failure`",
            ),
            SetupError::Policy(error) => error.fmt(f),
        }
    }
}

impl Error for SetupError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            SetupError::ChargedAfterBackoff => None,
            SetupError::Policy(error) => error.source(),
        }
    }
}

impl From<PolicyError> for SetupError {
    fn from(error: PolicyError) -> Self {
        SetupError::Policy(error)
    }
}
