//! What a call of a method does: the config's word and the client's, in the words of the core.
//!
//! Invariant: nothing is decided here. A [`Plan`] is rules for the core and a translation of
//! outcomes into judgements; what follows from them is the core's.

use std::sync::Arc;

use redial_core::throttle::{Bucket, TokenBucket};
use redial_core::{
    AttemptTimeoutAction, Backoff, Classification, Cost, Directive, ExpiredDeadlineAction, Failure,
    Grant, HintRule, Jitter, Kind, LIVE_MAX, Ns, Numbering, Policy, Proof, Reason, Rules, Stage,
    Withdrawal,
};

use crate::{
    AttemptTimeout, ClientOptions, Code, Codes, MethodConfig, MethodPolicy, Pushback, Retries,
};

/// What a call of a method does: made once for an entry of a config, used by every call.
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
/// // On virtual time, every draw being 0.5:
/// let busy = redial::testing::meets(plan.classify(Code::Unavailable, Pushback::None));
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
    /// What a call of a method does, given what the config says about it.
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
            // The fields of a client are open: what its builder refuses is played as the nearest.
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

    /// How many attempts a call under this policy makes at the most (decision G2).
    #[must_use]
    pub fn max_attempts_for(&self, policy: &MethodPolicy) -> u32 {
        let cap = match policy {
            MethodPolicy::Retry(_) => self.attempts_cap,
            MethodPolicy::Hedging(_) => self.attempts_cap.min(LIVE_MAX as u32),
        };
        policy.max_attempts().min(cap).max(1)
    }
}

/// Rules that have no contradiction, since the config and the client have none.
fn checked(rules: Rules) -> Policy {
    Policy::try_new(rules).unwrap_or_else(|problem| {
        debug_assert!(false, "rules of a checked config and client: {problem}");
        Policy::new(Rules { attempts: Some(1), ..Rules::DEFAULT })
    })
}

impl Plan {
    /// The same plan, where each attempt has this timeout (decision G42).
    #[must_use]
    pub fn with_attempt_timeout(self, timeout: AttemptTimeout) -> Plan {
        let listed = self.codes.contains(Code::DeadlineExceeded);
        let attempt_timeout_action = match listed && timeout.retryable {
            true => AttemptTimeoutAction::Retry,
            false => AttemptTimeoutAction::Fail { drains: listed },
        };
        let rules = *self.policy.rules();
        // A deadline that is not later ends the call before the attempt.
        let is_reached = rules.deadline.is_none_or(|deadline| timeout.after < deadline);
        let attempt_timeout = is_reached.then_some(timeout.after);
        Plan { policy: checked(Rules { attempt_timeout, attempt_timeout_action, ..rules }), ..self }
    }

    /// The rules for the core.
    #[must_use]
    pub const fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The codes after which another attempt may succeed; none without a policy.
    #[must_use]
    pub const fn codes(&self) -> Codes {
        self.codes
    }

    /// Which repetitions are allowed. [`Retries::Off`]: the throttle is left alone (decision G12) and
    /// nothing is kept (decision G25).
    #[must_use]
    pub const fn retries(&self) -> Retries {
        self.retries
    }

    /// Whether attempts run at once.
    #[must_use]
    pub const fn is_hedged(&self) -> bool {
        self.policy.rules().hedge.is_some()
    }

    /// Whether calls wait until there is a connection, as the config has it; a call's own word beats
    /// it (decision G41).
    #[must_use]
    pub const fn waits_for_ready(&self) -> bool {
        self.wait_for_ready
    }

    /// How the status of an attempt is judged (decisions G8 to G13, G19 and G20): OK succeeds, a code
    /// that is listed may be retried as the server says, and any other fails; "do not retry" drains
    /// the throttle whatever the status.
    #[must_use]
    pub const fn classify(&self, code: Code, pushback: Pushback) -> Classification {
        let directive = match code {
            Code::Ok => Directive::Succeed,
            code if self.codes.contains(code) => {
                Directive::Retry(failure(code).hint(pushback.hint()))
            }
            _ => Directive::Fail,
        };
        // A listed failure drains by itself.
        let drains = matches!((directive, pushback), (Directive::Fail, Pushback::Stop));
        Classification { directive, proof: None, drains }
    }

    /// How an attempt is judged that a connection handed back before it was written (decision G27).
    #[must_use]
    pub const fn unsent(&self) -> Classification {
        self.lost(Stage::Unsent, Some(Proof::Unsent))
    }

    /// How an attempt is judged that the server says it did not process (decision G26).
    #[must_use]
    pub const fn unprocessed(&self) -> Classification {
        self.lost(Stage::InFlight, Some(Proof::Unprocessed))
    }

    /// How an attempt is judged that found no connection (decision G28): UNAVAILABLE, unless the call
    /// waits for one.
    #[must_use]
    pub const fn unconnected(&self, wait_for_ready: bool) -> Classification {
        let proof = if wait_for_ready { Some(Proof::Unsent) } else { None };
        self.lost(Stage::Unsent, proof)
    }

    /// UNAVAILABLE, with what is known of how far it got.
    const fn lost(&self, stage: Stage, proof: Option<Proof>) -> Classification {
        let Classification { directive, drains, .. } =
            self.classify(Code::Unavailable, Pushback::None);
        let directive = match directive {
            Directive::Retry(failure) => Directive::Retry(failure.at(stage)),
            other => other,
        };
        Classification { directive, proof, drains }
    }

    /// The same as a policy of the library, for [`redial::testing`] and for drivers of your own: with
    /// the throttle of the config, which all plans of a server share.
    #[must_use]
    pub fn to_policy(&self, throttle: Option<Arc<TokenBucket>>) -> redial::AnyPolicy {
        let policy = redial::AnyPolicy::from_core(self.policy.clone());
        match throttle {
            None => policy,
            Some(tokens) if self.retries == Retries::Off => policy.sharing(Arc::new(Idle(tokens))),
            Some(tokens) => policy.sharing(tokens),
        }
    }
}

/// What the core knows of a failure with this code.
const fn failure(code: Code) -> Failure {
    let kind = match code {
        Code::ResourceExhausted => Kind::Throttling,
        Code::DeadlineExceeded => Kind::Timeout,
        _ => Kind::Server,
    };
    Failure::new(kind).because(Reason::new(code.name()))
}

/// A throttle that is left alone: what it holds can be seen, and nothing changes it (decision G12).
struct Idle(Arc<TokenBucket>);

impl Bucket for Idle {
    fn withdraw(&self, _cost: Cost, _now: Ns) -> Grant {
        Grant::Now(Withdrawal(0))
    }
    fn refund(&self, _taken: Withdrawal) {}
    fn succeeded(&self, _taken: Option<Withdrawal>) {}
    fn tokens(&self, now: Ns) -> Option<f64> {
        self.0.tokens(now)
    }
}
