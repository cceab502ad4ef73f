//! What can go wrong on this side of a connection.

use std::error::Error;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use redial_service_config::Problems;

use crate::{BoxError, evidence};

/// The connection of a channel has ended, and what was to be sent on it was not.
#[derive(Debug)]
pub(crate) struct Spent;

impl fmt::Display for Spent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the connection has ended")
    }
}

impl Error for Spent {}

/// Why a dial brought no connection.
#[derive(Debug)]
pub(crate) struct DialError(String);

impl DialError {
    pub(crate) fn of(error: tonic::transport::Error) -> Self {
        let error: BoxError = error.into();
        // What tonic says before it names the cause helps nobody.
        let cause = error.source().and_then(Error::source).or(error.source());
        DialError(cause.map_or_else(|| evidence::text(&*error), evidence::text))
    }

    pub(crate) fn closed() -> Self {
        DialError("closed before the server said anything".to_owned())
    }

    pub(crate) fn closed_early(after: Duration) -> Self {
        DialError(format!("closed {after:.0?} after it was connected, before any response"))
    }

    pub(crate) fn panicked() -> Self {
        DialError("the connection panicked".to_owned())
    }

    pub(crate) fn late(most: Duration) -> Self {
        DialError(format!("not connected within {most:?}"))
    }
}

impl fmt::Display for DialError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for DialError {}

/// How many backends an error names.
const NAMED_MAX: usize = 8;

/// No backend can be reached: the source of the status UNAVAILABLE that a call ends with, or with
/// which it is retried as its policy says. With `waitForReady` the call waits instead.
#[derive(Clone, Debug)]
pub struct Unreachable {
    pub(crate) backends: Vec<(SocketAddr, Arc<str>)>,
    /// Why the list is not a newer one.
    pub(crate) unresolved: Option<Arc<str>>,
    pub(crate) ended: bool,
}

impl Unreachable {
    /// The backends, and why each of them could not be connected.
    pub fn backends(&self) -> impl Iterator<Item = (SocketAddr, &str)> {
        self.backends.iter().map(|(address, why)| (*address, &**why))
    }

    /// Why the name has no newer addresses, if resolving it failed.
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
        for (address, why) in self.backends.iter().take(NAMED_MAX) {
            write!(f, "{before}{address}: {why}")?;
            before = "; ";
        }
        if self.backends.len() > NAMED_MAX {
            write!(f, "{before}and {} more", self.backends.len() - NAMED_MAX)?;
        }
        match &self.unresolved {
            Some(why) => write!(f, "{before}the name cannot be resolved: {why}"),
            None => Ok(()),
        }
    }
}

impl Error for Unreachable {}

/// Why a channel cannot be built. A `main` that returns it prints all of it, causes included.
pub struct BuildError(pub(crate) Wrong);

#[derive(Debug)]
pub(crate) enum Wrong {
    Target {
        target: String,
        why: &'static str,
    },
    Endpoint(tonic::transport::Error),
    Config(Problems),
    Addresses,
    Backoff(String),
    /// The target names a name server, and nobody is to ask it.
    NameServer {
        target: String,
    },
    #[cfg(feature = "dns")]
    Dns(crate::dns::DnsError),
}

impl BuildError {
    /// What is wrong with the default service config, if that is it.
    #[must_use]
    pub const fn problems(&self) -> Option<&Problems> {
        match &self.0 {
            Wrong::Config(problems) => Some(problems),
            _ => None,
        }
    }
}

impl fmt::Debug for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if f.alternate() {
            return f.debug_tuple("BuildError").field(&self.0).finish();
        }
        write!(f, "{self}")?;
        let mut cause = self.source();
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Wrong::Target { target, why } => write!(f, "target {target:?}: {why}"),
            Wrong::Endpoint(_) => f.write_str("the endpoint is not valid"),
            Wrong::Config(problems) => write!(f, "default service config: {problems}"),
            Wrong::Addresses => f.write_str("there is no address"),
            Wrong::Backoff(why) => write!(f, "connect backoff: {why}"),
            Wrong::NameServer { target } => write!(
                f,
                "target {target:?}: only DNS asks a name server; write .dns(|dns| dns) (feature dns), \
                 or dns:///host:port for the operating system to resolve it"
            ),
            #[cfg(feature = "dns")]
            Wrong::Dns(_) => f.write_str("the target cannot be resolved by DNS"),
        }
    }
}

impl Error for BuildError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.0 {
            Wrong::Endpoint(error) => Some(error),
            #[cfg(feature = "dns")]
            Wrong::Dns(error) => Some(error),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Red: `derive(Debug)`.
    #[test]
    fn a_main_that_returns_it_prints_what_to_write_and_the_cause() {
        let wrong = |target: &str| {
            let error = super::super::channel(target).build().expect_err("it is wrong");
            format!("{error:?}")
        };
        assert_eq!(wrong(""), "target \"\": it has no host; write host:port");
        assert!(wrong("dns://1.2.3.4/host:1").contains("write .dns(|dns| dns)"));
        let builder = super::super::channel("host:1")
            .endpoint(|_| tonic::transport::Endpoint::from_shared("no uri"));
        let error = builder.build().expect_err("it is wrong");
        assert!(format!("{error:?}").starts_with("the endpoint is not valid: invalid URI"));
        assert!(format!("{error:#?}").starts_with("BuildError(\n    Endpoint("), "{error:#?}");
    }

    #[test]
    fn the_text_names_backends_and_causes_up_to_a_limit() {
        let backend = |port: u16| (SocketAddr::from(([10, 0, 0, 1], port)), Arc::from("refused"));
        let of = |ports: u16, unresolved: Option<&str>| {
            let backends = (1..=ports).map(backend).collect();
            let unresolved = unresolved.map(Arc::from);
            Unreachable { backends, unresolved, ended: false }.to_string()
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
