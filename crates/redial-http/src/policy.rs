//! Policies of `redial`, with the rules of HTTP for hints and timeouts.

use std::time::Duration;

use redial::rules::{AttemptTimeoutAction, HintRule, Rules};
use redial::{Hedged, Policy, ms};

use redial::parts::{OwnedHedged, OwnedPolicy};

/// The defaults of decision H1: 3 attempts, 200 ms, doubled, at most 20 s, full jitter.
pub(crate) static STANDARD: Policy = Policy::exponential(ms(200)).build();

/// A policy for requests, and the longest hint to which longer ones are cut.
#[derive(Clone, Debug)]
pub(crate) struct HttpPolicy {
    pub(crate) policy: OwnedPolicy,
    pub(crate) clamp: Option<Duration>,
}

impl HttpPolicy {
    pub(crate) fn new(policy: &Policy) -> Self {
        let clamp = clamp(policy.rules());
        let policy = policy.with_rules(use_http_rules).expect(NO_CONTRADICTION);
        HttpPolicy { policy: OwnedPolicy::new(policy), clamp }
    }
}

/// The same for requests that are hedged.
#[derive(Clone, Debug)]
pub(crate) struct HttpHedged {
    pub(crate) policy: OwnedHedged,
    pub(crate) clamp: Option<Duration>,
}

impl HttpHedged {
    pub(crate) fn new(policy: &Hedged) -> Self {
        let clamp = clamp(policy.rules());
        let policy = policy.with_rules(use_http_rules).expect(NO_CONTRADICTION);
        HttpHedged { policy: OwnedHedged::new(policy), clamp }
    }
}

const NO_CONTRADICTION: &str = "rules for hints and timeouts contradict no other rule";

fn clamp(rules: &Rules) -> Option<Duration> {
    match rules.hint {
        HintRule::Exact(most) => most,
        _ => None,
    }
}

/// The longest hint that a call follows; a longer one ends it.
pub(crate) const fn hint_max(rules: &Rules) -> Duration {
    match rules.hint {
        HintRule::UpTo(most) | HintRule::AtLeast(most) => most,
        HintRule::Exact(_) | HintRule::Within(_) => Duration::MAX,
    }
}

/// The delay is the larger of `Retry-After` and the backoff (H3), unless hints get jitter, which applies
/// to exact hints only. An attempt that times out is retried: whether it may run twice is known from the
/// request (H2).
fn use_http_rules(rules: &mut Rules) {
    rules.attempt_timeout_action = AttemptTimeoutAction::Retry;
    if rules.hint_jitter > 0.0 {
        return;
    }
    rules.hint = match rules.hint {
        HintRule::UpTo(most) => HintRule::AtLeast(most),
        HintRule::Exact(_) => HintRule::AtLeast(Duration::MAX),
        other => other,
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use redial::s;

    // Decision H1.
    #[test]
    fn policy_defaults_are_those_of_the_table() {
        let standard = HttpPolicy::new(&STANDARD);
        let rules = standard.policy.rules();
        assert_eq!(rules.attempts, Some(3));
        assert_eq!(rules.hint, HintRule::AtLeast(s(60)));
        assert_eq!((rules.deadline, rules.attempt_timeout), (None, None));
        assert_eq!(standard.clamp, None);
    }

    #[test]
    fn policy_that_clamps_hints_clamps_retry_after() {
        let policy = HttpPolicy::new(&Policy::exponential(ms(1)).hint_clamp(s(5)).build());
        assert_eq!(
            (policy.clamp, policy.policy.rules().hint),
            (Some(s(5)), HintRule::AtLeast(Duration::MAX))
        );
        let spread = HttpPolicy::new(&Policy::exponential(ms(1)).hint_jitter(0.1).build());
        assert_eq!(spread.policy.rules().hint, HintRule::UpTo(s(60)));
    }
}
