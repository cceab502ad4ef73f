//! The tests that gRPC's own libraries have for retry and hedging, made again for this layer.
//!
//! Goal: what those libraries promise their users holds here too, or differs by a decision. Method: a
//! generated tonic client, the layer and a real HTTP/2 connection over a pipe in memory to a scripted
//! server, on a paused clock, so that every moment is exact. `docs/peer-suites.md` says which test
//! stands for which of theirs, and what differs.

mod rig;

mod c_core;
mod grpc_go;
mod grpc_java;
mod grpc_js;
