//! DNS for a channel that is being written.

use redial_grpc_balance::ChannelBuilder;

use super::{DnsResolver, DnsResolverBuilder};

/// DNS as an option of a [`ChannelBuilder`].
pub trait ChannelBuilderExt: Sized {
    /// Asks DNS for the target's name, in place of the operating system: for answers that are asked
    /// for again when their time is over and, if wanted, for the service config.
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
    /// A target `dns://1.2.3.4/host:port` says which name server is asked, unless
    /// [`name_servers`](DnsResolverBuilder::name_servers) says so. The last of
    /// [`addresses`](ChannelBuilder::addresses), [`resolver`](ChannelBuilder::resolver) and this is in force. What is
    /// wrong with the config by DNS, and what is surely not meant in it, is in the channel's
    /// [view](redial_grpc_balance::ChannelSnapshot).
    #[must_use = "a builder does nothing until it is built"]
    fn dns(self, settings: impl FnOnce(DnsResolverBuilder) -> DnsResolverBuilder) -> Self;
}

impl ChannelBuilderExt for ChannelBuilder {
    fn dns(self, settings: impl FnOnce(DnsResolverBuilder) -> DnsResolverBuilder) -> Self {
        let dns = settings(DnsResolver::builder(self.target()));
        self.resolver_builder(dns)
    }
}
