//! Goal: what `redial_grpc_server` promises is what a client sees on the wire.
//! Method: a real server of tonic behind a pipe in memory, on a paused clock; its clients are tonic's own, and
//! one on the `h2` crate that sees every frame.

mod deadline;
mod hold;
mod inbound_attempt;
mod layers;
mod pushback;
mod support;
