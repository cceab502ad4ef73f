//! The layer and its builder.

use std::sync::Arc;

use redial::throttle::RetryBudget;
use redial_core::HedgeAt;
use redial_service_config::{
    AttemptTimeout, ClientOptions, DeadlineAction, Jitter, Problem, Problems, Retries,
    ServiceConfig,
};
use tower_layer::Layer;

use crate::client_adapter::{AdapterFn, Tonic};
use crate::control::Control;
use crate::observe::MetricsOptions;
use crate::replay_buffer::Replay;
use crate::report::{CallReports, MessageFilter};
use crate::service::RetryService;
use crate::shared::Shared;

/// gRPC retries and hedging as a tower layer around a channel.
///
/// ```
/// use redial_grpc::RetryLayer;
/// use tonic::transport::Endpoint;
/// use tower::ServiceBuilder;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let config = r#"{
///   "methodConfig": [{
///     "name": [{ "service": "echo.Echo" }],
///     "retryPolicy": { "maxAttempts": 4, "initialBackoff": "0.1s", "maxBackoff": "1s",
///                      "backoffMultiplier": 2, "retryableStatusCodes": ["UNAVAILABLE"] }
///   }],
///   "retryThrottling": { "maxTokens": 100, "tokenRatio": 0.1 }
/// }"#;
/// let channel = Endpoint::from_static("http://127.0.0.1:50051").connect_lazy();
/// let channel = ServiceBuilder::new().layer(RetryLayer::from_json(config)?).service(channel);
/// // let mut client = EchoClient::new(channel);
/// # drop(channel); Ok(())
/// # }
/// ```
///
/// Clones of the layer and the services it creates share one config, one buffer limit, one retry
/// throttle and one set of statistics; [`RetryLayer::control`] gives access to them.
#[derive(Clone, Debug)]
pub struct RetryLayer<W = Tonic> {
    shared: Arc<Shared>,
    adapter: W,
}

impl RetryLayer {
    /// A layer with this service config. The config's warnings about likely mistakes are available
    /// through [`Control::config`].
    ///
    /// # Errors
    /// All problems of the config, with line and column.
    pub fn from_json(config: &str) -> Result<RetryLayer, Problems> {
        Ok(RetryLayer::builder().config(ServiceConfig::parse(config)?).build())
    }

    /// Builds a layer with options. Without a config only transparent retries happen.
    pub fn builder() -> RetryLayerBuilder {
        RetryLayerBuilder::default()
    }
}

impl<W> RetryLayer<W> {
    /// Adapts the layer to another client library: `wrap` converts the body of an attempt into the
    /// channel's body type.
    ///
    /// For another version of tonic: `RetryLayer::adapter(tonic::body::Body::new)`. A call that ends on
    /// the client side then returns a Trailers-Only response.
    pub fn adapter<B, F>(self, wrap: F) -> RetryLayer<AdapterFn<F>>
    where
        F: Fn(Replay<B>) -> B + Clone,
    {
        RetryLayer { shared: self.shared, adapter: AdapterFn(wrap) }
    }

    /// Changes and inspects the layer while calls run.
    #[must_use]
    pub fn control(&self) -> Control {
        Control::new(self.shared.clone())
    }
}

impl<S: Clone, W: Clone> Layer<S> for RetryLayer<W> {
    type Service = RetryService<S, W>;

    fn layer(&self, inner: S) -> RetryService<S, W> {
        RetryService::new(inner, self.shared.clone(), self.adapter.clone())
    }
}

/// Builds a [`RetryLayer`]. Options have the names that A6 gives them, where it names them.
#[derive(Clone, Debug, Default)]
#[must_use = "a builder does nothing until it is built"]
pub struct RetryLayerBuilder {
    pub(crate) config: ServiceConfig,
    pub(crate) client: ClientOptions,
    pub(crate) server: Option<Box<str>>,
    pub(crate) retry_budget: Option<Arc<RetryBudget>>,
    pub(crate) depth_control: bool,
    pub(crate) distinct_backends: bool,
    pub(crate) hedge_at: Option<HedgeAt>,
    pub(crate) metrics_options: MetricsOptions,
    pub(crate) reports: CallReports,
    pub(crate) message_filter: MessageFilter,
}

impl RetryLayerBuilder {
    /// Sets the service config.
    pub fn config(mut self, config: ServiceConfig) -> Self {
        self.config = config;
        self
    }

    /// Parses and sets the service config. Set client options first: the validation depends on them.
    ///
    /// ```
    /// # use redial_grpc::RetryLayer;
    /// let config = r#"{
    ///   "methodConfig": [{ "name": [{}],
    ///     "retryPolicy": { "maxAttempts": 8, "initialBackoff": "0.1s", "maxBackoff": "1s",
    ///                      "backoffMultiplier": 2, "retryableStatusCodes": ["UNAVAILABLE"] } }],
    ///   "retryThrottling": { "maxTokens": 100, "tokenRatio": 0.1 }
    /// }"#;
    /// let capped = RetryLayer::builder().config_json(config)?;
    /// assert!(capped.warnings()[0].to_string().contains("maxAttempts"));
    /// let raised = RetryLayer::builder().attempts_cap(8).config_json(config)?;
    /// assert!(raised.warnings().is_empty());
    /// # Ok::<(), redial_grpc::Problems>(())
    /// ```
    ///
    /// # Errors
    /// All problems of the config, with line and column.
    pub fn config_json(self, config: &str) -> Result<Self, Problems> {
        let config = ServiceConfig::parse_for(config, &self.client)?;
        Ok(self.config(config))
    }

    /// Replaces all client options, that is all settings that are not in the service config.
    pub const fn client_options(mut self, client: ClientOptions) -> Self {
        self.client = client;
        self
    }

    /// Names the server. All layers of the process with the same name share one retry throttle (decision
    /// G15); a layer without a name shares its throttle only with its clones. Metrics and spans have the
    /// name as `grpc.target`, so the URI of the target is a good choice.
    pub fn for_server(mut self, name: impl Into<Box<str>>) -> Self {
        self.server = Some(name.into());
        self
    }

    /// Adds a retry budget, which the layer can share with HTTP clients, AWS clients and policies of
    /// `redial` (decision B). None by default.
    ///
    /// A retry or hedge then needs a token of the budget and the consent of the config's
    /// `retryThrottling`; if either refuses, the call ends with its last failure, for the reason
    /// `throttled`. A token is refunded if its retry never starts. Each call that ends with OK credits
    /// both. Transparent retries take no token (decision G29), and with retries off a call neither asks
    /// nor credits the budget (decision G12).
    ///
    /// [`Control::tokens`] and [`Control::refill_tokens`] are about `retryThrottling`; the budget has
    /// [`RetryBudget::tokens_at`] and [`RetryBudget::refill`].
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use redial::{Policy, ms};
    /// use redial_grpc::{RetryBudget, RetryLayer};
    ///
    /// // 10 retries at once, then one for every ten calls that succeed.
    /// let budget = Arc::new(RetryBudget::new(10.0, 0.1));
    /// let layer = RetryLayer::builder().retry_budget(budget.clone()).build();
    /// let http_policy = Policy::exponential(ms(100)).build().with_budget(budget);
    /// # drop((layer, http_policy));
    /// ```
    pub fn retry_budget(mut self, budget: Arc<RetryBudget>) -> Self {
        self.retry_budget = Some(budget);
        self
    }

    /// Caps the attempts of a call, whatever the config says; 5 by default.
    ///
    /// # Panics
    /// If the cap is 0: a call makes at least one attempt.
    pub const fn attempts_cap(mut self, attempts: u32) -> Self {
        assert!(attempts > 0, "a call makes at least one attempt");
        self.client.attempts_cap = attempts;
        self
    }

    /// The jitter of backoff delays; full jitter by default, as in A6.
    pub const fn jitter(mut self, jitter: Jitter) -> Self {
        self.client.jitter = jitter;
        self
    }

    /// Behaviour when the next retry cannot start before the deadline. By default the call waits and ends
    /// at its deadline.
    pub const fn deadline_action(mut self, deadline_action: DeadlineAction) -> Self {
        self.client.deadline_action = deadline_action;
        self
    }

    /// Maximum number of bytes that one call may buffer for retries; 1 MiB by default.
    pub const fn per_rpc_buffer_limit_in_bytes(mut self, bytes: u64) -> Self {
        self.client.per_rpc_buffer_limit_in_bytes = bytes;
        self
    }

    /// Maximum number of bytes that all calls of the channel may buffer for retries; 16 MiB by default.
    pub const fn retry_buffer_size_in_bytes(mut self, bytes: u64) -> Self {
        self.client.retry_buffer_size_in_bytes = bytes;
        self
    }

    /// Which retries are allowed; all by default. [`Control::set_retries`] changes it at run time.
    pub const fn retries(mut self, retries: Retries) -> Self {
        self.client.retries = retries;
        self
    }

    /// Caps the delay that a server can request by pushback; longer delays are reduced to it.
    pub const fn pushback_max(mut self, most: std::time::Duration) -> Self {
        self.client.pushback_max = Some(most);
        self
    }

    /// The timeout of each attempt, for all methods; none by default.
    /// [`CallOptions::attempt_timeout`](crate::CallOptions::attempt_timeout) overrides it for one call.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use redial_grpc::{AttemptTimeout, RetryLayer};
    ///
    /// const QUICK: AttemptTimeout = AttemptTimeout::after(Duration::from_millis(250)).retryable();
    /// let layer = RetryLayer::builder().attempt_timeout(QUICK).build();
    /// ```
    pub const fn attempt_timeout(mut self, timeout: AttemptTimeout) -> Self {
        self.client.attempt_timeout = Some(timeout);
        self
    }

    /// Disables retries for calls that are made while handling an inbound retry, so that the retries of
    /// chained services do not multiply. Off by default; see `InboundAttempt` (feature `tonic`).
    pub const fn depth_control(mut self) -> Self {
        self.depth_control = true;
        self
    }

    /// Adds the backends that a call has used ([`UsedBackends`]) to each request, so that a balancer
    /// below can pick another one. With retries disabled there is one attempt, so there is no backend to
    /// exclude and nothing is added. Off by default, because it allocates per call; the balanced channel
    /// (crate `redial-grpc-balance`) enables it.
    ///
    /// [`UsedBackends`]: crate::UsedBackends
    pub const fn distinct_backends(mut self) -> Self {
        self.distinct_backends = true;
        self
    }

    /// Derives the hedging delay from the measured latency of the method instead of the config's
    /// `hedgingDelay`, and stops hedging where hedges do not win. Off by default. It applies only to
    /// methods with a `hedgingPolicy`. [`Control::latency_estimates`] shows the current values.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use redial_grpc::{HedgeAt, RetryLayer};
    ///
    /// const SLOW: HedgeAt = HedgeAt::quantile(0.95)
    ///     .floor(Duration::from_millis(5))
    ///     .cap(Duration::from_secs(1))
    ///     .build();
    /// let layer = RetryLayer::builder().hedge_at(SLOW).build();
    /// ```
    pub const fn hedge_at(mut self, at: HedgeAt) -> Self {
        self.hedge_at = Some(at);
        self
    }

    /// Where the [`CallReport`] of a failed call goes: by default into the `source` of its status.
    ///
    /// Use [`CallReports::ResponseExtension`] if a layer around this one reads the headers of failed
    /// responses, such as `grpc-status`: by default that layer receives an error instead of a failed
    /// response.
    ///
    /// ```
    /// use redial_grpc::{CallReports, RetryLayer};
    ///
    /// let layer = RetryLayer::builder().call_reports(CallReports::ResponseExtension).build();
    /// ```
    ///
    /// [`CallReport`]: crate::CallReport
    pub const fn call_reports(mut self, reports: CallReports) -> Self {
        self.reports = reports;
        self
    }

    /// Applies this function to each message and error text before it goes into a call report, a call
    /// log or a log line. The status returned to the application is unchanged, as are spans and events of
    /// the layers below. The function runs in the task of the call, so a panic in it ends that task.
    ///
    /// ```
    /// use redial_grpc::RetryLayer;
    ///
    /// let layer = RetryLayer::builder()
    ///     .redact_messages(|text| text.replace("password", "[redacted]"))
    ///     .build();
    /// ```
    pub fn redact_messages(
        mut self,
        redact: impl Fn(&str) -> String + Send + Sync + 'static,
    ) -> Self {
        self.message_filter = MessageFilter::redacting(redact);
        self
    }

    /// Name of the server, if set.
    #[must_use]
    pub fn server_name(&self) -> Option<&str> {
        self.server.as_deref()
    }

    /// The current client options.
    #[must_use]
    pub const fn current_client_options(&self) -> &ClientOptions {
        &self.client
    }

    /// Builds the layer.
    #[must_use]
    pub fn build(self) -> RetryLayer {
        #[cfg(any(feature = "metrics", feature = "opentelemetry"))]
        let metrics_options = self.metrics_options.clone();
        let shared = Arc::new(Shared::new(self));
        #[cfg(any(feature = "metrics", feature = "opentelemetry"))]
        crate::observe::register_gauges(&metrics_options, &shared);
        RetryLayer { shared, adapter: Tonic }
    }

    /// Warnings about likely mistakes in the config.
    #[must_use]
    pub fn warnings(&self) -> &[Problem] {
        self.config.warnings()
    }
}
