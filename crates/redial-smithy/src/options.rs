//! Types of the options that override a preset's values (decision S9).

/// The maximum number of attempts, including the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MaxAttempts {
    /// At most this number.
    Limited(u32),
    /// As many as fit into `time_max`, which is then required.
    Unlimited,
}

/// Whether a retry waits for its backoff before or after it withdraws tokens (decision S2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum TokenOrder {
    /// Backoff, then tokens: Smithy's order.
    BackoffFirst,
    /// Tokens, with a wait for the refill if the bucket is empty, then backoff: the order of today's AWS
    /// SDKs.
    TokenFirst,
}

/// How a server's retry-after hint affects the delay (decision S6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum RetryAfterRule {
    /// The hint replaces the computed delay.
    #[cfg_attr(feature = "serde", serde(rename = "exact"))]
    Exact,
    /// The hint is clamped to the range from the computed delay d to d + 5 s.
    #[cfg_attr(feature = "serde", serde(rename = "within-5s"))]
    Within5s,
}
