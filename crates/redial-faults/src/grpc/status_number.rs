//! gRPC status codes, including invalid ones.
//!
//! A server can send any number, so this is not an enum; the names are those of [`Code`].

use std::fmt;

use redial_service_config::Code;

/// A gRPC status code by number, which may be outside of gRPC's list.
///
/// ```
/// use redial_faults::grpc::StatusNumber;
///
/// assert_eq!(StatusNumber::UNAVAILABLE, StatusNumber(14));
/// assert_eq!(StatusNumber::UNAVAILABLE.to_string(), "UNAVAILABLE");
/// assert_eq!(StatusNumber(99).to_string(), "99");
/// assert_eq!(StatusNumber::from_name("NOT_FOUND"), Some(StatusNumber::NOT_FOUND));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StatusNumber(pub i64);

impl StatusNumber {
    /// [`Code::Ok`].
    pub const OK: StatusNumber = StatusNumber::of(Code::Ok);
    /// [`Code::Cancelled`].
    pub const CANCELLED: StatusNumber = StatusNumber::of(Code::Cancelled);
    /// [`Code::Unknown`].
    pub const UNKNOWN: StatusNumber = StatusNumber::of(Code::Unknown);
    /// [`Code::InvalidArgument`].
    pub const INVALID_ARGUMENT: StatusNumber = StatusNumber::of(Code::InvalidArgument);
    /// [`Code::DeadlineExceeded`].
    pub const DEADLINE_EXCEEDED: StatusNumber = StatusNumber::of(Code::DeadlineExceeded);
    /// [`Code::NotFound`].
    pub const NOT_FOUND: StatusNumber = StatusNumber::of(Code::NotFound);
    /// [`Code::AlreadyExists`].
    pub const ALREADY_EXISTS: StatusNumber = StatusNumber::of(Code::AlreadyExists);
    /// [`Code::PermissionDenied`].
    pub const PERMISSION_DENIED: StatusNumber = StatusNumber::of(Code::PermissionDenied);
    /// [`Code::ResourceExhausted`].
    pub const RESOURCE_EXHAUSTED: StatusNumber = StatusNumber::of(Code::ResourceExhausted);
    /// [`Code::FailedPrecondition`].
    pub const FAILED_PRECONDITION: StatusNumber = StatusNumber::of(Code::FailedPrecondition);
    /// [`Code::Aborted`].
    pub const ABORTED: StatusNumber = StatusNumber::of(Code::Aborted);
    /// [`Code::OutOfRange`].
    pub const OUT_OF_RANGE: StatusNumber = StatusNumber::of(Code::OutOfRange);
    /// [`Code::Unimplemented`].
    pub const UNIMPLEMENTED: StatusNumber = StatusNumber::of(Code::Unimplemented);
    /// [`Code::Internal`].
    pub const INTERNAL: StatusNumber = StatusNumber::of(Code::Internal);
    /// [`Code::Unavailable`].
    pub const UNAVAILABLE: StatusNumber = StatusNumber::of(Code::Unavailable);
    /// [`Code::DataLoss`].
    pub const DATA_LOSS: StatusNumber = StatusNumber::of(Code::DataLoss);
    /// [`Code::Unauthenticated`].
    pub const UNAUTHENTICATED: StatusNumber = StatusNumber::of(Code::Unauthenticated);

    const fn of(code: Code) -> StatusNumber {
        StatusNumber(code as i64)
    }

    /// All codes with a name, by number.
    pub fn named() -> impl Iterator<Item = StatusNumber> {
        Code::ALL.into_iter().map(StatusNumber::of)
    }

    /// The code of this name, in capitals as gRPC writes it.
    #[must_use]
    pub fn from_name(name: &str) -> Option<StatusNumber> {
        Code::from_name(name).filter(|code| code.name() == name).map(StatusNumber::of)
    }

    /// Its name, if it has one.
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        Code::from_number(self.0).map(Code::name)
    }
}

impl From<Code> for StatusNumber {
    fn from(code: Code) -> StatusNumber {
        StatusNumber::of(code)
    }
}

/// The name, or the number if it has no name.
impl fmt::Display for StatusNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "{}", self.0),
        }
    }
}
