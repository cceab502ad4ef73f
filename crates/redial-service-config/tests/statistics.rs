//! Retry statistics (decision G31): calls run on virtual time, their events are counted, and every retry
//! number is assigned to its histogram bucket.

use std::thread;

use redial::testing::{AttemptOutcome, Played, Script, classified_as, hangs, play};
use redial::{classify::Classification, ms};
use redial_service_config::{
    AttemptTimeout, BUCKETS, ClientOptions, Code, CountedRetry, Plan, Pushback, ServiceConfig,
    Statistics, StatisticsCounters, StatisticsRecorder,
};

fn plan(policy: &str) -> Plan {
    let text = format!(r#"{{"methodConfig": [{{"name": [{{}}], {policy}}}]}}"#);
    let config = ServiceConfig::parse(&text).expect("it is valid");
    ClientOptions::default().plan(config.method("/a.B/C"))
}

fn retry() -> Plan {
    plan(
        r#""retryPolicy": {"maxAttempts": 3, "initialBackoff": "0.1s", "maxBackoff": "1s", "backoffMultiplier": 2, "retryableStatusCodes": [14]}"#,
    )
}

fn hedge() -> Plan {
    plan(
        r#""hedgingPolicy": {"maxAttempts": 3, "hedgingDelay": "0s", "nonFatalStatusCodes": [14]}"#,
    )
}

fn count(played: &Played) -> Statistics {
    let counters = StatisticsCounters::default();
    let mut recorder = StatisticsRecorder::default();
    for (_, event) in played.call_log().events() {
        recorder.record(event, |counted| counters.add(counted));
    }
    counters.read()
}

/// Retries, failed, the first three buckets, transparent.
fn counts(played: &Played) -> (u64, u64, [u64; 3], u64) {
    let Statistics { retries, failed, histogram, transparent, .. } = count(played);
    assert_eq!(histogram[3..], [0; 5]);
    (retries, failed, [histogram[0], histogram[1], histogram[2]], transparent)
}

fn status(plan: &Plan, code: Code) -> AttemptOutcome {
    classified_as(plan.classify(code, Pushback::None))
}

#[test]
fn statistics_attempt_timeout_of_retry_counts_as_failure() {
    let timeout = AttemptTimeout::after(ms(5));
    let plan = retry().with_attempt_timeout(timeout);
    let of = |attempts: Vec<AttemptOutcome>| counts(&play(&plan.to_policy(None), attempts));
    let busy = status(&plan, Code::Unavailable);
    assert_eq!(of(vec![hangs()]), (0, 0, [0, 0, 0], 0), "the first attempt is not a retry");
    assert_eq!(of(vec![busy, hangs()]), (1, 1, [1, 0, 0], 0));
}

#[test]
fn statistics_count_retries_at_start_and_failures_at_end() {
    let plan = retry();
    let (ok, busy, bad) =
        (status(&plan, Code::Ok), status(&plan, Code::Unavailable), status(&plan, Code::Internal));
    let of = |attempts: Vec<AttemptOutcome>| counts(&play(&plan.to_policy(None), attempts));
    assert_eq!(of(vec![ok]), (0, 0, [0, 0, 0], 0));
    assert_eq!(of(vec![bad]), (0, 0, [0, 0, 0], 0), "the first attempt is not a retry");
    assert_eq!(of(vec![busy, ok]), (1, 0, [1, 0, 0], 0));
    assert_eq!(of(vec![busy, busy, ok]), (2, 1, [1, 1, 0], 0));
    assert_eq!(of(vec![busy, busy, busy]), (2, 2, [1, 1, 0], 0));
    assert_eq!(of(vec![busy, bad]), (1, 1, [1, 0, 0], 0), "fatal is not OK either");
    let committed = busy.after(ms(5)).headers(ms(1));
    assert_eq!(of(vec![busy, committed]), (1, 1, [1, 0, 0], 0));
}

#[test]
fn statistics_do_not_count_cancelled_attempts_as_failed() {
    let plan = hedge();
    let (ok, busy) = (status(&plan, Code::Ok), status(&plan, Code::Unavailable));
    let policy = plan.to_policy(None);
    let won = play(&policy, [hangs(), ok.after(ms(5)), hangs()]);
    assert_eq!(counts(&won), (2, 0, [1, 1, 0], 0));
    let one_failed = play(&policy, [ok.after(ms(9)), busy.after(ms(5)), hangs()]);
    assert_eq!(counts(&one_failed), (2, 1, [1, 1, 0], 0));
    let late = Script::new(&policy, [hangs(), hangs(), hangs()]).deadline(ms(5)).play();
    assert_eq!(counts(&late), (2, 0, [1, 1, 0], 0));
    let dropped = Script::new(&policy, [hangs(), busy, hangs()]).cancel(ms(5)).play();
    assert_eq!(counts(&dropped), (2, 1, [1, 1, 0], 0), "earlier failures count");
}

#[test]
fn statistics_count_transparent_retries_separately() {
    let plan = retry();
    let (ok, busy) = (status(&plan, Code::Ok), status(&plan, Code::Unavailable));
    let lost = |classification: Classification| classified_as(classification);
    let (unprocessed, unsent) = (lost(plan.unprocessed()), lost(plan.unsent()));
    let of = |attempts: Vec<AttemptOutcome>| counts(&play(&plan.to_policy(None), attempts));
    assert_eq!(of(vec![unprocessed, ok]), (0, 0, [0, 0, 0], 1));
    assert_eq!(of(vec![unprocessed, busy, ok]), (1, 0, [1, 0, 0], 1), "number 1 failed");
    assert_eq!(of(vec![busy, unprocessed, ok]), (1, 0, [1, 0, 0], 1));
    assert_eq!(of(vec![busy, unprocessed, busy, ok]), (2, 1, [1, 1, 0], 1));
    assert_eq!(of(vec![busy, unsent, unsent, unsent, busy, busy]), (2, 2, [1, 1, 0], 3));
    // The second unprocessed attempt is not retried transparently: it failed.
    assert_eq!(of(vec![busy, unprocessed, unprocessed, ok]), (2, 1, [1, 1, 0], 1));
    let hedged = hedge();
    let (ok, unprocessed) = (status(&hedged, Code::Ok), lost(hedged.unprocessed()));
    let both = play(&hedged.to_policy(None), [unprocessed, unprocessed, hangs(), ok.after(ms(5))]);
    assert_eq!(counts(&both), (2, 1, [1, 1, 0], 1));
}

#[test]
fn statistics_histogram_uses_last_reached_bucket() {
    let bucket = |nth: u32| {
        let counters = StatisticsCounters::default();
        counters.add(CountedRetry::Retry(nth));
        let Statistics { retries, histogram, .. } = counters.read();
        assert_eq!((retries, histogram.iter().sum::<u64>()), (1, 1), "{nth}");
        BUCKETS[histogram.iter().position(|count| *count == 1).expect("it is somewhere")]
    };
    for nth in 1..=2000 {
        let expected = BUCKETS.into_iter().rev().find(|least| *least <= nth);
        assert_eq!(Some(bucket(nth)), expected);
    }
    assert_eq!((bucket(u32::MAX), bucket(0)), (1000, 1));
}

#[test]
fn statistics_count_calls_of_many_threads() {
    let counters = StatisticsCounters::default();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for nth in 1..=1000 {
                    counters.add(CountedRetry::Retry(nth));
                    counters.add(CountedRetry::Failed);
                    counters.add(CountedRetry::Transparent);
                }
            });
        }
    });
    let Statistics { retries, failed, histogram, transparent, .. } = counters.read();
    assert_eq!((retries, failed, transparent), (4000, 4000, 4000));
    assert_eq!(histogram, [4, 4, 4, 4, 20, 360, 3600, 4]);
}
