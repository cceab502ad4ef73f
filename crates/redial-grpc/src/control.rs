//! What can be changed and read while calls run: the config, the switch, the statistics.

use std::collections::BTreeMap;
use std::sync::Arc;

use redial_core::LatencyEstimate;
use redial_service_config::{LoadBalancing, Problem, Problems, Retries, ServiceConfig};

use crate::shared::{BackendCounts, Shared};
use crate::statistics::{MethodCounters, MethodStatistics};

/// What can be changed and read while the calls of a layer run.
#[derive(Clone, Debug)]
pub struct Control {
    pub(crate) shared: Arc<Shared>,
}

impl Control {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Control { shared }
    }

    /// Puts another config in force: calls that begin from now on follow it, those under way are
    /// left alone. A throttle with the same parameters is kept, another one is as full as it was.
    /// Returns what is legal in it and surely not meant.
    ///
    /// # Errors
    /// Everything that is wrong with the text; the config in force stays (decision G39).
    pub fn set_json(&self, config: &str) -> Result<Vec<Problem>, Problems> {
        let config = ServiceConfig::parse_for(config, &self.shared.client)?;
        let warnings = config.warnings().to_vec();
        self.set_config(config);
        Ok(warnings)
    }

    /// The same with a config that was checked before.
    pub fn set_config(&self, config: ServiceConfig) {
        self.shared.set_config(config);
    }

    /// The config in force.
    #[must_use]
    pub fn config(&self) -> ServiceConfig {
        self.shared.methods.load().config().clone()
    }

    /// Which repetitions are allowed from now on. Calls under way keep what they began with.
    pub fn set_retries(&self, retries: Retries) {
        self.shared.set_retries(retries);
    }

    /// How many bytes all calls keep for repetition now.
    #[must_use]
    pub fn bytes_kept(&self) -> u64 {
        self.shared.buffer_limit.used()
    }

    /// The tokens that the server's throttle has left; `None` without one.
    #[must_use]
    pub fn tokens(&self) -> Option<f64> {
        self.shared.server.tokens()
    }

    /// How many backends the balanced channel has; `None` for a layer around another channel.
    #[must_use]
    pub fn backends(&self) -> Option<BackendCounts> {
        self.shared.backends()
    }

    /// The balancer below the layer counts its backends so, for [`backends`](Self::backends) and the
    /// gauges; `None` once it is gone. What was said first counts.
    pub fn count_backends(
        &self,
        count: impl Fn() -> Option<BackendCounts> + Send + Sync + 'static,
    ) {
        self.shared.count_backends(count);
    }

    /// What the config in force says about balancing.
    #[must_use]
    pub fn load_balancing(&self) -> LoadBalancing {
        self.shared.methods.load().config().load_balancing()
    }

    /// Fills the server's throttle, so that retries are allowed again at once: for an incident that
    /// is over before enough calls have succeeded. Without a throttle it does nothing.
    ///
    /// ```
    /// # use redial_grpc::RetryLayer;
    /// # let layer = RetryLayer::from_json(
    /// #     r#"{ "retryThrottling": { "maxTokens": 10, "tokenRatio": 0.1 } }"#).unwrap();
    /// layer.control().refill_tokens();
    /// assert_eq!(layer.control().tokens(), Some(10.0));
    /// ```
    pub fn refill_tokens(&self) {
        self.shared.server.tokens.refill();
    }

    /// How long the attempts of each hedged method take, when its hedges follow, and whether they
    /// win; empty without `RetryLayerBuilder::hedge_at`, and before a first attempt has answered.
    #[must_use]
    pub fn latency_estimates(&self) -> BTreeMap<Box<str>, LatencyEstimate> {
        let all = self.shared.counters.all();
        let read = |(path, counters): (_, Arc<MethodCounters>)| {
            let reading = counters.estimator.as_ref()?.read();
            (reading.samples > 0).then_some((path, reading))
        };
        all.into_iter().filter_map(read).collect()
    }

    /// What happened so far, by method.
    #[must_use]
    pub fn statistics(&self) -> BTreeMap<Box<str>, MethodStatistics> {
        let all = self.shared.counters.all();
        all.into_iter().map(|(path, counters)| (path, counters.read())).collect()
    }
}
