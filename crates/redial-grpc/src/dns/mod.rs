//! Names that DNS knows: their addresses and, if asked for, their service config (feature `dns`).
//!
//! ```no_run
//! # fn main() -> Result<(), redial_grpc::dns::DnsError> {
//! use redial_grpc::dns::DnsResolver;
//!
//! // Addresses, by the system's name servers.
//! let resolver = DnsResolver::new("dns:///echo.example.com:50051")?;
//! // The service config as well, from the TXT record `_grpc_config.echo.example.com`.
//! let resolver = DnsResolver::builder("echo.example.com:50051").config_by_txt().build()?;
//! # Ok(()) }
//! ```
//!
//! | | |
//! | --- | --- |
//! | a target | `dns:///host:port`, `dns://1.2.3.4:53/host:port` (asks that name server), `host:port` |
//! | its port | 443 unless it has one |
//! | addresses | AAAA and A records, one of each in turns, the first of AAAA; addresses and `localhost` as they are |
//! | service config | off by default; [`config_by_txt`](DnsResolverBuilder::config_by_txt) |
//! | how long an answer is good | its TTL, at least [`REFRESH_MIN`] |
//!
//! A name without the TXT record has no config by DNS, and the channel's own is in force. One whose
//! record is bad, or could not be asked for, keeps the config that is in force (ruling G39).
//!
//! Invariant: a resolver draws once, when it is made, and compares every `percentage` with that draw.
//! Asking again never changes which choice of a list is taken; only another list does.

mod builder;
mod error;
mod resolver;
mod target;

pub use builder::{DnsResolverBuilder, REFRESH_MIN, TIMEOUT};
pub use error::DnsError;
pub use resolver::DnsResolver;
pub use target::PORT;
