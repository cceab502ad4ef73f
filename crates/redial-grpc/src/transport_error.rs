//! Classifies transport errors by their source chain: can the server have processed the request?
//!
//! tonic's status codes cannot be used for this: they depend on its features, and a stream that the
//! server refused becomes INTERNAL, UNKNOWN or CANCELLED. The hyper and h2 errors in the chain contain
//! the cause; integration tests check that they are still found.

use std::error::Error;
use std::io;

use h2::Reason;
use redial_service_config::Code;
#[cfg(feature = "tonic")]
use redial_service_config::PUSHBACK_HEADER;
use redial_service_config::Pushback;

use crate::BoxError;
use crate::unreachable::{ConnectionEnded, Unreachable};

/// Maximum number of errors inspected in a source chain: the chain of a custom error may be cyclic.
const CHAIN_MAX: usize = 32;

/// An error and its sources.
fn chain<'e>(error: &'e (dyn Error + 'static)) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| error.source()).take(CHAIN_MAX)
}

/// What a transport error says about the processing of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransportFailure {
    /// The connection returned the request before it was written (G27).
    NotSent,
    /// The server declared that it has not processed the request (G26).
    Unprocessed,
    /// There was no connection, and none could be established (G28).
    NotConnected,
    /// A timeout set on the client side below this layer (G5): a timer, or the deadline of another retry
    /// layer.
    LocalTimeout,
    /// The server may have processed the request.
    MaybeProcessed,
}

/// Classifies an error and derives its status code.
pub fn classify(error: &(dyn Error + 'static)) -> (TransportFailure, Code) {
    let mut status = None;
    let mut transport = false;
    let mut connected = false;
    for error in chain(error) {
        if let Some(found) = classify_link(error, connected) {
            return found;
        }
        status = status.or_else(|| status_of(error));
        connected |= error.is::<hyper::Error>();
        transport |= connected || error.is::<io::Error>();
    }
    match status {
        // tonic reports UNKNOWN for a lost connection.
        Some(code) if code != Code::Unknown || !transport => {
            (TransportFailure::MaybeProcessed, code)
        }
        _ if transport => (TransportFailure::MaybeProcessed, Code::Unavailable),
        _ => (TransportFailure::MaybeProcessed, Code::Unknown),
    }
}

/// Classifies one error of the chain. `connected`: an earlier error shows that there was a connection.
fn classify_link(
    error: &(dyn Error + 'static),
    connected: bool,
) -> Option<(TransportFailure, Code)> {
    if let Some(error) = error.downcast_ref::<h2::Error>() {
        return classify_h2(error);
    }
    if let Some(error) = error.downcast_ref::<hyper::Error>()
        && error.is_canceled()
    {
        return Some((TransportFailure::NotSent, Code::Unavailable));
    }
    if let Some(error) = error.downcast_ref::<io::Error>()
        && !connected
        && is_connect_error(error.kind())
    {
        return Some((TransportFailure::NotConnected, Code::Unavailable));
    }
    classify_balance(error).or_else(|| classify_tonic(error))
}

/// Errors of the balanced channel.
fn classify_balance(error: &(dyn Error + 'static)) -> Option<(TransportFailure, Code)> {
    if let Some(unreachable) = error.downcast_ref::<Unreachable>() {
        // After the end of its runtime a channel never reconnects, so waiting for it would never end.
        let failure = if unreachable.ended {
            TransportFailure::MaybeProcessed
        } else {
            TransportFailure::NotConnected
        };
        return Some((failure, Code::Unavailable));
    }
    // tonic reports it as a failure to connect.
    let connection_ended = chain(error).any(<dyn Error>::is::<ConnectionEnded>);
    connection_ended.then_some((TransportFailure::NotSent, Code::Unavailable))
}

fn classify_h2(error: &h2::Error) -> Option<(TransportFailure, Code)> {
    // A local error of h2 says nothing about what the server has done.
    let remote = error.is_remote();
    // After a GOAWAY, h2 fails only the streams above the last stream id that it names.
    if error.is_go_away() && remote {
        return Some((TransportFailure::Unprocessed, Code::Unavailable));
    }
    // Without a reason it is an I/O error, which follows in the chain.
    let reason = error.reason()?;
    if reason == Reason::REFUSED_STREAM {
        let failure =
            if remote { TransportFailure::Unprocessed } else { TransportFailure::MaybeProcessed };
        return Some((failure, Code::Unavailable));
    }
    // h2 closes a connection itself after too many local resets, for example of hedging losers. That is
    // a lost connection, not a server that asks for fewer requests.
    if error.is_go_away() && reason == Reason::ENHANCE_YOUR_CALM {
        return Some((TransportFailure::MaybeProcessed, Code::Unavailable));
    }
    // The table of gRPC's "HTTP2 Transport Mapping".
    let code = match reason {
        Reason::CANCEL => Code::Cancelled,
        Reason::ENHANCE_YOUR_CALM => Code::ResourceExhausted,
        Reason::INADEQUATE_SECURITY => Code::PermissionDenied,
        _ => Code::Internal,
    };
    Some((TransportFailure::MaybeProcessed, code))
}

/// Whether this error kind usually means that no connection was established. (Some of these kinds can
/// also end an established connection.)
fn is_connect_error(kind: io::ErrorKind) -> bool {
    use io::ErrorKind::{AddrNotAvailable, ConnectionRefused, HostUnreachable, NetworkUnreachable};
    matches!(kind, ConnectionRefused | HostUnreachable | NetworkUnreachable | AddrNotAvailable)
}

#[cfg(feature = "tonic")]
fn classify_tonic(error: &(dyn Error + 'static)) -> Option<(TransportFailure, Code)> {
    if error.is::<tonic::ConnectError>() {
        return Some((TransportFailure::NotConnected, Code::Unavailable));
    }
    if error.is::<tonic::TimeoutExpired>() {
        return Some((TransportFailure::LocalTimeout, Code::DeadlineExceeded));
    }
    // The transport never produces this code, so a layer below has set it. (A status from the server
    // arrives as a response, not as an error.)
    if status_of(error) == Some(Code::DeadlineExceeded) {
        return Some((TransportFailure::LocalTimeout, Code::DeadlineExceeded));
    }
    None
}

#[cfg(not(feature = "tonic"))]
fn classify_tonic(_error: &(dyn Error + 'static)) -> Option<(TransportFailure, Code)> {
    None
}

#[cfg(feature = "tonic")]
fn status_of(error: &(dyn Error + 'static)) -> Option<Code> {
    let status = error.downcast_ref::<tonic::Status>()?;
    Code::from_number(i64::from(i32::from(status.code())))
}

#[cfg(not(feature = "tonic"))]
fn status_of(_error: &(dyn Error + 'static)) -> Option<Code> {
    None
}

/// The server's status and pushback inside the error of another retry layer below this one. By default
/// that layer returns a failed response as an error with a report.
#[cfg(feature = "tonic")]
pub(crate) fn server_status(error: &(dyn Error + 'static)) -> Option<(Code, Pushback)> {
    let status = error.downcast_ref::<tonic::Status>()?;
    let report = crate::CallReport::of_status(status)?;
    let pushback = status.metadata().get_all(PUSHBACK_HEADER).iter();
    let pushback = Pushback::parse(pushback.map(tonic::metadata::MetadataValue::as_encoded_bytes));
    report.is_answered().then(|| status_of(status).map(|code| (code, pushback))).flatten()
}

#[cfg(not(feature = "tonic"))]
pub(crate) fn server_status(_error: &(dyn Error + 'static)) -> Option<(Code, Pushback)> {
    None
}

/// The status of an error from the application's request body: the first status in its chain. Transport
/// errors in that chain belong to another connection and are not classified.
pub(crate) fn application_code(error: &(dyn Error + 'static)) -> Code {
    chain(error).find_map(status_of).unwrap_or(Code::Unknown)
}

/// Replaces the code of the status that tonic derived from an error of a started response.
#[cfg(feature = "tonic")]
pub(crate) fn with_code(error: BoxError, code: Code) -> BoxError {
    let ours = tonic::Code::from_i32(i32::from(code.number()));
    match error.downcast_ref::<tonic::Status>() {
        Some(status) if status.code() != ours => {
            let metadata = status.metadata().clone();
            let mut status = tonic::Status::with_metadata(ours, status.message(), metadata);
            status.set_source(error.into());
            status.into()
        }
        _ => error,
    }
}

#[cfg(not(feature = "tonic"))]
pub(crate) fn with_code(error: BoxError, _code: Code) -> BoxError {
    error
}

/// The whole chain in one line.
pub fn chain_text(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    for error in chain(error).skip(1) {
        let next = error.to_string();
        // Some errors include the text of their source.
        if !text.ends_with(&next) {
            text.push_str(": ");
            text.push_str(&next);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transport_failure_of_other_errors_is_unknown() {
        let error = std::fmt::Error;
        assert_eq!(classify(&error), (TransportFailure::MaybeProcessed, Code::Unknown));
    }

    #[test]
    fn transport_failure_broken_pipe_may_be_processed() {
        let error = io::Error::from(io::ErrorKind::BrokenPipe);
        assert_eq!(classify(&error), (TransportFailure::MaybeProcessed, Code::Unavailable));
    }

    #[test]
    fn transport_failure_refused_connection_is_not_connected() {
        let error = io::Error::from(io::ErrorKind::ConnectionRefused);
        assert_eq!(classify(&error), (TransportFailure::NotConnected, Code::Unavailable));
    }

    /// An error with a source, or with itself as its source.
    #[derive(Debug)]
    struct Link(Option<Box<dyn Error>>);

    impl std::fmt::Display for Link {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a link")
        }
    }

    impl Error for Link {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(self.0.as_deref().unwrap_or(self))
        }
    }

    #[test]
    fn transport_failure_follows_a_bounded_source_chain() {
        let refused = || Box::new(io::Error::from(io::ErrorKind::ConnectionRefused));
        let around = |links: usize| {
            (0..links).fold(refused() as Box<dyn Error>, |error, _| Box::new(Link(Some(error))))
        };
        let last = around(CHAIN_MAX - 1);
        assert_eq!(classify(&*last), (TransportFailure::NotConnected, Code::Unavailable));
        assert_eq!(
            classify(&*around(CHAIN_MAX)),
            (TransportFailure::MaybeProcessed, Code::Unknown)
        );
        assert_eq!(chain_text(&*last), "a link: connection refused");
        assert_eq!(classify(&Link(None)), (TransportFailure::MaybeProcessed, Code::Unknown));
        assert_eq!(chain_text(&Link(None)), "a link");
    }

    #[test]
    fn transport_failure_maps_reset_reasons_to_codes() {
        let cases = [
            (Reason::NO_ERROR, Code::Internal),
            (Reason::PROTOCOL_ERROR, Code::Internal),
            (Reason::CANCEL, Code::Cancelled),
            (Reason::ENHANCE_YOUR_CALM, Code::ResourceExhausted),
            (Reason::INADEQUATE_SECURITY, Code::PermissionDenied),
            (Reason::REFUSED_STREAM, Code::Unavailable),
        ];
        for (reason, code) in cases {
            assert_eq!(
                classify(&h2::Error::from(reason)),
                (TransportFailure::MaybeProcessed, code),
                "{reason:?}"
            );
        }
    }

    #[cfg(feature = "tonic")]
    #[test]
    fn transport_failure_keeps_a_status_in_the_chain() {
        let status = tonic::Status::aborted("no");
        assert_eq!(classify(&status), (TransportFailure::MaybeProcessed, Code::Aborted));
        let late = tonic::TimeoutExpired(());
        assert_eq!(classify(&late), (TransportFailure::LocalTimeout, Code::DeadlineExceeded));
    }
}
