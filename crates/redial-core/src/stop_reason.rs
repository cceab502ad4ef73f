//! Why a call ended: the names in files and the texts in errors.

use core::fmt;

/// Why a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StopReason {
    /// An attempt succeeded.
    Succeeded,
    /// The failure is not retryable.
    NotRetryable,
    /// The call was already committed to the attempt that failed.
    Committed,
    /// A strategy declined to retry.
    StrategyDeclined,
    /// The call is not idempotent, and the attempt may have run.
    NotIdempotent,
    /// The server asked not to retry.
    ServerRefused,
    /// No attempt is left.
    AttemptsExhausted,
    /// The server asked for a longer delay than the policy accepts.
    HintTooLong,
    /// The soft limit is reached.
    SoftLimit,
    /// The retry would exceed the hard limit.
    HardLimit,
    /// The deadline passed, or would pass before the next attempt.
    Deadline,
    /// The throttle refused the retry.
    Throttled,
    /// An attempt exceeded the attempt timeout, and the policy does not retry timeouts.
    AttemptTimeout,
    /// The application cancelled the call.
    Cancelled,
}

impl StopReason {
    /// All stop reasons; those of a failed call in the order in which they are checked (P9).
    pub const ALL: [StopReason; 14] = [
        StopReason::Succeeded,
        StopReason::NotRetryable,
        StopReason::Committed,
        StopReason::StrategyDeclined,
        StopReason::NotIdempotent,
        StopReason::ServerRefused,
        StopReason::AttemptsExhausted,
        StopReason::HintTooLong,
        StopReason::SoftLimit,
        StopReason::HardLimit,
        StopReason::Deadline,
        StopReason::Throttled,
        StopReason::AttemptTimeout,
        StopReason::Cancelled,
    ];

    /// The name in scenarios and call logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            StopReason::Succeeded => "succeeded",
            StopReason::NotRetryable => "fatal",
            StopReason::Committed => "committed",
            StopReason::StrategyDeclined => "strategy",
            StopReason::NotIdempotent => "unsafe",
            StopReason::ServerRefused => "refused",
            StopReason::AttemptsExhausted => "attempts",
            StopReason::HintTooLong => "hint",
            StopReason::SoftLimit => "soft-limit",
            StopReason::HardLimit => "hard-limit",
            StopReason::Deadline => "deadline",
            StopReason::Throttled => "throttled",
            StopReason::AttemptTimeout => "attempt-timeout",
            StopReason::Cancelled => "cancelled",
        }
    }

    /// The text in error messages.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            StopReason::Succeeded => "succeeded",
            StopReason::NotRetryable => "not retryable",
            StopReason::Committed => "already committed to this attempt",
            StopReason::StrategyDeclined => "the strategy declined",
            StopReason::NotIdempotent => "not idempotent, and it may have run",
            StopReason::ServerRefused => "the server said not to retry",
            StopReason::AttemptsExhausted => "no attempt left",
            StopReason::HintTooLong => "the server asked for a longer wait than is allowed",
            StopReason::SoftLimit => "the soft limit was reached",
            StopReason::HardLimit => "the hard limit would be passed",
            StopReason::Deadline => "no time left before the deadline",
            StopReason::Throttled => "the retry budget is spent",
            StopReason::AttemptTimeout => "the attempt timed out, and it may have run",
            StopReason::Cancelled => "cancelled",
        }
    }
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use alloc::string::ToString;

    #[test]
    fn stop_reason_names_match_scenarios_and_texts_differ() {
        let names = [
            "succeeded",
            "fatal",
            "committed",
            "strategy",
            "unsafe",
            "refused",
            "attempts",
            "hint",
            "soft-limit",
            "hard-limit",
            "deadline",
            "throttled",
            "attempt-timeout",
            "cancelled",
        ];
        assert_eq!(StopReason::ALL.map(StopReason::name), names);
        assert_eq!(StopReason::Throttled.text(), "the retry budget is spent");
        assert_eq!(StopReason::Deadline.to_string(), StopReason::Deadline.text());
        assert_eq!(
            BTreeSet::from(StopReason::ALL.map(StopReason::text)).len(),
            StopReason::ALL.len()
        );
    }
}
