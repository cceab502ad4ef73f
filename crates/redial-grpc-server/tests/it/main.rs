//! The behaviour of `redial_grpc_server` on the wire: a real tonic server behind a pipe in memory,
//! on a paused clock. Its clients are tonic's own, and one on the `h2` crate that sees every frame.

mod deadline;
mod hold;
mod inbound_attempt;
mod layers;
mod pushback;
mod support;
