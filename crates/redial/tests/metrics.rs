//! Metrics for the `metrics` facade. A local recorder collects what the calls of one test record; they run on
//! virtual time.
#![cfg(feature = "metrics")]

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use metrics::with_local_recorder;
use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use redial::metrics::{Metric, enable};
use redial::testing::{Clock, block_on};
use redial::throttle::RetryBudget;
use redial::{Failure, Hedged, Policy, Reason, Throttle, ms};

/// The value of each metric by `name{label,...}`: counts, gauges, and the values of histograms.
type Recorded = BTreeMap<String, Vec<f64>>;

/// What `run` records.
fn recorded(run: impl FnOnce()) -> Recorded {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    with_local_recorder(&recorder, || {
        enable();
        run();
    });
    let mut all = Recorded::new();
    for (key, _, _, value) in snapshotter.snapshot().into_vec() {
        let labels: Vec<_> = key.key().labels().map(|label| label.value().to_owned()).collect();
        let values = match value {
            DebugValue::Counter(count) => vec![count as f64],
            DebugValue::Gauge(value) => vec![value.into_inner()],
            DebugValue::Histogram(values) => values.into_iter().map(|value| value.0).collect(),
        };
        all.insert(format!("{}{{{}}}", key.key().name(), labels.join(",")), values);
    }
    all
}

fn has(recorded: &Recorded, name: &str, values: &[f64]) {
    assert_eq!(recorded.get(name).map(Vec::as_slice), Some(values), "{name} in {recorded:#?}");
}

#[test]
fn metrics_count_a_success() {
    static FETCH: Policy = Policy::constant(ms(10)).name("success").build();
    let recorded = recorded(|| {
        let call = FETCH.retry(async || Ok::<_, ()>(7)).when(|(): &()| true).sleeping_on(Clock);
        assert_eq!(block_on(call.into_future()).unwrap(), 7);
    });
    has(&recorded, "redial.calls{success,succeeded}", &[1.0]);
    has(&recorded, "redial.attempts{success}", &[1.0]);
    has(&recorded, "redial.call.attempts{success}", &[1.0]);
    has(&recorded, "redial.call.duration{success,succeeded}", &[0.0]);
    has(&recorded, "redial.throttle.tokens{success}", &[10.0]);
    assert!(recorded.keys().all(|name| !name.starts_with("redial.call.backoff")));
}

#[test]
fn metrics_count_retries_by_reason_and_the_stop_reason() {
    static FETCH: Policy = Policy::constant(ms(10)).attempts(3).name("retried").build();
    let failures = [Failure::server(), Failure::server().because(Reason::new("LOCKED"))];
    let recorded = recorded(|| {
        let mut failures = failures.into_iter().cycle();
        let call = FETCH
            .retry(|| std::future::ready(Err::<(), _>(failures.next().unwrap())))
            .when(|failure: &Failure| *failure)
            .sleeping_on(Clock);
        block_on(call.into_future()).unwrap_err();
    });
    has(&recorded, "redial.calls{retried,attempts}", &[1.0]);
    has(&recorded, "redial.attempts{retried}", &[3.0]);
    has(&recorded, "redial.retries{retried,server}", &[1.0]);
    has(&recorded, "redial.retries{retried,LOCKED}", &[1.0]);
    has(&recorded, "redial.call.attempts{retried}", &[3.0]);
    has(&recorded, "redial.call.backoff{retried}", &[0.02]);
    has(&recorded, "redial.call.duration{retried,attempts}", &[0.02]);
}

#[test]
fn metrics_gauge_follows_the_budget() {
    static BUDGET: RetryBudget = RetryBudget::new(2.0, 0.0);
    static FETCH: Policy =
        Policy::immediate().attempts(3).throttle(Throttle::budget(&BUDGET)).name("budget").build();
    let recorded = recorded(|| {
        for _ in 0..2 {
            FETCH.retry(|| Err::<(), _>(())).when(|(): &()| true).call().unwrap_err();
        }
    });
    has(&recorded, "redial.throttle.tokens{budget}", &[0.0]);
    has(&recorded, "redial.calls{budget,attempts}", &[1.0]);
    has(&recorded, "redial.calls{budget,throttled}", &[1.0]);
}

/// A budget refills while no retry asks.
#[test]
fn metrics_gauge_includes_the_refill() {
    static BUDGET: RetryBudget = RetryBudget::new(2.0, 0.0).per_second(1.0);
    static FETCH: Policy =
        Policy::immediate().attempts(3).throttle(Throttle::budget(&BUDGET)).name("refill").build();
    let recorded = recorded(|| {
        let fails = FETCH.retry(async || Err::<(), _>(())).when(|(): &()| true).sleeping_on(Clock);
        let succeeds = FETCH.retry(async || Ok::<_, ()>(7)).when(|(): &()| true).sleeping_on(Clock);
        block_on(async {
            fails.into_future().await.unwrap_err();
            Clock.sleep(ms(1_500)).await;
            succeeds.into_future().await.unwrap();
        });
    });
    has(&recorded, "redial.throttle.tokens{refill}", &[1.5]);
}

/// The budgets of all tenants would share the labels of one gauge.
#[test]
fn metrics_gauge_leaves_out_the_budget_of_a_call() {
    static FETCH: Policy = Policy::constant(ms(10)).name("tenants").build();
    let recorded = recorded(|| {
        let call = FETCH.retry(|| Ok::<_, ()>(7)).when(|(): &()| true);
        call.with_budget(Arc::new(RetryBudget::new(3.0, 0.0))).call().unwrap();
    });
    has(&recorded, "redial.calls{tenants,succeeded}", &[1.0]);
    assert!(!recorded.contains_key("redial.throttle.tokens{tenants}"), "{recorded:#?}");
}

/// The budgets of all hosts would share the labels of one gauge.
#[test]
fn metrics_gauge_leaves_out_policies_that_share_a_name() {
    static FETCH: Policy = Policy::constant(ms(10)).name("hosts").build();
    let recorded = recorded(|| {
        for tokens in [3.0, 5.0] {
            let host = FETCH.with_budget(Arc::new(RetryBudget::new(tokens, 0.0)));
            host.retry(|| Ok::<_, ()>(7)).when(|(): &()| true).call().unwrap();
            let named = host.with_name(format!("host with {tokens}"));
            named.retry(|| Ok::<_, ()>(7)).when(|(): &()| true).call().unwrap();
        }
    });
    has(&recorded, "redial.calls{hosts,succeeded}", &[2.0]);
    assert!(!recorded.contains_key("redial.throttle.tokens{hosts}"), "{recorded:#?}");
    has(&recorded, "redial.throttle.tokens{host with 3}", &[3.0]);
    has(&recorded, "redial.throttle.tokens{host with 5}", &[5.0]);
}

#[test]
fn metrics_count_hedges_as_attempts() {
    static READ: Hedged = Policy::hedged(ms(10)).attempts(2).name("hedged").build();
    let recorded = recorded(|| {
        let call = READ
            .retry(async || {
                Clock.sleep(ms(30)).await;
                Ok::<_, ()>(7)
            })
            .when(|(): &()| true)
            .sleeping_on(Clock);
        block_on(call.into_future()).unwrap();
    });
    has(&recorded, "redial.attempts{hedged}", &[2.0]);
    has(&recorded, "redial.call.duration{hedged,succeeded}", &[0.03]);
}

#[test]
fn metrics_count_a_dropped_call_as_cancelled() {
    static WAIT: Policy = Policy::constant(ms(10)).name("dropped").build();
    let recorded = recorded(|| {
        let call = WAIT
            .retry(std::future::pending::<Result<(), ()>>)
            .when(|(): &()| true)
            .sleeping_on(Clock);
        let mut call = pin!(call.into_future());
        assert!(call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    });
    has(&recorded, "redial.calls{dropped,cancelled}", &[1.0]);
}

#[test]
fn metrics_label_calls_without_a_policy_by_their_place() {
    let recorded = recorded(|| {
        redial::retry(|| Ok::<_, ()>(7)).when(|(): &()| true).call().unwrap();
    });
    let name = recorded.keys().find(|name| name.starts_with("redial.calls")).unwrap();
    assert!(name.contains("tests/metrics.rs:"), "{name}");
}

#[test]
fn metrics_are_described_with_their_units() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    static FETCH: Policy = Policy::constant(ms(10)).name("described").build();
    with_local_recorder(&recorder, || {
        enable();
        FETCH.retry(|| Ok::<_, ()>(7)).when(|(): &()| true).call().unwrap();
    });
    for (key, unit, text, _) in snapshotter.snapshot().into_vec() {
        let metric = Metric::ALL.into_iter().find(|metric| metric.name() == key.key().name());
        let metric = metric.expect("a documented name");
        assert_eq!(unit.is_some_and(|unit| unit == metrics::Unit::Seconds), metric.unit() == "s");
        assert_eq!(text.as_deref(), Some(metric.description()));
    }
}

#[cfg(all(feature = "tower", feature = "tokio"))]
#[test]
fn metrics_count_requests_of_the_tower_layer() {
    use tower::{Layer, Service, service_fn};

    static SEND: Policy = Policy::constant(ms(10)).attempts(2).name("tower").build();
    let recorded = recorded(|| {
        let inner = service_fn(|_: u32| async { Err::<u32, _>(()) });
        let layer = redial::tower::RetryLayer::new(&SEND).when(|(): &()| true).sleeping_on(Clock);
        block_on(layer.layer(inner).call(1)).unwrap_err();
    });
    has(&recorded, "redial.calls{tower,attempts}", &[1.0]);
    has(&recorded, "redial.retries{tower,server}", &[1.0]);
}
