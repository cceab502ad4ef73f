//! A validated service config and the lookup of method entries (decision G37).

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use crate::{ClientOptions, MethodConfig, Problem, Problems, RetryThrottling, read};

/// A validated service config; cheap to clone.
///
/// ```
/// use redial_service_config::{MethodPolicy, ServiceConfig};
///
/// let config = ServiceConfig::parse(r#"{ "methodConfig": [
///     { "name": [{ "service": "a.B" }], "timeout": "2s" },
///     { "name": [{ "service": "a.B", "method": "Get" }],
///       "hedgingPolicy": { "maxAttempts": 3, "hedgingDelay": "0.02s" } }] }"#)?;
/// assert!(matches!(config.method("/a.B/Get").unwrap().policy, Some(MethodPolicy::Hedging(_))));
/// assert!(config.method("/a.B/Put").unwrap().policy.is_none());
/// assert!(config.method("/x.Y/Get").is_none());
/// # Ok::<(), redial_service_config::Problems>(())
/// ```
#[derive(Clone, Debug)]
pub struct ServiceConfig(pub(crate) Arc<Inner>);

#[derive(Debug, Default)]
pub(crate) struct Inner {
    pub(crate) entries: Vec<MethodConfig>,
    pub(crate) index: Index,
    pub(crate) retry_throttling: Option<RetryThrottling>,
    pub(crate) load_balancing: LoadBalancing,
    pub(crate) warnings: Vec<Problem>,
}

/// The entry of each name.
#[derive(Debug, Default)]
pub(crate) struct Index {
    /// Keyed by `service/method`.
    pub(crate) methods: HashMap<Box<str>, usize>,
    pub(crate) services: HashMap<Box<str>, usize>,
    pub(crate) default: Option<usize>,
}

/// The load balancing policy of a channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LoadBalancing {
    /// All calls to the first reachable address.
    #[default]
    PickFirst,
    /// Calls rotate over all connected addresses.
    RoundRobin,
}

impl LoadBalancing {
    /// All policies.
    pub const ALL: [LoadBalancing; 2] = [LoadBalancing::PickFirst, LoadBalancing::RoundRobin];

    /// The name in a config.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            LoadBalancing::PickFirst => "pick_first",
            LoadBalancing::RoundRobin => "round_robin",
        }
    }
}

impl ServiceConfig {
    /// Parses and validates a config for a client with default options.
    ///
    /// # Errors
    /// All problems of the text.
    pub fn parse(text: &str) -> Result<ServiceConfig, Problems> {
        ServiceConfig::parse_for(text, &ClientOptions::default())
    }

    /// Parses and validates a config for a client with these options. The options affect warnings only,
    /// never errors.
    ///
    /// # Errors
    /// All problems of the text.
    pub fn parse_for(text: &str, client: &ClientOptions) -> Result<ServiceConfig, Problems> {
        read::read(text, client).map(|inner| ServiceConfig(Arc::new(inner)))
    }

    /// Whether both are clones of the same parsed config. Parsing the same text twice yields two
    /// different configs.
    #[must_use]
    pub fn ptr_eq(&self, other: &ServiceConfig) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Likely mistakes, in the order of the text.
    #[must_use]
    pub fn warnings(&self) -> &[Problem] {
        &self.0.warnings
    }

    /// The entries of `methodConfig`, in the order of the text.
    #[must_use]
    pub fn entries(&self) -> &[MethodConfig] {
        &self.0.entries
    }

    /// The index in [`entries`](Self::entries) of the entry for a method like
    /// `/package.Service/Method`: the entry of the method, else of its service, else the default entry.
    /// At most two hash lookups, without allocation.
    #[must_use]
    pub fn lookup(&self, path: &str) -> Option<usize> {
        let Index { methods, services, default } = &self.0.index;
        let name = path.strip_prefix('/').unwrap_or(path);
        let service = || name.rsplit_once('/').and_then(|(service, _)| services.get(service));
        methods.get(name).or_else(service).copied().or(*default)
    }

    /// The entry for a method like `/package.Service/Method`.
    #[must_use]
    pub fn method(&self, path: &str) -> Option<&MethodConfig> {
        self.lookup(path).and_then(|entry| self.entries().get(entry))
    }

    /// The `retryThrottling` section, if the config has one.
    #[must_use]
    pub fn retry_throttling(&self) -> Option<RetryThrottling> {
        self.0.retry_throttling
    }

    /// The load balancing policy; `pick_first` by default.
    #[must_use]
    pub fn load_balancing(&self) -> LoadBalancing {
        self.0.load_balancing
    }
}

impl Default for ServiceConfig {
    /// The config `{}`: no policy for any method.
    fn default() -> Self {
        static EMPTY: LazyLock<ServiceConfig> =
            LazyLock::new(|| ServiceConfig(Arc::new(Inner::default())));
        EMPTY.clone()
    }
}
