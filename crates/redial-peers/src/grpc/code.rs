//! The numbers of gRPC's statuses, and any other number.
//!
//! A server can send what no enum of statuses has, so this is a number with names.

use std::fmt;

/// A gRPC status by its number, which may be one that gRPC does not know.
///
/// ```
/// use redial_peers::grpc::Code;
///
/// assert_eq!(Code::UNAVAILABLE, Code(14));
/// assert_eq!(Code::UNAVAILABLE.to_string(), "UNAVAILABLE");
/// assert_eq!(Code(99).to_string(), "99");
/// assert_eq!(Code::from_name("NOT_FOUND"), Some(Code::NOT_FOUND));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Code(pub i64);

/// The names by number (gRPC's `status.proto`).
const NAMES: [&str; 17] = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];

impl Code {
    /// It worked.
    pub const OK: Code = Code(0);
    /// Somebody cancelled it.
    pub const CANCELLED: Code = Code(1);
    /// Nothing better is known.
    pub const UNKNOWN: Code = Code(2);
    /// The request is wrong.
    pub const INVALID_ARGUMENT: Code = Code(3);
    /// It did not end in time.
    pub const DEADLINE_EXCEEDED: Code = Code(4);
    /// What was asked for is not there.
    pub const NOT_FOUND: Code = Code(5);
    /// What was to be made is there already.
    pub const ALREADY_EXISTS: Code = Code(6);
    /// The caller may not do this.
    pub const PERMISSION_DENIED: Code = Code(7);
    /// A quota is used up.
    pub const RESOURCE_EXHAUSTED: Code = Code(8);
    /// The server is not in the state that this needs.
    pub const FAILED_PRECONDITION: Code = Code(9);
    /// It was given up.
    pub const ABORTED: Code = Code(10);
    /// Beyond the end.
    pub const OUT_OF_RANGE: Code = Code(11);
    /// The server does not know this method.
    pub const UNIMPLEMENTED: Code = Code(12);
    /// The server broke.
    pub const INTERNAL: Code = Code(13);
    /// The server cannot be reached, or not now.
    pub const UNAVAILABLE: Code = Code(14);
    /// Data is lost for good.
    pub const DATA_LOSS: Code = Code(15);
    /// The caller has not said who they are.
    pub const UNAUTHENTICATED: Code = Code(16);

    /// All that have a name, in the order of their numbers.
    pub fn named() -> impl Iterator<Item = Code> {
        (0..NAMES.len()).map(|number| Code(number as i64))
    }

    /// The code of this name, in capitals as gRPC writes it.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Code> {
        NAMES.iter().position(|known| *known == name).map(|number| Code(number as i64))
    }

    /// Its name, if it has one.
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        usize::try_from(self.0).ok().and_then(|number| NAMES.get(number)).copied()
    }
}

/// The name, or the number where there is none.
impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "{}", self.0),
        }
    }
}
