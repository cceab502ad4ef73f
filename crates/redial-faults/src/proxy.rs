//! A TCP and HTTP proxy that injects faults between a real client and a real server, and records
//! what passed.
//!
//! It is for tests of retries: the server does its work, and the connection or the response fails
//! as the script says. [`Proxy::http`] understands HTTP/1.1 and HTTP/2 without TLS (gRPC);
//! [`Proxy::tcp`] forwards any bytes. The command `redial faults proxy` runs it for clients in any
//! language.
//!
//! ```
//! use std::time::Duration;
//! use redial_faults::proxy::{Fault, Proxy, ProxyRule};
//!
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! # let upstream = "127.0.0.1:9";
//! let proxy = Proxy::http(upstream)
//!     .script([
//!         Fault::status(429).header("retry-after", "1"),
//!         Fault::reset().after_upstream(),
//!     ])
//!     .listen("127.0.0.1:0")
//!     .await?;
//! // A client sends its requests to `proxy.url()`, and then:
//! let record = proxy.shutdown().await;
//! assert_eq!(record.counts.forwarded, 0);
//! # std::io::Result::Ok(()) })?;
//! # std::io::Result::Ok(())
//! ```
//!
//! # What it forwards
//! Requests and responses are passed on as they are: headers (with the case of their names in
//! HTTP/1.1), bodies as they come, trailers. The `Host` header stays that of the proxy, so that
//! signatures over it remain valid. It adds nothing, not even `Date`. An HTTP/1.1 request has an
//! upstream connection of its own; the requests of an HTTP/2 connection share one. If the upstream
//! server cannot be reached, the client gets status 502 with the reason.
//!
//! It does not terminate TLS, and does not understand `Upgrade` or `CONNECT`: use [`Proxy::tcp`].
//!
//! # Refused connections
//! A client that connects while connections are refused gets `ECONNREFUSED`: the socket is bound
//! and does not listen. The proxy does not see such a client, so they are refused for a time
//! ([`Script::refuse`], [`Handle::refuse_connections`]) and not by number.
//! [`ConnectionFault::reset`] is the fault by number: accepted, then reset.
//!
//! # Timing and randomness
//! Delays are on tokio's clock. A fault behind a byte of a response comes some milliseconds after
//! that byte was written. Rates are drawn from the seed, the number of the rule and the number of
//! its match: the same seed and the same requests give the same faults.
//!
//! # Scripts as JSON
//! [`Script`] can be deserialized. Unknown fields are errors.
//! ```
//! use redial_faults::proxy::Script;
//!
//! let text = r#"{
//!   "about": "an overloaded server",
//!   "seed": 7,
//!   "requests": [
//!     { "status": 429, "headers": { "retry-after": "1" }, "body": "slow down" },
//!     { "reset": {}, "after_upstream": true },
//!     { "close": { "response_bytes": 100 } },
//!     {} ],
//!   "calls": { "upload": [{ "reset": { "request_bytes": 65536 } }] },
//!   "rules": [
//!     { "path": "/shop.Orders/*", "rate": 0.2, "fault": { "grpc_status": "UNAVAILABLE", "message": "busy" } },
//!     { "method": "GET", "headers": { "x-slow": "*" }, "times": 3, "fault": { "delay": 250 } } ],
//!   "connections": [{ "reset": {} }, { "latency": 20 }],
//!   "connection_rules": [{ "rate": 0.01, "fault": { "stall": { "down_bytes": 1000 } } }],
//!   "refuse": [{ "from": 5000, "for": 500 }]
//! }"#;
//! let script: Script = serde_json::from_str(text)?;
//! # let _ = script;
//! # serde_json::Result::Ok(())
//! ```
//! | field | meaning |
//! | --- | --- |
//! | `about` | a description, ignored by the proxy |
//! | `seed` | the seed of the rates; default 0 |
//! | `requests` | the faults of requests that name no call, in order of arrival |
//! | `calls` | by name: the faults of the requests whose header `x-redial-call` names the call |
//! | `rules` | faults of requests that no list has a fault for; the first rule that matches and applies |
//! | `connections` | the faults of connections, in order of arrival |
//! | `connection_rules` | faults of connections that the list has none for |
//! | `refuse` | when connections are refused: `from` and `for` in milliseconds since the start |
//!
//! ## Faults of requests
//! Times are milliseconds; fractions are allowed. `{}` passes. A request can also carry its fault
//! in the header `x-redial-fault`, as JSON; the proxy removes that header.
//!
//! | field | meaning |
//! | --- | --- |
//! | `status` | the proxy answers with this HTTP status; with `headers` (`{"name": "value", "twice": ["a", "b"]}`) and `body` (a text) |
//! | `grpc_status` | the proxy answers with this gRPC status (a name or a number) as Trailers-Only; with `message` and `headers` |
//! | `reset` | a TCP reset: `{}` before the response, `{"response_bytes": 100}` behind so many bytes of its body, `{"request_bytes": 100}` when so many bytes of the request's body have arrived |
//! | `close` | the same with an orderly close: a truncated response |
//! | `stall` | the same with silence on an open connection |
//! | `after_upstream` | `true`: the server processes the request first, and its response is discarded |
//! | `delay` | a pause before the request is forwarded or answered |
//! | `delay_response` | a pause before the response |
//!
//! On HTTP/2 a reset or a close ends the connection, and with it all of its streams.
//!
//! ## Rules
//! | field | meaning |
//! | --- | --- |
//! | `fault` | the fault |
//! | `method`, `path` | which requests; a `*` at the end of the path stands for any rest |
//! | `headers` | which requests: `{"name": "value"}`, the value `*` stands for any value |
//! | `skip` | so many matching requests pass first; default 0 |
//! | `times` | how often it applies; default without limit |
//! | `rate` | the share of the matching requests to which it applies, from 0 to 1; default 1 |
//!
//! A rule of `connection_rules` has `fault`, `skip`, `times` and `rate`.
//!
//! ## Faults of connections
//! | field | meaning |
//! | --- | --- |
//! | `reset`, `close`, `stall` | `{}` immediately, `{"up_bytes": 10}` after so many bytes from the client, `{"down_bytes": 10}` after so many bytes to it |
//! | `delay` | a pause before anything is read |
//! | `latency` | a pause before every write to the client |
//!
//! # Records as JSON
//! An [`Exchange`] is serialized with times in milliseconds since the proxy's start: `exchange`,
//! `connection`, `version`, `method`, `path`, `headers`, `call`, `arrived`, `request_bytes`,
//! `request_digest`, `forwarded`, `upstream_status`, `status`, `response_bytes`, `fault`, `source`,
//! `ended`, `outcome`. A [`Connection`] has `connection`, `peer`, `opened`, `closed`, `bytes_up`,
//! `bytes_down`, `fault`. Absent values are `null`; the values of headers with credentials are
//! written as `[removed]`.

mod body;
mod client_io;
mod fault;
mod http;
mod json;
mod listener;
mod record;
mod rule;
mod script;
mod server;
mod shared;
mod tcp;

pub use self::http::REQUEST_BYTES_DISCARDED_MAX;
pub use crate::grpc::CALL_HEADER;
pub use fault::{BODY_BYTES_MAX, BreakKind, ConnectionFault, Fault, InvalidFault};
pub use record::{Connection, Counts, Exchange, ExchangeEnd, ExchangeOutcome, Record};
pub use rule::{ConnectionRule, ProxyRule};
pub use script::{FAULT_HEADER, FaultSource, Script};
pub use server::{CONNECTIONS_OPEN_MAX, EXCHANGES_KEPT, Handle, Proxy};
pub use shared::Ended;
