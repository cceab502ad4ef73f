//! Goal: the balanced channel with real servers. Method: tonic servers over TCP, each on a runtime of
//! its own, where processes die; over pipes and on a paused clock where time matters. Servers log
//! which attempts arrived, and sign their answers.

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
