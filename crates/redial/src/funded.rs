//! A budget beside another throttle (section B: "a budget can be added to each").

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use redial_core::throttle::{Bucket, Budget};
use redial_core::{Cost, Grant, Ns, Taken};

/// A throttle and a budget beside it: a retry needs both.
///
/// The budget is asked first, since it never makes a caller wait; what it gave goes back if the
/// throttle refuses. A success is counted by both, each by its own rule.
#[derive(Clone)]
pub struct Funded {
    throttle: Arc<dyn Bucket + Send + Sync>,
    budget: Arc<Budget>,
}

impl Funded {
    /// A throttle with a budget beside it; both can be shared with others.
    #[must_use]
    pub fn new(throttle: Arc<dyn Bucket + Send + Sync>, budget: Arc<Budget>) -> Self {
        Funded { throttle, budget }
    }
}

/// What the budget takes is always the same, so that what is kept is the throttle's payment.
const FLAT: Taken = Taken(0);

impl Bucket for Funded {
    fn call_started(&self) {
        self.throttle.call_started();
    }

    fn watches_calls(&self) -> bool {
        self.throttle.watches_calls()
    }

    fn call_failed(&self, taken: Option<Taken>) {
        self.throttle.call_failed(taken);
    }

    fn call_cancelled(&self, taken: Option<Taken>) {
        self.throttle.call_cancelled(taken);
    }

    fn failed(&self) {
        self.throttle.failed();
    }

    fn take(&self, cost: Cost, now: Ns) -> Grant {
        if self.budget.take(cost, now) == Grant::Refused {
            return Grant::Refused;
        }
        let grant = self.throttle.take(cost, now);
        if grant == Grant::Refused {
            self.budget.give_back(FLAT);
        }
        grant
    }

    fn later(&self, cost: Cost) -> Pin<Box<dyn Future<Output = Grant> + Send>> {
        let grant = self.throttle.later(cost);
        // A call that is dropped while the throttle thinks never starts its retry.
        let mut held = Held(Some(self.budget.clone()));
        Box::pin(async move {
            let grant = grant.await;
            if !matches!(grant, Grant::Refused) {
                held.0.take();
            }
            grant
        })
    }

    fn give_back(&self, taken: Taken) {
        self.throttle.give_back(taken);
        self.budget.give_back(FLAT);
    }

    fn succeeded(&self, taken: Option<Taken>) {
        self.throttle.succeeded(taken);
        self.budget.succeeded(None);
    }

    /// What holds retries back: the budget if that is spent, else the throttle.
    fn tokens(&self, now: Ns) -> Option<f64> {
        let budget = self.budget.tokens(now);
        if budget.is_some_and(|tokens| tokens < 1.0) { budget } else { self.throttle.tokens(now) }
    }
}

/// What the budget gave for a retry about which the throttle has not answered yet.
struct Held(Option<Arc<Budget>>);

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(budget) = &self.0 {
            budget.give_back(FLAT);
        }
    }
}

impl fmt::Debug for Funded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Funded").field("budget", &self.budget).finish_non_exhaustive()
    }
}
