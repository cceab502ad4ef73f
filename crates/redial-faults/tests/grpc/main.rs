//! Goal: every fault that a script can ask for arrives as it was asked for, at its moment, and the
//! record says what the client did. Method: a client on the raw `h2` crate over a pipe on a paused
//! clock, so that every moment is exact; a tonic client where it matters which error its users get;
//! a part again over loopback TCP in real time.

mod answers;
mod codec;
mod doors;
mod faults;
mod foreign;
mod raw;
mod records;
mod soak;
mod tcp;
mod tonic_client;
mod windows;
mod written;
