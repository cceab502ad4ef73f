//! Goal: the balanced channel with real servers. Method: tonic servers over TCP, each on a runtime of
//! its own, where processes die; over pipes and on a paused clock where time matters. Servers log
//! which attempts arrived, and sign their answers.

mod addresses;
mod connecting;
mod deadlines;
mod faulty;
mod load;
mod many;
mod model;
mod outliers;
mod places;
mod rig;
mod tls;
