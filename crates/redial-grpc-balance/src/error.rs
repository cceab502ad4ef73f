//! Errors of connection attempts and of building a channel.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use redial_grpc::BoxError;
use redial_grpc::balancing::transport_error;
use redial_service_config::Problems;

/// Why a connection attempt failed.
#[derive(Debug)]
pub(crate) struct ConnectError(String);

impl ConnectError {
    pub(crate) fn of(error: tonic::transport::Error) -> Self {
        let error: BoxError = error.into();
        // Skips tonic's generic outer error ("transport error") in favour of its cause.
        let cause = error.source().and_then(Error::source).or(error.source());
        ConnectError(
            cause.map_or_else(|| transport_error::chain_text(&*error), transport_error::chain_text),
        )
    }

    pub(crate) fn closed() -> Self {
        ConnectError("closed before the server sent anything".to_owned())
    }

    pub(crate) fn closed_early(after: Duration) -> Self {
        ConnectError(format!("closed {after:.0?} after it was connected, before any response"))
    }

    pub(crate) fn panicked() -> Self {
        ConnectError("the connection panicked".to_owned())
    }

    pub(crate) fn timed_out(timeout: Duration) -> Self {
        ConnectError(format!("not connected within {timeout:?}"))
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for ConnectError {}

/// Why a channel cannot be built. Its `Debug` output includes all causes, so that a `main` that
/// returns it prints them.
pub struct BuildError(pub(crate) BuildErrorKind);

#[derive(Debug)]
pub(crate) enum BuildErrorKind {
    Target {
        target: String,
        reason: &'static str,
    },
    Endpoint(tonic::transport::Error),
    Config(Problems),
    Addresses,
    Backoff(String),
    /// The target names a name server, but the resolver cannot use one.
    NameServer {
        target: String,
    },
    /// The name of the resolver, and why it cannot be built.
    Resolver {
        name: &'static str,
        error: BoxError,
    },
}

impl BuildError {
    /// The problems of the default service config, if that is the cause.
    #[must_use]
    pub const fn problems(&self) -> Option<&Problems> {
        match &self.0 {
            BuildErrorKind::Config(problems) => Some(problems),
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
            BuildErrorKind::Target { target, reason } => write!(f, "target {target:?}: {reason}"),
            BuildErrorKind::Endpoint(_) => f.write_str("the endpoint is not valid"),
            BuildErrorKind::Config(problems) => write!(f, "default service config: {problems}"),
            BuildErrorKind::Addresses => f.write_str("the address list is empty"),
            BuildErrorKind::Backoff(reason) => write!(f, "connect backoff: {reason}"),
            BuildErrorKind::NameServer { target } => write!(
                f,
                "target {target:?}: only DNS can use a name server; write .dns(|dns| dns) (crate \
                 redial-grpc-dns), or dns:///host:port for the operating system to resolve it"
            ),
            BuildErrorKind::Resolver { name, .. } => {
                write!(f, "the target cannot be resolved by {name}")
            }
        }
    }
}

impl Error for BuildError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.0 {
            BuildErrorKind::Endpoint(error) => Some(error),
            BuildErrorKind::Resolver { error, .. } => Some(&**error),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn build_error_debug_prints_advice_and_cause() {
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
}
