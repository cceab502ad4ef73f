//! The `metrics` facade.

use super::expected::MetricValue;
use crate::common::sample_calls::SampleCall;
use crate::common::{echo, retry_config};
use metrics::Unit;
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use redial_echo::EchoRequest;
use redial_grpc::{Gauge, Metric, RetryLayer, ServiceConfig};

fn values(snapshotter: &Snapshotter) -> Vec<MetricValue> {
    let mut values: Vec<_> = snapshotter
        .snapshot()
        .into_vec()
        .into_iter()
        .filter(|(key, ..)| Gauge::ALL.iter().all(|gauge| gauge.name() != key.key().name()))
        .map(|(key, unit, description, value)| {
            let key = key.key();
            let metric_kind = Metric::ALL.into_iter().find(|it| it.name() == key.name()).unwrap();
            let described = match metric_kind.unit() {
                "s" => Unit::Seconds,
                "By" => Unit::Bytes,
                _ => Unit::Count,
            };
            assert_eq!(
                (unit, description),
                (Some(described), Some(metric_kind.description().into()))
            );
            let (count, sum) = match value {
                DebugValue::Counter(number) => (number, number as f64),
                DebugValue::Histogram(values) => {
                    (values.len() as u64, values.iter().map(|value| value.0).sum())
                }
                DebugValue::Gauge(_) => panic!("{} is a gauge", key.name()),
            };
            let labels = key.labels().map(|label| (label.key(), label.value()));
            MetricValue::new(key.name(), metric_kind.unit(), labels, count, sum)
        })
        .collect();
    values.sort();
    values
}

#[tokio::test(start_paused = true)]
async fn metrics_facade_gets_every_kind_of_call() {
    for sample in SampleCall::ALL {
        let recorder = DebuggingRecorder::new();
        let _guard = metrics::set_default_local_recorder(&recorder);
        sample.make(RetryLayer::builder().metrics()).await;
        assert_eq!(values(&recorder.snapshotter()), sample.expected_metrics(), "{sample:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn metrics_are_off_by_default() {
    let recorder = DebuggingRecorder::new();
    let _guard = metrics::set_default_local_recorder(&recorder);
    for sample in SampleCall::ALL {
        sample.make(RetryLayer::builder()).await;
    }
    assert!(recorder.snapshotter().snapshot().into_vec().is_empty());
}

#[tokio::test(start_paused = true)]
async fn metrics_without_server_name_have_no_target() {
    let recorder = DebuggingRecorder::new();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let config = ServiceConfig::parse(&retry_config(2)).unwrap();
    let layer = RetryLayer::builder().config(config).metrics().build();
    echo(&layer).unary(EchoRequest::default()).await.unwrap();
    let all = recorder.snapshotter().snapshot().into_vec();
    assert_eq!(all.len(), 6, "five metrics, and the gauge of buffered bytes");
    for (key, ..) in all {
        let labels: Vec<_> = key.key().labels().map(metrics::Label::key).collect();
        assert!(!labels.contains(&"grpc.target"), "{labels:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn metrics_message_sizes_exclude_the_prefix() {
    use prost::Message;
    use redial_echo::EchoResponse;

    let recorder = DebuggingRecorder::new();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let config = ServiceConfig::parse(&retry_config(2)).unwrap();
    let layer = RetryLayer::builder().config(config).metrics().build();
    let request = EchoRequest { payload: vec![7; 70_000].into(), ..EchoRequest::default() };
    let sent = 3 * request.encoded_len();
    let requests = tokio_stream::iter(vec![request; 3]);
    let mut answers = echo(&layer).bidi(requests).await.unwrap().into_inner();
    let mut received = 0;
    while let Some(answer) = answers.message().await.unwrap() {
        received += EchoResponse::encoded_len(&answer);
    }
    assert!(received > 3 * 70_000);
    let mut seen = Vec::new();
    for (key, _, _, value) in recorder.snapshotter().snapshot().into_vec() {
        if let ("message_size", DebugValue::Histogram(values)) =
            (key.key().name().rsplit_once("compressed_").unwrap_or_default().1, value)
        {
            assert_eq!(values.len(), 1);
            seen.push((key.key().name().contains("sent"), values[0].0 as usize));
        }
    }
    seen.sort_unstable();
    assert_eq!(seen, [(false, received), (true, sent)]);
}
