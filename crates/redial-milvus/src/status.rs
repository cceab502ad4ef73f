//! Which statuses are retried: all but those of the design's list (decisions M3 and M7).

use redial_core::{Directive, Failure, Reason};
use redial_service_config::Code;

/// The codes that are never retried, as the design lists them.
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

/// The code of a status inside a message that says "too many requests"; not in any list unless you
/// put it there.
pub const RATE_LIMIT: i32 = 8;

/// An error of gRPC, as an interceptor sees it. `tonic::Status` has all of it.
pub trait GrpcStatus {
    /// Its code.
    fn code(&self) -> Code;

    /// Its text.
    fn message(&self) -> &str;

    /// The same status with another text.
    #[must_use]
    fn with_message(self, message: String) -> Self;

    /// Whether the caller itself cancelled the attempt: never retried, whatever the code.
    fn is_cancelled_by_caller(&self) -> bool {
        false
    }

    /// Whether it is sure that the request was never sent.
    fn is_unsent(&self) -> bool {
        false
    }
}

/// Whether an answer's message is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MessageValidity {
    /// It is what it should be, or there is none.
    Valid,
    /// It is not: it is asked for again.
    Invalid,
}

/// How an answer is judged: an invalid message is retried, and so is every code outside
/// [`IGNORED_CODES`]; OK succeeds, and the others fail.
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

/// What an invalid message is as a failure.
pub(crate) const fn invalid_message() -> Failure {
    Failure::server().because(Reason::new("INVALID_MESSAGE"))
}

/// What a listed status inside a message is as a failure. A request that was turned away because
/// there were too many did not run.
pub(crate) const fn inner_status(code: i32) -> Failure {
    match code {
        RATE_LIMIT => {
            Failure::throttling().because(Reason::new("RATE_LIMIT").allow_non_idempotent())
        }
        _ => invalid_message(),
    }
}
