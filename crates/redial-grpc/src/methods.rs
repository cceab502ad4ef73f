//! The method table: retry plan and statistics by method path.
//!
//! A call keeps the entry it found when it started, so a config update does not affect running calls.
//! The table is copied on the first call of a method under a config and is read without a lock after
//! that.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use hashbrown::HashMap;
use redial_core::{HedgeAt, LatencyEstimator, Policy};
use redial_service_config::{
    AttemptTimeout, ClientOptions, MethodConfig, Plan, Retries, ServiceConfig,
};

use crate::call::DefaultHead;
use crate::report::PolicyKind;
use crate::statistics::MethodCounters;
use crate::sync::{ArcSwap, Mutex, lock};

/// Maximum number of methods with statistics of their own; further methods are counted together.
pub const METHODS_MAX: usize = 4096;

/// The path under which methods beyond [`METHODS_MAX`] are counted.
pub(crate) const OTHER_METHODS: &str = "*";

/// Retry plans of a config entry, by retry setting.
#[derive(Debug)]
pub(crate) struct Plans {
    all: Plan,
    transparent: Plan,
    off: Plan,
    pub(crate) request_max: Option<u32>,
    pub(crate) response_max: Option<u32>,
}

impl Plans {
    fn new(client: &ClientOptions, method: Option<&MethodConfig>) -> Self {
        let plan = |retries| with_retries(client, retries).plan(method);
        Plans {
            all: plan(Retries::All),
            transparent: plan(Retries::Transparent),
            off: plan(Retries::Off),
            request_max: method.and_then(|method| method.max_request_message_bytes),
            response_max: method.and_then(|method| method.max_response_message_bytes),
        }
    }

    fn plan(&self, retries: Retries) -> &Plan {
        match retries {
            Retries::All => &self.all,
            Retries::Transparent => &self.transparent,
            Retries::Off => &self.off,
        }
    }

    /// Whether a limit applies even without retries: a timeout or a message size limit.
    fn has_limits(&self) -> bool {
        let rules = self.off.policy().rules();
        rules.deadline.is_some()
            || rules.attempt_timeout.is_some()
            || self.request_max.is_some()
            || self.response_max.is_some()
    }
}

fn with_retries(client: &ClientOptions, retries: Retries) -> ClientOptions {
    let mut client = *client;
    client.retries = retries;
    client
}

/// An entry of the method table.
#[derive(Debug)]
pub(crate) struct Method {
    plans: Arc<Plans>,
    pub(crate) counters: Arc<MethodCounters>,
    /// The request head that generated clients send, stored once instead of per call.
    default_head: OnceLock<DefaultHead>,
}

/// The plan of a call, in the form that the state machine needs.
#[derive(Clone, Debug)]
pub(crate) struct PlanRef {
    method: Arc<Method>,
    retries: Retries,
    /// Replaces the method's plan if call options change it.
    plan_override: Option<Arc<Plan>>,
}

impl PlanRef {
    pub(crate) fn new(method: Arc<Method>, retries: Retries) -> Self {
        PlanRef { method, retries, plan_override: None }
    }

    /// The same plan with another attempt timeout.
    pub(crate) fn with_attempt_timeout(mut self, timeout: AttemptTimeout) -> Self {
        self.plan_override = Some(Arc::new(self.plan().clone().with_attempt_timeout(timeout)));
        self
    }

    pub(crate) fn plan(&self) -> &Plan {
        match &self.plan_override {
            Some(plan) => plan,
            None => self.method.plans.plan(self.retries),
        }
    }

    /// Which retries the call may make.
    pub(crate) fn retries(&self) -> Retries {
        self.retries
    }

    pub(crate) fn request_max(&self) -> Option<u32> {
        self.method.plans.request_max
    }

    pub(crate) fn response_max(&self) -> Option<u32> {
        self.method.plans.response_max
    }

    pub(crate) fn counters(&self) -> &MethodCounters {
        &self.method.counters
    }

    /// The latency estimator of the method, if hedging follows latency.
    pub(crate) fn latency_estimator(&self) -> Option<&LatencyEstimator> {
        self.method.counters.estimator.as_ref()
    }

    /// The policy that applies to the call.
    pub(crate) fn policy_kind(&self) -> PolicyKind {
        let plan = self.plan();
        match self.retries {
            Retries::Transparent | Retries::Off => PolicyKind::Disabled,
            Retries::All if plan.is_hedged() => PolicyKind::Hedging,
            Retries::All if plan.codes().is_empty() => PolicyKind::None,
            Retries::All => PolicyKind::Retry,
        }
    }

    pub(crate) fn default_head(&self) -> &OnceLock<DefaultHead> {
        &self.method.default_head
    }
}

impl Deref for PlanRef {
    type Target = Policy;

    fn deref(&self) -> &Policy {
        self.plan().policy()
    }
}

/// The current config with a plan for each entry, and one for methods without an entry.
#[derive(Debug)]
struct ActiveConfig {
    config: ServiceConfig,
    entries: Vec<Arc<Plans>>,
    default_plans: Arc<Plans>,
}

/// The current config and the methods called under it.
#[derive(Clone, Debug)]
pub(crate) struct Methods {
    active: Arc<ActiveConfig>,
    known: HashMap<Box<str>, Arc<Method>>,
}

impl Methods {
    pub(crate) fn new(config: ServiceConfig, client: &ClientOptions) -> Self {
        let plans = |method| Arc::new(Plans::new(client, method));
        let entries = config.entries().iter().map(|method| plans(Some(method))).collect();
        let active = ActiveConfig { entries, default_plans: plans(None), config };
        Methods { active: Arc::new(active), known: HashMap::new() }
    }

    pub(crate) fn config(&self) -> &ServiceConfig {
        &self.active.config
    }

    /// Whether any entry sets a limit that applies without retries.
    pub(crate) fn have_limits(&self) -> bool {
        self.active.default_plans.has_limits()
            || self.active.entries.iter().any(|it| it.has_limits())
    }

    /// The methods in the table, for the loom models.
    #[cfg(loom)]
    pub(crate) fn known(&self) -> Vec<&str> {
        let mut known: Vec<_> = self.known.keys().map(|path| &**path).collect();
        known.sort_unstable();
        known
    }

    /// Finds the entry of a path; adds it on the first call.
    pub(crate) fn find(this: &ArcSwap<Methods>, path: &str, counters: &Counters) -> Arc<Method> {
        let methods = this.load();
        match methods.known.get(path) {
            Some(method) => method.clone(),
            None => methods.first_call(this, path, counters),
        }
    }

    fn first_call(&self, this: &ArcSwap<Methods>, path: &str, all: &Counters) -> Arc<Method> {
        let entry = self.active.config.lookup(path);
        let plans = entry.and_then(|entry| self.active.entries.get(entry));
        let plans = plans.unwrap_or(&self.active.default_plans).clone();
        let (counters, has_own) = all.of(path);
        let method = Arc::new(Method { plans, counters, default_head: OnceLock::new() });
        if has_own {
            this.rcu(|methods| {
                let mut methods = Methods::clone(methods);
                // Another config may have taken effect; its table must not get this plan.
                if Arc::ptr_eq(&methods.active, &self.active) {
                    methods.known.entry_ref(path).or_insert_with(|| method.clone());
                }
                methods
            });
        }
        method
    }
}

/// The counters of all methods. They survive config updates.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    all: Mutex<HashMap<Box<str>, Arc<MethodCounters>>>,
    hedge_at: Option<HedgeAt>,
    target: Option<Arc<str>>,
}

impl Counters {
    /// `hedge_at`: hedging follows the latency of each method.
    pub(crate) fn new(hedge_at: Option<HedgeAt>, target: Option<&str>) -> Self {
        Counters { all: Mutex::default(), hedge_at, target: target.map(Arc::from) }
    }

    /// Name of the server.
    #[cfg(any(feature = "metrics", feature = "opentelemetry"))]
    pub(crate) fn target(&self) -> Option<&Arc<str>> {
        self.target.as_ref()
    }

    /// The counters of a path, and whether they belong to it alone.
    fn of(&self, path: &str) -> (Arc<MethodCounters>, bool) {
        let mut all = lock(&self.all);
        if let Some(counters) = all.get(path) {
            return (counters.clone(), true);
        }
        let has_own = all.len() < METHODS_MAX;
        let path = if has_own { path } else { OTHER_METHODS };
        // Methods that are counted together have no common latency distribution.
        let hedge_at = self.hedge_at.filter(|_| has_own);
        let counters =
            || Arc::new(MethodCounters::named(path, self.target.clone()).with_estimator(hedge_at));
        (all.entry_ref(path).or_insert_with(counters).clone(), has_own)
    }

    /// All counters by path.
    pub(crate) fn all(&self) -> Vec<(Box<str>, Arc<MethodCounters>)> {
        let all = lock(&self.all);
        all.iter().map(|(path, counters)| (path.clone(), counters.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_group_methods_beyond_the_limit() {
        let methods = Methods::new(ServiceConfig::default(), &ClientOptions::default());
        let methods = ArcSwap::from_pointee(methods);
        let at = HedgeAt::quantile(0.9).build();
        let counters = Counters::new(Some(at), None);
        for number in 0..METHODS_MAX {
            // Through `Counters` directly: copying the method table this often would take seconds.
            assert!(counters.of(&format!("/a.B/{number}")).1);
        }
        let counters_of = |path| Methods::find(&methods, path, &counters).counters.clone();
        let (one_more, another) = (counters_of("/a.B/more"), counters_of("/a.B/another"));
        assert!(Arc::ptr_eq(&one_more, &another));
        assert!(methods.load().known.is_empty(), "methods beyond the limit are not in the table");
        let first = counters_of("/a.B/0");
        assert!(first.estimator.is_some());
        assert!(
            one_more.estimator.is_none(),
            "methods that are counted together have no estimator"
        );
        assert!(!Arc::ptr_eq(&one_more, &first));
        assert!(Arc::ptr_eq(&first, &counters_of("/a.B/0")));
        assert_eq!(methods.load().known.len(), 1);
    }
}
