//! The status codes of gRPC, by name and number (its `status.proto`).
//!
//! The gRPC crates share them: service configs, the layer, the fault servers and Milvus.

use std::fmt;

/// A status code of gRPC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Code {
    /// It worked.
    Ok = 0,
    /// Somebody cancelled it.
    Cancelled = 1,
    /// Nothing better is known.
    Unknown = 2,
    /// The request is wrong, whatever the state of the server.
    InvalidArgument = 3,
    /// It did not end in time.
    DeadlineExceeded = 4,
    /// What was asked for is not there.
    NotFound = 5,
    /// What was to be made is there already.
    AlreadyExists = 6,
    /// The caller may not do this.
    PermissionDenied = 7,
    /// A quota, or the room for it, is used up.
    ResourceExhausted = 8,
    /// The server is not in the state that this needs.
    FailedPrecondition = 9,
    /// It was given up, often because of a conflict.
    Aborted = 10,
    /// Beyond the end.
    OutOfRange = 11,
    /// The server does not know this method.
    Unimplemented = 12,
    /// The server broke.
    Internal = 13,
    /// The server cannot be reached, or not now.
    Unavailable = 14,
    /// Data is lost for good.
    DataLoss = 15,
    /// The caller has not said who they are.
    Unauthenticated = 16,
}

impl Code {
    /// All of them, in the order of their numbers.
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

    /// Its number.
    #[must_use]
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The code with this number; other numbers have none (a client reads them as
    /// [`Code::Unknown`]).
    #[must_use]
    pub fn from_number(number: i64) -> Option<Code> {
        usize::try_from(number).ok().and_then(|number| Code::ALL.get(number)).copied()
    }

    /// Its name, as configurations and logs write it.
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

    /// The code with this name, in any case (decision G33).
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
