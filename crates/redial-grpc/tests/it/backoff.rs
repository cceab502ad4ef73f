//! Backoff: exponential growth, jitter and very short delays.

use redial::StopReason;
use redial_faults::grpc::{Answer, Script, Server, StatusNumber};
use redial_grpc::Jitter;
use tonic::Code;

use crate::common::harness::{Harness, busy};
use crate::common::streaming::{
    StreamingHarness, fails, harness_with, six_attempts_config, starts, without_jitter,
};

fn six_attempts(script: Vec<Answer>) -> StreamingHarness {
    harness_with(without_jitter(&six_attempts_config()).attempts_cap(6), Server::new(script))
}

// Peer test: grpc-java: expBackoff_maxBackoff_maxRetryAttempts.
#[tokio::test(start_paused = true)]
async fn backoff_grows_exponentially_up_to_max_backoff() {
    let (one, two) = (|| fails(StatusNumber::UNAVAILABLE), || fails(StatusNumber::DATA_LOSS));
    let harness = six_attempts(vec![one(), two(), one(), two(), two(), one()]);
    let (outcome, stop_reason) = harness.unary_with_stop_reason("x").await;
    assert_eq!(
        (outcome.code, outcome.previous, stop_reason),
        (Code::Unavailable, Some(5), StopReason::AttemptsExhausted)
    );
    let delays = [0, 100, 300, 700, 1400, 2100].map(|s| s * 1000);
    assert_eq!(starts(&harness.finish().await), delays);
}

// Peer test: grpc-java: expBackoff_maxBackoff_maxRetryAttempts.
#[tokio::test(start_paused = true)]
async fn backoff_jitter_stays_in_the_configured_range() {
    let bases = [100_000, 200_000, 400_000, 700_000, 700_000];
    // The first range is our default; grpc-java uses the second one (G1).
    for (jitter, least, most) in [(Jitter::Full, 0.0, 1.0), (Jitter::Proportional(0.2), 0.8, 1.2)] {
        let layer = without_jitter(&six_attempts_config()).jitter(jitter).attempts_cap(6);
        let harness = harness_with(layer, Server::new(vec![fails(StatusNumber::UNAVAILABLE); 6]));
        assert_eq!(harness.unary("x").await.code, Code::Unavailable);
        let starts = starts(&harness.finish().await);
        for (pair, base) in starts.windows(2).zip(bases) {
            let share = (pair[1] - pair[0]) as f64 / f64::from(base);
            // The resolution of the clock.
            let step = 1.0 / f64::from(base);
            assert!(share >= least && share <= most + step, "{jitter:?}: {starts:?}");
        }
    }
}

/// C-core: grpc#41036, backoffs of a millisecond hang because a timer that fired counts as cancelled.
#[tokio::test(start_paused = true)]
async fn backoff_below_a_millisecond_does_not_hang() {
    let policy = r#""retryPolicy": { "maxAttempts": 5, "initialBackoff": "0.0002s",
        "maxBackoff": "0.001s", "backoffMultiplier": 2, "retryableStatusCodes": ["UNAVAILABLE"] }"#;
    let script = Script::new().attempts(vec![busy(); 4]).default_answer(Answer::echo());
    let mut harness = Harness::new(policy, script);
    let outcome = harness.call().await;
    // Each delay is between 0.1 and 0.5 ms; the resolution of the timer is 1 ms.
    assert_eq!((outcome.code(), outcome.starts()), (Code::Ok, vec![0, 1, 2, 3, 4]));
}
