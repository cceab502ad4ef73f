//! The limits of simulations, so that a mistake in a file ends with a message and not with the memory
//! of the machine.

use std::time::Duration;

/// The largest number of clients.
pub const CLIENTS_MAX: u32 = 10_000_000;

/// The largest number of services.
pub const SERVICES_MAX: usize = 16;

/// The largest number of servers of a service.
pub const SERVERS_MAX: u32 = 100_000;

/// The largest number of calls that one request makes to the next service.
pub const FAN_OUT_MAX: u32 = 10_000;

/// The largest number of policies in a simulation.
pub const POLICIES_MAX: usize = 32;

/// The largest number of disturbances.
pub const DISTURBANCES_MAX: usize = 1000;

/// The longest simulation: 30 days of virtual time.
pub const DURATION_MAX: Duration = Duration::from_secs(30 * 86_400);

/// The largest number of intervals in a time series.
pub const INTERVALS_MAX: u64 = 100_000;

/// The largest rate of calls, and the largest number of calls that a run is expected to make.
pub const CALLS_MAX: f64 = 1e10;

/// The largest number of requests in flight or in queues.
pub const IN_FLIGHT_MAX: usize = 20_000_000;

/// The largest number of attempts of a run.
pub const ATTEMPTS_MAX: u64 = 20_000_000_000;

/// The largest number of attempts at one moment of virtual time. More are retries without any delay.
pub const SAME_TIME_MAX: u64 = 400_000_000;

/// The longest name, and the longest description, in bytes.
pub const NAME_MAX: usize = 200;
/// The longest description, in bytes.
pub const ABOUT_MAX: usize = 10_000;
