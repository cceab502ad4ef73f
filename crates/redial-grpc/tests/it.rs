//! The tests of this crate as one program, since each program links all of tonic again, which takes tens of
//! megabytes and seconds.
//!
//! Rule: what counts for a whole process is a program of its own, `allocations` and `swaps`; and so is `soak`,
//! which would slow down the others. A server's name (`for_server`) belongs to one test, since one name is
//! one throttle in the process.

mod common;

mod calls;
mod defects;
mod suites;
mod watch;
mod wire;

#[cfg(any(feature = "metrics", feature = "opentelemetry", feature = "tracing"))]
mod observe;
