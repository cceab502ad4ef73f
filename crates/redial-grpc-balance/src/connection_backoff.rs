//! The connection backoff: its defaults, and the policies that compute its delays.

use std::time::Duration;

use redial::{Jitter, Policy, PolicyError, Throttle};

/// The first connection backoff delay. gRPC's "Connection Backoff Protocol" starts with 1 s, which
/// turns a restart of 50 ms into a second of failures; tonic alone reconnects for every call.
pub const CONNECT_BACKOFF_FIRST_DEFAULT: Duration = Duration::from_millis(50);
/// The longest connection backoff delay, as in gRPC's "Connection Backoff Protocol".
pub const CONNECT_BACKOFF_CAP_DEFAULT: Duration = Duration::from_secs(120);
/// The growth and the jitter of the connection backoff, as in gRPC's "Connection Backoff Protocol".
const CONNECT_BACKOFF_FACTOR: f64 = 1.6;
const CONNECT_BACKOFF_JITTER: f64 = 0.2;

/// The first backoff delay after a failed resolution.
const RESOLVE_BACKOFF_FIRST: Duration = Duration::from_secs(1);

/// The policy for the delays between attempts to connect.
pub(crate) fn connect_policy(first: Duration, cap: Duration) -> Result<Policy, PolicyError> {
    Policy::exponential(first)
        .cap(cap)
        .factor(CONNECT_BACKOFF_FACTOR)
        .jitter(Jitter::Proportional(CONNECT_BACKOFF_JITTER))
        // In effect unlimited: at most one attempt every two minutes.
        .attempts(u32::MAX)
        .throttle(Throttle::none())
        .try_build()
}

/// The policy for the delays between failed resolutions.
pub(crate) fn resolve_policy() -> Result<Policy, PolicyError> {
    connect_policy(RESOLVE_BACKOFF_FIRST, CONNECT_BACKOFF_CAP_DEFAULT)
}
