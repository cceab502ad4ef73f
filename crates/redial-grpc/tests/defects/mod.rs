//! Goal: what other implementations of gRPC's retries were found to get wrong is right here, and
//! stays so.
//!
//! Method: each defect is a test that says in a comment what was found elsewhere and which one-line
//! change here would bring it back (`Red:`); each was seen red with that change. The calls run
//! through the layer and a real HTTP/2 connection to a scripted server, on a paused clock. That
//! requests of tonic could not be repeated at all is in `calls`
//! (`unary_and_all_streaming_kinds_retry`).

mod buffers;
mod cancelling;
mod configs;
mod deadlines;
mod hedging;
mod pushback;
mod throttle;
mod transparent;

use crate::common::wire as rig;
