//! Goal: the token bucket and the backoff of a client can be your own, and each end of a call is reported to
//! the bucket once. Method: a bucket that records, on a scripted service and a paused clock.

use std::sync::{Arc, Mutex};

use aws_sdk_dynamodb::Client;
use redial::throttle::{Bucket, Cost, Grant, Withdrawal};
use redial::time::Ns;
use redial::{FailureKind, Policy, StopReason, Throttle, ms};
use redial_aws::{CallOptions, ReportSlot, RetryInterceptor};
use redial_smithy::{StandardRetryStrategy, TokenOrder};

use crate::clients::client;
use crate::scripted::{Answer, Scripted};

/// Grants every retry and records what it is asked.
#[derive(Clone, Debug, Default)]
struct Recorder(Arc<Mutex<Vec<String>>>);

impl Recorder {
    fn push(&self, text: impl Into<String>) {
        self.0.lock().unwrap().push(text.into());
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

impl Bucket for Recorder {
    fn call_started(&self) {
        self.push("acquire");
    }
    fn withdraw(&self, cost: Cost, _now: Ns) -> Grant {
        self.push(format!("schedule {:?}", cost.kind));
        Grant::Now(Withdrawal(7))
    }
    fn refund(&self, _withdrawal: Withdrawal) {
        self.push("refund");
    }
    fn succeeded(&self, withdrawal: Option<Withdrawal>) {
        self.push(format!("success, refunds {}", withdrawal.map_or(0, |it| it.0)));
    }
    fn call_failed(&self, _withdrawal: Option<Withdrawal>) {
        self.push("failure");
    }
    fn call_cancelled(&self, _withdrawal: Option<Withdrawal>) {
        self.push("cancelled");
    }
    fn tokens(&self, _now: Ns) -> Option<f64> {
        None
    }
}

fn recorded() -> (Recorder, RetryInterceptor) {
    let recorder = Recorder::default();
    let policy = Policy::constant(ms(10)).attempts(3).throttle(Throttle::none()).build();
    let policy = policy.sharing(Arc::new(recorder.clone()));
    (recorder, RetryInterceptor::new(policy).unwrap())
}

async fn list(client: &Client) -> bool {
    client.list_tables().send().await.is_ok()
}

#[tokio::test(start_paused = true)]
async fn bucket_of_your_own_sees_each_call_completely() {
    let (recorder, retries) = recorded();
    let service = Scripted::default();
    let client = client(service.config(), &retries);
    service.push([Answer::ok()]);
    assert!(list(&client).await);
    assert_eq!(recorder.take(), ["acquire", "success, refunds 0"]);
    service.push([Answer::throttled(), Answer::timeout(), Answer::ok()]);
    assert!(list(&client).await);
    let retried = ["acquire", "schedule Throttling", "schedule Timeout", "success, refunds 7"];
    assert_eq!(recorder.take(), retried);
    service.push([Answer::status(503), Answer::error("ValidationException")]);
    assert!(!list(&client).await);
    assert_eq!(recorder.take(), ["acquire", "schedule Server", "failure"]);
    service.push([Answer::status(503), Answer::status(503), Answer::status(503)]);
    assert!(!list(&client).await);
    assert_eq!(recorder.take(), ["acquire", "schedule Server", "schedule Server", "failure"]);
}

#[tokio::test(start_paused = true)]
async fn bucket_of_your_own_sees_a_dropped_call() {
    let (recorder, retries) = recorded();
    let service = Scripted::always(Answer::status(503));
    let client = client(service.config(), &retries);
    let call = tokio::spawn(async move { list(&client).await });
    while service.seen().is_empty() {
        tokio::task::yield_now().await;
    }
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    assert_eq!(recorder.take(), ["acquire", "schedule Server", "refund", "cancelled"]);
}

#[tokio::test(start_paused = true)]
async fn backoff_of_your_own_sees_failure_and_attempt() {
    let strategy = StandardRetryStrategy::standard().attempts(4).order(TokenOrder::TokenFirst);
    let strategy = strategy.jitter(redial::Jitter::None);
    let policy = strategy.policy_with(|step| match step.failure.kind {
        FailureKind::Throttling => ms(1_000),
        _ => ms(u64::from(step.number) * 100),
    });
    let retries = RetryInterceptor::new(policy.unwrap()).unwrap();
    let answers = [Answer::status(503), Answer::throttled(), Answer::timeout(), Answer::ok()];
    let service = Scripted::new(answers);
    assert!(list(&client(service.config(), &retries)).await);
    assert_eq!(service.starts_ms(), [0.0, 100.0, 1_100.0, 1_400.0]);
}

#[tokio::test(start_paused = true)]
async fn stop_reasons_of_a_client_can_be_distinguished() {
    let stop = async |retries: &RetryInterceptor, answers: Vec<Answer>| {
        let service = Scripted::new(answers);
        let report = ReportSlot::new();
        let list = client(service.config(), retries).list_tables().customize();
        let _ = list.interceptor(CallOptions::new().report(&report)).send().await;
        report.take().unwrap()
    };
    let busy = || Answer::status(503);
    let retries = RetryInterceptor::aws_2026();
    let report = stop(&retries, vec![Answer::error("ValidationException")]).await;
    assert_eq!(report.stop_reason, StopReason::NotRetryable);
    let report = stop(&retries, vec![busy(), busy(), busy()]).await;
    assert_eq!(report.stop_reason, StopReason::AttemptsExhausted);
    let strategy = StandardRetryStrategy::aws_2026().time_max(ms(200));
    let timed = RetryInterceptor::standard(strategy).unwrap();
    let report = stop(&timed, vec![Answer::hang()]).await;
    assert_eq!(report.stop_reason, StopReason::Deadline);
    let strategy = StandardRetryStrategy::aws_2026().capacity(20.0);
    let report = stop(&RetryInterceptor::standard(strategy).unwrap(), vec![busy(), busy()]).await;
    assert_eq!(report.stop_reason, StopReason::Throttled);
    assert_eq!((report.attempts, report.attempts_max, report.tokens), (2, Some(3), Some(6.0)));
}
