//! What can be given in place of a preset's values (decision S9).

/// How many attempts, the first included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MaxAttempts {
    /// So many.
    Limited(u32),
    /// As many as fit into `time_max`.
    Unlimited,
}

/// Whether a retry waits for its backoff first or asks the bucket first (decision S2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum TokenOrder {
    /// Backoff, then the bucket: the design's.
    BackoffFirst,
    /// The bucket, whose debt is waited for, then the backoff: today's SDKs'.
    TokenFirst,
}

/// What a server's wish for a delay does (decision S6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum RetryAfterRule {
    /// It replaces the delay.
    #[cfg_attr(feature = "serde", serde(rename = "exact"))]
    Exact,
    /// It is kept within the computed delay d and d + 5 s.
    #[cfg_attr(feature = "serde", serde(rename = "within-5s"))]
    Within5s,
}
