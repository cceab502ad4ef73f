//! Operations of an own type: idempotency, history, and futures that own their policy.

use std::future::{Ready, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use redial::parts::{Operation, OwnedHedged, OwnedPolicy};
use redial::report::AttemptEnd;
use redial::throttle::{Bucket, RetryBudget};
use redial::{Attempt, Directive, Failure, Hedged, Policy, Stage, StopReason, ms, s};

/// Fails with these stages in turn, then succeeds.
struct Failing {
    stages: Vec<Stage>,
    idempotent: bool,
}

impl Operation for Failing {
    type Answer = Ready<Result<u32, Stage>>;
    const READS_ATTEMPT: bool = false;
    const RECORDS_HISTORY: bool = true;

    fn start(&mut self, attempt: Attempt) -> Self::Answer {
        ready(if self.stages.is_empty() {
            Ok(attempt.number())
        } else {
            Err(self.stages.remove(0))
        })
    }

    fn is_idempotent(&self) -> bool {
        self.idempotent
    }
}

fn failing(idempotent: bool, stages: &[Stage]) -> Failing {
    Failing { stages: stages.to_vec(), idempotent }
}

fn by_stage(result: &Result<u32, Stage>) -> Option<Directive> {
    result.as_ref().err().map(|stage| Directive::Retry(Failure::client().at(*stage)))
}

#[tokio::test(start_paused = true)]
async fn operation_that_is_not_idempotent_needs_proof_for_a_retry() {
    let policy = OwnedPolicy::new(Policy::constant(ms(10)).attempts(5).build());
    let stages = [Stage::Unsent, Stage::InFlight, Stage::Unsent];
    for with_options in [false, true] {
        let mut call = policy.retry(failing(false, &stages)).classify(by_stage);
        if with_options {
            call = call.deadline(s(5));
        }
        let error = call.await.unwrap_err();
        assert_eq!((error.stop_reason(), error.attempts()), (StopReason::NotIdempotent, 2));
    }
    let value = policy.retry(failing(true, &stages)).classify(by_stage).await;
    assert_eq!(value.unwrap(), 4);
}

/// Decision P8: neither the hedging delay nor a failure starts a second attempt.
#[tokio::test(start_paused = true)]
async fn operation_that_is_not_idempotent_is_never_hedged() {
    /// Counts its attempts, which take 100 ms and succeed, or fail.
    struct Slow(Arc<AtomicU32>, bool);
    impl Operation for Slow {
        type Answer = Pin<Box<dyn Future<Output = Result<u32, Stage>> + Send>>;
        const READS_ATTEMPT: bool = false;
        fn start(&mut self, attempt: Attempt) -> Self::Answer {
            self.0.fetch_add(1, Ordering::Relaxed);
            let result = if self.1 { Ok(attempt.number()) } else { Err(Stage::InFlight) };
            Box::pin(async move {
                tokio::time::sleep(ms(100)).await;
                result
            })
        }
        fn is_idempotent(&self) -> bool {
            false
        }
    }
    static READ: Hedged = Policy::hedged(ms(5)).attempts(3).build();
    let owned = OwnedHedged::new(Policy::hedged(ms(5)).attempts(3).build());
    for succeeds in [true, false] {
        let attempts = Arc::new(AtomicU32::new(0));
        let slow = || Slow(attempts.clone(), succeeds);
        let results = [
            READ.retry(slow()).classify(by_stage).await,
            READ.retry(slow()).classify(by_stage).deadline(s(5)).await,
            owned.retry(slow()).classify(by_stage).await,
            owned.retry(slow()).classify(by_stage).history().await,
        ];
        assert_eq!(attempts.load(Ordering::Relaxed), 4, "one for each call");
        for result in results {
            let stop_reason = result.map_err(|error| error.stop_reason());
            assert_eq!(stop_reason, if succeeds { Ok(1) } else { Err(StopReason::NotIdempotent) });
        }
    }
}

#[tokio::test(start_paused = true)]
async fn operation_records_its_attempts_from_the_first_failure() {
    let policy = OwnedPolicy::new(Policy::constant(ms(10)).attempts(3).build());
    let call = policy.retry(failing(true, &[Stage::InFlight; 3])).classify(by_stage);
    let error = call.await.unwrap_err();
    let failed = AttemptEnd::Failed(Failure::client().at(Stage::InFlight));
    let attempts: Vec<_> =
        error.report().history.iter().map(|it| (it.attempt, it.started, it.end)).collect();
    assert_eq!(attempts, [(1, ms(0), failed), (2, ms(10), failed), (3, ms(20), failed)]);
}

#[tokio::test(start_paused = true)]
async fn owned_policy_uses_the_budget_of_the_call() {
    let policy = OwnedPolicy::new(Policy::constant(ms(10)).attempts(5).build());
    let budget = Arc::new(RetryBudget::new(1.0, 0.5));
    let budgeted = policy.with_budget(budget.clone());
    let call = tokio::spawn(async move {
        budgeted.retry(failing(true, &[Stage::InFlight; 3])).classify(by_stage).await
    });
    let error = call.await.unwrap().unwrap_err();
    assert_eq!((error.stop_reason(), error.attempts()), (StopReason::Throttled, 2));
    let hedged = OwnedHedged::new(Policy::hedged(ms(5)).build()).with_budget(budget.clone());
    assert_eq!(hedged.rules().hedge, Some(ms(5)));
    assert!(hedged.retry(failing(true, &[])).classify(by_stage).await.is_ok());
    assert_eq!(budget.tokens(0), Some(0.5), "the success is credited to the budget");
}

#[test]
fn blocking_operation_that_is_not_idempotent_needs_proof() {
    struct Blocking(Failing);
    impl Operation for Blocking {
        type Answer = Result<u32, Stage>;
        const READS_ATTEMPT: bool = false;
        fn start(&mut self, attempt: Attempt) -> Self::Answer {
            self.0.start(attempt).into_inner()
        }
        fn is_idempotent(&self) -> bool {
            false
        }
    }
    static AGAIN: Policy = Policy::immediate().attempts(5).build();
    let error = AGAIN
        .retry(Blocking(failing(false, &[Stage::Unsent, Stage::InFlight])))
        .classify(by_stage)
        .call()
        .unwrap_err();
    assert_eq!((error.stop_reason(), error.attempts()), (StopReason::NotIdempotent, 2));
}
