//! Gauges of a layer: tokens, buffered bytes, backends.
//!
//! OpenTelemetry reads gauges on collection. The `metrics` facade has no callbacks, so its gauges are
//! set when a call has ended and released its resources.

use std::sync::{Arc, Weak};

use crate::observe::MetricsOptions;
use crate::shared::Shared;

/// A gauge of a layer. Its one label is `grpc.target`, if the layer has a server name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Gauge {
    /// `redial.grpc.throttle.tokens`.
    ThrottleTokens,
    /// `redial.grpc.buffered_bytes`.
    BufferedBytes,
    /// `redial.grpc.backends.known`.
    BackendsKnown,
    /// `redial.grpc.backends.connected`.
    BackendsConnected,
}

impl Gauge {
    /// All gauges.
    pub const ALL: [Gauge; 4] = [
        Gauge::ThrottleTokens,
        Gauge::BufferedBytes,
        Gauge::BackendsKnown,
        Gauge::BackendsConnected,
    ];

    /// Name of the gauge.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Gauge::ThrottleTokens => "redial.grpc.throttle.tokens",
            Gauge::BufferedBytes => "redial.grpc.buffered_bytes",
            Gauge::BackendsKnown => "redial.grpc.backends.known",
            Gauge::BackendsConnected => "redial.grpc.backends.connected",
        }
    }

    /// Unit in OpenTelemetry notation.
    #[must_use]
    pub const fn unit(self) -> &'static str {
        match self {
            Gauge::ThrottleTokens => "{token}",
            Gauge::BufferedBytes => "By",
            Gauge::BackendsKnown | Gauge::BackendsConnected => "{backend}",
        }
    }

    /// One-sentence description.
    #[must_use]
    pub const fn description(self) -> &'static str {
        match self {
            Gauge::ThrottleTokens => "Tokens left in the server's retry throttle.",
            Gauge::BufferedBytes => "Request bytes buffered for retries.",
            Gauge::BackendsKnown => "Backends in the address list of the balanced channel.",
            Gauge::BackendsConnected => "Backends that the balanced channel is connected to.",
        }
    }

    /// Current value; `None` without a throttle or without a balanced channel.
    pub(crate) fn read(self, shared: &Shared) -> Option<f64> {
        match self {
            Gauge::ThrottleTokens => shared.server.tokens(),
            // Above 2^53 the rounding error of a float is negligible in a chart.
            Gauge::BufferedBytes => Some(shared.buffer_limit.used() as f64),
            Gauge::BackendsKnown => shared.backends().map(|backends| backends.known as f64),
            Gauge::BackendsConnected => shared.backends().map(|backends| backends.connected as f64),
        }
    }
}

/// Registers OpenTelemetry callbacks, which hold only a weak reference to the layer.
pub(crate) fn register(metrics_options: &MetricsOptions, shared: &Arc<Shared>) {
    #[cfg(feature = "opentelemetry")]
    if let Some(meter) = &metrics_options.meter {
        for gauge in Gauge::ALL {
            let shared: Weak<Shared> = Arc::downgrade(shared);
            let instrument = meter.f64_observable_gauge(gauge.name());
            let instrument =
                instrument.with_unit(gauge.unit()).with_description(gauge.description());
            let _registered = instrument
                .with_callback(move |observer| {
                    if let Some(shared) = shared.upgrade()
                        && let Some(value) = gauge.read(&shared)
                    {
                        let target = shared.counters.target();
                        let target = target.map(|target| {
                            opentelemetry::KeyValue::new(super::metric::TARGET, target.clone())
                        });
                        observer.observe(value, target.as_slice());
                    }
                })
                .build();
        }
    }
    #[cfg(not(feature = "opentelemetry"))]
    let (_, _): (_, Weak<Shared>) = (metrics_options, Arc::downgrade(shared));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::Metric;

    #[test]
    fn gauge_names_are_unique() {
        let names = Gauge::ALL.map(Gauge::name);
        for (index, name) in names.iter().enumerate() {
            assert!(!names[index + 1..].contains(name));
            assert!(Metric::ALL.iter().all(|metric| metric.name() != *name));
        }
    }
}
