//! OpenTelemetry instruments, created from the meter in the layer's options.

use std::sync::Arc;

use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Histogram, Meter};
use redial_service_config::Code;

use crate::observe::metric::{METHOD, Metric, STATUS, TARGET, Value};

#[derive(Debug)]
enum Instrument {
    Counter(Counter<u64>),
    Numbers(Histogram<u64>),
    Seconds(Histogram<f64>),
}

/// One instrument per metric, indexed by [`Metric`].
#[derive(Debug)]
pub(crate) struct Instruments([Instrument; Metric::ALL.len()]);

impl Instruments {
    pub(crate) fn new(meter: &Meter) -> Self {
        Instruments(Metric::ALL.map(|metric| {
            let (name, unit, text) = (metric.name(), metric.unit(), metric.description());
            let buckets = metric.buckets().to_vec();
            if buckets.is_empty() {
                let counter = meter.u64_counter(name).with_unit(unit).with_description(text);
                Instrument::Counter(counter.build())
            } else if unit == "s" {
                let histogram = meter.f64_histogram(name).with_unit(unit).with_description(text);
                Instrument::Seconds(histogram.with_boundaries(buckets).build())
            } else {
                let histogram = meter.u64_histogram(name).with_unit(unit).with_description(text);
                Instrument::Numbers(histogram.with_boundaries(buckets).build())
            }
        }))
    }

    pub(crate) fn emit(&self, metric: Metric, value: Value, attributes: &[KeyValue]) {
        match (&self.0[metric as usize], value) {
            (Instrument::Counter(counter), Value::Number(number)) => {
                counter.add(number, attributes);
            }
            (Instrument::Numbers(histogram), Value::Number(number)) => {
                histogram.record(number, attributes);
            }
            (Instrument::Seconds(histogram), Value::Seconds(seconds)) => {
                histogram.record(seconds, attributes);
            }
            _ => debug_assert!(false, "wrong value type for {metric:?}"),
        }
    }
}

/// The labels as attributes.
pub(crate) fn attributes(
    method: &Arc<str>,
    target: Option<&Arc<str>>,
    status: Option<Code>,
) -> Box<[KeyValue]> {
    let mut attributes = vec![KeyValue::new(METHOD, method.clone())];
    attributes.extend(target.map(|target| KeyValue::new(TARGET, target.clone())));
    attributes.extend(status.map(|code| KeyValue::new(STATUS, code.name())));
    attributes.into()
}
