//! Goal: the reference client raises, retries and reports as RFC 49 says. Method: the client on pipes
//! to the scripted server, on tokio's paused clock, so that times are exact; TLS with real
//! certificates; a few tests over loopback TCP.

mod breaker;
mod common;
mod connections;
mod first_attempt;
mod limits;
mod operations;
mod reasons;
mod retries;
mod terminal;
mod topology;
