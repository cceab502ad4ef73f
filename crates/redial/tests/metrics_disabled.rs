//! Metrics that were not enabled: a process of its own, because they are enabled for a whole process.
#![cfg(feature = "metrics")]

use metrics::with_local_recorder;
use metrics_util::debugging::DebuggingRecorder;
use redial::Policy;

#[test]
fn metrics_are_not_recorded_before_they_are_enabled() {
    static FETCH: Policy = Policy::immediate().attempts(2).build();
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    with_local_recorder(&recorder, || {
        FETCH.retry(|| Err::<(), _>(())).when(|(): &()| true).call().unwrap_err();
    });
    assert!(snapshotter.snapshot().into_vec().is_empty());
}
