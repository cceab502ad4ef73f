//! Classification of status codes: all codes outside of the ignore list are retried (decisions M3 and
//! M7).

use redial_core::{Directive, Failure, Reason};
use redial_service_config::Code;

/// The status codes that the Milvus client never retries.
pub const IGNORED_CODES: [Code; 8] = [
    Code::Ok,
    Code::DeadlineExceeded,
    Code::PermissionDenied,
    Code::Unauthenticated,
    Code::InvalidArgument,
    Code::AlreadyExists,
    Code::ResourceExhausted,
    Code::Unimplemented,
];

/// The code of a rate-limit error inside a response message. Not retried unless it is added to
/// [`Interceptor::invalid_codes`](crate::Interceptor::invalid_codes).
pub const RATE_LIMIT: i32 = 8;

/// A gRPC error status. `tonic::Status` provides everything that this trait needs.
pub trait GrpcStatus {
    /// The status code.
    fn code(&self) -> Code;

    /// The status message.
    fn message(&self) -> &str;

    /// Replaces the message.
    #[must_use]
    fn with_message(self, message: String) -> Self;

    /// Whether the caller cancelled the attempt; never retried, regardless of the code.
    fn is_cancelled_by_caller(&self) -> bool {
        false
    }

    /// Whether the request was definitely not sent.
    fn is_unsent(&self) -> bool {
        false
    }
}

/// Whether the message of a response is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MessageValidity {
    /// The message is valid, or the response has none.
    Valid,
    /// The message is invalid, so the call is retried.
    Invalid,
}

/// Classifies a response: an invalid message and every code outside of [`IGNORED_CODES`] are retried, OK
/// succeeds, and the ignored codes fail.
///
/// ```
/// use redial::Directive;
/// use redial_milvus::{Code, MessageValidity, classify};
///
/// assert_eq!(classify(Code::Ok, MessageValidity::Valid), Directive::Succeed);
/// assert_eq!(classify(Code::PermissionDenied, MessageValidity::Valid), Directive::Fail);
/// assert!(matches!(classify(Code::Unavailable, MessageValidity::Valid), Directive::Retry(_)));
/// assert!(matches!(classify(Code::Ok, MessageValidity::Invalid), Directive::Retry(_)));
/// ```
#[must_use]
pub fn classify(code: Code, message: MessageValidity) -> Directive {
    match (message, code) {
        (MessageValidity::Invalid, _) => Directive::Retry(invalid_message()),
        (MessageValidity::Valid, Code::Ok) => Directive::Succeed,
        (MessageValidity::Valid, code) if IGNORED_CODES.contains(&code) => Directive::Fail,
        (MessageValidity::Valid, code) => {
            Directive::Retry(Failure::server().because(Reason::new(code.name())))
        }
    }
}

/// The failure of an invalid message.
pub(crate) const fn invalid_message() -> Failure {
    Failure::server().because(Reason::new("INVALID_MESSAGE"))
}

/// The failure of a listed code inside a message. The server did not execute a request that it
/// rejected by rate limiting.
pub(crate) const fn inner_status(code: i32) -> Failure {
    match code {
        RATE_LIMIT => {
            Failure::throttling().because(Reason::new("RATE_LIMIT").allow_non_idempotent())
        }
        _ => invalid_message(),
    }
}
