//! The retry budget of a request: that of its host, unless the layer says otherwise.

use std::sync::Arc;

use redial::throttle::{KeyedBudgets, RetryBudget};

/// The default bound on hosts with a retry budget of their own.
pub const HOSTS_MAX: usize = 1000;

/// Where the retry budget of a request comes from.
#[derive(Clone)]
pub(crate) enum Budgets {
    PerHost(Arc<KeyedBudgets<String>>),
    Shared(Arc<RetryBudget>),
    /// The throttle of the policy.
    OfPolicy,
}

impl Budgets {
    /// The budget of a request to this host, if it is not the throttle of its policy.
    #[inline(always)]
    pub(crate) fn of_host(&self, host: &str) -> Option<Arc<RetryBudget>> {
        match self {
            Budgets::PerHost(budgets) => Some(budgets.get(host)),
            Budgets::Shared(budget) => Some(budget.clone()),
            Budgets::OfPolicy => None,
        }
    }
}
