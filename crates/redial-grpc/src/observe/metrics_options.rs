//! Builder options for metrics.

/// The metrics sinks that the builder enables.
#[derive(Clone, Debug, Default)]
pub(crate) struct MetricsOptions {
    #[cfg(feature = "metrics")]
    pub(crate) facade: bool,
    #[cfg(feature = "opentelemetry")]
    pub(crate) meter: Option<opentelemetry::metrics::Meter>,
}

#[cfg(feature = "metrics")]
impl crate::RetryLayerBuilder {
    /// Reports the metrics of every call to the `metrics` facade; [`Metric`](crate::Metric) lists them.
    ///
    /// The recorder is looked up for each value, so it may be installed later. Descriptions go only to a
    /// recorder that is installed when the layer is built.
    pub fn metrics(mut self) -> Self {
        self.metrics_options.facade = true;
        self
    }
}

#[cfg(feature = "opentelemetry")]
impl crate::RetryLayerBuilder {
    /// Reports the metrics of every call to OpenTelemetry, with instruments of this meter;
    /// [`Metric`](crate::Metric) lists them with their recommended buckets.
    ///
    /// There is no default: the global meter is never used (A66).
    ///
    /// ```
    /// use opentelemetry::metrics::MeterProvider;
    /// use redial_grpc::RetryLayer;
    ///
    /// # let provider = opentelemetry_sdk::metrics::SdkMeterProvider::default();
    /// let meter = provider.meter("redial-grpc");
    /// let layer = RetryLayer::builder().for_server("dns:///shop.example").meter(&meter).build();
    /// # drop(layer);
    /// ```
    pub fn meter(mut self, meter: &opentelemetry::metrics::Meter) -> Self {
        self.metrics_options.meter = Some(meter.clone());
        self
    }
}
