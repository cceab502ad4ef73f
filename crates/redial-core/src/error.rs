//! Contradictions in a policy, reported when it is built.

use core::fmt;

/// Why a policy or throttle is invalid. The text names the field and what to write instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PolicyError {
    /// Zero attempts.
    NoAttempt,
    /// Unlimited attempts without a deadline or limit that ends them.
    Unlimited,
    /// Retries without end, with delays that are or become zero, and without a throttle.
    ForeverWithoutDelay,
    /// A factor that is not above 0.
    Factor,
    /// A table without entries.
    EmptyTable,
    /// [`Backoff::Own`](crate::Backoff::Own) without a table or function.
    OwnBackoff,
    /// A cap on a series that does not grow.
    CapWithoutGrowth,
    /// A factor for a series that is not exponential.
    FactorWithoutGrowth,
    /// A proportion outside `[0, 1]`.
    Proportion,
    /// A limit of zero.
    LimitOfZero,
    /// A soft limit above the hard one.
    SoftAboveHard,
    /// `fill` without a hard limit.
    FillWithoutHard,
    /// `truncate` without a hard limit.
    TruncateWithoutHard,
    /// An attempt timeout that is not below the deadline.
    AttemptTimeout,
    /// An attempt timeout of zero.
    AttemptTimeoutZero,
    /// Hedging together with limits.
    HedgeWithLimits,
    /// More hedges than a call can run concurrently.
    HedgeAttempts,
    /// Hedging together with a strategy.
    HedgeWithStrategy,
    /// Hedging together with a reset of the series.
    HedgeWithReset,
    /// Hedging without end: the number of attempts that can run at the same time ends it.
    HedgeForever,
    /// Hedging together with a jitter of hints.
    HedgeWithHintJitter,
    /// A reset of the series after no time.
    ResetAfterZero,
    /// A jitter of hints outside `[0, 1]`.
    HintJitter,
    /// A first delay above the cap.
    FirstAboveCap,
    /// More attempts than a budget without a refill can pay for.
    AttemptsAboveReserve,
    /// A hedging delay in a policy that retries.
    HedgeAsRetry,
    /// No hedging delay in a policy that hedges.
    RetryAsHedge,
    /// A quantile outside the supported range.
    Quantile,
    /// A floor above the cap.
    FloorAboveCap,
    /// Zero samples, or more than the estimator counts.
    Samples,
    /// A reserve that cannot pay for a retry.
    Reserve,
    /// A ratio that is negative or not a number.
    Ratio,
    /// A refill per second that is negative, not a number, or too small.
    PerSecond,
    /// A maximum that is not a whole number in `(0, 1000]`.
    MaxTokens,
    /// A token ratio below 0.001.
    TokenRatio,
    /// A capacity that is negative or not a number.
    Capacity,
    /// A cost that is negative or not a number.
    Cost,
    /// A credit for success that is negative or not a number.
    Success,
    /// A cost above the capacity.
    CostAboveCapacity,
    /// A refill rate that is negative, not a number, or too slow.
    Refill,
    /// Waiting for a bucket that has no refill.
    WaitWithoutRefill,
}

impl PolicyError {
    /// The invalid field, as policy files name it.
    #[must_use]
    pub const fn field(self) -> &'static str {
        match self {
            PolicyError::NoAttempt
            | PolicyError::Unlimited
            | PolicyError::ForeverWithoutDelay
            | PolicyError::HedgeAttempts
            | PolicyError::HedgeForever
            | PolicyError::AttemptsAboveReserve => "attempts",
            PolicyError::Factor => "backoff.exponential.factor",
            PolicyError::EmptyTable => "backoff.table",
            PolicyError::OwnBackoff
            | PolicyError::CapWithoutGrowth
            | PolicyError::FirstAboveCap
            | PolicyError::FactorWithoutGrowth => "backoff",
            PolicyError::Proportion => "jitter.proportional",
            PolicyError::LimitOfZero => "limits",
            PolicyError::SoftAboveHard => "limits.soft",
            PolicyError::FillWithoutHard => "limits.under",
            PolicyError::TruncateWithoutHard => "limits.over",
            PolicyError::AttemptTimeout | PolicyError::AttemptTimeoutZero => "attempt_timeout",
            PolicyError::HedgeWithLimits
            | PolicyError::HedgeWithStrategy
            | PolicyError::HedgeWithReset
            | PolicyError::HedgeAsRetry
            | PolicyError::RetryAsHedge => "hedge",
            PolicyError::ResetAfterZero => "reset_after",
            PolicyError::HintJitter | PolicyError::HedgeWithHintJitter => "hint_jitter",
            PolicyError::Quantile => "hedge_at.quantile",
            PolicyError::FloorAboveCap => "hedge_at.floor",
            PolicyError::Samples => "hedge_at.samples",
            PolicyError::Reserve => "budget.reserve",
            PolicyError::Ratio => "budget.ratio",
            PolicyError::PerSecond => "budget.per_second",
            PolicyError::MaxTokens => "tokens.max",
            PolicyError::TokenRatio => "tokens.ratio",
            PolicyError::Capacity => "bucket.capacity",
            PolicyError::Cost | PolicyError::CostAboveCapacity => "bucket.costs",
            PolicyError::Success => "bucket.success",
            PolicyError::Refill => "bucket.refill_per_second",
            PolicyError::WaitWithoutRefill => "bucket.empty",
        }
    }

    /// What is wrong, and what to write instead.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            PolicyError::NoAttempt => "attempts: 0 would never try; write 1 for a single attempt",
            PolicyError::Unlimited => {
                "attempts: unlimited attempts would never end; add a deadline or a limit that the delays will reach, or write forever"
            }
            PolicyError::ForeverWithoutDelay => {
                "attempts: retries without end need a delay that is never zero and does not shrink to zero; add a backoff, or name a throttle"
            }
            PolicyError::Factor => {
                "backoff.exponential.factor: must be a number above 0; write 2 to double, 1 for a constant delay"
            }
            PolicyError::EmptyTable => {
                "backoff.table: has no entry; list at least one delay, or use a constant of zero"
            }
            PolicyError::OwnBackoff => {
                "backoff: a table or function of its own must be given with the rules; build with one of them"
            }
            PolicyError::CapWithoutGrowth => {
                "backoff: a cap bounds delays that grow; give the delays themselves, or use exponential or arithmetic"
            }
            PolicyError::FactorWithoutGrowth => {
                "backoff: only exponential delays have a factor; leave it out or use exponential"
            }
            PolicyError::Proportion => {
                "jitter.proportional: must be between 0 and 1; write 0.2 for 20 % more or less"
            }
            PolicyError::LimitOfZero => {
                "limits: a limit of zero allows no retry; leave it out, or set attempts to 1"
            }
            PolicyError::SoftAboveHard => {
                "limits.soft: is above limits.hard and would never count; swap them or leave one out"
            }
            PolicyError::FillWithoutHard => {
                "limits.under: \"fill\" fills up to the hard limit, and there is none; add limits.hard or write \"leave\""
            }
            PolicyError::TruncateWithoutHard => {
                "limits.over: \"truncate\" cuts at the hard limit, and there is none; add limits.hard or write \"drop\""
            }
            PolicyError::AttemptTimeout => {
                "attempt_timeout: must be below the deadline, or no second attempt could ever run; lower it or raise the deadline"
            }
            PolicyError::AttemptTimeoutZero => {
                "attempt_timeout: zero would cancel every attempt that is not ready at once; write how long an attempt may take, or leave it out"
            }
            PolicyError::HedgeWithLimits => {
                "hedge: limits count delays between retries, and hedges have none; use a deadline instead"
            }
            PolicyError::HedgeAttempts => {
                "attempts: a hedged policy runs 32 attempts at the most; lower it"
            }
            PolicyError::HedgeWithStrategy => {
                "hedge: a strategy decides on failures, hedges start before there is one; use one of the two"
            }
            PolicyError::HedgeWithReset => {
                "hedge: a reset starts the delays between retries anew, and hedges have none; leave out reset_after"
            }
            PolicyError::HedgeForever => {
                "attempts: a hedged policy runs 32 attempts at the most, so none goes on forever; write a number"
            }
            PolicyError::HedgeWithHintJitter => {
                "hint_jitter: a hedge starts exactly when the server allows it; leave the jitter out, or retry instead of hedging"
            }
            PolicyError::ResetAfterZero => {
                "reset_after: zero would reset after every attempt, and the delays would never grow; write how long an attempt must run to count as healthy"
            }
            PolicyError::HintJitter => {
                "hint_jitter: must be between 0 and 1; write 0.1 to add up to a tenth of the delay that the server asks for"
            }
            PolicyError::FirstAboveCap => {
                "backoff: the first delay is above the cap, which is 20 s unless it is given; raise the cap or lower the delay"
            }
            PolicyError::AttemptsAboveReserve => {
                "attempts: the retry budget has no refill and a smaller reserve, so it could never pay for the last attempts; add per_second or raise the reserve"
            }
            PolicyError::HedgeAsRetry => {
                "hedge: a policy that retries does not hedge; make it with `Policy::hedged`, or leave the hedge out"
            }
            PolicyError::RetryAsHedge => {
                "hedge: a hedged policy needs a hedging delay; build a policy that retries with `Policy::exponential` and the like"
            }
            PolicyError::Quantile => {
                "hedge_at.quantile: must be a share from 0.001 to 0.999; write 0.99 for the 99th percentile"
            }
            PolicyError::FloorAboveCap => {
                "hedge_at.floor: is above hedge_at.cap, and no delay is both; lower it or raise the cap"
            }
            PolicyError::Samples => {
                "hedge_at.samples: must be from 1 to 4095; write 100, and the policy's own delay is used until then"
            }
            PolicyError::Reserve => {
                "budget.reserve: must be at least 1 and at most 1000000, or it could never pay for a retry"
            }
            PolicyError::Ratio => {
                "budget.ratio: must be a number from 0 to 1000000; write 0.1 for one retry in ten calls"
            }
            PolicyError::PerSecond => {
                "budget.per_second: must be 0, or from 0.001 to 1000000; write 1 for one retry per second"
            }
            PolicyError::MaxTokens => "tokens.max: must be a whole number from 1 to 1000",
            PolicyError::TokenRatio => "tokens.ratio: must be a number of at least 0.001",
            PolicyError::Capacity => "bucket.capacity: must be a number from 0 to 1000000000",
            PolicyError::Cost => "bucket.costs: must be numbers of at least 0",
            PolicyError::Success => {
                "bucket.success: must be a number of at least 0; write 0 to add nothing"
            }
            PolicyError::CostAboveCapacity => {
                "bucket.costs: a cost above the capacity could never be paid; lower it or raise bucket.capacity"
            }
            PolicyError::Refill => {
                "bucket.refill_per_second: must be 0, or fast enough to fill the bucket within a century"
            }
            PolicyError::WaitWithoutRefill => {
                "bucket.empty: \"wait\" needs a refill to wait for; set bucket.refill_per_second or write \"fail\""
            }
        }
    }
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl core::error::Error for PolicyError {}
