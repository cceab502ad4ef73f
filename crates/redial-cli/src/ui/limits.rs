//! The limits of the page, besides those of a [`Server`](super::Server).

/// The largest number of policies side by side.
pub const POLICIES_MAX: usize = 4;
/// The largest body of a request.
pub const BODY_BYTES_MAX: usize = 4 << 20;
/// The longest name of a file.
pub const NAME_BYTES_MAX: usize = 64;
/// The largest number of intervals in the time series of a simulation on the page.
pub const INTERVALS_MAX: u128 = 10_000;
