//! Why a call ended: its name, and its words.

use core::fmt;

/// Why a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Why {
    /// It has what was asked for.
    Succeeded,
    /// The failure was classified as one that does not get better.
    Fatal,
    /// The call already belonged to the attempt that failed.
    Committed,
    /// A strategy declined.
    Strategy,
    /// It must not run twice, and it may have run.
    Unsafe,
    /// The server said not to retry.
    Refused,
    /// No attempt is left.
    Attempts,
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

impl Why {
    /// All of them, those that end a failed call in the order in which they are judged (P9).
    pub const ALL: [Why; 12] = [
        Why::Succeeded,
        Why::Fatal,
        Why::Committed,
        Why::Strategy,
        Why::Unsafe,
        Why::Refused,
        Why::Attempts,
        Why::SoftLimit,
        Why::HardLimit,
        Why::Deadline,
        Why::Throttled,
        Why::Cancelled,
    ];

    /// Its name in scenarios and diaries.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Why::Succeeded => "succeeded",
            Why::Fatal => "fatal",
            Why::Committed => "committed",
            Why::Strategy => "strategy",
            Why::Unsafe => "unsafe",
            Why::Refused => "refused",
            Why::Attempts => "attempts",
            Why::SoftLimit => "soft-limit",
            Why::HardLimit => "hard-limit",
            Why::Deadline => "deadline",
            Why::Throttled => "throttled",
            Why::Cancelled => "cancelled",
        }
    }

    /// The reason in words, as an error prints it.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Why::Succeeded => "succeeded",
            Why::Fatal => "not retryable",
            Why::Committed => "already committed to this attempt",
            Why::Strategy => "the strategy declined",
            Why::Unsafe => "not idempotent, and it may have run",
            Why::Refused => "the server said not to retry",
            Why::Attempts => "no attempt left",
            Why::SoftLimit => "the soft limit was reached",
            Why::HardLimit => "the hard limit would be passed",
            Why::Deadline => "no time left before the deadline",
            Why::Throttled => "the retry budget is spent",
            Why::Cancelled => "cancelled",
        }
    }
}

impl fmt::Display for Why {
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
    fn each_reason_has_the_name_that_scenarios_use_and_words_of_its_own() {
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
        assert_eq!(Why::ALL.map(Why::name), names);
        assert_eq!(Why::Throttled.text(), "the retry budget is spent");
        assert_eq!(Why::Deadline.to_string(), Why::Deadline.text());
        assert_eq!(BTreeSet::from(Why::ALL.map(Why::text)).len(), Why::ALL.len());
    }
}
