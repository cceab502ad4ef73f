//! The throttle of a run: a retry is allowed once the processes of the last attempt have ended, and
//! if the budget allows it.

use std::pin::Pin;
use std::sync::Arc;

use redial::FailureKind;
use redial::throttle::{Bucket, Cost, Grant, Withdrawal};
use redial::time::{Ns, Sleeper, Tokio};

use super::run_state::RunState;

/// The budget of the policy behind the end of the previous attempt.
pub(super) struct RunThrottle {
    pub(super) run: Arc<RunState>,
    pub(super) budget: Option<Arc<dyn Bucket + Send + Sync>>,
}

impl RunThrottle {
    fn ask(
        run: &RunState,
        budget: Option<&(dyn Bucket + Send + Sync)>,
        cost: Cost,
        now: Ns,
    ) -> Grant {
        if run.last().is_some() {
            return Grant::Refused;
        }
        budget.map_or(Grant::Now(Withdrawal(0)), |budget| budget.withdraw(cost, now))
    }
}

impl Bucket for RunThrottle {
    fn call_started(&self) {
        if let Some(budget) = &self.budget {
            budget.call_started();
        }
    }

    fn watches_calls(&self) -> bool {
        self.budget.as_ref().is_some_and(|budget| budget.watches_calls())
    }

    fn failed(&self) {
        if let Some(budget) = &self.budget {
            budget.failed();
        }
    }

    fn withdraw(&self, cost: Cost, now: Ns) -> Grant {
        // Only a timeout leaves a process that still has to end.
        if cost.kind == FailureKind::Timeout && !self.run.is_idle() {
            return Grant::Later;
        }
        RunThrottle::ask(&self.run, self.budget.as_deref(), cost, now)
    }

    fn later(&self, cost: Cost) -> Pin<Box<dyn Future<Output = Grant> + Send>> {
        let (run, budget) = (self.run.clone(), self.budget.clone());
        Box::pin(async move {
            run.idle().await;
            RunThrottle::ask(&run, budget.as_deref(), cost, Tokio.now())
        })
    }

    fn refund(&self, withdrawal: Withdrawal) {
        if let Some(budget) = &self.budget {
            budget.refund(withdrawal);
        }
    }

    fn succeeded(&self, withdrawal: Option<Withdrawal>) {
        if let Some(budget) = &self.budget {
            budget.succeeded(withdrawal);
        }
    }

    fn call_failed(&self, withdrawal: Option<Withdrawal>) {
        if let Some(budget) = &self.budget {
            budget.call_failed(withdrawal);
        }
    }

    fn call_cancelled(&self, withdrawal: Option<Withdrawal>) {
        if let Some(budget) = &self.budget {
            budget.call_cancelled(withdrawal);
        }
    }

    fn tokens(&self, now: Ns) -> Option<f64> {
        self.budget.as_ref().and_then(|budget| budget.tokens(now))
    }
}
