//! Without the feature `metrics`, nothing is recorded.

use redial_core::{Event, Ns};

use crate::policy::Policy;
use crate::throttle::Handle;

/// Whether metrics are recorded.
pub(crate) const fn is_enabled() -> bool {
    false
}

/// The metrics of one call.
#[derive(Default)]
pub(crate) struct CallMetrics;

impl CallMetrics {
    pub(crate) const fn new(_policy: &Policy, _handle: &Handle) -> Self {
        CallMetrics
    }

    pub(crate) const fn record(&mut self, _at: Ns, _event: &Event) {}
}
