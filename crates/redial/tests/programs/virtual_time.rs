//! Tests of a program with retries: exact, fast, and independent of each other.

use redial::testing::{fails, fresh_budgets, play, succeeds};
use redial::{Policy, StopReason, ms};

static FETCH: Policy = Policy::exponential(ms(100)).attempts(4).build();

async fn fetch(mut server: impl FnMut() -> Result<u32, &'static str>) -> Option<u32> {
    FETCH.retry(|| std::future::ready(server())).when(|error| *error == "busy").await.ok()
}

/// The policy alone: scripted attempts, and every random draw is 0.5.
#[test]
fn program_tests_its_policy() {
    let played = play(&FETCH, [fails(), fails(), succeeds()]);
    assert_eq!(played.starts(), [ms(0), ms(50), ms(150)]);
    assert_eq!(played.stop_reason(), Some(StopReason::Succeeded));
}

/// The program, on tokio's paused clock. Each of these would spend the budget of the others.
#[tokio::test(start_paused = true)]
async fn program_tests_an_outage() {
    let _budgets = fresh_budgets();
    for _ in 0..10 {
        assert_eq!(fetch(|| Err("busy")).await, None);
    }
}

#[tokio::test(start_paused = true)]
async fn program_tests_a_recovery() {
    let _budgets = fresh_budgets();
    let mut answers = [Err("busy"), Err("busy"), Err("busy"), Ok(7)].into_iter();
    assert_eq!(fetch(|| answers.next().unwrap()).await, Some(7));
}

#[tokio::test(start_paused = true)]
async fn program_tests_what_is_not_retried() {
    let _budgets = fresh_budgets();
    let mut answers = [Err("not found")].into_iter();
    assert_eq!(fetch(|| answers.next().unwrap()).await, None);
}
