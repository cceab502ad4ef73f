//! OpenTelemetry gets the same metrics as the facade, with the units and buckets of A66 and A96. An
//! in-memory exporter keeps them.

use std::borrow::Cow;

use super::expected::MetricValue;
use crate::common::sample_calls::SampleCall;
use opentelemetry::KeyValue;
use opentelemetry::metrics::MeterProvider;
use opentelemetry_sdk::metrics::data::{
    AggregatedMetrics, Histogram, Metric, MetricData, ResourceMetrics, ScopeMetrics, Sum,
};
use opentelemetry_sdk::metrics::{InMemoryMetricExporter, SdkMeterProvider};
use redial_grpc::{Gauge, Metric as CallMetric, RetryLayer};

fn metric_value<'a>(
    metric_kind: CallMetric,
    attributes: impl Iterator<Item = &'a KeyValue>,
    count: u64,
    sum: f64,
) -> MetricValue {
    let labels: Vec<(&str, Cow<'_, str>)> =
        attributes.map(|label| (label.key.as_str(), label.value.as_str())).collect();
    let labels = labels.iter().map(|(key, value)| (*key, &**value));
    MetricValue::new(metric_kind.name(), metric_kind.unit(), labels, count, sum)
}

fn sums(metric_kind: CallMetric, sum: &Sum<u64>) -> Vec<MetricValue> {
    assert!(sum.is_monotonic());
    sum.data_points()
        .map(|point| {
            metric_value(metric_kind, point.attributes(), point.value(), point.value() as f64)
        })
        .collect()
}

fn histograms<T: Copy>(
    metric_kind: CallMetric,
    data: &Histogram<T>,
    f64: fn(T) -> f64,
) -> Vec<MetricValue> {
    data.data_points()
        .map(|point| {
            assert!(point.bounds().eq(metric_kind.buckets().iter().copied()), "{metric_kind:?}");
            metric_value(metric_kind, point.attributes(), point.count(), f64(point.sum()))
        })
        .collect()
}

fn metric_values(metric: &Metric) -> Vec<MetricValue> {
    let metric_kind = CallMetric::ALL.into_iter().find(|it| it.name() == metric.name()).unwrap();
    assert_eq!(
        (metric.unit(), metric.description()),
        (metric_kind.unit(), metric_kind.description())
    );
    match metric.data() {
        AggregatedMetrics::U64(MetricData::Sum(sum)) => sums(metric_kind, sum),
        AggregatedMetrics::U64(MetricData::Histogram(data)) => {
            histograms(metric_kind, data, |number| number as f64)
        }
        AggregatedMetrics::F64(MetricData::Histogram(data)) => {
            histograms(metric_kind, data, |seconds| seconds)
        }
        _ => panic!("{metric_kind:?} has another type"),
    }
}

#[tokio::test(start_paused = true)]
async fn metrics_opentelemetry_meter_gets_every_kind_of_call() {
    for sample in SampleCall::ALL {
        let exporter = InMemoryMetricExporter::default();
        let provider = SdkMeterProvider::builder().with_periodic_exporter(exporter.clone()).build();
        sample.make(RetryLayer::builder().meter(&provider.meter("test"))).await;
        provider.force_flush().unwrap();
        let exported = exporter.get_finished_metrics().unwrap();
        let scopes = exported.iter().flat_map(ResourceMetrics::scope_metrics);
        let is_no_gauge = |metric: &&Metric| Gauge::ALL.iter().all(|it| it.name() != metric.name());
        let metrics = scopes.flat_map(ScopeMetrics::metrics).filter(is_no_gauge);
        let mut values: Vec<_> = metrics.flat_map(metric_values).collect();
        values.sort();
        assert_eq!(values, sample.expected_metrics(), "{sample:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn metrics_global_opentelemetry_meter_is_unused() {
    let exporter = InMemoryMetricExporter::default();
    let provider = SdkMeterProvider::builder().with_periodic_exporter(exporter.clone()).build();
    opentelemetry::global::set_meter_provider(provider.clone());
    SampleCall::Retried.make(RetryLayer::builder()).await;
    provider.force_flush().unwrap();
    let exported = exporter.get_finished_metrics().unwrap();
    assert!(exported.iter().all(|resource| resource.scope_metrics().count() == 0));
}
