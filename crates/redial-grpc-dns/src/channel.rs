//! The extension trait that adds DNS to a channel builder.

use redial_grpc_balance::ChannelBuilder;

use super::{DnsResolver, DnsResolverBuilder};

/// Adds DNS as an option to a [`ChannelBuilder`].
pub trait ChannelBuilderExt: Sized {
    /// Resolves the target with DNS instead of the operating system. The channel then resolves
    /// again when the TTL expires, and can read its service config from a TXT record.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), redial_grpc_balance::BuildError> {
    /// use redial_grpc_dns::ChannelBuilderExt as _;
    ///
    /// let channel = redial_grpc_balance::channel("dns:///echo.example.com:50051")
    ///     .dns(|dns| dns.config_from_txt())
    ///     .build()?;
    /// # drop(channel); Ok(()) }
    /// ```
    ///
    /// A target `dns://1.2.3.4/host:port` selects the name server, unless
    /// [`name_servers`](DnsResolverBuilder::name_servers) is set. The last call of
    /// [`addresses`](ChannelBuilder::addresses), [`resolver`](ChannelBuilder::resolver) and `dns`
    /// takes effect. Errors and warnings of the config in DNS are in the channel's
    /// [snapshot](redial_grpc_balance::ChannelSnapshot).
    #[must_use = "a builder does nothing until it is built"]
    fn dns(self, settings: impl FnOnce(DnsResolverBuilder) -> DnsResolverBuilder) -> Self;
}

impl ChannelBuilderExt for ChannelBuilder {
    fn dns(self, settings: impl FnOnce(DnsResolverBuilder) -> DnsResolverBuilder) -> Self {
        let dns = settings(DnsResolver::builder(self.target()));
        self.resolver_builder(dns)
    }
}
