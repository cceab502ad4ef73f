//! An outage: two call sites of one server share a retry budget, so retries cannot multiply the load.

use std::cell::Cell;

use redial::throttle::{Bucket, RetryBudget};
use redial::{Policy, StopReason, Throttle, ms};

static DATABASE: RetryBudget = RetryBudget::new(20.0, 0.1);
static READ: Policy =
    Policy::constant(ms(10)).attempts(3).throttle(Throttle::budget(&DATABASE)).build();
static WRITE: Policy =
    Policy::constant(ms(50)).attempts(4).throttle(Throttle::budget(&DATABASE)).build();

#[tokio::test(start_paused = true)]
async fn program_in_an_outage_sends_few_retries_and_recovers() {
    let (requests, is_down) = (Cell::new(0), Cell::new(true));
    let request = async || {
        requests.set(requests.get() + 1);
        if is_down.get() { Err("down") } else { Ok(()) }
    };
    let mut throttled = 0;
    for _ in 0..100 {
        let read = READ.retry(request).when(|_| true).await.expect_err("down");
        let write = WRITE.retry(request).when(|_| true).await.expect_err("down");
        let reasons = [read.stop_reason(), write.stop_reason()];
        throttled += reasons.iter().filter(|why| **why == StopReason::Throttled).count();
    }
    assert_eq!(requests.replace(0), 200 + 20, "the reserve, and no more");
    assert!(throttled > 190, "{throttled}");

    // The server is back: successes earn retries.
    is_down.set(false);
    for _ in 0..100 {
        READ.retry(request).when(|_| true).await.expect("it is up");
    }
    assert_eq!((requests.get(), DATABASE.tokens(0)), (100, Some(10.0)));
}
