//! The labels of a method's metrics, built once per status code.

use std::fmt;
use std::sync::{Arc, OnceLock};

use redial_service_config::Code;

use crate::methods::OTHER_METHODS;
use crate::observe::call_metrics::Sinks;
use crate::observe::metric::OTHER;

/// The labels of one method and one status (or none) for each sink.
#[derive(Debug)]
pub(crate) struct Labels {
    #[cfg(feature = "metrics")]
    pub(crate) keys: super::metrics_facade::Keys,
    #[cfg(feature = "opentelemetry")]
    pub(crate) attributes: Box<[opentelemetry::KeyValue]>,
}

pub(crate) struct MethodLabels {
    method: Arc<str>,
    /// Index 0: without a status; then by status code.
    sets: [OnceLock<Box<Labels>>; 1 + Code::ALL.len()],
}

impl MethodLabels {
    /// The labels of a path; methods beyond the limit share the label `other`.
    pub(crate) fn named(path: &str) -> Self {
        let method = match path {
            OTHER_METHODS => OTHER,
            path => path.strip_prefix('/').unwrap_or(path),
        };
        MethodLabels { method: method.into(), sets: Default::default() }
    }

    /// The labels with this status. All calls of a layer have the same sinks, so they are cached.
    pub(crate) fn of(&self, status: Option<Code>, sinks: &Sinks) -> &Labels {
        let index = status.map_or(0, |code| 1 + usize::from(code.number()));
        self.sets[index].get_or_init(|| Box::new(sinks.labels(&self.method, status)))
    }
}

impl fmt::Debug for MethodLabels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MethodLabels").field("method", &self.method).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_label_methods_beyond_the_limit_as_other() {
        assert_eq!(&*MethodLabels::named("/pkg.Svc/Method").method, "pkg.Svc/Method");
        assert_eq!(&*MethodLabels::named(OTHER_METHODS).method, "other");
    }
}
