//! The strategy that the SDK asks.

use std::fmt;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use couchbase::retry::{RetryAction, RetryReason, RetryRequest, RetryStrategy};
use redial::external::{FailedAttempt, NeedsCallState, StatelessPolicy};
use redial::rules::Rules;
use redial::strategy::Strategy;
use redial::time::{Sleeper as _, Tokio};
use redial::{Jitter, Policy, Reason, StopReason, Throttle};
use redial_core::CONTROLLED;
use redial_couchbase::reason::failure;

use crate::reason::rfc_reason;

/// As many attempts as there are, without a throttle: what RFC 49's strategies run with. The backoff is that
/// of reasons that are always retried.
fn unlimited() -> Policy {
    let rules = Rules {
        attempts: None,
        forever: true,
        backoff: CONTROLLED,
        jitter: Jitter::None,
        ..Rules::DEFAULT
    };
    Policy::from_rules(rules).throttle(Throttle::none()).build()
}

fn stateless(policy: Policy) -> StatelessPolicy {
    StatelessPolicy::new(policy).expect("these rules need no state of a call")
}

/// `wait_until_ready` polls, and nothing has failed. Without a next poll it would return "retry manager
/// indicated no retry, this is a bug", so it polls until the caller stops waiting, with the delays of reasons
/// that are always retried.
pub(crate) fn poll_until_ready(request: &RetryRequest) -> Option<RetryAction> {
    static POLICY: LazyLock<StatelessPolicy> = LazyLock::new(|| stateless(unlimited()));
    decide(&POLICY, request, RetryReason::NotReady).ok().map(RetryAction::new)
}

/// A retry strategy for the SDK, of a whole cluster or of single operations, which decides by a Redial
/// [`Policy`] or [`Strategy`]. Clones share everything.
///
/// ```
/// use std::sync::Arc;
///
/// use couchbase::options::cluster_options::ClusterOptions;
/// use couchbase::options::kv_options::GetOptions;
/// use redial::{Policy, ms};
/// use redial_couchbase::BestEffort;
/// use redial_couchbase_sdk::SdkStrategy;
///
/// # fn options(authenticator: couchbase::authenticator::Authenticator) -> Result<(), redial_couchbase_sdk::NeedsCallState> {
/// // Eight attempts, and a retry budget that all operations of the cluster share.
/// let policy = Policy::exponential(ms(1)).cap(ms(500)).attempts(8).build();
/// let retries = Arc::new(SdkStrategy::new(policy)?);
/// let options = ClusterOptions::new(authenticator).default_retry_strategy(retries);
///
/// // One operation goes on as long as RFC 49's best effort does.
/// let patient = GetOptions::new().retry_strategy(Arc::new(SdkStrategy::of(BestEffort::new())));
/// # drop((options, patient));
/// # Ok(())
/// # }
/// ```
///
/// The SDK asks a strategy at once after a failure, and reports nothing else: see
/// [what that leaves out](crate#what-the-sdks-interface-cannot-carry), and [`attempt`](crate::attempt) for
/// operations that need it.
#[derive(Clone)]
pub struct SdkStrategy {
    policy: StatelessPolicy,
    on_decision: Option<Arc<OnDecision>>,
}

/// Called after each decision.
type OnDecision = dyn Fn(&SdkDecision<'_>) + Send + Sync;

/// A decision, for [`SdkStrategy::on_decision`]. It prints as the lines of RFC 49's log: `retry KV_LOCKED`
/// or `not-retried KV_LOCKED`.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct SdkDecision<'a> {
    /// The request as the SDK describes it. Its `Display` has the operation, too.
    pub request: &'a RetryRequest,
    /// The reason of the failure.
    pub reason: Reason,
    /// The delay before the retry, or why there is none.
    pub outcome: Result<Duration, StopReason>,
}

impl fmt::Display for SdkDecision<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let event = if self.outcome.is_ok() { "retry" } else { "not-retried" };
        write!(f, "{event} {}", self.reason)
    }
}

impl SdkStrategy {
    /// Retries by this policy: its attempts, delays, throttle and strategy. Clones of the policy in other
    /// calls of the process share its retry budget.
    ///
    /// # Errors
    /// The policy has a deadline, limits or other rules that need the state of a whole call, which the SDK
    /// does not report. Use [`attempt`](crate::attempt) with such a policy.
    pub fn new(policy: Policy) -> Result<Self, NeedsCallState> {
        Ok(SdkStrategy { policy: StatelessPolicy::new(policy)?, on_decision: None })
    }

    /// Retries as this strategy decides, without a limit on attempts and without a retry budget, as RFC 49
    /// has it. For limits, give the strategy to a policy
    /// ([`Policy::with_strategy`](redial::Policy::with_strategy)).
    #[must_use]
    pub fn of(strategy: impl Strategy + 'static) -> Self {
        let policy = unlimited().with_strategy(strategy);
        let policy = policy.expect("nothing in these rules excludes a strategy");
        SdkStrategy { policy: stateless(policy), on_decision: None }
    }

    /// Calls a function after each decision, for example to log it. It must not block.
    #[must_use]
    pub fn on_decision(mut self, hook: impl Fn(&SdkDecision<'_>) + Send + Sync + 'static) -> Self {
        self.on_decision = Some(Arc::new(hook));
        self
    }
}

impl RetryStrategy for SdkStrategy {
    fn retry_after(&self, request: &RetryRequest, reason: &RetryReason) -> Option<RetryAction> {
        if *reason == RetryReason::NotReady {
            return poll_until_ready(request);
        }
        let outcome = decide(&self.policy, request, *reason);
        if let Some(hook) = &self.on_decision {
            hook(&SdkDecision { request, reason: rfc_reason(*reason), outcome });
        }
        outcome.ok().map(RetryAction::new)
    }
}

impl fmt::Debug for SdkStrategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SdkStrategy")
            .field("policy", self.policy.policy())
            .field("on_decision", &self.on_decision.is_some())
            .finish()
    }
}

/// What follows a failure that the SDK reports.
fn decide(
    policy: &StatelessPolicy,
    request: &RetryRequest,
    reason: RetryReason,
) -> Result<Duration, StopReason> {
    let reasons = earlier_reasons(request);
    let number = request.retry_attempts().saturating_add(1);
    let failed = FailedAttempt::new(number, failure(rfc_reason(reason))).reasons(&reasons);
    let failed = if request.is_idempotent() { failed } else { failed.not_idempotent() };
    policy.decide(&failed, Tokio.now())
}

/// The SDK keeps a set without an order; sorted by name, so that a strategy sees the same list each time.
fn earlier_reasons(request: &RetryRequest) -> Vec<Reason> {
    let mut reasons: Vec<_> = request.retry_reasons().iter().copied().map(rfc_reason).collect();
    reasons.sort_by_key(Reason::name);
    reasons.dedup();
    reasons
}
