//! The balanced channel with real servers: tonic servers over TCP, each on its own runtime, for
//! tests that kill servers; over pipes on a paused clock for tests of timing. Servers log the
//! attempts that arrive, and add their name to the response.

mod connecting;
mod deadline;
mod faulty_server;
mod invariants;
mod outlier_detection;
mod picking;
mod reconnect;
mod resolution;
mod support;
mod tls;
mod wakeups;
