//! The layer and its options.

use std::sync::Arc;

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

/// gRPC's retry and hedging around a channel.
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
/// Its clones, and the services that it makes, share one config, one buffer limit, one throttle and
/// one set of statistics: [`RetryLayer::control`] leads to them.
#[derive(Clone, Debug)]
pub struct RetryLayer<W = Tonic> {
    shared: Arc<Shared>,
    adapter: W,
}

impl RetryLayer {
    /// A layer with this service config, checked. What is legal in it and surely not meant is found
    /// with [`Control::config`].
    ///
    /// # Errors
    /// Everything that is wrong with the config, with places.
    pub fn from_json(config: &str) -> Result<RetryLayer, Problems> {
        Ok(RetryLayer::builder().config(ServiceConfig::parse(config)?).build())
    }

    /// A layer of your own making; without a config only transparent retries happen.
    pub fn builder() -> RetryLayerBuilder {
        RetryLayerBuilder::default()
    }
}

impl<W> RetryLayer<W> {
    /// For a client of another kind: says how an attempt's body becomes one that its channel takes.
    ///
    /// For another version of tonic that is `RetryLayer::adapter(tonic::body::Body::new)`; a call
    /// that ends on this side is then told by a Trailers-Only response.
    pub fn adapter<B, F>(self, wrap: F) -> RetryLayer<AdapterFn<F>>
    where
        F: Fn(Replay<B>) -> B + Clone,
    {
        RetryLayer { shared: self.shared, adapter: AdapterFn(wrap) }
    }

    /// What can be changed and read while calls run.
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

/// A [`RetryLayer`] that is being written. Options have the names of A6 where it
/// has some.
#[derive(Clone, Debug, Default)]
#[must_use = "a builder does nothing until it is built"]
pub struct RetryLayerBuilder {
    pub(crate) config: ServiceConfig,
    pub(crate) client: ClientOptions,
    pub(crate) server: Option<Box<str>>,
    pub(crate) depth: bool,
    pub(crate) distinct: bool,
    pub(crate) hedge_at: Option<HedgeAt>,
    pub(crate) metrics_options: MetricsOptions,
    pub(crate) reports: CallReports,
    pub(crate) message_filter: MessageFilter,
}

impl RetryLayerBuilder {
    /// The service config.
    pub fn config(mut self, config: ServiceConfig) -> Self {
        self.config = config;
        self
    }

    /// The service config as text, checked for the options that were said before it:
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
    /// Everything that is wrong with the config, with places.
    pub fn config_json(self, config: &str) -> Result<Self, Problems> {
        let config = ServiceConfig::parse_for(config, &self.client)?;
        Ok(self.config(config))
    }

    /// Everything that a client says beside the config.
    pub const fn client_options(mut self, client: ClientOptions) -> Self {
        self.client = client;
        self
    }

    /// The name of the server: all layers of the process with the same name share one throttle
    /// (decision G15). Without a name the layer is, with its clones, a server of its own.
    /// Metrics and spans have it as `grpc.target`: for those it is best the target's URI.
    pub fn for_server(mut self, name: impl Into<Box<str>>) -> Self {
        self.server = Some(name.into());
        self
    }

    /// The most attempts of a call, whatever the config says; 5 by default.
    ///
    /// # Panics
    /// The cap is 0: a call makes at least one attempt.
    pub const fn attempts_cap(mut self, attempts: u32) -> Self {
        assert!(attempts > 0, "a call makes at least one attempt");
        self.client.attempts_cap = attempts;
        self
    }

    /// The randomness in a delay; full by default, as A6 has it.
    pub const fn jitter(mut self, jitter: Jitter) -> Self {
        self.client.jitter = jitter;
        self
    }

    /// What happens when the next retry cannot start before the deadline; by default the call waits
    /// and ends at its deadline.
    pub const fn deadline_action(mut self, deadline_action: DeadlineAction) -> Self {
        self.client.deadline_action = deadline_action;
        self
    }

    /// How many bytes one call may keep for a repetition; 1 MiB by default.
    pub const fn per_rpc_buffer_limit_in_bytes(mut self, bytes: u64) -> Self {
        self.client.per_rpc_buffer_limit_in_bytes = bytes;
        self
    }

    /// How many bytes all calls of the channel may keep; 16 MiB by default.
    pub const fn retry_buffer_size_in_bytes(mut self, bytes: u64) -> Self {
        self.client.retry_buffer_size_in_bytes = bytes;
        self
    }

    /// Which repetitions are allowed; all by default. [`Control::set_retries`] changes it later.
    pub const fn retries(mut self, retries: Retries) -> Self {
        self.client.retries = retries;
        self
    }

    /// The longest delay that a server may ask for; a longer one becomes this.
    pub const fn pushback_max(mut self, most: std::time::Duration) -> Self {
        self.client.pushback_max = Some(most);
        self
    }

    /// The timeout of each attempt, whatever its method; none by default. A call's own
    /// ([`CallOptions::attempt_timeout`](crate::CallOptions::attempt_timeout)) replaces it.
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

    /// A call that is made while a retry is being served does not retry itself, so that the retries
    /// of several layers of services do not multiply. Off by default; see
    /// `inbound_attempt::InboundAttempt` (feature `tonic`).
    pub const fn depth_control(mut self) -> Self {
        self.depth = true;
        self
    }

    /// Every attempt carries the backends that its call has used ([`UsedBackends`]), so that a
    /// balancer below can send it elsewhere; with retries disabled there is no other attempt, and it
    /// carries none. Off by default, since it is an allocation for each call; the balanced channel
    /// (crate `redial-grpc-balance`) switches it on.
    ///
    /// [`UsedBackends`]: crate::UsedBackends
    pub const fn distinct_backends(mut self) -> Self {
        self.distinct = true;
        self
    }

    /// Hedges follow the latency of their method, in place of the `hedgingDelay` of its config, and
    /// stop where they do not win. Off by default; only methods with a `hedgingPolicy` are hedged,
    /// with this or without. [`Control::latency_estimates`] says where it stands.
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
    /// Use [`CallReports::ResponseExtension`] where a layer around this one reads failed responses
    /// (their HTTP headers, `grpc-status` among them): by default it gets an error in place of a
    /// failed response.
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

    /// Passes each message and error through this function before it goes into a call report, a call
    /// log or a log line. The status that the application gets is not changed, and neither are spans
    /// and events of the layers below. It runs in the task of the call, which a panic in it ends.
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

    /// The name of the server, if it has one.
    #[must_use]
    pub fn server_name(&self) -> Option<&str> {
        self.server.as_deref()
    }

    /// Everything that the client says beside the config.
    #[must_use]
    pub const fn current_client_options(&self) -> &ClientOptions {
        &self.client
    }

    /// The layer.
    #[must_use]
    pub fn build(self) -> RetryLayer {
        #[cfg(any(feature = "metrics", feature = "opentelemetry"))]
        let metrics_options = self.metrics_options.clone();
        let shared = Arc::new(Shared::new(self));
        #[cfg(any(feature = "metrics", feature = "opentelemetry"))]
        crate::observe::register_gauges(&metrics_options, &shared);
        RetryLayer { shared, adapter: Tonic }
    }

    /// What is legal in the config and surely not meant.
    #[must_use]
    pub fn warnings(&self) -> &[Problem] {
        self.config.warnings()
    }
}
