//! Goal: every fault of the proxy reaches a real client as the script says, everything else passes
//! unchanged, and the record shows both. Method: a real HTTP server (hyper) or a scripted gRPC
//! server behind the proxy; hyper's pooling client, tonic and plain sockets in front of it, all over
//! loopback TCP in real time. Events are never early, and at most [`support::TOLERANCE`] late.

mod connections;
mod grpc;
mod http1;
mod json;
mod records;
mod rules;
mod support;
mod tcp;
