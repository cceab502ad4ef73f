//! Names that DNS knows: their addresses and, if asked for, their service config.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use redial_grpc_balance as balance;
//! use redial_grpc_dns::{ChannelBuilderExt as _, DnsResolver};
//!
//! // A channel whose name is resolved by DNS: addresses, and the service config from the TXT record
//! // `_grpc_config.echo.example.com`.
//! let channel = balance::channel("dns:///echo.example.com:50051")
//!     .dns(|dns| dns.config_from_txt())
//!     .build()?;
//! // A resolver by itself: addresses, by the system's name servers.
//! let resolver = DnsResolver::new("dns:///echo.example.com:50051")?;
//! # drop((channel, resolver)); Ok(()) }
//! ```
//!
//! | | |
//! | --- | --- |
//! | a target | as a [channel](redial_grpc_balance::channel) has it; with `dns://1.2.3.4:53/host:port` that name server is asked |
//! | addresses | AAAA and A records, one of each in turns, the first of AAAA; addresses and `localhost` as they are |
//! | service config | off by default; [`config_from_txt`](DnsResolverBuilder::config_from_txt) |
//! | how long an answer is good | its TTL, at least [`REFRESH_INTERVAL_MIN`] |
//!
//! A name without the TXT record has no config by DNS, and the channel's own is in force. One whose
//! record is bad, or could not be asked for, keeps the config that is in force (decision G39). What is
//! legal in a record and surely not meant, as a choice whose condition nobody knows, is in
//! [`ChannelSnapshot::config_warnings`](redial_grpc_balance::ChannelSnapshot::config_warnings) of the channel, and an event for
//! `tracing`.
//!
//! Invariant: a resolver draws once, when it is made, and compares every `percentage` with that draw.
//! Asking again never changes which choice of a list is taken; only another list does.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod builder;
mod channel;
mod error;
mod resolver;

pub use builder::{DnsResolverBuilder, REFRESH_INTERVAL_MIN, TIMEOUT};
pub use channel::ChannelBuilderExt;
pub use error::DnsError;
pub use resolver::DnsResolver;

/// The examples of the guide are compiled and run with those of this crate, which has all others below
/// it or as dev-dependencies.
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
