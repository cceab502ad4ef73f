//! Why a call ended: its name, and its words.

use core::fmt;

/// Why a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StopReason {
    /// It has what was asked for.
    Succeeded,
    /// The failure was classified as one that does not get better.
    NotRetryable,
    /// The call already belonged to the attempt that failed.
    Committed,
    /// A strategy declined.
    StrategyDeclined,
    /// It must not run twice, and it may have run.
    NotIdempotent,
    /// The server said not to retry.
    ServerRefused,
    /// No attempt is left.
    AttemptsExhausted,
    /// Retrying has taken as long as the soft limit allows.
    SoftLimit,
    /// Retrying would take longer than the hard limit allows.
    HardLimit,
    /// The deadline passed, or would pass before the next attempt.
    Deadline,
    /// The throttle holds retries back.
    Throttled,
    /// The application dropped the call.
    Cancelled,
}

impl StopReason {
    /// All of them, those that end a failed call in the order in which they are judged (P9).
    pub const ALL: [StopReason; 12] = [
        StopReason::Succeeded,
        StopReason::NotRetryable,
        StopReason::Committed,
        StopReason::StrategyDeclined,
        StopReason::NotIdempotent,
        StopReason::ServerRefused,
        StopReason::AttemptsExhausted,
        StopReason::SoftLimit,
        StopReason::HardLimit,
        StopReason::Deadline,
        StopReason::Throttled,
        StopReason::Cancelled,
    ];

    /// Its name in scenarios and diaries.
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
            StopReason::SoftLimit => "soft-limit",
            StopReason::HardLimit => "hard-limit",
            StopReason::Deadline => "deadline",
            StopReason::Throttled => "throttled",
            StopReason::Cancelled => "cancelled",
        }
    }

    /// The reason in words, as an error prints it.
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
            StopReason::SoftLimit => "the soft limit was reached",
            StopReason::HardLimit => "the hard limit would be passed",
            StopReason::Deadline => "no time left before the deadline",
            StopReason::Throttled => "the retry budget is spent",
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
            "soft-limit",
            "hard-limit",
            "deadline",
            "throttled",
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
