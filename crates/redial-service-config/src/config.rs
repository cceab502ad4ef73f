//! A service config that was checked, and what it says about a method (decision G37).

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use crate::{ClientOptions, MethodConfig, Problem, Problems, RetryThrottling, read};

/// A service config: always valid, cheap to clone.
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

/// Which entry each name belongs to.
#[derive(Debug, Default)]
pub(crate) struct Index {
    /// By service and method, with a slash between them.
    pub(crate) methods: HashMap<Box<str>, usize>,
    pub(crate) services: HashMap<Box<str>, usize>,
    pub(crate) default: Option<usize>,
}

/// How a channel spreads its calls over the servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LoadBalancing {
    /// All to the first that can be reached.
    #[default]
    PickFirst,
    /// To one after the other.
    RoundRobin,
}

impl LoadBalancing {
    /// All of them.
    pub const ALL: [LoadBalancing; 2] = [LoadBalancing::PickFirst, LoadBalancing::RoundRobin];

    /// Its name in a config.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            LoadBalancing::PickFirst => "pick_first",
            LoadBalancing::RoundRobin => "round_robin",
        }
    }
}

impl ServiceConfig {
    /// Reads a config, for a client that leaves its options as they are.
    ///
    /// # Errors
    /// Every problem of the text at once.
    pub fn parse(text: &str) -> Result<ServiceConfig, Problems> {
        ServiceConfig::parse_for(text, &ClientOptions::default())
    }

    /// Reads a config, for a client with these options: they decide about warnings, never about
    /// problems.
    ///
    /// # Errors
    /// Every problem of the text at once.
    pub fn parse_for(text: &str, client: &ClientOptions) -> Result<ServiceConfig, Problems> {
        read::read(text, client).map(|inner| ServiceConfig(Arc::new(inner)))
    }

    /// Whether the other one is a clone of this one. Two that were read are never the same, even
    /// from one text.
    #[must_use]
    pub fn is(&self, other: &ServiceConfig) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// What is legal and surely not meant, in the order of the text.
    #[must_use]
    pub fn warnings(&self) -> &[Problem] {
        &self.0.warnings
    }

    /// The entries, in the order of the text.
    #[must_use]
    pub fn entries(&self) -> &[MethodConfig] {
        &self.0.entries
    }

    /// The entry for a method like `/package.Service/Method`, by its place in
    /// [`entries`](Self::entries): that of the method, else that of its service, else the default.
    /// Two lookups in a table at the most, and nothing is allocated.
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

    /// What holds retries back, if anything does.
    #[must_use]
    pub fn retry_throttling(&self) -> Option<RetryThrottling> {
        self.0.retry_throttling
    }

    /// How a channel spreads its calls over the servers.
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
