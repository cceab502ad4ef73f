//! Goal: every scripted fault reaches the client exactly and on time, and the record shows what the
//! client did. Method: a client on the raw `h2` crate over a pipe on a paused clock, so that times
//! are exact; a tonic client for the errors that its users see; a subset over loopback TCP in real
//! time.

mod answers;
mod codec;
mod connect;
mod faults;
mod http_responses;
mod json;
mod raw;
mod records;
mod soak;
mod tcp;
mod tonic_client;
mod windows;
