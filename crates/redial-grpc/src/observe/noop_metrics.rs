//! No-op metrics for builds without a metrics feature: uninhabited types.

use std::sync::Arc;

use bytes::Bytes;
use redial_core::Ns;

use crate::methods::PlanRef;
use crate::observe::call_tracker::Observation;
use crate::observe::{MetricsOptions, SentBytes};
use crate::shared::Shared;
use crate::statistics::StatisticsEvent;

#[derive(Debug)]
pub(crate) enum MetricSinks {}

impl MetricSinks {
    pub(crate) fn new(_listeners: &MetricsOptions, _server: Option<&str>) -> Option<Arc<Self>> {
        None
    }
    pub(crate) fn set_gauges(&self, _shared: &Shared) {
        match *self {}
    }
}

#[derive(Debug)]
pub(crate) enum CallMetrics {}

impl CallMetrics {
    pub(crate) fn new(sinks: &Arc<MetricSinks>, _method: &PlanRef) -> Self {
        match **sinks {}
    }
    pub(crate) fn sent_bytes(&self, _attempt: u32) -> SentBytes {
        match *self {}
    }
    pub(crate) fn received(&mut self, _data: &Bytes) {
        match *self {}
    }
    pub(crate) fn count(&mut self, _event: StatisticsEvent) {
        match *self {}
    }
    pub(crate) fn record(&mut self, _at: Ns, _event: Observation) {
        match *self {}
    }
}
