//! Errors of DNS lookups and of building a resolver.

use std::fmt;

use hickory_resolver::net::NetError;
use redial_service_config::{Problems, RECORD_NAME_PREFIX};

/// Why a resolver cannot be built, or a lookup of addresses or a service config failed. The message
/// names the target or the host.
#[derive(Debug)]
pub struct DnsError {
    name: Box<str>,
    kind: DnsErrorKind,
}

#[derive(Debug)]
pub(super) enum DnsErrorKind {
    Target(String),
    System(NetError),
    Missing,
    Addresses(NetError),
    ConfigLookup(NetError),
    Config(Problems),
}

impl DnsError {
    pub(super) fn new(name: &str, kind: DnsErrorKind) -> Self {
        DnsError { name: name.into(), kind }
    }

    /// The target, if the resolver cannot be built; otherwise the queried host.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The problems of the service config, if that is the cause.
    #[must_use]
    pub const fn problems(&self) -> Option<&Problems> {
        match &self.kind {
            DnsErrorKind::Config(problems) => Some(problems),
            _ => None,
        }
    }

    /// Whether the host does not exist or has no address.
    #[must_use]
    pub const fn is_not_found(&self) -> bool {
        matches!(self.kind, DnsErrorKind::Missing)
    }
}

impl fmt::Display for DnsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.name;
        match &self.kind {
            DnsErrorKind::Target(what) => write!(f, "{name:?} is not a target: {what}"),
            DnsErrorKind::System(_) => f.write_str("the system's name servers are not known"),
            DnsErrorKind::Missing => write!(f, "{name} has no address"),
            DnsErrorKind::Addresses(_) => {
                write!(f, "the addresses of {name} could not be queried")
            }
            DnsErrorKind::ConfigLookup(_) => {
                write!(f, "the TXT record {RECORD_NAME_PREFIX}{name} could not be queried")
            }
            DnsErrorKind::Config(problems) => {
                let text = problems.to_string();
                let mut lines =
                    text.lines().map(|line| format!("{RECORD_NAME_PREFIX}{name}:{line}"));
                f.write_str(&lines.next().unwrap_or_default())?;
                lines.try_for_each(|line| write!(f, "\n{line}"))
            }
        }
    }
}

impl std::error::Error for DnsError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.kind {
            DnsErrorKind::System(error)
            | DnsErrorKind::Addresses(error)
            | DnsErrorKind::ConfigLookup(error) => Some(error),
            DnsErrorKind::Target(_) | DnsErrorKind::Missing | DnsErrorKind::Config(_) => None,
        }
    }
}
