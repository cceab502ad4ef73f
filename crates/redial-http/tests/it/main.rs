//! The layer, the extension of reqwest and the middleware against real servers on loopback, with HTTP/1.1,
//! HTTP/2 and TLS.
//!
//! Time is real: delays are a few milliseconds, and a test that measures time states a generous tolerance.

mod bodies;
mod budgets;
mod cancellation;
mod complaints;
mod connections;
mod deadlines;
mod drains;
mod events;
mod hedging;
mod http2;
mod layers;
mod methods;
mod middleware;
mod overrides;
mod proxy;
mod retry_after;
mod server;
mod tls;
mod tls_server;
