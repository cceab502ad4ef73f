//! gRPC status codes by name and number.
//!
//! Shared by all gRPC crates: service configs, the layer, the fault servers and Milvus.

use std::fmt;

/// A gRPC status code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Code {
    /// Success.
    Ok = 0,
    /// The call was cancelled, typically by the caller.
    Cancelled = 1,
    /// An unknown error, or a status code outside of this list.
    Unknown = 2,
    /// The request is invalid regardless of the server's state.
    InvalidArgument = 3,
    /// The deadline expired before the call completed.
    DeadlineExceeded = 4,
    /// A requested entity does not exist.
    NotFound = 5,
    /// The entity to create already exists.
    AlreadyExists = 6,
    /// The caller lacks permission.
    PermissionDenied = 7,
    /// A quota or another resource is exhausted.
    ResourceExhausted = 8,
    /// The system is not in the state that the operation requires.
    FailedPrecondition = 9,
    /// The operation was aborted, typically by a concurrency conflict.
    Aborted = 10,
    /// The operation went past the valid range.
    OutOfRange = 11,
    /// The server does not implement the method.
    Unimplemented = 12,
    /// An internal error of the server.
    Internal = 13,
    /// The service is currently unavailable; usually a transient condition.
    Unavailable = 14,
    /// Unrecoverable data loss or corruption.
    DataLoss = 15,
    /// The call has no valid credentials.
    Unauthenticated = 16,
}

impl Code {
    /// All codes in numeric order.
    pub const ALL: [Code; 17] = [
        Code::Ok,
        Code::Cancelled,
        Code::Unknown,
        Code::InvalidArgument,
        Code::DeadlineExceeded,
        Code::NotFound,
        Code::AlreadyExists,
        Code::PermissionDenied,
        Code::ResourceExhausted,
        Code::FailedPrecondition,
        Code::Aborted,
        Code::OutOfRange,
        Code::Unimplemented,
        Code::Internal,
        Code::Unavailable,
        Code::DataLoss,
        Code::Unauthenticated,
    ];

    /// The numeric value.
    #[must_use]
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The code with this number; `None` for other numbers, which clients treat as
    /// [`Code::Unknown`].
    #[must_use]
    pub fn from_number(number: i64) -> Option<Code> {
        usize::try_from(number).ok().and_then(|number| Code::ALL.get(number)).copied()
    }

    /// The name as used in configs and logs, like `UNAVAILABLE`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Code::Ok => "OK",
            Code::Cancelled => "CANCELLED",
            Code::Unknown => "UNKNOWN",
            Code::InvalidArgument => "INVALID_ARGUMENT",
            Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
            Code::NotFound => "NOT_FOUND",
            Code::AlreadyExists => "ALREADY_EXISTS",
            Code::PermissionDenied => "PERMISSION_DENIED",
            Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
            Code::FailedPrecondition => "FAILED_PRECONDITION",
            Code::Aborted => "ABORTED",
            Code::OutOfRange => "OUT_OF_RANGE",
            Code::Unimplemented => "UNIMPLEMENTED",
            Code::Internal => "INTERNAL",
            Code::Unavailable => "UNAVAILABLE",
            Code::DataLoss => "DATA_LOSS",
            Code::Unauthenticated => "UNAUTHENTICATED",
        }
    }

    /// The code with this name, case-insensitively (decision G33).
    #[must_use]
    pub fn from_name(name: &str) -> Option<Code> {
        Code::ALL.into_iter().find(|code| code.name().eq_ignore_ascii_case(name))
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::Code;

    #[test]
    fn code_parses_from_number_and_case_insensitive_name() {
        for (number, code) in (0..).zip(Code::ALL) {
            assert_eq!(i64::from(code.number()), number);
            assert_eq!(Code::from_number(number), Some(code));
            assert_eq!(Code::from_name(code.name()), Some(code));
            assert_eq!(Code::from_name(&code.name().to_lowercase()), Some(code));
        }
        assert_eq!((Code::from_number(17), Code::from_number(-1)), (None, None));
        assert_eq!(Code::from_name("CANCELED"), None);
    }
}
