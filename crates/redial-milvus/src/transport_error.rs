//! What an error below the layer says about the request, for channels of both versions of tonic.

use std::error::Error;

use redial_grpc::balancing::transport_error::{self, TransportFailure};
use redial_service_config::Code;

/// How many errors of a source chain are looked at: the chain of a custom error may be cyclic.
#[cfg(any(feature = "tonic", feature = "tonic-0-13"))]
const CHAIN_MAX: usize = 32;

/// An error and its sources.
#[cfg(any(feature = "tonic", feature = "tonic-0-13"))]
pub(crate) fn chain<'e>(
    error: &'e (dyn Error + 'static),
) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| error.source()).take(CHAIN_MAX)
}

/// Classifies an error and derives its status code. `redial-grpc` knows the errors of tonic 0.14 only.
pub(crate) fn classify(error: &(dyn Error + 'static)) -> (TransportFailure, Code) {
    #[cfg(feature = "tonic-0-13")]
    if let Some(found) = classify_0_13(error) {
        return found;
    }
    let (failure, code) = transport_error::classify(error);
    #[cfg(feature = "tonic-0-13")]
    if code == Code::Unknown {
        return (failure, chain(error).find_map(status_0_13).unwrap_or(code));
    }
    (failure, code)
}

/// What the errors of tonic 0.13 prove, as `redial-grpc` reads those of tonic 0.14.
#[cfg(feature = "tonic-0-13")]
fn classify_0_13(error: &(dyn Error + 'static)) -> Option<(TransportFailure, Code)> {
    chain(error).find_map(|error| {
        if error.is::<tonic_0_13::ConnectError>() {
            return Some((TransportFailure::NotConnected, Code::Unavailable));
        }
        // The transport never produces this status, so a layer below has set it.
        let is_timeout = error.is::<tonic_0_13::TimeoutExpired>()
            || status_0_13(error) == Some(Code::DeadlineExceeded);
        is_timeout.then_some((TransportFailure::LocalTimeout, Code::DeadlineExceeded))
    })
}

#[cfg(feature = "tonic-0-13")]
fn status_0_13(error: &(dyn Error + 'static)) -> Option<Code> {
    let status = error.downcast_ref::<tonic_0_13::Status>()?;
    Code::from_number(i64::from(i32::from(status.code())))
}

/// Whether the server cannot have executed the request.
pub(crate) const fn proves_unsent(failure: TransportFailure) -> bool {
    match failure {
        TransportFailure::NotSent
        | TransportFailure::Unprocessed
        | TransportFailure::NotConnected => true,
        TransportFailure::LocalTimeout | TransportFailure::MaybeProcessed => false,
    }
}
