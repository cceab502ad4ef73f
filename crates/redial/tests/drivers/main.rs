//! Goal: the async, the lending and the blocking driver do the same thing for the same script, and
//! each keeps the promises of its kind: nothing is left behind when a call is dropped, nobody
//! starves, no clock and no timer is touched without need, any executor will do.
//!
//! Method: scripted operations on tokio's paused clock, on a clock that is moved by hand while the
//! future is polled by hand, or, where a thread blocks, with delays of a millisecond at most. What
//! the operation owns counts itself, so that a test knows what is still alive.

mod dropping;
mod executors;
mod hand;
mod hedging;
mod options;
mod pacing;
mod panics;
mod scripts;
mod shapes;
mod thrift;
