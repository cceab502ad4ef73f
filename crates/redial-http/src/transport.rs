//! What an error of the client proves: was the request sent, and can a retry help? (decisions H2, H6)

use std::error::Error;
use std::io;

use redial::{Failure, FailureKind, Reason, Stage};

/// Maximum number of errors inspected in a source chain: the chain of a custom error may be cyclic.
const CHAIN_MAX: usize = 32;

/// The server reports that it has not processed the request.
const NOT_PROCESSED: Reason = Reason::new("not processed by the server").allow_non_idempotent();
const NOT_CONNECTED: Reason = Reason::new("no connection");
const NOT_SENT: Reason = Reason::new("connection closed before the request was sent");
const CONNECTION_LOST: Reason = Reason::new("connection lost");
const TIMED_OUT: Reason = Reason::new("no response in time");

/// An error and its sources.
fn chain<'e>(error: &'e (dyn Error + 'static)) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| error.source()).take(CHAIN_MAX)
}

/// The failure of an attempt that ended with this error; `None` if a retry cannot help, or if the error
/// is of an unknown kind.
pub(crate) fn failure(error: &(dyn Error + 'static)) -> Option<Failure> {
    let mut connected = false;
    for link in chain(error) {
        match judge(link, connected) {
            Judgement::Retry(failure) => return Some(failure),
            Judgement::NotConnected => return not_connected(link),
            Judgement::Final => return None,
            Judgement::Unknown => {}
        }
        connected |= link.is::<hyper::Error>();
    }
    None
}

/// What one error of a chain says.
enum Judgement {
    Retry(Failure),
    /// No connection was established.
    NotConnected,
    /// A retry fails in the same way.
    Final,
    /// The next error of the chain decides.
    Unknown,
}

fn judge(error: &(dyn Error + 'static), connected: bool) -> Judgement {
    if let Some(error) = error.downcast_ref::<hyper_util::client::legacy::Error>() {
        return if error.is_connect() { Judgement::NotConnected } else { Judgement::Unknown };
    }
    if let Some(error) = error.downcast_ref::<hyper::Error>() {
        return judge_hyper(error);
    }
    if let Some(error) = error.downcast_ref::<h2::Error>() {
        return judge_h2(error);
    }
    if let Some(error) = error.downcast_ref::<io::Error>() {
        return judge_io(error, connected);
    }
    judge_reqwest(error)
}

fn judge_hyper(error: &hyper::Error) -> Judgement {
    if error.is_canceled() {
        return Judgement::Retry(Failure::client().at(Stage::Unsent).because(NOT_SENT));
    }
    if error.is_user() || error.is_parse() {
        return Judgement::Final;
    }
    if error.is_timeout() {
        return Judgement::Retry(Failure::timeout().because(TIMED_OUT));
    }
    if error.is_incomplete_message() || error.is_closed() {
        return Judgement::Retry(connection_lost());
    }
    Judgement::Unknown
}

fn judge_h2(error: &h2::Error) -> Judgement {
    // An error that h2 has raised itself says nothing about what the server has done. After a GOAWAY, h2
    // fails only the streams above the last stream id that it names.
    let refused = error.is_go_away() || error.reason() == Some(h2::Reason::REFUSED_STREAM);
    if refused && error.is_remote() {
        return Judgement::Retry(Failure::client().at(Stage::InFlight).because(NOT_PROCESSED));
    }
    match error.reason() {
        // An I/O error follows in the chain.
        None => Judgement::Unknown,
        Some(_) => Judgement::Retry(connection_lost()),
    }
}

fn judge_io(error: &io::Error, connected: bool) -> Judgement {
    use io::ErrorKind as Kind;
    match error.kind() {
        Kind::ConnectionRefused
        | Kind::HostUnreachable
        | Kind::NetworkUnreachable
        | Kind::AddrNotAvailable
            if !connected =>
        {
            Judgement::NotConnected
        }
        Kind::TimedOut => Judgement::Retry(Failure::timeout().because(TIMED_OUT)),
        Kind::ConnectionReset
        | Kind::ConnectionAborted
        | Kind::ConnectionRefused
        | Kind::BrokenPipe
        | Kind::NotConnected
        | Kind::UnexpectedEof
        | Kind::HostUnreachable
        | Kind::NetworkUnreachable => Judgement::Retry(connection_lost()),
        _ => Judgement::Unknown,
    }
}

#[cfg(feature = "reqwest")]
fn judge_reqwest(error: &(dyn Error + 'static)) -> Judgement {
    let Some(error) = error.downcast_ref::<::reqwest::Error>() else { return Judgement::Unknown };
    if error.is_builder()
        || error.is_redirect()
        || error.is_status()
        || error.is_decode()
        || error.is_body()
        || error.is_upgrade()
    {
        return Judgement::Final;
    }
    // Of a version of hyper-util that this crate does not know.
    if error.is_connect() {
        return Judgement::NotConnected;
    }
    if error.is_timeout() {
        return Judgement::Retry(Failure::timeout().because(TIMED_OUT));
    }
    Judgement::Unknown
}

#[cfg(not(feature = "reqwest"))]
fn judge_reqwest(_error: &(dyn Error + 'static)) -> Judgement {
    Judgement::Unknown
}

fn connection_lost() -> Failure {
    Failure::client().at(Stage::InFlight).because(CONNECTION_LOST)
}

/// No connection, so nothing was sent. A certificate that is not accepted stays so. `error` is the error of
/// connecting; what is around it may print the URL.
fn not_connected(error: &(dyn Error + 'static)) -> Option<Failure> {
    if has_certificate_error(error) {
        return None;
    }
    let timed_out = chain(error).any(is_timeout);
    let kind = if timed_out { FailureKind::Timeout } else { FailureKind::Client };
    Some(Failure::new(kind).at(Stage::Unsent).because(NOT_CONNECTED))
}

/// Whether this is a timeout, of the operating system or of reqwest, whose own is a private type.
fn is_timeout(error: &(dyn Error + 'static)) -> bool {
    #[cfg(feature = "reqwest")]
    if let Some(error) = error.downcast_ref::<::reqwest::Error>() {
        return error.is_timeout();
    }
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::TimedOut)
}

/// Whether the TLS handshake failed for a reason that stays. rustls reports an invalid certificate, and
/// everything else that is wrong with the peer's messages, as `InvalidData`. Other TLS libraries have
/// errors without a kind, and say `certificate` in their text.
///
/// The text of other errors is not searched: reqwest prints the URL, and a resolver the name of the host.
fn has_certificate_error(error: &(dyn Error + 'static)) -> bool {
    for link in chain(error) {
        if let Some(error) = link.downcast_ref::<io::Error>() {
            if error.kind() == io::ErrorKind::InvalidData {
                return true;
            }
            // An error of the operating system. One with an error inside prints that.
            if error.get_ref().is_none() {
                return false;
            }
        } else if is_client_error(link) {
            continue;
        }
        let text = link.to_string().to_ascii_lowercase();
        if text == DNS_ERROR {
            return false;
        }
        if text.contains("certificate") {
            return true;
        }
    }
    false
}

/// What hyper-util's connector prints if a name has no address. The type of the error is private.
const DNS_ERROR: &str = "dns error";

/// Whether this is the error of a client around that of its connector.
fn is_client_error(error: &(dyn Error + 'static)) -> bool {
    #[cfg(feature = "reqwest")]
    if error.is::<::reqwest::Error>() {
        return true;
    }
    error.is::<hyper_util::client::legacy::Error>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt;

    fn of(kind: io::ErrorKind) -> Option<Failure> {
        failure(&io::Error::from(kind))
    }

    // Decision H2.
    #[test]
    fn transport_refused_connection_proves_that_nothing_was_sent() {
        let refused = of(io::ErrorKind::ConnectionRefused).unwrap();
        assert!(refused.proves_not_run() && refused.stage == Stage::Unsent);
        let reset = of(io::ErrorKind::ConnectionReset).unwrap();
        assert!(!reset.proves_not_run() && reset.stage == Stage::InFlight);
        let timeout = of(io::ErrorKind::TimedOut).unwrap();
        assert_eq!((timeout.kind, timeout.stage), (FailureKind::Timeout, Stage::InFlight));
    }

    #[test]
    fn transport_refused_stream_of_the_server_proves_no_processing() {
        // An error with a reason alone is one that h2 has raised itself.
        let local = h2::Error::from(h2::Reason::REFUSED_STREAM);
        assert!(!failure(&local).unwrap().proves_not_run());
    }

    #[test]
    fn transport_unknown_error_is_final() {
        assert_eq!(failure(&fmt::Error), None);
        assert_eq!(of(io::ErrorKind::PermissionDenied), None);
    }

    #[derive(Debug)]
    struct Cyclic;

    impl fmt::Display for Cyclic {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("cyclic")
        }
    }

    impl Error for Cyclic {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&Cyclic)
        }
    }

    #[test]
    fn transport_error_with_a_cyclic_chain_ends() {
        assert_eq!(failure(&Cyclic), None);
    }

    #[derive(Debug)]
    struct Nested(io::Error);

    impl fmt::Display for Nested {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("nested")
        }
    }

    impl Error for Nested {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&self.0)
        }
    }

    fn nested(depth: usize) -> Nested {
        let inner = match depth {
            1 => io::Error::from(io::ErrorKind::ConnectionReset),
            _ => io::Error::other(nested(depth - 1)),
        };
        Nested(inner)
    }

    // `io::Error::other` is skipped by `source`: each level is one link.
    #[test]
    fn transport_error_is_found_up_to_the_chain_limit() {
        let links = |error: &Nested| {
            std::iter::successors(Some(error as &(dyn Error + 'static)), |&it| it.source()).count()
        };
        let (mut at, mut past) = (None, None);
        for depth in 1..200 {
            let error = nested(depth);
            match links(&error) {
                n if n == CHAIN_MAX => at = Some(failure(&error).is_some()),
                n if n == CHAIN_MAX + 1 => past = Some(failure(&error).is_some()),
                _ => {}
            }
        }
        assert_eq!((at, past), (Some(true), Some(false)));
    }
}
