//! Without metrics nothing is measured: there is no value of these types.

use std::sync::Arc;

use bytes::Bytes;
use redial_core::Ns;

use crate::methods::PlanRef;
use crate::observe::story::Observation;
use crate::observe::{Listeners, Sent};
use crate::shared::Shared;
use crate::statistics::Happened;

#[derive(Debug)]
pub(crate) enum Sinks {}

impl Sinks {
    pub(crate) fn new(_listeners: &Listeners, _server: Option<&str>) -> Option<Arc<Self>> {
        None
    }
    pub(crate) fn set_gauges(&self, _shared: &Shared) {
        match *self {}
    }
}

#[derive(Debug)]
pub(crate) enum Measures {}

impl Measures {
    pub(crate) fn new(sinks: &Arc<Sinks>, _method: &PlanRef) -> Self {
        match **sinks {}
    }
    pub(crate) fn sent(&self, _attempt: u32) -> Sent {
        match *self {}
    }
    pub(crate) fn received(&mut self, _data: &Bytes) {
        match *self {}
    }
    pub(crate) fn happened(&mut self, _happened: Happened) {
        match *self {}
    }
    pub(crate) fn record(&mut self, _at: Ns, _event: Observation) {
        match *self {}
    }
}
