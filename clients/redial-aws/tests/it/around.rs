//! Goal: retries around an operation, for what the SDK cannot wait for, and waiters. Method: a client without
//! retries of its own, on a scripted service and a paused clock.

use std::io::ErrorKind;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::types::TableStatus;
use redial::strategy::{Decision, Request};
use redial::testing::draws;
use redial::{Failure, FailureKind, Policy, Stage, StopReason, Throttle, ms, s};
use redial_aws::{Wait, is_not_found, sdk_failure, wait};
use redial_smithy::StandardRetryStrategy;

use crate::scripted::{Answer, Scripted};

fn client(service: &Scripted) -> Client {
    Client::from_conf(service.config().retry_config(RetryConfig::disabled()).build())
}

/// How the error of an operation with this answer is classified.
async fn failure(answer: Answer) -> Option<Failure> {
    let service = Scripted::new([answer]);
    sdk_failure(&client(&service).list_tables().send().await.unwrap_err())
}

#[tokio::test(start_paused = true)]
async fn around_classifies_errors_as_the_sdk_does() {
    let kind = async |answer| failure(answer).await.map(|failure| failure.kind);
    assert_eq!(kind(Answer::throttled()).await, Some(FailureKind::Throttling));
    assert_eq!(kind(Answer::error("RequestTimeout")).await, Some(FailureKind::Timeout));
    assert_eq!(kind(Answer::timeout()).await, Some(FailureKind::Timeout));
    for status in [500, 502, 503, 504] {
        assert_eq!(kind(Answer::status(status)).await, Some(FailureKind::Server), "{status}");
    }
    for status in [400, 404, 501, 505] {
        assert_eq!(kind(Answer::status(status)).await, None, "{status}");
    }
    assert_eq!(kind(Answer::error("ValidationException")).await, None);
    let refused = failure(Answer::io(ErrorKind::ConnectionRefused)).await.unwrap();
    assert_eq!((refused.kind, refused.stage), (FailureKind::Client, Stage::Unsent));
    let reset = failure(Answer::io(ErrorKind::ConnectionReset)).await.unwrap();
    assert_eq!((reset.kind, reset.stage), (FailureKind::Client, Stage::InFlight));
    let busy = failure(Answer::throttled().header("x-amz-retry-after", "70")).await.unwrap();
    assert_eq!(busy, Failure::throttling().retry_after(ms(70)));
}

#[tokio::test(start_paused = true)]
async fn around_backoff_comes_before_a_bucket_that_waits() {
    let _guard = draws([0.5]);
    // The bucket holds one retry, and the next is lent until half a second has refilled it.
    let policy = StandardRetryStrategy::standard().capacity(5.0).policy().unwrap();
    let service = Scripted::new([Answer::status(503), Answer::status(503), Answer::ok()]);
    let client = client(&service);
    policy.retry(|| client.list_tables().send()).when(sdk_failure).await.unwrap();
    let starts = service.starts_ms();
    assert_eq!(starts[1], 5.0);
    assert!((495.0..515.0).contains(&(starts[2] - starts[1])), "{starts:?}");
    assert!(service.attempts().iter().all(|attempt| attempt == "attempt=1; max=1"));
}

#[tokio::test(start_paused = true)]
async fn around_strategy_may_answer_later() {
    let policy = Policy::constant(ms(1)).throttle(Throttle::none()).build();
    let strategy = |_: &Request<'_>| {
        Decision::later(async {
            tokio::time::sleep(ms(30)).await;
            Some(ms(12))
        })
    };
    let service = Scripted::new([Answer::throttled(), Answer::ok()]);
    let client = client(&service);
    let list = policy.retry(|| client.list_tables().send()).when(sdk_failure);
    list.strategy(strategy).await.unwrap();
    assert_eq!(service.starts_ms(), [0.0, 42.0]);
}

#[tokio::test(start_paused = true)]
async fn around_error_has_the_last_sdk_error_and_the_reason() {
    let policy = Policy::immediate().attempts(2).throttle(Throttle::none()).build();
    let service = Scripted::new([Answer::status(503), Answer::throttled()]);
    let client = client(&service);
    let error = policy.retry(|| client.list_tables().send()).when(sdk_failure).await.unwrap_err();
    assert_eq!((error.attempts(), error.stop_reason()), (2, StopReason::AttemptsExhausted));
    assert!(matches!(error.last(), Some(SdkError::ServiceError(_))));
}

#[tokio::test(start_paused = true)]
async fn around_deadline_has_the_previous_error_as_its_cause() {
    let busy = || Answer::status(503);
    // In the second attempt, and in the delay after it.
    for second in [Answer::hang(), busy()] {
        let strategy = StandardRetryStrategy::standard().time_max(ms(100)).backoff_first(ms(90));
        let policy = strategy.jitter(redial::Jitter::None).policy().unwrap();
        let service = Scripted::new([busy(), second]);
        let client = client(&service);
        let error =
            policy.retry(|| client.list_tables().send()).when(sdk_failure).await.unwrap_err();
        assert_eq!((error.attempts(), error.stop_reason()), (2, StopReason::Deadline));
        assert!(matches!(error.last(), Some(SdkError::ServiceError(_))), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn around_clock_skew_is_corrected_for_the_next_operation() {
    let policy = Policy::constant(ms(5)).throttle(Throttle::none()).build();
    let skewed = Answer::error("InvalidSignatureException");
    let skewed = skewed.header("date", "Wed, 01 Jan 2048 10:00:00 GMT");
    let service = Scripted::new([skewed, Answer::ok()]);
    let client = client(&service);
    let list = || policy.retry(|| client.list_tables().send()).when(sdk_failure);
    assert_eq!(list().await.unwrap_err().attempts(), 1);
    list().await.unwrap();
    let seen = service.seen();
    assert!(!seen[0].date.starts_with("2048"), "{}", seen[0].date);
    assert!(seen[1].date.starts_with("20480101T"), "{}", seen[1].date);
}

static POLL: Policy =
    Policy::constant(ms(500)).unlimited().deadline(s(20)).throttle(Throttle::none()).build();

fn table(status: &str) -> Answer {
    Answer::json(&format!(r#"{{"Table":{{"TableStatus":"{status}"}}}}"#))
}

/// Waits until the table is active.
async fn until_active(service: &Scripted) -> Result<u32, (StopReason, u32)> {
    let client = client(service);
    let active = wait(
        &POLL,
        || client.describe_table().table_name("orders").send(),
        |result| match result {
            Ok(output) => match output.table().and_then(|table| table.table_status()) {
                Some(TableStatus::Active) => Wait::Done,
                Some(TableStatus::Deleting) => Wait::Failed,
                _ => Wait::NotYet,
            },
            Err(error) if is_not_found(error) => Wait::NotYet,
            Err(_) => Wait::Other,
        },
    );
    match active.with_report().await {
        Ok((_, report)) => Ok(report.attempts),
        Err(error) => Err((error.stop_reason(), error.attempts())),
    }
}

#[tokio::test(start_paused = true)]
async fn waiter_polls_until_the_table_is_active() {
    let missing = Answer::error("ResourceNotFoundException");
    let service = Scripted::new([missing, table("CREATING"), Answer::status(503), table("ACTIVE")]);
    assert_eq!(until_active(&service).await, Ok(4));
    assert_eq!(service.starts_ms(), [0.0, 500.0, 1000.0, 1500.0]);
}

#[tokio::test(start_paused = true)]
async fn waiter_fails_when_the_state_cannot_be_reached() {
    let service = Scripted::new([table("CREATING"), table("DELETING")]);
    assert_eq!(until_active(&service).await, Err((StopReason::NotRetryable, 2)));
    let service = Scripted::new([Answer::error("AccessDeniedException")]);
    assert_eq!(until_active(&service).await, Err((StopReason::NotRetryable, 1)));
    let service = Scripted::always(table("CREATING"));
    let (stop_reason, attempts) = until_active(&service).await.unwrap_err();
    assert_eq!((stop_reason, attempts), (StopReason::Deadline, 40));
}

#[tokio::test(start_paused = true)]
async fn waiter_error_can_be_the_awaited_state() {
    let missing = Answer::error("ResourceNotFoundException");
    let service = Scripted::new([table("DELETING"), missing]);
    let client = client(&service);
    let gone = wait(
        &POLL,
        || client.describe_table().table_name("orders").send(),
        |result| match result {
            Ok(_) => Wait::NotYet,
            Err(error) if is_not_found(error) => Wait::Done,
            Err(_) => Wait::Other,
        },
    );
    let error = gone.await.unwrap_err();
    assert_eq!((error.stop_reason(), error.attempts()), (StopReason::Succeeded, 2));
}
