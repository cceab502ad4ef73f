//! Errors of a balancer for attempts that it could not send.

use std::error::Error;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

/// The connection ended before the request was sent on it.
#[derive(Debug)]
pub struct ConnectionEnded;

impl fmt::Display for ConnectionEnded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the connection has ended")
    }
}

impl Error for ConnectionEnded {}

/// Maximum number of backends named in an error.
const NAMED_MAX: usize = 8;

/// No backend can be reached. It is the source of a status UNAVAILABLE, which is retried as the policy
/// says. With `waitForReady` the call waits instead.
#[derive(Clone, Debug)]
pub struct Unreachable {
    backends: Vec<(SocketAddr, Arc<str>)>,
    /// Why name resolution has no newer addresses.
    unresolved: Option<Arc<str>>,
    pub(crate) ended: bool,
}

impl Unreachable {
    /// `backends`: the connection error of each backend. `unresolved`: the error of the last name
    /// resolution.
    #[must_use]
    pub fn new(backends: Vec<(SocketAddr, Arc<str>)>, unresolved: Option<Arc<str>>) -> Self {
        Unreachable { backends, unresolved, ended: false }
    }

    /// Marks the runtime of the channel as ended. A call then fails even with `waitForReady`, because it
    /// would wait forever.
    #[must_use]
    pub fn runtime_ended(mut self) -> Self {
        self.ended = true;
        self
    }

    /// The backends with their connection errors.
    pub fn backends(&self) -> impl Iterator<Item = (SocketAddr, &str)> {
        self.backends.iter().map(|(address, cause)| (*address, &**cause))
    }

    /// The error of the last name resolution, if it failed.
    #[must_use]
    pub fn unresolved(&self) -> Option<&str> {
        self.unresolved.as_deref()
    }
}

impl fmt::Display for Unreachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.ended {
            return f.write_str("the runtime that the channel was started on has ended");
        }
        match self.backends.len() {
            0 => f.write_str("no backend is known")?,
            1 => f.write_str("the backend cannot be reached")?,
            count => write!(f, "none of {count} backends can be reached")?,
        }
        let mut before = ": ";
        for (address, cause) in self.backends.iter().take(NAMED_MAX) {
            write!(f, "{before}{address}: {cause}")?;
            before = "; ";
        }
        if self.backends.len() > NAMED_MAX {
            write!(f, "{before}and {} more", self.backends.len() - NAMED_MAX)?;
        }
        match &self.unresolved {
            Some(cause) => write!(f, "{before}the name cannot be resolved: {cause}"),
            None => Ok(()),
        }
    }
}

impl Error for Unreachable {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unreachable_text_names_a_bounded_number_of_backends() {
        let backend = |port: u16| (SocketAddr::from(([10, 0, 0, 1], port)), Arc::from("refused"));
        let of = |ports: u16, unresolved: Option<&str>| {
            let backends = (1..=ports).map(backend).collect();
            let unresolved = unresolved.map(Arc::from);
            Unreachable::new(backends, unresolved).to_string()
        };
        assert_eq!(
            of(2, None),
            "none of 2 backends can be reached: 10.0.0.1:1: refused; 10.0.0.1:2: refused"
        );
        assert_eq!(
            of(1, Some("no such name")),
            "the backend cannot be reached: 10.0.0.1:1: refused; the name cannot be resolved: no such name"
        );
        assert_eq!(
            of(0, Some("no such name")),
            "no backend is known: the name cannot be resolved: no such name"
        );
        let most = NAMED_MAX as u16;
        assert!(of(most, None).ends_with("10.0.0.1:8: refused"));
        assert!(of(most + 1, None).ends_with("10.0.0.1:8: refused; and 1 more"));
    }
}
