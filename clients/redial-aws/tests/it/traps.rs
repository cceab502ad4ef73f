//! Goal: what is known to go wrong with interceptors and classifiers of this SDK does not. Method: each trap as
//! a test, on a scripted service.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use aws_sdk_dynamodb::config::retry::{ClassifyRetry, RetryAction, RetryConfig};
use aws_sdk_dynamodb::config::timeout::TimeoutConfig;
use aws_sdk_dynamodb::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_dynamodb::error::BoxError;
use aws_sdk_dynamodb::{Client, Config};
use aws_smithy_runtime_api::client::http::{
    HttpConnector, HttpConnectorFuture, SharedHttpConnector, http_client_fn,
};
use aws_smithy_runtime_api::client::interceptors::context::{
    FinalizerInterceptorContextRef, InterceptorContext,
};
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use aws_smithy_runtime_api::client::retries::classifiers::RetryClassifierPriority;
use aws_smithy_types::retry::RetrySpec;
use redial::{Policy, StopReason, Throttle, ms, s};
use redial_aws::{CallOptions, ReportSlot, RetryInterceptor, with_retries};

use crate::clients::client;
use crate::scripted::{Answer, Scripted};

fn constant(delay: Duration, attempts: u32) -> RetryInterceptor {
    let policy = Policy::constant(delay).attempts(attempts).throttle(Throttle::none()).build();
    RetryInterceptor::new(policy).unwrap()
}

#[tokio::test(start_paused = true)]
async fn trap_rules_of_2026_do_not_clamp_the_delay() {
    // The SDK's Retry Behavior 2.1 keeps an explicit delay within 5 s of its own, and 2.0 below 20 s.
    for spec in [RetrySpec::v2_0(), RetrySpec::v2_1()] {
        let service = Scripted::new([Answer::throttled(), Answer::ok()]);
        let retries = constant(s(40), 3);
        let config = with_retries!(service.config(), retries.clone());
        let config = config.retry_config(retries.retry_config().with_retry_spec(spec));
        Client::from_conf(config.build()).list_tables().send().await.unwrap();
        assert_eq!(service.starts_ms(), [0.0, 40_000.0]);
        assert_eq!(service.attempts(), ["attempt=1; max=3", "attempt=2; max=3"]);
    }
}

#[tokio::test(start_paused = true)]
async fn trap_parallel_calls_of_one_client_decide_for_themselves() {
    let service = Scripted::always(Answer::status(503).after(ms(1)));
    let decisions = Arc::new(AtomicU32::new(0));
    let seen = decisions.clone();
    let retries = constant(ms(10), 4).on_end(move |end| {
        assert_eq!(end.report.attempts, 4);
        assert_eq!(end.report.elapsed, ms(4 + 3 * 10), "each waited its own delays");
        seen.fetch_add(1, Relaxed);
    });
    let client = client(service.config(), &retries);
    let calls = (0..16).map(|_| {
        let list = client.list_tables();
        tokio::spawn(async move { list.send().await.unwrap_err() })
    });
    for call in calls.collect::<Vec<_>>() {
        call.await.unwrap();
    }
    assert_eq!((service.seen().len(), decisions.load(Relaxed)), (64, 16));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn trap_calls_that_change_threads_keep_their_state() {
    let service = Scripted::always(Answer::status(503).after(ms(1)));
    let client = client(service.config(), &constant(ms(1), 4));
    let calls = (0..32).map(|_| {
        let list = client.list_tables();
        tokio::spawn(async move { list.send().await.unwrap_err() })
    });
    for call in calls.collect::<Vec<_>>() {
        call.await.unwrap();
    }
    assert_eq!(service.seen().len(), 32 * 4);
}

/// A connector that calls another client before it passes a request on.
#[derive(Clone, Debug)]
struct CallsAnother {
    inner: Client,
    outer: Scripted,
}

impl HttpConnector for CallsAnother {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let CallsAnother { inner, outer } = self.clone();
        HttpConnectorFuture::new(async move {
            inner.list_tables().send().await.unwrap();
            outer.call(request).await
        })
    }
}

#[tokio::test(start_paused = true)]
async fn trap_nested_call_on_one_thread_has_its_own_state() {
    let busy = || Answer::status(503);
    let inner = Scripted::new([busy(), Answer::ok(), busy(), busy(), Answer::ok()]);
    let outer = Scripted::new([busy(), Answer::ok()]);
    let nested = client(inner.config(), &constant(ms(7), 3));
    let connector = SharedHttpConnector::new(CallsAnother { inner: nested, outer: outer.clone() });
    let config = outer.config().http_client(http_client_fn(move |_, _| connector.clone()));
    client(config, &constant(ms(100), 2)).list_tables().send().await.unwrap();
    assert_eq!(inner.starts_ms(), [0.0, 7.0, 107.0, 114.0, 121.0]);
    assert_eq!(outer.starts_ms(), [0.0, 114.0]);
}

/// An interceptor of the application that makes a call of its own, to its end, between the decision and the
/// classifiers.
#[derive(Debug)]
struct CallsAnotherAfterAttempt(Client);

impl Intercept for CallsAnotherAfterAttempt {
    fn name(&self) -> &'static str {
        "CallsAnotherAfterAttempt"
    }

    fn read_after_attempt(
        &self,
        _context: &FinalizerInterceptorContextRef<'_>,
        _components: &RuntimeComponents,
        _cfg: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let list = self.0.list_tables();
        tokio::task::block_in_place(|| {
            let listed = tokio::runtime::Handle::current().block_on(list.send());
            listed.map(drop).map_err(BoxError::from)
        })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trap_call_between_decision_and_classifier_changes_nothing() {
    let inner =
        Scripted::new([503, 200, 503, 200].map(Answer::status).into_iter().chain([Answer::ok()]));
    let nested = client(inner.config(), &constant(ms(1), 3));
    let outer = Scripted::new([Answer::status(503), Answer::throttled(), Answer::ok()]);
    let config = with_retries!(outer.config(), constant(ms(30), 3));
    let config = config.interceptor(CallsAnotherAfterAttempt(nested));
    tokio::spawn(Client::from_conf(config.build()).list_tables().send()).await.unwrap().unwrap();
    assert_eq!((inner.seen().len(), outer.seen().len()), (5, 3));
    // The SDK's own delay would be up to one second, and then two.
    let starts = outer.starts_ms();
    assert!(starts[1] >= 30.0 && starts[2] >= 60.0 && starts[2] < 500.0, "{starts:?}");
}

/// A classifier of the application.
#[derive(Debug)]
struct Says(RetryAction);

impl ClassifyRetry for Says {
    fn classify_retry(&self, _context: &InterceptorContext) -> RetryAction {
        self.0.clone()
    }
    fn name(&self) -> &'static str {
        "Says"
    }
    fn priority(&self) -> RetryClassifierPriority {
        RetryClassifierPriority::run_after(RetryClassifierPriority::transient_error_classifier())
    }
}

#[tokio::test(start_paused = true)]
async fn trap_classifier_of_the_application_still_decides_what_is_retryable() {
    let list = async |says: RetryAction, answers: Vec<Answer>| {
        let service = Scripted::new(answers);
        let config = with_retries!(service.config(), constant(ms(10), 3));
        let client = Client::from_conf(config.retry_classifier(Says(says)).build());
        let report = ReportSlot::new();
        let options = CallOptions::new().report(&report);
        let result = client.list_tables().customize().interceptor(options).send().await;
        (result.is_ok(), service.seen().len(), report.take().unwrap().stop_reason)
    };
    let fatal = || Answer::error("ValidationException");
    let answers = vec![fatal(), fatal(), Answer::status(503)];
    let exhausted = (false, 3, StopReason::AttemptsExhausted);
    assert_eq!(list(RetryAction::server_error(), answers).await, exhausted);
    let forbidden = list(RetryAction::RetryForbidden, vec![Answer::status(503)]).await;
    assert_eq!(forbidden, (false, 1, StopReason::NotRetryable));
    // An output is a success, also for a classifier that says otherwise.
    let succeeded = list(RetryAction::server_error(), vec![Answer::ok()]).await;
    assert_eq!(succeeded, (true, 1, StopReason::Succeeded));
}

#[tokio::test(start_paused = true)]
async fn trap_operation_timeout_leaves_nothing_behind() {
    let retries = RetryInterceptor::aws_2026();
    let service = Scripted::new([Answer::throttled(), Answer::hang(), Answer::ok()]);
    let timeouts = TimeoutConfig::builder().operation_timeout(s(5)).build();
    let client = client(service.config().timeout_config(timeouts), &retries);
    let report = ReportSlot::new();
    let options = CallOptions::new().report(&report);
    client.list_tables().customize().interceptor(options).send().await.unwrap_err();
    assert_eq!(report.take().unwrap().stop_reason, StopReason::Deadline);
    assert_eq!(retries.policy().tokens(0), Some(495.0), "the retry had started");
    // The next call of this thread does not see the delay that was decided at the timeout.
    client.list_tables().send().await.unwrap();
    assert_eq!((service.seen().len(), retries.policy().tokens(0)), (3, Some(496.0)));
}

#[tokio::test(start_paused = true)]
async fn trap_client_without_interceptor_is_left_alone() {
    let service = Scripted::new([Answer::status(503), Answer::ok()]);
    let retries = constant(ms(10), 1);
    // Only the classifier: nothing was decided, so the SDK retries by itself.
    let config = service.config().retry_classifier(retries);
    let config = config.retry_config(RetryConfig::standard().with_initial_backoff(ms(1)));
    Client::from_conf(config.build()).list_tables().send().await.unwrap();
    let _: &Config = Client::from_conf(service.config().build()).config();
}
