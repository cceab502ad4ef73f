//! A retry budget beside another throttle (section B of the decisions).

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use redial_core::throttle::{Bucket, RetryBudget};
use redial_core::{Cost, Grant, Ns, Withdrawal};

/// A throttle and a retry budget: a retry needs a grant of both.
///
/// The budget comes first, because it never delays a caller; it is refunded if the throttle refuses. A
/// success is reported to both.
#[derive(Clone)]
pub struct WithBudget {
    throttle: Arc<dyn Bucket + Send + Sync>,
    budget: Arc<RetryBudget>,
}

impl WithBudget {
    /// Combines a throttle with a budget. Both can be shared.
    #[must_use]
    pub fn new(throttle: Arc<dyn Bucket + Send + Sync>, budget: Arc<RetryBudget>) -> Self {
        WithBudget { throttle, budget }
    }
}

/// A budget's withdrawal is always the same, so only the throttle's is kept.
const BUDGET_WITHDRAWAL: Withdrawal = Withdrawal(0);

impl Bucket for WithBudget {
    fn call_started(&self) {
        self.throttle.call_started();
    }

    fn watches_calls(&self) -> bool {
        self.throttle.watches_calls()
    }

    fn call_failed(&self, withdrawal: Option<Withdrawal>) {
        self.throttle.call_failed(withdrawal);
    }

    fn call_cancelled(&self, withdrawal: Option<Withdrawal>) {
        self.throttle.call_cancelled(withdrawal);
    }

    fn failed(&self) {
        self.throttle.failed();
    }

    fn withdraw(&self, cost: Cost, now: Ns) -> Grant {
        if self.budget.withdraw(cost, now) == Grant::Refused {
            return Grant::Refused;
        }
        let grant = self.throttle.withdraw(cost, now);
        if grant == Grant::Refused {
            self.budget.refund(BUDGET_WITHDRAWAL);
        }
        grant
    }

    fn later(&self, cost: Cost) -> Pin<Box<dyn Future<Output = Grant> + Send>> {
        let grant = self.throttle.later(cost);
        // A call that is dropped before the throttle answers never starts its retry: refund the budget.
        let mut refund = RefundOnDrop(Some(self.budget.clone()));
        Box::pin(async move {
            let grant = grant.await;
            if !matches!(grant, Grant::Refused) {
                refund.0.take();
            }
            grant
        })
    }

    fn refund(&self, withdrawal: Withdrawal) {
        self.throttle.refund(withdrawal);
        self.budget.refund(BUDGET_WITHDRAWAL);
    }

    fn succeeded(&self, withdrawal: Option<Withdrawal>) {
        self.throttle.succeeded(withdrawal);
        self.budget.succeeded(None);
    }

    /// The tokens of the budget if it is empty, else those of the throttle.
    fn tokens(&self, now: Ns) -> Option<f64> {
        let budget = self.budget.tokens(now);
        if budget.is_some_and(|tokens| tokens < 1.0) { budget } else { self.throttle.tokens(now) }
    }
}

/// The budget's withdrawal for a retry that the throttle has not granted yet.
struct RefundOnDrop(Option<Arc<RetryBudget>>);

impl Drop for RefundOnDrop {
    fn drop(&mut self) {
        if let Some(budget) = &self.0 {
            budget.refund(BUDGET_WITHDRAWAL);
        }
    }
}

impl fmt::Debug for WithBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WithBudget").field("budget", &self.budget).finish_non_exhaustive()
    }
}
