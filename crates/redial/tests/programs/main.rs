//! Programs as users write them, each in a file of its own: from the connection to a database to a loop with
//! the delays of a policy. `docs/cookbook.md` lists them. Servers are real ones on the loopback interface
//! where a client is involved; the rest runs on virtual time.
#![cfg(feature = "tokio")]

mod blocking;
mod database;
mod delays;
mod errors;
mod futures;
mod hedged_read;
mod http;
mod idempotency;
mod limits;
#[cfg(all(feature = "serde", feature = "tracing"))]
mod observability;
#[cfg(feature = "serde")]
mod policy_file;
mod poller;
mod shapes;
mod shared_budget;
mod smol;
mod strategies;
mod virtual_time;
