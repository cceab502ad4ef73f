//! The settings of a policy as plain data.

mod validation;

use core::time::Duration;

use crate::backoff::{self, Backoff};
use crate::jitter::Jitter;
use crate::limits::Limits;
use crate::time::{Ns, ns};
use crate::{Failure, Hint};

/// What happens when the next retry cannot start before the deadline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeadlineAction {
    /// The call ends at once with its last outcome.
    #[default]
    FailFast,
    /// The call waits and ends at the deadline.
    WaitForDeadline,
}

/// What happens when an attempt exceeds the attempt timeout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AttemptTimeoutAction {
    /// The call ends with the timeout: the attempt may have run, and no classifier has seen an error
    /// (decision P13).
    #[default]
    Stop,
    /// The attempt failed with kind timeout and can be retried (decision P7). A call that is not
    /// idempotent is not retried.
    Retry,
    /// The call ends as at its deadline (Milvus, decision M4).
    EndCall,
    /// The attempt failed and is not retried (gRPC, decision G42).
    Fail {
        /// Whether the failure drains the throttle.
        drains: bool,
    },
}

/// How the backoff series advances.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Numbering {
    /// By the delays that the backoff made: a server hint does not advance the series.
    #[default]
    Delays,
    /// By attempts (Smithy, Couchbase).
    Attempts,
    /// From the start again after each hint (gRPC, decision G9).
    SinceHint,
}

/// How a server's hint affects the delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HintRule {
    /// The hint replaces the delay; a longer one than this maximum is cut to it.
    Exact(Option<Duration>),
    /// The hint replaces the delay; a longer one than this maximum ends the call. Zero is no hint
    /// (decision P14).
    UpTo(Duration),
    /// The hint may extend the computed delay by at most this duration (decision S6).
    Within(Duration),
    /// The delay is the larger of the hint and the computed delay; a longer hint than this maximum
    /// ends the call (decision H3).
    AtLeast(Duration),
}

impl HintRule {
    /// The delay that replaces the computed one, if a hint does that.
    pub(crate) fn replaces(self, requested: Duration) -> Option<Ns> {
        match self {
            HintRule::Exact(Some(most)) => Some(ns(requested.min(most))),
            HintRule::Exact(None) | HintRule::UpTo(_) => Some(ns(requested)),
            HintRule::Within(_) | HintRule::AtLeast(_) => None,
        }
    }
}

/// When a retry is charged to the throttle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChargeAt {
    /// When the retry is decided; a debt is waited for, then the backoff.
    #[default]
    Decision,
    /// After the backoff (Smithy's standard strategy, decision S2).
    AfterBackoff,
}

/// What happens to a call whose deadline has already expired (decision P10).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExpiredDeadlineAction {
    /// The first attempt starts, and counts if its outcome is available immediately.
    #[default]
    StartOneAttempt,
    /// No attempt starts (gRPC).
    StartNoAttempt,
}

/// All settings of a policy. Plain data: write the fields that differ from [`Rules::DEFAULT`], and
/// validate them with [`Policy::try_new`](crate::Policy::try_new).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rules {
    /// The maximum number of attempts, including the first. `None`: as many as the deadline or a
    /// limit allows; with hedging at most [`LIVE_MAX`](crate::LIVE_MAX).
    pub attempts: Option<u32>,
    /// Whether a call with unlimited attempts may go on without a deadline or a limit.
    pub forever: bool,
    /// The backoff series.
    pub backoff: Backoff,
    /// The jitter of the backoff.
    pub jitter: Jitter,
    /// Whether jitter may exceed the backoff's cap (as in current gRPC, decision G1).
    pub jitter_above_cap: bool,
    /// Limits on the time spent retrying.
    pub limits: Limits,
    /// The time allowed for the call.
    pub deadline: Option<Duration>,
    /// What happens when the next retry cannot start before the deadline.
    pub deadline_action: DeadlineAction,
    /// What happens to a call whose deadline has already expired.
    pub expired_deadline_action: ExpiredDeadlineAction,
    /// The time allowed for an attempt.
    pub attempt_timeout: Option<Duration>,
    /// What happens when an attempt exceeds it.
    pub attempt_timeout_action: AttemptTimeoutAction,
    /// The hedging delay; `None`: no hedging.
    pub hedge: Option<Duration>,
    /// How the backoff series advances.
    pub numbering: Numbering,
    /// How a server's hint affects the delay.
    pub hint: HintRule,
    /// The share of a hint that is added to it at random, from 0 to 1: with 0.1, up to a tenth. It
    /// spreads out clients that got the same hint. Hedges ignore it.
    pub hint_jitter: f64,
    /// Starts the series of delays and the count of attempts anew when an attempt fails that has run
    /// for this long, for loops that reconnect.
    pub reset_after: Option<Duration>,
    /// The first delay after throttling, if different.
    pub throttling_first: Option<Duration>,
    /// The backoff after a reason that is always retried.
    pub always: Backoff,
    /// When a retry is charged to the throttle.
    pub charge_at: ChargeAt,
    /// Whether a strategy decides on each failure (decision C9).
    pub uses_strategy: bool,
    /// Whether attempts that were provably not processed are retried transparently (decisions G26
    /// to G29).
    pub transparent_retries: bool,
}

impl Rules {
    /// The longest hint of a server that is followed by default (decision P14).
    pub const HINT_MAX: Duration = Duration::from_secs(60);

    /// Three attempts, exponential backoff from 100 ms to 20 s with full jitter, no deadline, no
    /// limits. An attempt timeout ends the call, and so does a hint of more than a minute.
    pub const DEFAULT: Rules = Rules {
        attempts: Some(3),
        forever: false,
        backoff: Backoff::Exponential {
            first: Duration::from_millis(100),
            factor: 2.0,
            cap: Some(Duration::from_secs(20)),
        },
        jitter: Jitter::Full,
        jitter_above_cap: false,
        limits: Limits::NONE,
        deadline: None,
        deadline_action: DeadlineAction::FailFast,
        expired_deadline_action: ExpiredDeadlineAction::StartOneAttempt,
        attempt_timeout: None,
        attempt_timeout_action: AttemptTimeoutAction::Stop,
        hedge: None,
        numbering: Numbering::Delays,
        hint: HintRule::UpTo(Rules::HINT_MAX),
        hint_jitter: 0.0,
        reset_after: None,
        throttling_first: None,
        always: backoff::CONTROLLED,
        charge_at: ChargeAt::Decision,
        uses_strategy: false,
        transparent_retries: false,
    };

    /// The hint of a failure under these rules. A delay of zero is none under the library's own rule and
    /// that of HTTP (P14, H3): a server that sends it must not switch the backoff off. It is none either
    /// if the call never gives up, because then only the backoff limits its retries.
    pub(crate) const fn hint_of(&self, failure: &Failure) -> Hint {
        let needs_delay = matches!(self.hint, HintRule::UpTo(_) | HintRule::AtLeast(_));
        match failure.hint {
            Hint::After(Duration::ZERO) if needs_delay || self.never_gives_up() => Hint::None,
            hint => hint,
        }
    }
}

impl Default for Rules {
    fn default() -> Self {
        Rules::DEFAULT
    }
}
