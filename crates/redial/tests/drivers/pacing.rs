//! Hedged calls with a pace: when their hedges follow, and what the pace hears of them.

use std::time::Duration;

use redial::{
    Diary, Failure, HedgeAt, HedgeDelay, Hedged, Note, Pace, PaceReading, Policy, Throttle, Why, ms,
};

/// The policy's own delay is far from every latency here.
static READ: Hedged = Policy::hedged(ms(500)).attempts(2).throttle(Throttle::none()).checked();

/// A pace that needs four latencies.
fn pace() -> Pace {
    Pace::new(HedgeAt::quantile(0.9).samples(4).checked())
}

/// A call whose attempts take so long, on tokio's paused clock: how long it took, and its diary.
async fn call(pace: &Pace, attempts: &[Duration]) -> (Duration, Diary) {
    let mut diary = Diary::new();
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
    .pace(pace)
    .diary(&mut diary)
    .await
    .expect("all succeed");
    (began.elapsed(), diary)
}

/// The delay of a call that begins now.
fn delay(pace: &Pace) -> Duration {
    match pace.delay() {
        Some(HedgeDelay::After(delay)) => Duration::from_nanos(delay),
        other => panic!("{other:?}"),
    }
}

fn hedges(diary: &Diary) -> usize {
    let is_hedge = |(_, note): &&(u64, Note)| matches!(note, Note::Started { attempt: 2, .. });
    diary.notes().iter().filter(is_hedge).count()
}

/// Red: `hedge: None` in `Engine::begin` waits 500 ms each time; without `lap` no latency is known.
#[tokio::test(start_paused = true)]
async fn hedges_follow_the_latency_of_calls_once_enough_are_known() {
    let pace = pace();
    for known in 0..4 {
        assert_eq!((pace.read().samples, pace.delay()), (known, None));
        let (_, diary) = call(&pace, &[ms(20)]).await;
        assert_eq!(hedges(&diary), 0);
    }
    let around = delay(&pace);
    assert!((ms(10)..ms(60)).contains(&around), "of four it is no better known: {around:?}");

    let (took, diary) = call(&pace, &[ms(400), ms(10)]).await;
    // The timer's own step is a millisecond.
    assert!((around + ms(10)..=around + ms(12)).contains(&took), "{took:?} with {around:?}");
    assert_eq!(hedges(&diary), 1);
    let ns = u64::try_from(around.as_nanos()).expect("it is short");
    assert_eq!(diary.notes()[1].1, Note::Hedging(HedgeDelay::After(ns)), "the diary knows it");
    assert_eq!(diary.replay(&READ), Ok(()), "and is replayed with it");
    let PaceReading { samples, win_rate, .. } = pace.read();
    assert_eq!((samples, win_rate), (5, Some(1.0)));
    assert!(delay(&pace) > around, "what was slower moves it up");
}

#[tokio::test(start_paused = true)]
async fn what_answers_at_once_counts_too_and_failures_do_not() {
    let pace = pace();
    for _ in 0..4 {
        READ.retry(|| async { Ok::<_, ()>(()) })
            .when(|()| true)
            .pace(&pace)
            .await
            .expect("it does");
    }
    assert_eq!((pace.read().samples, delay(&pace)), (4, HedgeAt::FLOOR));
    let failed = READ.retry(|| async { Err::<(), _>(()) }).when(|()| true).pace(&pace).await;
    assert_eq!(failed.expect_err("both fail").why(), Why::Attempts);
    assert_eq!(pace.read().samples, 4);
}

#[tokio::test(start_paused = true)]
async fn where_hedges_never_win_they_stop_and_failures_are_still_answered_at_once() {
    let pace = pace();
    for _ in 0..4 {
        call(&pace, &[ms(5)]).await;
    }
    // All of them are slow in the same moment: a hedge is as slow as what it stands in for.
    let mut sent = 0;
    for round in 0..200 {
        let slow = if round % 8 == 0 { ms(100) } else { ms(5) };
        sent += hedges(&call(&pace, &[slow, slow]).await.1);
    }
    let reading = pace.read();
    assert!(reading.is_stopped, "{reading:?}");
    assert!(sent < 40, "{sent} hedges");
    if reading.delay != Some(HedgeDelay::Never) {
        // The next one would be a probe; once it is lost, none follows.
        call(&pace, &[ms(100), ms(100)]).await;
    }
    assert_eq!(pace.delay(), Some(HedgeDelay::Never));
    let (took, diary) = call(&pace, &[ms(3000)]).await;
    assert_eq!((took, hedges(&diary)), (ms(3000), 0), "nobody hedges by time");
    let mut attempts = 0;
    let began = tokio::time::Instant::now();
    let again = READ
        .retry(|| {
            attempts += 1;
            let fails = attempts == 1;
            async move { if fails { Err(()) } else { Ok(()) } }
        })
        .when(|()| true)
        .pace(&pace);
    again.await.expect("the second succeeds");
    assert_eq!((attempts, began.elapsed()), (2, Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_runs_into_its_deadline_counts_as_slower() {
    let pace = pace();
    for _ in 0..4 {
        call(&pace, &[ms(20)]).await;
    }
    let before = delay(&pace);
    let hangs = READ.retry(std::future::pending::<Result<(), ()>>).when(|()| true);
    let late = hangs.pace(&pace).deadline(ms(200)).await.expect_err("nobody answers");
    assert_eq!((late.why(), late.attempts()), (Why::Deadline, 2));
    let reading = pace.read();
    assert_eq!((reading.samples, reading.win_rate), (5, Some(0.0)));
    assert!(delay(&pace) > before);
}
