//! Run-time control of a layer: config, retry switch and statistics.

use std::collections::BTreeMap;
use std::sync::Arc;

use redial_core::LatencyEstimate;
use redial_service_config::{LoadBalancing, Problem, Problems, Retries, ServiceConfig};

use crate::shared::{BackendCounts, Shared};
use crate::statistics::{MethodCounters, MethodStatistics};

/// Changes and inspects a layer while its calls run.
#[derive(Clone, Debug)]
pub struct Control {
    pub(crate) shared: Arc<Shared>,
}

impl Control {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Control { shared }
    }

    /// Replaces the service config: calls that start from now on use it, running calls are not affected.
    /// A retry throttle with unchanged parameters keeps its tokens, a changed one keeps its fill level.
    /// Returns warnings about likely mistakes.
    ///
    /// # Errors
    /// All problems of the text; the current config stays (decision G39).
    pub fn set_json(&self, config: &str) -> Result<Vec<Problem>, Problems> {
        let config = ServiceConfig::parse_for(config, &self.shared.client)?;
        let warnings = config.warnings().to_vec();
        self.set_config(config);
        Ok(warnings)
    }

    /// Replaces the service config by one that is already validated.
    pub fn set_config(&self, config: ServiceConfig) {
        self.shared.set_config(config);
    }

    /// The current service config.
    #[must_use]
    pub fn config(&self) -> ServiceConfig {
        self.shared.methods.load().config().clone()
    }

    /// Switches retries. Running calls keep the setting they started with.
    pub fn set_retries(&self, retries: Retries) {
        self.shared.set_retries(retries);
    }

    /// Bytes that all calls currently buffer for retries.
    #[must_use]
    pub fn bytes_kept(&self) -> u64 {
        self.shared.buffer_limit.used()
    }

    /// Tokens left in the server's retry throttle; `None` without a throttle.
    #[must_use]
    pub fn tokens(&self) -> Option<f64> {
        self.shared.server.tokens()
    }

    /// Number of backends of the balanced channel; `None` if the layer wraps another channel.
    #[must_use]
    pub fn backends(&self) -> Option<BackendCounts> {
        self.shared.backends()
    }

    /// Registers the balancer's callback for [`backends`](Self::backends) and the gauges. It returns
    /// `None` once the balancer has been dropped. Only the first registration counts.
    pub fn count_backends(
        &self,
        count: impl Fn() -> Option<BackendCounts> + Send + Sync + 'static,
    ) {
        self.shared.count_backends(count);
    }

    /// The load balancing setting of the current config.
    #[must_use]
    pub fn load_balancing(&self) -> LoadBalancing {
        self.shared.methods.load().config().load_balancing()
    }

    /// Refills the server's retry throttle, so that retries are allowed again at once, for example when
    /// an incident is over but too few calls have succeeded to refill it. No effect without a throttle.
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

    /// Per hedged method: attempt latency, current hedging delay and the share of hedges that win. Empty
    /// without `RetryLayerBuilder::hedge_at`, and until a first attempt has answered.
    #[must_use]
    pub fn latency_estimates(&self) -> BTreeMap<Box<str>, LatencyEstimate> {
        let all = self.shared.counters.all();
        let read = |(path, counters): (_, Arc<MethodCounters>)| {
            let reading = counters.estimator.as_ref()?.read();
            (reading.samples > 0).then_some((path, reading))
        };
        all.into_iter().filter_map(read).collect()
    }

    /// Statistics by method path.
    #[must_use]
    pub fn statistics(&self) -> BTreeMap<Box<str>, MethodStatistics> {
        let all = self.shared.counters.all();
        all.into_iter().map(|(path, counters)| (path, counters.read())).collect()
    }
}
