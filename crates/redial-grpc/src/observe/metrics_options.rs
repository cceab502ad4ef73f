//! Who is told of the calls of a layer, besides those who listen to spans.

/// Who is told of the calls of a layer.
#[derive(Clone, Debug, Default)]
pub(crate) struct MetricsOptions {
    #[cfg(feature = "metrics")]
    pub(crate) facade: bool,
    #[cfg(feature = "opentelemetry")]
    pub(crate) meter: Option<opentelemetry::metrics::Meter>,
}

#[cfg(feature = "metrics")]
impl crate::RetryLayerBuilder {
    /// Tells the `metrics` facade of every call; [`Metric`](crate::Measure) lists what.
    ///
    /// The recorder of the process is asked each time, so it may be installed later; what each
    /// metric means is described to the one that is there when the layer is built.
    pub fn metrics(mut self) -> Self {
        self.metrics_options.facade = true;
        self
    }
}

#[cfg(feature = "opentelemetry")]
impl crate::RetryLayerBuilder {
    /// Tells OpenTelemetry of every call, with instruments of this meter;
    /// [`Metric`](crate::Measure) lists them, with the buckets that they advise.
    ///
    /// There is no meter by default, and the global one is never used (A66).
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
