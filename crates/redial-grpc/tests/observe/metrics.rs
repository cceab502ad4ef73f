//! Goal: the `metrics` facade is told what A66 and A96 want, and nothing without being asked.
//! Method: real calls over a pipe on a paused clock, and a recorder that is this thread's own.

use super::plays::Play;
use super::told::Told;
use crate::common::{echo, retry_config};
use metrics::Unit;
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use redial_echo::EchoRequest;
use redial_grpc::{Gauge, Metric, RetryLayer, ServiceConfig};

fn told(snapshotter: &Snapshotter) -> Vec<Told> {
    let mut told: Vec<_> = snapshotter
        .snapshot()
        .into_vec()
        .into_iter()
        .filter(|(key, ..)| Gauge::ALL.iter().all(|gauge| gauge.name() != key.key().name()))
        .map(|(key, unit, description, value)| {
            let key = key.key();
            let measure = Metric::ALL.into_iter().find(|it| it.name() == key.name()).unwrap();
            let described = match measure.unit() {
                "s" => Unit::Seconds,
                "By" => Unit::Bytes,
                _ => Unit::Count,
            };
            assert_eq!((unit, description), (Some(described), Some(measure.description().into())));
            let (count, sum) = match value {
                DebugValue::Counter(number) => (number, number as f64),
                DebugValue::Histogram(values) => {
                    (values.len() as u64, values.iter().map(|value| value.0).sum())
                }
                DebugValue::Gauge(_) => panic!("{} is a gauge", key.name()),
            };
            let labels = key.labels().map(|label| (label.key(), label.value()));
            Told::new(key.name(), measure.unit(), labels, count, sum)
        })
        .collect();
    told.sort();
    told
}

#[tokio::test(start_paused = true)]
async fn every_kind_of_call_is_told_to_the_facade() {
    for play in Play::ALL {
        let recorder = DebuggingRecorder::new();
        let _guard = metrics::set_default_local_recorder(&recorder);
        play.play(RetryLayer::builder().metrics()).await;
        assert_eq!(told(&recorder.snapshotter()), play.told(), "{play:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_told_unless_the_layer_was_asked_to() {
    let recorder = DebuggingRecorder::new();
    let _guard = metrics::set_default_local_recorder(&recorder);
    for play in Play::ALL {
        play.play(RetryLayer::builder()).await;
    }
    assert!(recorder.snapshotter().snapshot().into_vec().is_empty());
}

#[tokio::test(start_paused = true)]
async fn without_a_name_there_is_no_target() {
    let recorder = DebuggingRecorder::new();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let config = ServiceConfig::parse(&retry_config(2)).unwrap();
    let layer = RetryLayer::builder().config(config).metrics().build();
    echo(&layer).unary(EchoRequest::default()).await.unwrap();
    let all = recorder.snapshotter().snapshot().into_vec();
    assert_eq!(all.len(), 6, "five measures, and the gauge of buffered bytes");
    for (key, ..) in all {
        let labels: Vec<_> = key.key().labels().map(metrics::Label::key).collect();
        assert!(!labels.contains(&"grpc.target"), "{labels:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn messages_of_streams_are_summed_without_their_prefixes() {
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
