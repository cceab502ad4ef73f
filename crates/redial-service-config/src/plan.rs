//! The plan of a method's calls: service config and client options, translated into the rules of
//! `redial-core`.
//!
//! Invariant: a [`Plan`] makes no retry decisions. It supplies the core's rules and classifies the
//! outcomes of attempts; the core decides.

use std::sync::Arc;

use redial_core::throttle::{Bucket, TokenBucket};
use redial_core::{
    AttemptTimeoutAction, Backoff, Classification, Cost, Directive, ExpiredDeadlineAction, Failure,
    FailureKind, Grant, HintRule, Jitter, LIVE_MAX, Ns, Numbering, Policy, Proof, Reason, Rules,
    Stage, Withdrawal,
};

use crate::{
    AttemptTimeout, ClientOptions, Code, Codes, MethodConfig, MethodPolicy, Pushback, Retries,
};

/// The retry rules of a method's calls: built once per config entry, shared by all calls.
///
/// ```
/// use redial::{Directive, StopReason, ms};
/// use redial_service_config::{ClientOptions, Code, Pushback, ServiceConfig};
///
/// let config = ServiceConfig::parse(r#"{ "methodConfig": [{
///     "name": [{ "service": "echo.Echo" }],
///     "retryPolicy": { "maxAttempts": 4, "initialBackoff": "0.1s", "maxBackoff": "1s",
///                      "backoffMultiplier": 2, "retryableStatusCodes": ["UNAVAILABLE"] } }] }"#)?;
/// let plan = ClientOptions::default().plan(config.method("/echo.Echo/Get"));
/// assert_eq!(plan.classify(Code::Ok, Pushback::None).directive, Directive::Succeed);
/// assert_eq!(plan.classify(Code::Internal, Pushback::None).directive, Directive::Fail);
///
/// // On virtual time, with every random draw being 0.5:
/// let busy = redial::testing::classified_as(plan.classify(Code::Unavailable, Pushback::None));
/// let played = redial::testing::play(&plan.to_policy(None), [busy, busy, busy, busy]);
/// assert_eq!(played.starts(), [ms(0), ms(50), ms(150), ms(350)]);
/// assert_eq!(played.stop_reason(), Some(StopReason::AttemptsExhausted));
/// # Ok::<(), redial_service_config::Problems>(())
/// ```
#[derive(Clone, Debug)]
pub struct Plan {
    policy: Policy,
    codes: Codes,
    retries: Retries,
    wait_for_ready: bool,
}

impl ClientOptions {
    /// Builds the plan of a method from its config entry, or without an entry.
    #[must_use]
    pub fn plan(&self, method: Option<&MethodConfig>) -> Plan {
        let policy = match self.retries {
            Retries::All => method.and_then(|method| method.policy),
            Retries::Transparent | Retries::Off => None,
        };
        let plan = Plan {
            policy: checked(self.rules(method, policy)),
            codes: policy.map_or(Codes::NONE, |policy| policy.codes()),
            retries: self.retries,
            wait_for_ready: method.and_then(|method| method.wait_for_ready).unwrap_or(false),
        };
        match self.attempt_timeout {
            Some(timeout) => plan.with_attempt_timeout(timeout),
            None => plan,
        }
    }

    fn rules(&self, method: Option<&MethodConfig>, policy: Option<MethodPolicy>) -> Rules {
        let jitter = match self.jitter {
            // The fields are public, so a value that the builder rejects can arrive here: clamp it.
            Jitter::Proportional(share) if !(0.0..=1.0).contains(&share) => {
                Jitter::Proportional(if share > 1.0 { 1.0 } else { 0.0 })
            }
            jitter => jitter,
        };
        let rules = Rules {
            attempts: Some(1),
            jitter,
            jitter_above_cap: matches!(jitter, Jitter::Proportional(_)),
            deadline: method.and_then(|method| method.timeout),
            deadline_action: self.deadline_action,
            expired_deadline_action: ExpiredDeadlineAction::StartNoAttempt,
            numbering: Numbering::SinceHint,
            hint: HintRule::Exact(self.pushback_max),
            transparent_retries: self.retries != Retries::Off,
            ..Rules::DEFAULT
        };
        let Some(policy) = policy else { return rules };
        let attempts = Some(self.max_attempts_for(&policy));
        match policy {
            MethodPolicy::Retry(policy) => Rules {
                attempts,
                backoff: Backoff::Exponential {
                    first: policy.initial_backoff,
                    factor: policy.backoff_multiplier,
                    cap: Some(policy.max_backoff),
                },
                ..rules
            },
            MethodPolicy::Hedging(policy) => {
                Rules { attempts, hedge: Some(policy.hedging_delay), ..rules }
            }
        }
    }

    /// The maximum number of attempts under this policy, after the client's cap (decision G2).
    #[must_use]
    pub fn max_attempts_for(&self, policy: &MethodPolicy) -> u32 {
        let cap = match policy {
            MethodPolicy::Retry(_) => self.attempts_cap,
            MethodPolicy::Hedging(_) => self.attempts_cap.min(LIVE_MAX as u32),
        };
        policy.max_attempts().min(cap).max(1)
    }
}

/// Builds a policy from rules that are consistent because config and client options were validated.
fn checked(rules: Rules) -> Policy {
    Policy::try_new(rules).unwrap_or_else(|problem| {
        debug_assert!(false, "rules of a validated config and client: {problem}");
        Policy::new(Rules { attempts: Some(1), ..Rules::DEFAULT })
    })
}

impl Plan {
    /// Adds a timeout for each attempt (decision G42).
    #[must_use]
    pub fn with_attempt_timeout(self, timeout: AttemptTimeout) -> Plan {
        let listed = self.codes.contains(Code::DeadlineExceeded);
        let attempt_timeout_action = match listed && timeout.retryable {
            true => AttemptTimeoutAction::Retry,
            false => AttemptTimeoutAction::Fail { drains: listed },
        };
        let rules = *self.policy.rules();
        // A deadline at or before the attempt timeout ends the call first.
        let is_reached = rules.deadline.is_none_or(|deadline| timeout.after < deadline);
        let attempt_timeout = is_reached.then_some(timeout.after);
        Plan { policy: checked(Rules { attempt_timeout, attempt_timeout_action, ..rules }), ..self }
    }

    /// The rules for the core.
    #[must_use]
    pub const fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The retryable or non-fatal status codes; empty without a policy.
    #[must_use]
    pub const fn codes(&self) -> Codes {
        self.codes
    }

    /// The kinds of retries that are enabled. With [`Retries::Off`] calls do not change the throttle
    /// (decision G12) and buffer nothing for replay (decision G25).
    #[must_use]
    pub const fn retries(&self) -> Retries {
        self.retries
    }

    /// Whether attempts run concurrently (hedging).
    #[must_use]
    pub const fn is_hedged(&self) -> bool {
        self.policy.rules().hedge.is_some()
    }

    /// The config's `waitForReady`; the call's own option takes precedence (decision G41).
    #[must_use]
    pub const fn waits_for_ready(&self) -> bool {
        self.wait_for_ready
    }

    /// Classifies the status of an attempt (decisions G8 to G13, G19 and G20): OK succeeds, a listed
    /// code is retryable subject to the server's pushback, and any other code fails. A pushback of "do
    /// not retry" drains the throttle for every code but OK.
    #[must_use]
    pub const fn classify(&self, code: Code, pushback: Pushback) -> Classification {
        let directive = match code {
            Code::Ok => Directive::Succeed,
            code if self.codes.contains(code) => {
                Directive::Retry(failure(code).hint(pushback.hint()))
            }
            _ => Directive::Fail,
        };
        // A listed failure already drains the throttle.
        let drains = matches!((directive, pushback), (Directive::Fail, Pushback::Stop));
        Classification { directive, proof: None, drains }
    }

    /// Classifies an attempt that the connection returned before writing it (decision G27), or one that
    /// found no connection, of a call that waits for one (decision G28).
    #[must_use]
    pub const fn unsent(&self) -> Classification {
        self.lost(Stage::Unsent, Some(Proof::Unsent))
    }

    /// Classifies an attempt that the server reports as not processed (decision G26).
    #[must_use]
    pub const fn unprocessed(&self) -> Classification {
        self.lost(Stage::InFlight, Some(Proof::Unprocessed))
    }

    /// Classifies an attempt that found no connection, of a call that does not wait for one (decision
    /// G28): UNAVAILABLE. If the call is `wait_for_ready`, such an attempt is [`unsent`](Plan::unsent).
    #[must_use]
    pub const fn unconnected(&self) -> Classification {
        self.lost(Stage::Unsent, None)
    }

    /// UNAVAILABLE at this stage, with a proof that the server did not process the attempt, if any.
    const fn lost(&self, stage: Stage, proof: Option<Proof>) -> Classification {
        let Classification { directive, drains, .. } =
            self.classify(Code::Unavailable, Pushback::None);
        let directive = match directive {
            Directive::Retry(failure) => Directive::Retry(failure.at(stage)),
            other => other,
        };
        Classification { directive, proof, drains }
    }

    /// Converts the plan to a policy of `redial`, for [`redial::testing`] and for custom drivers. The
    /// throttle is the config's token bucket, shared by all plans of a server.
    #[must_use]
    pub fn to_policy(&self, throttle: Option<Arc<TokenBucket>>) -> redial::AnyPolicy {
        let policy = redial::AnyPolicy::from_core(self.policy.clone());
        match throttle {
            None => policy,
            Some(tokens) if self.retries == Retries::Off => {
                policy.sharing(Arc::new(ReadOnly(tokens)))
            }
            Some(tokens) => policy.sharing(tokens),
        }
    }
}

/// The core's failure for a status code.
const fn failure(code: Code) -> Failure {
    let kind = match code {
        Code::ResourceExhausted => FailureKind::Throttling,
        Code::DeadlineExceeded => FailureKind::Timeout,
        _ => FailureKind::Server,
    };
    Failure::new(kind).because(Reason::new(code.name()))
}

/// A read-only view of a throttle, for calls with retries off: they show the tokens but do not change
/// them (decision G12).
struct ReadOnly(Arc<TokenBucket>);

impl Bucket for ReadOnly {
    fn withdraw(&self, _cost: Cost, _now: Ns) -> Grant {
        Grant::Now(Withdrawal(0))
    }
    fn refund(&self, _withdrawal: Withdrawal) {}
    fn succeeded(&self, _withdrawal: Option<Withdrawal>) {}
    fn tokens(&self, now: Ns) -> Option<f64> {
        self.0.tokens(now)
    }
}
