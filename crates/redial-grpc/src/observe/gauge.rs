//! What a layer holds now, as gauges: tokens, buffered bytes, backends.
//!
//! OpenTelemetry reads them when it collects. The `metrics` facade cannot ask, so it gets them each
//! time a call has ended and released what it held.

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
    /// All of them.
    pub const ALL: [Gauge; 4] = [
        Gauge::ThrottleTokens,
        Gauge::BufferedBytes,
        Gauge::BackendsKnown,
        Gauge::BackendsConnected,
    ];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Gauge::ThrottleTokens => "redial.grpc.throttle.tokens",
            Gauge::BufferedBytes => "redial.grpc.buffered_bytes",
            Gauge::BackendsKnown => "redial.grpc.backends.known",
            Gauge::BackendsConnected => "redial.grpc.backends.connected",
        }
    }

    /// Its unit, as OpenTelemetry writes it.
    #[must_use]
    pub const fn unit(self) -> &'static str {
        match self {
            Gauge::ThrottleTokens => "{token}",
            Gauge::BufferedBytes => "By",
            Gauge::BackendsKnown | Gauge::BackendsConnected => "{backend}",
        }
    }

    /// What it is, in a sentence.
    #[must_use]
    pub const fn description(self) -> &'static str {
        match self {
            Gauge::ThrottleTokens => "Tokens that the server's retry throttle has left.",
            Gauge::BufferedBytes => "Bytes of requests that are kept for further attempts.",
            Gauge::BackendsKnown => "Backends that the balanced channel knows.",
            Gauge::BackendsConnected => "Backends that the balanced channel is connected to.",
        }
    }

    /// What it is now; `None` without a throttle, or without a balanced channel.
    pub(crate) fn read(self, shared: &Shared) -> Option<f64> {
        match self {
            Gauge::ThrottleTokens => shared.server.tokens(),
            // Beyond 2^53 a float is off by less than a chart can show.
            Gauge::BufferedBytes => Some(shared.buffer_limit.used() as f64),
            Gauge::BackendsKnown => shared.backends().map(|backends| backends.known as f64),
            Gauge::BackendsConnected => shared.backends().map(|backends| backends.connected as f64),
        }
    }
}

/// Gives OpenTelemetry what it asks when it collects, as long as the layer lives.
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
