//! Hedged calls with a latency estimator: the hedge delay, and the recorded latencies.

use std::time::Duration;

use redial::{
    CallLog, Event, Failure, Hedged, Policy, StopReason, Throttle,
    hedging::{HedgeAt, HedgeDelay, LatencyEstimate, LatencyEstimator},
    ms,
};

/// The delay of the policy is far from every latency here.
static READ: Hedged = Policy::hedged(ms(500)).attempts(2).throttle(Throttle::none()).build();

/// An estimator that needs four samples.
fn estimator() -> LatencyEstimator {
    LatencyEstimator::new(HedgeAt::quantile(0.9).samples(4).build())
}

/// Runs a call whose attempts have these durations on tokio's paused clock; returns its duration and its
/// call log.
async fn call(estimator: &LatencyEstimator, attempts: &[Duration]) -> (Duration, CallLog) {
    let mut call_log = CallLog::new();
    let mut spans = attempts.iter();
    let began = tokio::time::Instant::now();
    READ.retry(|| {
        let span = *spans.next().expect("so many attempts");
        async move {
            tokio::time::sleep(span).await;
            Ok::<_, Failure>(())
        }
    })
    .when(|failure| Some(*failure))
    .latency_estimator(estimator)
    .call_log(&mut call_log)
    .await
    .expect("all succeed");
    (began.elapsed(), call_log)
}

/// The current hedge delay.
fn delay(estimator: &LatencyEstimator) -> Duration {
    match estimator.delay() {
        Some(HedgeDelay::After(delay)) => Duration::from_nanos(delay),
        other => panic!("{other:?}"),
    }
}

fn hedges(call_log: &CallLog) -> usize {
    let is_hedge =
        |(_, event): &&(u64, Event)| matches!(event, Event::AttemptStarted { attempt: 2, .. });
    call_log.events().iter().filter(is_hedge).count()
}

#[tokio::test(start_paused = true)]
async fn latency_estimator_sets_the_hedge_delay_after_enough_samples() {
    let estimator = estimator();
    for known in 0..4 {
        assert_eq!((estimator.read().samples, estimator.delay()), (known, None));
        let (_, call_log) = call(&estimator, &[ms(20)]).await;
        assert_eq!(hedges(&call_log), 0);
    }
    let around = delay(&estimator);
    assert!((ms(10)..ms(60)).contains(&around), "of four it is no better known: {around:?}");

    let (took, call_log) = call(&estimator, &[ms(400), ms(10)]).await;
    // tokio's timer has a resolution of a millisecond.
    assert!((around + ms(10)..=around + ms(12)).contains(&took), "{took:?} with {around:?}");
    assert_eq!(hedges(&call_log), 1);
    let ns = u64::try_from(around.as_nanos()).expect("it is short");
    assert_eq!(
        call_log.events()[1].1,
        Event::HedgeDelay(HedgeDelay::After(ns)),
        "recorded in the call log"
    );
    assert_eq!(call_log.replay(&READ), Ok(()), "and is replayed with it");
    let LatencyEstimate { samples, win_rate, .. } = estimator.read();
    assert_eq!((samples, win_rate), (5, Some(1.0)));
    assert!(delay(&estimator) > around, "what was slower moves it up");
}

#[tokio::test(start_paused = true)]
async fn latency_estimator_counts_immediate_successes_and_no_failures() {
    let estimator = estimator();
    for _ in 0..4 {
        READ.retry(|| async { Ok::<_, ()>(()) })
            .when(|()| true)
            .latency_estimator(&estimator)
            .await
            .expect("it does");
    }
    assert_eq!((estimator.read().samples, delay(&estimator)), (4, HedgeAt::FLOOR));
    let failed = READ
        .retry(|| async { Err::<(), _>(()) })
        .when(|()| true)
        .latency_estimator(&estimator)
        .await;
    assert_eq!(failed.expect_err("both fail").stop_reason(), StopReason::AttemptsExhausted);
    assert_eq!(estimator.read().samples, 4);
}

#[tokio::test(start_paused = true)]
async fn latency_estimator_stops_hedges_that_never_win() {
    let estimator = estimator();
    for _ in 0..4 {
        call(&estimator, &[ms(5)]).await;
    }
    // All attempts are equally slow, so hedges do not win.
    let mut sent = 0;
    for round in 0..200 {
        let slow = if round % 8 == 0 { ms(100) } else { ms(5) };
        sent += hedges(&call(&estimator, &[slow, slow]).await.1);
    }
    let reading = estimator.read();
    assert!(reading.is_stopped, "{reading:?}");
    assert!(sent < 40, "{sent} hedges");
    if reading.delay != Some(HedgeDelay::Never) {
        // The next hedge would be a probe; if it loses, no hedge follows.
        call(&estimator, &[ms(100), ms(100)]).await;
    }
    assert_eq!(estimator.delay(), Some(HedgeDelay::Never));
    let (took, call_log) = call(&estimator, &[ms(3000)]).await;
    assert_eq!((took, hedges(&call_log)), (ms(3000), 0), "no hedge on a timer");
    let mut attempts = 0;
    let began = tokio::time::Instant::now();
    let again = READ
        .retry(|| {
            attempts += 1;
            let fails = attempts == 1;
            async move { if fails { Err(()) } else { Ok(()) } }
        })
        .when(|()| true)
        .latency_estimator(&estimator);
    again.await.expect("the second succeeds");
    assert_eq!((attempts, began.elapsed()), (2, Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn latency_estimator_counts_a_deadline_as_slow() {
    let estimator = estimator();
    for _ in 0..4 {
        call(&estimator, &[ms(20)]).await;
    }
    let before = delay(&estimator);
    let hangs = READ.retry(std::future::pending::<Result<(), ()>>).when(|()| true);
    let late = hangs
        .latency_estimator(&estimator)
        .deadline(ms(200))
        .await
        .expect_err("no attempt succeeds");
    assert_eq!((late.stop_reason(), late.attempts()), (StopReason::Deadline, 2));
    let reading = estimator.read();
    assert_eq!((reading.samples, reading.win_rate), (5, Some(0.0)));
    assert!(delay(&estimator) > before);
}
