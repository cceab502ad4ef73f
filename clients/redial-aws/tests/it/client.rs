//! Goal: the policy decides about the retries of an ordinary client, and the rest stays the SDK's. Method: a
//! scripted service on a paused clock.

use std::io::ErrorKind;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::config::timeout::TimeoutConfig;
use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::types::AttributeValue;
use aws_sdk_dynamodb::{Client, Config};
use aws_smithy_runtime_api::box_error::BoxError;
use aws_smithy_runtime_api::client::interceptors::context::{
    BeforeDeserializationInterceptorContextMut, InterceptorContext,
};
use aws_smithy_runtime_api::client::retries::classifiers::{ClassifyRetry, RetryAction};
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::config_bag::ConfigBag;
use redial::report::AttemptEnd;
use redial::rules::{LimitBasis, Limits};
use redial::strategy::{Decision, Request};
use redial::testing::draws;
use redial::throttle::RetryBudget;
use redial::{Failure, Policy, StopReason, Throttle, ms, s};
use redial_aws::{CallOptions, ReportSlot, RetryInterceptor, SetupError, with_retries};
use redial_smithy::{StandardRetryStrategy, TokenOrder};

use crate::clients::client;
use crate::scripted::{Answer, Scripted};

/// Without jitter: 10 ms, 20 ms, 40 ms, and no throttle.
fn doubling(attempts: u32) -> RetryInterceptor {
    let policy = Policy::exponential(ms(10))
        .jitter(redial::Jitter::None)
        .attempts(attempts)
        .throttle(Throttle::none())
        .build();
    RetryInterceptor::new(policy).unwrap()
}

async fn put(client: &Client) -> Result<(), String> {
    let put = client.put_item().table_name("orders").item("id", AttributeValue::S("1".into()));
    put.send().await.map(drop).map_err(|error| format!("{:?}", error.into_service_error()))
}

#[tokio::test(start_paused = true)]
async fn client_waits_exactly_what_the_policy_decides() {
    let service = Scripted::new([Answer::status(503), Answer::throttled(), Answer::ok()]);
    let retries = doubling(4);
    put(&client(service.config(), &retries)).await.unwrap();
    assert_eq!(service.starts_ms(), [0.0, 10.0, 30.0]);
}

#[tokio::test(start_paused = true)]
async fn client_keeps_attempt_header_signature_and_body() {
    let service = Scripted::new([Answer::status(503), Answer::status(500), Answer::ok()]);
    put(&client(service.config(), &doubling(5))).await.unwrap();
    assert_eq!(service.attempts(), ["attempt=1; max=5", "attempt=2; max=5", "attempt=3; max=5"]);
    let seen = service.seen();
    assert!(seen.iter().all(|seen| seen.signature.starts_with("AWS4-HMAC-SHA256 ")));
    assert!(seen.iter().all(|other| other.body == seen[0].body), "the body is rewound");
    assert!(seen[0].body.as_deref().is_some_and(|body| !body.is_empty()));
}

#[tokio::test(start_paused = true)]
async fn client_clock_skew_is_corrected_for_the_retry() {
    let skewed = Answer::error("InvalidSignatureException");
    let skewed = skewed.header("date", "Wed, 01 Jan 2048 10:00:00 GMT");
    let service = Scripted::new([skewed, Answer::ok()]);
    put(&client(service.config(), &doubling(3))).await.unwrap();
    let seen = service.seen();
    assert!(!seen[0].date.starts_with("2048"), "{}", seen[0].date);
    assert!(seen[1].date.starts_with("20480101T"), "{}", seen[1].date);
}

#[tokio::test(start_paused = true)]
async fn client_error_of_the_last_attempt_is_returned() {
    let answers = [Answer::status(503), Answer::throttled()];
    let service = Scripted::new(answers);
    let error = put(&client(service.config(), &doubling(2))).await.unwrap_err();
    assert!(error.contains("ProvisionedThroughputExceededException"), "{error}");
    assert_eq!(service.seen().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn client_final_errors_are_not_retried() {
    for answer in [Answer::error("ValidationException"), Answer::status(404)] {
        let service = Scripted::new([answer]);
        assert!(put(&client(service.config(), &doubling(4))).await.is_err());
    }
}

#[tokio::test(start_paused = true)]
async fn client_connection_failures_are_retried() {
    let kinds = [ErrorKind::ConnectionRefused, ErrorKind::ConnectionReset];
    let service = Scripted::new(kinds.map(Answer::io).into_iter().chain([Answer::ok()]));
    put(&client(service.config(), &doubling(4))).await.unwrap();
    assert_eq!(service.starts_ms(), [0.0, 10.0, 30.0]);
}

#[tokio::test(start_paused = true)]
async fn client_delay_longer_than_the_sdk_allows_is_kept() {
    // The SDK cuts delays at 20 s, and with its rules of 2026 at 5 s more than its own.
    let policy = Policy::constant(s(3600)).throttle(Throttle::none()).build();
    let service = Scripted::new([Answer::status(503), Answer::ok()]);
    put(&client(service.config(), &RetryInterceptor::new(policy).unwrap())).await.unwrap();
    assert_eq!(service.starts_ms(), [0.0, 3_600_000.0]);
}

/// The policies whose attempts the SDK cannot be given.
fn beyond_the_sdk() -> [RetryInterceptor; 2] {
    let policy = || Policy::immediate().throttle(Throttle::none());
    let unlimited = policy().unlimited().deadline(s(3600)).build();
    [unlimited, policy().attempts(u32::MAX).build()].map(|it| RetryInterceptor::new(it).unwrap())
}

/// With `max_attempts = u32::MAX` the SDK adds up 4 billion attempts before the first, which takes minutes.
#[tokio::test]
async fn client_unlimited_attempts_cost_no_cpu_up_front() {
    for retries in beyond_the_sdk() {
        let began = std::time::Instant::now();
        put(&client(Scripted::always(Answer::ok()).config(), &retries)).await.unwrap();
        // Generous: the first call of a process sets up the SDK.
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn client_unlimited_attempts_go_beyond_those_of_the_sdk() {
    for retries in beyond_the_sdk() {
        assert_eq!(retries.retry_config().max_attempts(), redial_aws::SDK_ATTEMPTS_MAX);
        let failures = redial_aws::SDK_ATTEMPTS_MAX + 200;
        let failures = (0..failures).map(|_| Answer::status(503));
        let service = Scripted::new(failures.chain([Answer::ok()]));
        put(&client(service.config(), &retries)).await.unwrap();
        assert_eq!(service.seen().len(), 1_201, "the policy's limit counts, not the SDK's");
    }
}

#[tokio::test(start_paused = true)]
async fn client_attempts_around_the_limit_of_the_sdk_are_made() {
    let limit = redial_aws::SDK_ATTEMPTS_MAX;
    for attempts in [limit - 1, limit, limit + 1] {
        let policy = Policy::immediate().attempts(attempts).throttle(Throttle::none()).build();
        let retries = RetryInterceptor::new(policy).unwrap();
        let service = Scripted::always(Answer::status(503));
        put(&client(service.config(), &retries)).await.unwrap_err();
        assert_eq!(service.seen().len(), attempts as usize);
        let header = format!("attempt={attempts}; max={}", attempts.min(limit));
        assert_eq!(service.attempts().last(), Some(&header));
    }
}

#[tokio::test(start_paused = true)]
async fn client_sdk_max_attempts_is_an_upper_bound() {
    let retries = RetryInterceptor::aws_2026();
    let config = with_retries!(Scripted::default().config(), retries.clone());
    for (most, expected) in [(1, 1), (2, 2), (9, 3)] {
        let service = Scripted::always(Answer::status(503));
        let config = config.clone().http_client(service.http_client());
        let client = Client::from_conf(config.build());
        let limit = Config::builder().retry_config(RetryConfig::standard().with_max_attempts(most));
        let report = ReportSlot::new();
        let list = client.list_tables().customize().config_override(limit);
        let list = list.interceptor(CallOptions::new().report(&report));
        list.send().await.unwrap_err();
        assert_eq!(service.seen().len(), expected);
        assert_eq!(report.take().unwrap().stop_reason, StopReason::AttemptsExhausted);
    }
    // Two retries of the last call were not refunded, and one of the second.
    assert_eq!(retries.policy().tokens(0), Some(500.0 - 3.0 * 14.0));
}

#[tokio::test(start_paused = true)]
async fn client_retry_after_is_kept_within_5s_of_backoff() {
    let _guard = draws([0.5]);
    for (header, expected) in [("3000", 3000.0), ("90000", 5025.0), ("1", 25.0), ("soon", 25.0)] {
        let busy = Answer::status(503).header("x-amz-retry-after", header);
        let service = Scripted::new([busy, Answer::ok()]);
        put(&client(service.config(), &RetryInterceptor::aws_2026())).await.unwrap();
        assert_eq!(service.starts_ms(), [0.0, expected], "{header}");
    }
}

#[tokio::test(start_paused = true)]
async fn client_presets_have_their_attempts_and_delays() {
    let _guard = draws([0.5]);
    let starts = async |retries: RetryInterceptor, answer: Answer| {
        let service = Scripted::always(answer);
        put(&client(service.config(), &retries)).await.unwrap_err();
        service.starts_ms()
    };
    let (busy, throttled) = (Answer::status(503), Answer::throttled());
    assert_eq!(starts(RetryInterceptor::aws_2026(), busy.clone()).await, [0.0, 25.0, 75.0]);
    assert_eq!(starts(RetryInterceptor::aws_2026(), throttled).await, [0.0, 500.0, 1500.0]);
    let dynamodb = starts(RetryInterceptor::aws_2026_dynamodb(), busy.clone()).await;
    assert_eq!(dynamodb, [0.0, 12.5, 37.5, 87.5].map(f64::ceil), "the SDK's timers count in ms");
    let smithy = starts(RetryInterceptor::smithy_standard(), busy).await;
    assert_eq!(smithy, [0.0, 5.0, 13.0]);
}

#[tokio::test(start_paused = true)]
async fn client_deadline_of_the_policy_ends_attempt_and_delay() {
    let policy = |delay| {
        let policy = Policy::constant(delay).unlimited().deadline(ms(100));
        RetryInterceptor::new(policy.throttle(Throttle::none()).build()).unwrap()
    };
    // No sleep that no attempt can follow.
    let service = Scripted::new([Answer::status(503), Answer::status(503)]);
    let began = tokio::time::Instant::now();
    put(&client(service.config(), &policy(ms(60)))).await.unwrap_err();
    assert_eq!((service.seen().len(), began.elapsed()), (2, ms(60)));
    // An attempt that does not end is cancelled.
    let service = Scripted::new([Answer::status(503), Answer::hang()]);
    let began = tokio::time::Instant::now();
    let error = put(&client(service.config(), &policy(ms(60)))).await.unwrap_err();
    assert!(error.contains("TimeoutError") || error.contains("timeout"), "{error}");
    assert!((ms(100)..ms(102)).contains(&began.elapsed()), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn client_deadline_in_an_attempt_reports_the_failure_before() {
    let policy = Policy::constant(ms(10)).deadline(ms(100)).throttle(Throttle::none()).build();
    let service = Scripted::new([Answer::throttled(), Answer::hang()]);
    let client = client(service.config(), &RetryInterceptor::new(policy).unwrap());
    let report = ReportSlot::new();
    let options = CallOptions::new().report(&report);
    let error = client.list_tables().customize().interceptor(options).send().await.unwrap_err();
    assert!(matches!(error, SdkError::TimeoutError(_)), "{error:?}");
    let report = report.take().unwrap();
    assert_eq!((report.attempts, report.stop_reason), (2, StopReason::Deadline));
    assert_eq!(report.history[0].end, AttemptEnd::Failed(Failure::throttling()));
}

#[tokio::test(start_paused = true)]
async fn client_operation_timeout_of_the_sdk_limits_the_policy() {
    let timeouts = TimeoutConfig::builder().operation_timeout(ms(100)).build();
    let policy = Policy::constant(ms(60)).attempts(9).throttle(Throttle::none()).build();
    let service = Scripted::always(Answer::status(503));
    let config = service.config().timeout_config(timeouts);
    let began = tokio::time::Instant::now();
    let error = put(&client(config, &RetryInterceptor::new(policy).unwrap())).await.unwrap_err();
    assert_eq!(began.elapsed(), ms(60), "the second retry could not start in time: {error}");
    assert!(!error.contains("timeout"), "the last error is returned: {error}");
}

#[tokio::test(start_paused = true)]
async fn client_attempt_timeout_is_retried_if_the_policy_says_so() {
    let timeouts = || Policy::constant(ms(10)).attempts(3).attempt_timeout(ms(50));
    let retry = timeouts().retry_timeouts().throttle(Throttle::none()).build();
    let service = Scripted::new([Answer::hang(), Answer::ok()]);
    put(&client(service.config(), &RetryInterceptor::new(retry).unwrap())).await.unwrap();
    let starts = service.starts_ms();
    assert!((60.0..63.0).contains(&starts[1]), "{starts:?}");
    let stop = timeouts().throttle(Throttle::none()).build();
    let service = Scripted::new([Answer::hang()]);
    put(&client(service.config(), &RetryInterceptor::new(stop).unwrap())).await.unwrap_err();
    // A timeout that the client has, and not the policy, is the SDK's to classify.
    let service = Scripted::new([Answer::hang(), Answer::ok()]);
    let timeouts = TimeoutConfig::builder().operation_attempt_timeout(ms(50)).build();
    let config = service.config().timeout_config(timeouts);
    put(&client(config, &doubling(3))).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn client_smaller_attempt_timeout_of_the_sdk_delays_nothing() {
    let timeouts = TimeoutConfig::builder().operation_attempt_timeout(s(2)).build();
    let send = async |policy: Policy, answers: [Answer; 2]| {
        let service = Scripted::new(answers);
        let config = service.config().timeout_config(timeouts.clone());
        let client = client(config, &RetryInterceptor::new(policy).unwrap());
        let report = ReportSlot::new();
        let options = CallOptions::new().report(&report);
        let _ = client.list_tables().customize().interceptor(options).send().await;
        (service.starts_ms(), report.take().unwrap())
    };
    let policy = || Policy::constant(ms(10)).attempts(2).attempt_timeout(s(10)).deadline(s(11));
    let policy = || policy().throttle(Throttle::none());
    let retried = policy().retry_timeouts().build();
    let (starts, report) = send(retried, [Answer::hang(), Answer::ok()]).await;
    assert!((2009.9..2013.0).contains(&starts[1]), "{starts:?}");
    assert_eq!(report.stop_reason, StopReason::Succeeded);
    assert_eq!(report.history[0].end, AttemptEnd::TimedOut);
    for time in [report.elapsed, report.history[0].ended, report.history[1].started] {
        assert!((s(2)..ms(2_013)).contains(&time), "{report:?}");
    }
    // The policy does not retry timeouts: the smaller one is none of the SDK's own.
    let (starts, report) = send(policy().build(), [Answer::hang(), Answer::ok()]).await;
    assert_eq!((starts.len(), report.stop_reason), (1, StopReason::AttemptTimeout));
    assert!((s(2)..ms(2_003)).contains(&report.elapsed), "{report:?}");
}

#[tokio::test(start_paused = true)]
async fn client_deadline_hides_the_operation_timeout_of_one_operation() {
    // The SDK applies the config of an operation after the hook in which the client's policy sets its deadline,
    // and what a hook sets takes precedence.
    let policy = Policy::constant(ms(10)).attempts(3).throttle(Throttle::none());
    let timeouts = TimeoutConfig::builder().operation_timeout(ms(50)).build();
    for (policy, ends_at) in [(policy.deadline(ms(200)), ms(200)), (policy, ms(50))] {
        let service = Scripted::always(Answer::hang());
        let client = client(service.config(), &RetryInterceptor::new(policy.build()).unwrap());
        let config = Config::builder().timeout_config(timeouts.clone());
        let began = tokio::time::Instant::now();
        client.list_tables().customize().config_override(config).send().await.unwrap_err();
        assert!((ends_at..ends_at + ms(2)).contains(&began.elapsed()), "{:?}", began.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn client_attempt_timeout_of_an_operation_applies_under_a_deadline() {
    let policy = Policy::constant(ms(10)).attempts(3).deadline(s(5)).throttle(Throttle::none());
    let retries = RetryInterceptor::new(policy.build()).unwrap();
    let of_attempts = |time| TimeoutConfig::builder().operation_attempt_timeout(time).build();
    let service = Scripted::new([Answer::hang(), Answer::ok()]);
    let client = client(service.config().timeout_config(of_attempts(s(1))), &retries);
    let config = Config::builder().timeout_config(of_attempts(ms(50)));
    client.list_tables().customize().config_override(config).send().await.unwrap();
    let starts = service.starts_ms();
    assert!((60.0..63.0).contains(&starts[1]), "{starts:?}");
    // Without one of the operation, that of the client applies.
    let service = Scripted::new([Answer::hang(), Answer::ok()]);
    let client =
        crate::clients::client(service.config().timeout_config(of_attempts(s(1))), &retries);
    client.list_tables().send().await.unwrap();
    let starts = service.starts_ms();
    assert!((1010.0..1013.0).contains(&starts[1]), "{starts:?}");
}

#[tokio::test(start_paused = true)]
async fn client_timeouts_of_its_policy_bound_an_operation_with_another() {
    let bounded = Policy::constant(ms(10)).attempts(3).deadline(ms(100)).throttle(Throttle::none());
    let bounded = RetryInterceptor::new(bounded.build()).unwrap();
    let service = Scripted::always(Answer::hang());
    let client = client(service.config(), &bounded);
    let began = tokio::time::Instant::now();
    let other = with_retries!(Config::builder(), doubling(3));
    client.list_tables().customize().config_override(other).send().await.unwrap_err();
    assert!((ms(100)..ms(102)).contains(&began.elapsed()), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn client_strategy_decides_each_delay() {
    let strategy = |request: &Request<'_>| match request.retry_attempts() {
        0 => Decision::Retry(ms(7)),
        1 => Decision::Retry(ms(70)),
        _ => Decision::Decline,
    };
    let policy = Policy::constant(ms(1)).attempts(9).throttle(Throttle::none()).build();
    let policy = policy.with_strategy(strategy).unwrap();
    let service = Scripted::always(Answer::status(503));
    put(&client(service.config(), &RetryInterceptor::new(policy).unwrap())).await.unwrap_err();
    assert_eq!(service.starts_ms(), [0.0, 7.0, 77.0]);
}

#[tokio::test(start_paused = true)]
async fn client_elapsed_time_counts_from_the_first_attempt() {
    let strategy = |request: &Request<'_>| Decision::Retry(request.elapsed());
    let policy = Policy::constant(ms(1)).attempts(2).throttle(Throttle::none()).build();
    let policy = policy.with_strategy(strategy).unwrap();
    let service = Scripted::always(Answer::status(503).after(ms(40)));
    put(&client(service.config(), &RetryInterceptor::new(policy).unwrap())).await.unwrap_err();
    assert_eq!(service.starts_ms(), [0.0, 80.0]);
    let limits = Limits { hard: Some(ms(60)), basis: LimitBasis::Elapsed, ..Limits::default() };
    let policy = Policy::constant(ms(30)).limits(limits).throttle(Throttle::none()).build();
    let service = Scripted::always(Answer::status(503).after(ms(40)));
    put(&client(service.config(), &RetryInterceptor::new(policy).unwrap())).await.unwrap_err();
    assert_eq!(service.seen().len(), 1, "40 ms have passed, and 30 ms more do not fit");
    let timeouts = TimeoutConfig::builder().operation_timeout(ms(60)).build();
    let policy = Policy::constant(ms(30)).throttle(Throttle::none()).build();
    let service = Scripted::always(Answer::status(503).after(ms(40)));
    let retries = RetryInterceptor::new(policy).unwrap();
    let began = tokio::time::Instant::now();
    put(&client(service.config().timeout_config(timeouts), &retries)).await.unwrap_err();
    assert_eq!((service.seen().len(), began.elapsed()), (1, ms(40)));
}

#[tokio::test(start_paused = true)]
async fn client_budget_is_shared_with_other_calls() {
    static BUDGET: RetryBudget = RetryBudget::new(3.0, 0.1);
    let policy = Policy::constant(ms(1)).attempts(3).throttle(Throttle::budget(&BUDGET)).build();
    let service = Scripted::always(Answer::status(503));
    let retries = RetryInterceptor::new(policy.clone()).unwrap();
    put(&client(service.config(), &retries)).await.unwrap_err();
    assert_eq!((service.seen().len(), policy.tokens(0)), (3, Some(1.0)));
    // A call of another kind takes the last token, and then no request is retried.
    let other = policy.retry(|| async { Err::<(), _>("busy") }).when(|_| true).await.unwrap_err();
    assert_eq!((other.attempts(), other.stop_reason()), (2, StopReason::Throttled));
    put(&client(service.config(), &retries)).await.unwrap_err();
    assert_eq!(service.seen().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn client_dropped_during_a_delay_refunds_the_retry() {
    let retries = RetryInterceptor::aws_2026();
    let service = Scripted::always(Answer::throttled());
    let client = client(service.config(), &retries);
    let call = tokio::spawn(async move { put(&client).await });
    tokio::task::yield_now().await;
    while service.seen().is_empty() {
        tokio::task::yield_now().await;
    }
    tokio::task::yield_now().await;
    assert_eq!(retries.policy().tokens(0), Some(495.0));
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    assert_eq!(retries.policy().tokens(0), Some(500.0));
}

#[tokio::test(start_paused = true)]
async fn client_call_that_is_not_idempotent_needs_proof() {
    let send = async |answers: [Answer; 2]| {
        let service = Scripted::new(answers);
        let client = client(service.config(), &doubling(3));
        let report = ReportSlot::new();
        let options = CallOptions::new().not_idempotent().report(&report);
        let _ = client.list_tables().customize().interceptor(options).send().await;
        (service.seen().len(), report.take().unwrap().stop_reason)
    };
    let refused = Answer::io(ErrorKind::ConnectionRefused);
    assert_eq!(send([refused, Answer::ok()]).await, (2, StopReason::Succeeded));
    let reset = Answer::io(ErrorKind::ConnectionReset);
    // Throttling is no proof either: another part of the request may have been carried out.
    for answer in [Answer::status(503), reset, Answer::timeout(), Answer::throttled()] {
        assert_eq!(send([answer, Answer::ok()]).await, (1, StopReason::NotIdempotent));
    }
}

/// Rejects responses with an error that says to retry.
#[derive(Debug)]
struct RejectsResponses;

#[aws_smithy_runtime_api::client::interceptors::dyn_dispatch_hint]
impl aws_smithy_runtime_api::client::interceptors::Intercept for RejectsResponses {
    fn name(&self) -> &'static str {
        "RejectsResponses"
    }

    fn modify_before_deserialization(
        &self,
        _context: &mut BeforeDeserializationInterceptorContextMut<'_>,
        _components: &RuntimeComponents,
        _cfg: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        Err("the response has no signature".into())
    }
}

/// Retries every error.
#[derive(Debug)]
struct RetriesAll;

impl ClassifyRetry for RetriesAll {
    fn classify_retry(&self, context: &InterceptorContext) -> RetryAction {
        if context.is_failed() {
            RetryAction::transient_error()
        } else {
            RetryAction::NoActionIndicated
        }
    }

    fn name(&self) -> &'static str {
        "RetriesAll"
    }
}

#[tokio::test(start_paused = true)]
async fn client_rejected_response_is_no_proof_that_nothing_was_sent() {
    let service = Scripted::always(Answer::ok());
    let config = service.config().interceptor(RejectsResponses).retry_classifier(RetriesAll);
    let client = client(config, &doubling(3));
    let options = CallOptions::new().not_idempotent();
    client.list_tables().customize().interceptor(options).send().await.unwrap_err();
    assert_eq!(service.seen().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn client_report_has_attempts_and_reason() {
    let ends = Arc::new(Mutex::new(Vec::new()));
    let seen = ends.clone();
    let retries = RetryInterceptor::aws_2026().on_end(move |end| {
        let text = format!("{} {} {}", end.service, end.operation, end.report.stop_reason);
        seen.lock().unwrap().push((text, end.report.history.len()));
    });
    let service = Scripted::new([Answer::status(503), Answer::ok(), Answer::error("Other")]);
    let client = client(service.config(), &retries);
    put(&client).await.unwrap();
    put(&client).await.unwrap_err();
    let ends = ends.lock().unwrap();
    assert_eq!(ends.len(), 2, "{ends:?}");
    assert!(ends[0].0.starts_with("DynamoDB PutItem "), "{ends:?}");
    assert_eq!((ends[0].1, ends[1].1), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn client_operation_override_replaces_the_policy() {
    let (usual, special) = (RetryInterceptor::aws_2026(), RetryInterceptor::aws_2026());
    let service =
        Scripted::new([Answer::throttled(), Answer::ok(), Answer::throttled(), Answer::ok()]);
    let client = client(service.config(), &usual);
    let config = with_retries!(Config::builder(), special.clone());
    let list = client.list_tables().customize().config_override(config);
    list.send().await.unwrap();
    let tokens = |retries: &RetryInterceptor| retries.policy().tokens(0);
    assert_eq!((tokens(&usual), tokens(&special)), (Some(500.0), Some(500.0)));
    assert_eq!(service.seen().len(), 2, "one policy decided, once per attempt");
    // The same one twice is one policy.
    let config = with_retries!(Config::builder(), usual.clone());
    client.list_tables().customize().config_override(config).send().await.unwrap();
    assert_eq!(service.seen().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn client_success_at_once_counts_once_and_for_its_policy() {
    let (usual, special) = (RetryInterceptor::aws_2026(), RetryInterceptor::aws_2026());
    let service = Scripted::always(Answer::status(503));
    let client = client(service.config(), &usual);
    let list_with = async |retries: &RetryInterceptor| {
        let config = with_retries!(Config::builder(), retries.clone());
        client.list_tables().customize().config_override(config).send().await
    };
    let tokens = || [&usual, &special].map(|retries| retries.policy().tokens(0).unwrap());
    client.list_tables().send().await.unwrap_err();
    list_with(&special).await.unwrap_err();
    assert_eq!(tokens(), [472.0, 472.0]);
    service.answer_always(Answer::ok());
    client.list_tables().send().await.unwrap();
    assert_eq!(tokens(), [473.0, 472.0]);
    list_with(&special).await.unwrap();
    assert_eq!(tokens(), [473.0, 473.0]);
    // The same one twice is one policy.
    list_with(&usual).await.unwrap();
    assert_eq!(tokens(), [474.0, 473.0]);
}

#[test]
fn client_policy_charged_after_the_backoff_is_refused() {
    let strategy = StandardRetryStrategy::standard();
    let error = RetryInterceptor::new(strategy.policy().unwrap()).unwrap_err();
    assert_eq!(error, SetupError::ChargedAfterBackoff);
    assert!(error.to_string().contains("TokenOrder::TokenFirst"), "{error}");
    let order = strategy.order(TokenOrder::BackoffFirst);
    assert!(RetryInterceptor::standard(order).is_err());
    assert!(RetryInterceptor::standard(strategy).is_ok());
    let error = RetryInterceptor::standard(strategy.attempts(0)).unwrap_err();
    assert!(error.to_string().contains("attempts"), "{error}");
}

/// A delay that a test may not wait for in real time.
#[tokio::test]
async fn client_zero_delay_does_not_wait() {
    let policy = Policy::immediate().attempts(5).throttle(Throttle::none()).build();
    let service = Scripted::always(Answer::status(503));
    let began = std::time::Instant::now();
    put(&client(service.config(), &RetryInterceptor::new(policy).unwrap())).await.unwrap_err();
    assert_eq!(service.seen().len(), 5);
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}
