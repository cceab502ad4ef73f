//! Where the addresses of a name come from.
//!
//! A resolver answers once each time it is asked. When it is asked again, and what a failed answer
//! means for the addresses in force, is for the channel to say.

use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;

use crate::BoxError;

/// How many addresses a channel uses; what a resolution has beyond that is left out.
pub const ADDRESSES_MAX: usize = 1024;

/// What [`Resolve::resolve`] returns.
pub type Resolving<'a> = Pin<Box<dyn Future<Output = Result<Resolution, BoxError>> + Send + 'a>>;

/// Finds the addresses of the name that it was made for.
///
/// ```
/// use std::net::SocketAddr;
///
/// use redial_grpc::balance::{Resolution, Resolve, Resolving};
///
/// /// Reads a list that somebody else keeps.
/// #[derive(Debug)]
/// struct FromFile(std::path::PathBuf);
///
/// impl Resolve for FromFile {
///     fn resolve(&self) -> Resolving<'_> {
///         Box::pin(async move {
///             let text = tokio::fs::read_to_string(&self.0).await?;
///             let addresses: Result<Vec<SocketAddr>, _> = text.lines().map(str::parse).collect();
///             Ok(Resolution::new(addresses?))
///         })
///     }
/// }
/// ```
///
/// # Cancel safety
/// The future is dropped when the channel goes away before it is done.
pub trait Resolve: fmt::Debug + Send + Sync + 'static {
    /// Asks once. An answer without any address counts as failed.
    fn resolve(&self) -> Resolving<'_>;
}

/// What a resolver found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Resolution {
    /// The addresses, in the order in which `pick_first` tries them.
    pub addresses: Vec<SocketAddr>,
    /// The text of the service config that came with them. It replaces the channel's default config
    /// whole (ruling G40); without one the default is in force.
    pub config: Option<String>,
}

impl Resolution {
    /// Addresses without a service config.
    #[must_use]
    pub fn new(addresses: Vec<SocketAddr>) -> Self {
        Resolution { addresses, config: None }
    }

    /// With the text of a service config.
    #[must_use]
    pub fn with_config(mut self, config: impl Into<String>) -> Self {
        self.config = Some(config.into());
        self
    }
}

/// Resolves a host name as the operating system does (`getaddrinfo`, which includes hosts files).
/// It brings no service config.
#[derive(Clone, Debug)]
pub struct SystemResolver {
    host: Box<str>,
    port: u16,
}

impl SystemResolver {
    /// For this host; all addresses get this port.
    #[must_use]
    pub fn new(host: impl Into<Box<str>>, port: u16) -> Self {
        SystemResolver { host: host.into(), port }
    }
}

impl Resolve for SystemResolver {
    fn resolve(&self) -> Resolving<'_> {
        Box::pin(async move {
            let found = tokio::net::lookup_host((&*self.host, self.port)).await?;
            Ok(Resolution::new(found.collect()))
        })
    }
}
