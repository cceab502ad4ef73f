//! Goal: OpenTelemetry is told the same as the facade, with the units and buckets of A66 and A96.
//! Method: real calls over a pipe on a paused clock, and an exporter that keeps what it is given.

use std::borrow::Cow;

use super::plays::Play;
use super::told::Told;
use opentelemetry::KeyValue;
use opentelemetry::metrics::MeterProvider;
use opentelemetry_sdk::metrics::data::{
    AggregatedMetrics, Histogram, Metric, MetricData, ResourceMetrics, ScopeMetrics, Sum,
};
use opentelemetry_sdk::metrics::{InMemoryMetricExporter, SdkMeterProvider};
use redial_grpc::{Gauge, Metric as CallMetric, RetryLayer};

fn line<'a>(
    measure: CallMetric,
    attributes: impl Iterator<Item = &'a KeyValue>,
    count: u64,
    sum: f64,
) -> Told {
    let labels: Vec<(&str, Cow<'_, str>)> =
        attributes.map(|label| (label.key.as_str(), label.value.as_str())).collect();
    let labels = labels.iter().map(|(key, value)| (*key, &**value));
    Told::new(measure.name(), measure.unit(), labels, count, sum)
}

fn sums(measure: CallMetric, sum: &Sum<u64>) -> Vec<Told> {
    assert!(sum.is_monotonic());
    sum.data_points()
        .map(|point| line(measure, point.attributes(), point.value(), point.value() as f64))
        .collect()
}

fn histograms<T: Copy>(measure: CallMetric, data: &Histogram<T>, f64: fn(T) -> f64) -> Vec<Told> {
    data.data_points()
        .map(|point| {
            assert!(point.bounds().eq(measure.buckets().iter().copied()), "{measure:?}");
            line(measure, point.attributes(), point.count(), f64(point.sum()))
        })
        .collect()
}

fn of(metric: &Metric) -> Vec<Told> {
    let measure = CallMetric::ALL.into_iter().find(|it| it.name() == metric.name()).unwrap();
    assert_eq!((metric.unit(), metric.description()), (measure.unit(), measure.description()));
    match metric.data() {
        AggregatedMetrics::U64(MetricData::Sum(sum)) => sums(measure, sum),
        AggregatedMetrics::U64(MetricData::Histogram(data)) => {
            histograms(measure, data, |number| number as f64)
        }
        AggregatedMetrics::F64(MetricData::Histogram(data)) => {
            histograms(measure, data, |seconds| seconds)
        }
        _ => panic!("{measure:?} is of another kind"),
    }
}

#[tokio::test(start_paused = true)]
async fn every_kind_of_call_is_told_to_the_meter() {
    for play in Play::ALL {
        let exporter = InMemoryMetricExporter::default();
        let provider = SdkMeterProvider::builder().with_periodic_exporter(exporter.clone()).build();
        play.play(RetryLayer::builder().meter(&provider.meter("test"))).await;
        provider.force_flush().unwrap();
        let exported = exporter.get_finished_metrics().unwrap();
        let scopes = exported.iter().flat_map(ResourceMetrics::scope_metrics);
        let is_measure = |metric: &&Metric| Gauge::ALL.iter().all(|it| it.name() != metric.name());
        let metrics = scopes.flat_map(ScopeMetrics::metrics).filter(is_measure);
        let mut told: Vec<_> = metrics.flat_map(of).collect();
        told.sort();
        assert_eq!(told, play.told(), "{play:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_global_meter_is_left_alone() {
    let exporter = InMemoryMetricExporter::default();
    let provider = SdkMeterProvider::builder().with_periodic_exporter(exporter.clone()).build();
    opentelemetry::global::set_meter_provider(provider.clone());
    Play::Retried.play(RetryLayer::builder()).await;
    provider.force_flush().unwrap();
    let exported = exporter.get_finished_metrics().unwrap();
    assert!(exported.iter().all(|resource| resource.scope_metrics().count() == 0));
}
