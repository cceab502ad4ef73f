//! Delays: the backoff's and the server's.

use redial_core::StopReason;
use redial_faults::grpc::{Answer, Server, StatusNumber as Said};
use redial_grpc::Jitter;
use tonic::Code;

use super::retrying;
use crate::suites::rig::*;

fn six_attempts(script: Vec<Answer>) -> Rig {
    rig_of(exact(&retrying()).attempts_cap(6), Server::new(script))
}

#[tokio::test(start_paused = true)]
async fn exponential_backoff_up_to_the_most_until_attempts_run_out() {
    let (one, two) = (|| fails(Said::UNAVAILABLE), || fails(Said::DATA_LOSS));
    let rig = six_attempts(vec![one(), two(), one(), two(), two(), one()]);
    let (heard, stop_reason) = rig.told("x").await;
    assert_eq!(
        (heard.code, heard.previous, stop_reason),
        (Code::Unavailable, Some(5), StopReason::AttemptsExhausted)
    );
    let delays = [0, 100, 300, 700, 1400, 2100].map(|s| s * 1000);
    assert_eq!(starts(&rig.finish().await), delays);
}

#[tokio::test(start_paused = true)]
async fn exponential_backoff_draws_from_the_range_that_the_client_chose() {
    let bases = [100_000, 200_000, 400_000, 700_000, 700_000];
    // The seed's range is ours by default; theirs draws from the other one today (G1).
    for (jitter, least, most) in [(Jitter::Full, 0.0, 1.0), (Jitter::Proportional(0.2), 0.8, 1.2)] {
        let layer = exact(&retrying()).jitter(jitter).attempts_cap(6);
        let rig = rig_of(layer, Server::new(vec![fails(Said::UNAVAILABLE); 6]));
        assert_eq!(rig.unary("x").await.code, Code::Unavailable);
        let starts = starts(&rig.finish().await);
        for (pair, base) in starts.windows(2).zip(bases) {
            let share = (pair[1] - pair[0]) as f64 / f64::from(base);
            // The clock's own step.
            let step = 1.0 / f64::from(base);
            assert!(share >= least && share <= most + step, "{jitter:?}: {starts:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn pushback_is_waited_for_exactly_and_the_backoff_starts_anew() {
    let busy = || fails(Said::UNAVAILABLE);
    let rig = six_attempts(vec![
        busy().pushback("123"),
        fails(Said::DATA_LOSS).pushback("4567000"),
        busy(),
        busy(),
        busy(),
        busy().pushback("4567000"),
    ]);
    let (heard, stop_reason) = rig.told("x").await;
    assert_eq!((heard.code, stop_reason), (Code::Unavailable, StopReason::AttemptsExhausted));
    let expected = [0, 123, 4_567_123, 4_667_123, 4_867_123, 5_267_123];
    assert_eq!(starts(&rig.finish().await), expected);
}

#[tokio::test(start_paused = true)]
async fn pushback_that_says_nothing_means_no_retry() {
    let rig = rig(&retrying(), fails(Said::UNAVAILABLE).pushback(""));
    let (heard, stop_reason) = rig.told("x").await;
    assert_eq!((heard.code, stop_reason), (Code::Unavailable, StopReason::ServerRefused));
    rig.finish().await;
}
