//! Metrics for the recorder behind the `metrics` facade.
//!
//! The recorder is looked up for each value: an application may install it after building its layers,
//! and recorders drop idle metrics. The keys are built only once.

use std::sync::Arc;

use metrics::{Key, Label, Level, Metadata, Unit, with_recorder};
use redial_service_config::Code;

use crate::observe::Gauge;
use crate::observe::metric::{METHOD, Metric, STATUS, TARGET, Value};
use crate::shared::Shared;

static METADATA: Metadata<'_> =
    Metadata::new("redial_grpc", Level::INFO, Some("redial_grpc::observe"));

/// Keys of the metrics with or without a status, in the order of [`Metric::ALL`].
#[derive(Debug, Default)]
pub(crate) struct Keys(Box<[(Metric, Key)]>);

impl Keys {
    pub(crate) fn new(method: &Arc<str>, target: Option<&Arc<str>>, status: Option<Code>) -> Self {
        let mut labels = vec![Label::new(METHOD, method.clone())];
        labels.extend(target.map(|target| Label::new(TARGET, target.clone())));
        labels.extend(status.map(|code| Label::new(STATUS, code.name())));
        let metrics = Metric::ALL.into_iter().filter(|it| it.has_status() == status.is_some());
        let key = |metric: Metric| Key::from_parts(metric.name(), labels.clone());
        Keys(metrics.map(|metric| (metric, key(metric))).collect())
    }

    pub(crate) fn emit(&self, metric: Metric, value: Value) {
        let Some((_, key)) = self.0.iter().find(|(other, _)| *other == metric) else {
            debug_assert!(self.0.is_empty(), "wrong label set for the metric");
            return;
        };
        with_recorder(|recorder| match value {
            Value::Number(number) if metric.buckets().is_empty() => {
                recorder.register_counter(key, &METADATA).increment(number);
            }
            Value::Number(number) => {
                // Above 2^53 the rounding error of a float is negligible in a histogram.
                recorder.register_histogram(key, &METADATA).record(number as f64);
            }
            Value::Seconds(seconds) => {
                recorder.register_histogram(key, &METADATA).record(seconds);
            }
        });
    }
}

/// Sets the gauges of a layer to their current values.
pub(crate) fn set_gauges(shared: &Shared) {
    for gauge in Gauge::ALL {
        let Some(value) = gauge.read(shared) else { continue };
        let target = shared.counters.target().map(|target| Label::new(TARGET, target.clone()));
        let key = Key::from_parts(gauge.name(), Vec::from_iter(target));
        with_recorder(|recorder| recorder.register_gauge(&key, &METADATA).set(value));
    }
}

/// Describes all metrics to the installed recorder.
pub(crate) fn describe() {
    let described = |unit| match unit {
        "s" => Unit::Seconds,
        "By" => Unit::Bytes,
        _ => Unit::Count,
    };
    with_recorder(|recorder| {
        for gauge in Gauge::ALL {
            let (name, text) = (gauge.name().into(), gauge.description().into());
            recorder.describe_gauge(name, Some(described(gauge.unit())), text);
        }
        for metric in Metric::ALL {
            let name = metric.name().into();
            let unit = described(metric.unit());
            let description = metric.description().into();
            if metric.buckets().is_empty() {
                recorder.describe_counter(name, Some(unit), description);
            } else {
                recorder.describe_histogram(name, Some(unit), description);
            }
        }
    });
}
