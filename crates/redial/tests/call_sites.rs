//! Calls as users write them, with operations that fail a given number of times, on tokio's paused clock.
#![cfg(feature = "tokio")]

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

use redial::{Failure, Hedged, Policy, StopReason, Transient, ms, s};

static FETCH: Policy = Policy::exponential(ms(100)).cap(s(5)).attempts(5).deadline(s(10)).build();
static READ: Hedged = Policy::hedged(ms(20)).attempts(3).build();

fn is_transient(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::TimedOut
}

/// Fails this many times before it succeeds.
#[derive(Default)]
struct Flaky {
    calls: AtomicU32,
    failures: u32,
}

impl Flaky {
    fn failing(failures: u32) -> Self {
        Flaky { calls: AtomicU32::new(0), failures }
    }
    fn answer(&self) -> io::Result<u32> {
        let call = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        if call > self.failures { Ok(call) } else { Err(io::ErrorKind::TimedOut.into()) }
    }
    async fn get(&self) -> io::Result<u32> {
        self.answer()
    }
    async fn get_mut(&mut self) -> io::Result<u32> {
        tokio::time::sleep(ms(1)).await;
        self.answer()
    }
}

#[tokio::test(start_paused = true)]
async fn retry_function_retries_errors_accepted_by_when() -> io::Result<()> {
    let flaky = Flaky::failing(2);
    let answer = redial::retry(|| flaky.get()).when(is_transient).await?;
    assert_eq!(answer, 3);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn policy_static_is_shared_by_reference() -> io::Result<()> {
    let flaky = Flaky::failing(4);
    assert_eq!(FETCH.retry(|| flaky.get()).when(is_transient).await?, 5);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn attempt_reports_number_remaining_and_last_failure() -> io::Result<()> {
    let flaky = Flaky::failing(2);
    let mut seen = Vec::new();
    FETCH
        .retry_with(|attempt| {
            seen.push((attempt.number(), attempt.remaining(), attempt.last_failure().copied()));
            flaky.get()
        })
        .when(is_transient)
        .await?;
    assert_eq!(seen.len(), 3);
    assert_eq!(seen[0], (1, Some(s(10)), None));
    assert_eq!(seen[1].0, 2);
    assert!(seen[2].1 < Some(s(10)));
    assert_eq!(seen[1].2, Some(Failure::server()));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn retry_on_borrows_mutably_and_can_be_spawned() -> io::Result<()> {
    let mut flaky = Flaky::failing(2);
    let answer =
        FETCH.retry_on(&mut flaky, async |flaky| flaky.get_mut().await).when(is_transient).await?;
    assert_eq!(answer, 3);
    let spawned = tokio::spawn(async {
        let mut flaky = Flaky::failing(1);
        FETCH.retry_on(&mut flaky, async |flaky| flaky.get_mut().await).when(is_transient).await
    });
    assert_eq!(spawned.await??, 2);
    Ok(())
}

#[test]
fn blocking_call_uses_the_same_policy() -> io::Result<()> {
    static QUICK: Policy = Policy::exponential(ms(1)).attempts(4).deadline(s(10)).build();
    let flaky = Flaky::failing(2);
    assert_eq!(QUICK.retry(|| flaky.answer()).when(is_transient).call()?, 3);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn hedging_starts_a_second_attempt_when_the_first_is_slow() -> io::Result<()> {
    let calls = AtomicU32::new(0);
    let start = tokio::time::Instant::now();
    let winner = READ
        .retry(|| {
            let call = calls.fetch_add(1, Ordering::Relaxed) + 1;
            async move {
                tokio::time::sleep(if call == 1 { s(1) } else { ms(5) }).await;
                io::Result::Ok(call)
            }
        })
        .when(is_transient)
        .await?;
    assert_eq!((winner, calls.into_inner(), start.elapsed()), (2, 2, ms(25)));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn until_retries_values_that_are_not_accepted() -> io::Result<()> {
    // Its own budget: other tests use the budget of the policy above.
    static FETCH: Policy = Policy::exponential(ms(100)).attempts(5).deadline(s(10)).build();
    let flaky = Flaky::failing(1);
    let answer = FETCH.retry(|| flaky.get()).until(|value| *value >= 4).when(is_transient).await;
    assert_eq!(answer.map_err(|_| ()), Ok(4));
    let error =
        FETCH.retry(|| async { io::Result::Ok(1) }).until(|_| false).when(is_transient).await;
    let error = error.expect_err("no value is right");
    assert_eq!((error.stop_reason(), error.attempts()), (StopReason::AttemptsExhausted, 5));
    assert_eq!(error.into_last_value(), Some(1));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn transient_error_needs_no_when() {
    #[derive(Debug)]
    struct Busy;
    impl Transient for Busy {
        fn failure(&self) -> Option<Failure> {
            Some(Failure::throttling())
        }
    }
    let error = redial::retry(|| async { Err::<(), _>(Busy) }).await.expect_err("always busy");
    assert_eq!((error.attempts(), error.stop_reason()), (3, StopReason::AttemptsExhausted));
}

#[tokio::test(start_paused = true)]
async fn error_display_and_into_last() {
    static THRICE: Policy = Policy::constant(ms(600)).build();
    let refused = || async { Err::<(), _>(io::Error::other("connection refused")) };
    let error = THRICE.retry(refused).when(|_| true).await.expect_err("always refused");
    let text = "connection refused (3 attempts in at least 1.2 s; gave up: no attempt left)";
    assert_eq!(error.to_string(), text);
    assert_eq!(error.into_last().map(|last| last.to_string()), Some("connection refused".into()));
}
