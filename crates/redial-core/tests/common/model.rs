//! A single-threaded model of each throttle, written from the decisions with plain numbers.

use redial_core::throttle::{CostBucketConfig, WhenEmpty};
use redial_core::{FailureKind, Grant, Ns};

use super::Spec;

/// The expected content of a throttle. Token buckets and budgets count in thousandths, which are
/// exact; a cost bucket counts in tokens, which are compared to within a millionth.
#[derive(Debug)]
pub(crate) struct Model {
    spec: Spec,
    left: f64,
    at: Ns,
}

const NEARLY: f64 = 1e-6;

impl Model {
    /// A full bucket.
    pub(crate) fn new(spec: Spec) -> Self {
        let left = match spec {
            Spec::Free => 0.0,
            Spec::Tokens { max, .. } => max * 1000.0,
            Spec::Budget { reserve, .. } => reserve * 1000.0,
            Spec::Costs(costs) => costs.capacity,
        };
        Model { spec, left, at: 0 }
    }

    /// The expected tokens.
    pub(crate) fn tokens(&mut self, now: Ns) -> Option<f64> {
        match self.spec {
            Spec::Free => None,
            Spec::Tokens { .. } | Spec::Budget { .. } => Some(self.left / 1000.0),
            Spec::Costs(costs) => {
                self.refill(&costs, now);
                Some(self.left)
            }
        }
    }

    /// Counts a failure (G11).
    pub(crate) fn failed(&mut self) {
        if let Spec::Tokens { .. } = self.spec {
            self.left = (self.left - 1000.0).max(0.0);
        }
    }

    /// Checks an answer of the throttle.
    pub(crate) fn withdraw(&mut self, kind: FailureKind, now: Ns, grant: Grant) {
        match self.spec {
            Spec::Free => assert!(matches!(grant, Grant::Now(_)), "{grant:?}"),
            Spec::Tokens { max, .. } => {
                let allowed = self.left > max * 1000.0 / 2.0;
                assert_eq!(matches!(grant, Grant::Now(_)), allowed, "{grant:?} of {self:?}");
            }
            Spec::Budget { .. } => {
                let allowed = self.left >= 1000.0;
                assert_eq!(matches!(grant, Grant::Now(_)), allowed, "{grant:?} of {self:?}");
                self.left -= if allowed { 1000.0 } else { 0.0 };
            }
            Spec::Costs(costs) => {
                self.refill(&costs, now);
                self.charge_at(&costs, cost(&costs, kind), grant);
            }
        }
    }

    fn charge_at(&mut self, costs: &CostBucketConfig, cost: f64, grant: Grant) {
        let lacks = cost - self.left;
        match grant {
            Grant::Now(_) => assert!(lacks < NEARLY, "{grant:?} of {self:?}"),
            Grant::After(wait, _) => {
                assert!(costs.empty == WhenEmpty::Wait && lacks > -NEARLY, "{grant:?} of {self:?}");
                let paid = wait as f64 * costs.refill_per_second / 1e9;
                assert!((paid - lacks).abs() < NEARLY, "{grant:?} of {self:?}");
            }
            Grant::Refused => {
                assert!(costs.empty == WhenEmpty::Fail && lacks > -NEARLY, "{grant:?} of {self:?}");
                return;
            }
            Grant::Later => panic!("a bucket answers at once"),
        }
        self.left -= cost;
    }

    /// Refunds a retry that never started (P6).
    pub(crate) fn refund(&mut self, kind: FailureKind, now: Ns) {
        match self.spec {
            Spec::Free | Spec::Tokens { .. } => {}
            Spec::Budget { reserve, .. } => self.left = (self.left + 1000.0).min(reserve * 1000.0),
            Spec::Costs(costs) => self.add(&costs, cost(&costs, kind), now),
        }
    }

    /// Counts a success; `used` is the kind that its last retry or hedge was charged for.
    pub(crate) fn succeeded(&mut self, used: Option<FailureKind>, now: Ns) {
        match self.spec {
            Spec::Free => {}
            Spec::Tokens { max, ratio } => self.left = (self.left + ratio * 1000.0).min(max * 1e3),
            Spec::Budget { reserve, ratio } => {
                self.left = (self.left + ratio * 1000.0).min(reserve * 1000.0);
            }
            Spec::Costs(costs) => {
                self.add(&costs, used.map_or(costs.success, |kind| cost(&costs, kind)), now);
            }
        }
    }

    fn add(&mut self, costs: &CostBucketConfig, tokens: f64, now: Ns) {
        self.refill(costs, now);
        self.left = (self.left + tokens).min(costs.capacity);
    }

    fn refill(&mut self, costs: &CostBucketConfig, now: Ns) {
        let passed = now.saturating_sub(self.at) as f64 / 1e9;
        self.at = self.at.max(now);
        self.left = (self.left + passed * costs.refill_per_second).min(costs.capacity);
    }
}

fn cost(costs: &CostBucketConfig, kind: FailureKind) -> f64 {
    match kind {
        FailureKind::Server => costs.server,
        FailureKind::Client => costs.client,
        FailureKind::Throttling => costs.throttling,
        FailureKind::Timeout => costs.timeout,
        FailureKind::NotReady => 0.0,
    }
}
