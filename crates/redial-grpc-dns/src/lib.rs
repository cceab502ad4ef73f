//! A DNS resolver for balanced channels: the addresses of a name and, optionally, its service config.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use redial_grpc_balance as balance;
//! use redial_grpc_dns::{ChannelBuilderExt as _, DnsResolver};
//!
//! // A channel that resolves its target with DNS, and reads its service config from the TXT record
//! // `_grpc_config.echo.example.com`.
//! let channel = balance::channel("dns:///echo.example.com:50051")
//!     .dns(|dns| dns.config_from_txt())
//!     .build()?;
//! // A resolver on its own: addresses only, with the system's name servers.
//! let resolver = DnsResolver::new("dns:///echo.example.com:50051")?;
//! # drop((channel, resolver)); Ok(()) }
//! ```
//!
//! | topic | behaviour |
//! | --- | --- |
//! | target | the syntax of a [channel](redial_grpc_balance::channel); `dns://1.2.3.4:53/host:port` selects the name server |
//! | addresses | AAAA and A records, interleaved, AAAA first; IP addresses and `localhost` are not queried |
//! | service config | off by default; [`config_from_txt`](DnsResolverBuilder::config_from_txt) |
//! | cache | the TTL of the answer, at least [`REFRESH_INTERVAL_MIN`] |
//!
//! A name without the TXT record has no config in DNS, and the channel's own config is active. If the
//! record is invalid or the query fails, the current config stays active (decision G39). Likely
//! mistakes in a record, such as a choice with an unknown condition, are reported in
//! [`ChannelSnapshot::config_warnings`](redial_grpc_balance::ChannelSnapshot::config_warnings) and as
//! a `tracing` event.
//!
//! Invariant: a resolver draws at most one random number, when it is built (none with
//! [`draw`](DnsResolverBuilder::draw)), and compares every `percentage` with it. Another lookup never
//! changes which choice of a list applies; only a changed list does.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod builder;
mod channel;
mod error;
mod resolver;

pub use builder::{DnsResolverBuilder, TIMEOUT};
pub use channel::ChannelBuilderExt;
pub use error::DnsError;
pub use resolver::{DnsResolver, REFRESH_INTERVAL_MIN};

/// Compiles and runs the examples of the guide. They are here because this crate has all crates that they
/// use as dependencies or dev-dependencies.
#[cfg(doctest)]
mod guide {
    #[doc = include_str!("../../../docs/grpc/getting-started.md")]
    struct GettingStarted;
    #[doc = include_str!("../../../docs/grpc/policies.md")]
    struct Policies;
    #[doc = include_str!("../../../docs/grpc/operations.md")]
    struct Operations;
    #[doc = include_str!("../../../docs/grpc/servers.md")]
    struct Servers;
    #[doc = include_str!("../../../docs/grpc/reference.md")]
    struct Reference;
}
