//! Goal: what the layer does is what servers and applications see, frame by frame.
//!
//! Method: an unchanged generated client of tonic, the layer, and a server that plays a script over
//! a pipe, on a paused clock with given draws; what the application sees, what the server saw, the
//! call's diary, the statistics and the tokens are compared. Few tests run over TCP, where only a
//! socket can show it; they are in real time and compare no times.

mod answers;
mod attempt_timeouts;
mod buffers;
mod call_logs;
mod cancelling;
mod clients;
mod configs;
mod connecting;
mod crowded;
mod deadlines;
mod ends;
mod faults;
mod latency;
mod limits;
mod metadata;
mod nested;
mod queues;
mod reports;
mod resets;
mod throttle;

use crate::common::wire as rig;
