//! State shared by a layer, its clones and its services.

use std::fmt;
use std::sync::{Arc, OnceLock};

use http::Extensions;
use redial_service_config::{ClientOptions, Retries, ServiceConfig};

use crate::buffer_limits::BufferLimit;
use crate::clock::Clock;
use crate::layer::RetryLayerBuilder;
use crate::methods::{Counters, Method, Methods};
use crate::observe::ObserverFactory;
use crate::report::{CallReports, MessageFilter};
use crate::sync::{ArcSwap, AtomicBool, AtomicU8, Mutex, Ordering, lock};
use crate::throttle::{Server, Throttle};

/// State shared by a layer, its clones and its services.
pub(crate) struct Shared {
    pub(crate) client: ClientOptions,
    pub(crate) methods: ArcSwap<Methods>,
    pub(crate) counters: Counters,
    pub(crate) buffer_limit: Arc<BufferLimit>,
    pub(crate) server: Arc<Server>,
    /// The throttle of calls: that of the server, with the layer's retry budget if it has one.
    pub(crate) throttle: Throttle,
    pub(crate) clock: Clock,
    pub(crate) observers: ObserverFactory,
    /// The current retry setting. It publishes no other data, so accesses are relaxed.
    retries: AtomicU8,
    /// Whether a limit applies even without retries. A call may see it slightly before or after the
    /// config that it belongs to.
    has_limits: AtomicBool,
    depth_control: bool,
    /// Whether requests carry the backends used by their call.
    pub(crate) distinct_backends: bool,
    /// Destination of reports.
    pub(crate) reports: CallReports,
    /// Redacts and truncates messages for logs.
    pub(crate) message_filter: MessageFilter,
    /// Counts the backends of a balanced channel.
    backends: OnceLock<Box<CountBackends>>,
    /// Serializes config updates, so that throttle and methods come from the same config.
    config_lock: Mutex<()>,
}

/// Number of backends of a balanced channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackendCounts {
    /// Backends in the resolved address list.
    pub known: usize,
    /// Backends with a usable connection.
    pub connected: usize,
}

impl BackendCounts {
    /// Counts with these values.
    #[must_use]
    pub const fn new(known: usize, connected: usize) -> Self {
        BackendCounts { known, connected }
    }
}

type CountBackends = dyn Fn() -> Option<BackendCounts> + Send + Sync;

impl Shared {
    /// The current counts; `None` without a balanced channel.
    pub(crate) fn backends(&self) -> Option<BackendCounts> {
        self.backends.get().and_then(|count| count())
    }

    /// Registers the callback of the balanced channel; only the first registration counts.
    pub(crate) fn count_backends(
        &self,
        count: impl Fn() -> Option<BackendCounts> + Send + Sync + 'static,
    ) {
        let _ = self.backends.set(Box::new(count));
    }

    pub(crate) fn new(builder: RetryLayerBuilder) -> Self {
        let RetryLayerBuilder {
            config,
            client,
            server,
            depth_control,
            distinct_backends,
            hedge_at,
            retry_budget,
            ..
        } = builder;
        let RetryLayerBuilder { metrics_options, reports, message_filter, .. } = builder;
        let observers = ObserverFactory::new(&metrics_options, server.as_deref());
        let counters = Counters::new(hedge_at, server.as_deref());
        let server = server.map_or_else(Arc::default, |name| Server::named(&name));
        // A config without `retryThrottling` does not change a throttle shared with other layers.
        if let Some(throttling) = config.retry_throttling() {
            server.configure(Some(throttling));
        }
        let methods = Methods::new(config, &client);
        Shared {
            has_limits: AtomicBool::new(methods.have_limits()),
            methods: ArcSwap::from_pointee(methods),
            counters,
            buffer_limit: Arc::new(BufferLimit::new(client.retry_buffer_size_in_bytes)),
            throttle: Throttle::new(server.clone(), retry_budget),
            server,
            clock: Clock::new(),
            observers,
            retries: AtomicU8::new(strictness(client.retries)),
            depth_control,
            distinct_backends,
            reports,
            message_filter,
            backends: OnceLock::new(),
            config_lock: Mutex::default(),
            client,
        }
    }

    pub(crate) fn method(&self, path: &str) -> Arc<Method> {
        Methods::find(&self.methods, path, &self.counters)
    }

    /// Whether a limit applies even without retries: a timeout or a message size limit.
    pub(crate) fn has_limits(&self) -> bool {
        self.has_limits.load(Ordering::Relaxed)
    }

    pub(crate) fn set_config(&self, config: ServiceConfig) {
        let throttling = config.retry_throttling();
        let methods = Methods::new(config, &self.client);
        let _guard = lock(&self.config_lock);
        let had_throttling = self.methods.load().config().retry_throttling().is_some();
        self.has_limits.store(methods.have_limits(), Ordering::Relaxed);
        self.methods.store(Arc::new(methods));
        // A config without `retryThrottling` before and after does not change a shared throttle.
        if had_throttling || throttling.is_some() {
            self.server.configure(throttling);
        }
    }

    pub(crate) fn set_retries(&self, retries: Retries) {
        self.retries.store(strictness(retries), Ordering::Relaxed);
    }

    /// The retries that a call may make: the strictest setting applies.
    pub(crate) fn retries(&self, call: Option<Retries>, extensions: &Extensions) -> Retries {
        let mut strictest = self.retries.load(Ordering::Relaxed);
        if let Some(call) = call {
            strictest = strictest.max(strictness(call));
        }
        if self.depth_control && is_serving_retry(extensions) {
            strictest = strictest.max(strictness(Retries::Transparent));
        }
        match strictest {
            0 => Retries::All,
            1 => Retries::Transparent,
            _ => Retries::Off,
        }
    }
}

/// Short, because applications print their clients; details are available through `Control`.
impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("client", &self.client).finish_non_exhaustive()
    }
}

/// A number that increases with strictness.
fn strictness(retries: Retries) -> u8 {
    match retries {
        Retries::All => 0,
        Retries::Transparent => 1,
        Retries::Off => 2,
    }
}

#[cfg(feature = "tonic")]
fn is_serving_retry(extensions: &Extensions) -> bool {
    let named = extensions.get::<crate::inbound_attempt::InboundAttempt>().copied();
    let inbound = named.or_else(crate::inbound_attempt::InboundAttempt::current);
    inbound.is_some_and(|inbound| inbound.previous_attempts() > 0)
}

#[cfg(not(feature = "tonic"))]
fn is_serving_retry(_extensions: &Extensions) -> bool {
    false
}
