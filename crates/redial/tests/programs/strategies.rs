//! Strategies: application code decides about each failure, at once or after a question to another system.

use std::time::Duration;

use redial::strategy::{Decision, Request, Strategy};
use redial::{Failure, Policy, Reason, StopReason, ms, s};

static CALL: Policy = Policy::exponential(ms(100)).attempts(6).build();

const LEADER_CHANGED: Reason = Reason::new("LEADER_CHANGED");
const OVERLOADED: Reason = Reason::new("OVERLOADED");

/// The priority of a request, which the strategy sees.
struct Priority(u8);

/// Fast after a change of the leader, slow under overload, and not at all for what is not urgent.
struct ByReason;

impl Strategy for ByReason {
    fn retry_after(&self, request: &Request<'_>) -> Decision {
        let urgent = request.data().is_some_and(|Priority(priority)| *priority > 5);
        match request.reason() {
            Some(reason) if reason == LEADER_CHANGED => Decision::Retry(ms(5)),
            Some(reason) if reason == OVERLOADED && urgent => Decision::Retry(s(1)),
            _ => Decision::Decline,
        }
    }
}

fn answers() -> impl FnMut() -> std::future::Ready<Result<u32, Reason>> {
    let mut answers = [Err(LEADER_CHANGED), Err(OVERLOADED), Ok(7)].into_iter();
    move || std::future::ready(answers.next().expect("an answer"))
}

fn failure(reason: &Reason) -> Failure {
    Failure::server().because(*reason)
}

#[tokio::test(start_paused = true)]
async fn program_decides_by_reason_and_priority() {
    let call = || CALL.retry(answers()).when(failure).strategy(ByReason);
    let (value, report) = call().data(Priority(9)).with_report().await.expect("urgent");
    assert_eq!((value, report.elapsed), (7, s(1) + ms(5)));
    let error = call().data(Priority(1)).await.expect_err("not urgent");
    assert_eq!((error.stop_reason(), error.attempts()), (StopReason::StrategyDeclined, 2));
}

/// Asks a service with flags, which takes a moment.
async fn is_allowed(retries: u32) -> Result<bool, &'static str> {
    tokio::time::sleep(ms(3)).await;
    if retries > 1 { Err("the flags cannot be read") } else { Ok(true) }
}

fn by_flag(request: &Request<'_>) -> Decision {
    let retries = request.retry_attempts();
    Decision::later(async move {
        match is_allowed(retries).await {
            Ok(true) => Ok(Some(ms(10))),
            Ok(false) => Ok(None::<Duration>),
            Err(error) => Err(error.into()),
        }
    })
}

#[tokio::test(start_paused = true)]
async fn program_asks_another_system_before_a_retry() {
    let call = CALL.retry(answers()).when(failure).strategy(by_flag).with_report();
    let (_, report) = call.await.expect("allowed twice");
    assert_eq!(report.elapsed, ms(2 * (3 + 10)));
    let fails = CALL.retry(|| std::future::ready(Err::<(), _>(OVERLOADED))).when(failure);
    let error = fails.strategy(by_flag).await.expect_err("the third question fails");
    assert_eq!(error.strategy_error().unwrap().to_string(), "the flags cannot be read");
}
