//! Gauges show the current tokens and buffered bytes of a layer, through the Prometheus and the
//! OpenTelemetry exporter.

use std::time::Duration;

use crate::common::sample_calls::SampleCall;
use crate::common::{echo, retry_config};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
use opentelemetry::metrics::MeterProvider as _;
use opentelemetry_sdk::metrics::data::{
    AggregatedMetrics, GaugeDataPoint, MetricData, ResourceMetrics, ScopeMetrics,
};
use opentelemetry_sdk::metrics::{InMemoryMetricExporter, SdkMeterProvider};
use redial_echo::EchoRequest;
use redial_grpc::{Gauge, Metric, RetryLayer, RetryLayerBuilder, ServiceConfig};

fn throttled(server: &str) -> RetryLayerBuilder {
    let throttling = r#"{ "retryThrottling": { "maxTokens": 10, "tokenRatio": 0.5 },"#;
    let config = ServiceConfig::parse(&retry_config(4).replacen('{', throttling, 1)).unwrap();
    RetryLayer::builder().config(config).for_server(server)
}

fn failing(failures: u32) -> EchoRequest {
    EchoRequest { failures, delay_ms: 50, payload: vec![7; 100].into(), ..EchoRequest::default() }
}

#[tokio::test(start_paused = true)]
async fn metrics_gauges_and_buckets_reach_prometheus() {
    // As in the guide: without buckets the exporter turns histograms into summaries.
    let buckets = Metric::ALL.into_iter().filter(|metric_kind| !metric_kind.buckets().is_empty());
    let builder = buckets.fold(PrometheusBuilder::new(), |builder, metric_kind| {
        let matcher = Matcher::Full(metric_kind.name().to_owned());
        builder.set_buckets_for_metric(matcher, metric_kind.buckets()).unwrap()
    });
    let recorder = builder.build_recorder();
    let handle = recorder.handle();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let layer = throttled("gauges-prometheus").metrics().build();
    let mut client = echo(&layer);
    client.unary(failing(2)).await.unwrap();
    let text = handle.render();
    let has = |line: &str| text.lines().any(|other| other == line);
    assert!(has(r#"redial_grpc_throttle_tokens{grpc_target="gauges-prometheus"} 8.5"#), "{text}");
    assert!(has(r#"redial_grpc_buffered_bytes{grpc_target="gauges-prometheus"} 0"#), "{text}");
    assert!(has("# TYPE grpc_client_call_duration histogram"), "{text}");
    assert!(text.contains(r#"grpc_client_call_duration_bucket{"#), "{text}");
    assert!(!text.contains("redial_grpc_backends"), "a plain channel has no backends: {text}");
}

/// A failed or cancelled call has freed its request before it sets the gauges.
#[tokio::test(start_paused = true)]
async fn metrics_gauges_are_set_after_the_buffer_is_freed() {
    for (failures, dropped) in [(9, false), (0, true)] {
        let recorder = PrometheusBuilder::new().build_recorder();
        let _guard = metrics::set_default_local_recorder(&recorder);
        let layer = throttled(&format!("gauges-released-{dropped}")).metrics().build();
        let mut client = echo(&layer);
        let call = client.unary(failing(failures));
        let ended =
            tokio::time::timeout(Duration::from_millis(if dropped { 10 } else { 9000 }), call);
        assert_eq!(ended.await.is_err(), dropped);
        let text = recorder.handle().render();
        let line = text.lines().find(|line| line.starts_with("redial_grpc_buffered_bytes{"));
        assert!(line.is_some_and(|line| line.ends_with(" 0")), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn metrics_gauges_are_read_by_opentelemetry_until_layer_drops() {
    let exporter = InMemoryMetricExporter::default();
    let provider = SdkMeterProvider::builder().with_periodic_exporter(exporter.clone()).build();
    let read = |name: &str| {
        exporter.reset();
        provider.force_flush().unwrap();
        let exported = exporter.get_finished_metrics().unwrap();
        let scopes = exported.iter().flat_map(ResourceMetrics::scope_metrics);
        let metrics = scopes.flat_map(ScopeMetrics::metrics).filter(|it| it.name() == name);
        let values = metrics.flat_map(|metric| match metric.data() {
            AggregatedMetrics::F64(MetricData::Gauge(gauge)) => {
                gauge.data_points().map(GaugeDataPoint::value).collect::<Vec<_>>()
            }
            _ => panic!("{name} is not a gauge"),
        });
        values.collect::<Vec<_>>()
    };
    let layer = throttled("gauges-opentelemetry").meter(&provider.meter("test")).build();
    let mut client = echo(&layer);
    let call = tokio::spawn(async move { client.unary(failing(9)).await });
    tokio::time::sleep(Duration::from_millis(10)).await;
    // The payload of 100 bytes, the other fields and the prefix of the message.
    assert!(read(Gauge::BufferedBytes.name())[0] > 100.0);
    assert_eq!(read(Gauge::ThrottleTokens.name()), [10.0]);
    call.await.unwrap().unwrap_err();
    assert_eq!(read(Gauge::ThrottleTokens.name()), [6.0]);
    layer.control().refill_tokens();
    assert_eq!(read(Gauge::ThrottleTokens.name()), [10.0]);
    assert_eq!(read(Gauge::BufferedBytes.name()), [0.0]);
    drop(layer);
    assert!(read(Gauge::ThrottleTokens.name()).is_empty(), "the layer is gone");
}

#[tokio::test(start_paused = true)]
async fn metrics_gauges_are_off_by_default() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let _guard = metrics::set_default_local_recorder(&recorder);
    SampleCall::Retried.make(RetryLayer::builder()).await;
    assert_eq!(recorder.handle().render(), "");
}
