//! Goal: what differs from the SDK's own standard mode, given the same answers. Method: both on the same
//! scripted service. `docs/aws.md` has the results as a table.

use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::retry::{RetryConfig, RetryPartition, TokenBucket};
use aws_sdk_dynamodb::config::timeout::TimeoutConfig;
use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::types::AttributeValue;
use aws_smithy_types::retry::RetrySpec;
use redial_aws::RetryInterceptor;
use redial_smithy::StandardRetryStrategy;

use crate::clients::client;
use crate::scripted::{Answer, Scripted};

/// A client with the SDK's own retries and this quota.
fn sdk(service: &Scripted, config: RetryConfig, quota: &TokenBucket) -> Client {
    let partition = RetryPartition::custom("side by side").token_bucket(quota.clone()).build();
    let config = service.config().retry_config(config).retry_partition(partition);
    Client::from_conf(config.build())
}

fn rules_of_2026() -> RetryConfig {
    RetryConfig::standard().with_retry_spec(RetrySpec::v2_1())
}

/// The SDK's quota with the costs of 2026.
fn quota(capacity: usize) -> TokenBucket {
    TokenBucket::builder()
        .capacity(capacity)
        .retry_cost(14)
        .timeout_retry_cost(14)
        .throttling_retry_cost(5)
        .build()
}

/// A call that fails, and whether it was retried before that.
async fn is_retried(client: &Client, service: &Scripted) -> bool {
    let before = service.seen().len();
    client.list_tables().send().await.unwrap_err();
    service.seen().len() > before + 1
}

/// How many calls in a row are retried until the quota is empty.
async fn retries_left(client: &Client, service: &Scripted) -> u32 {
    let mut count = 0;
    while is_retried(client, service).await {
        count += 1;
        assert!(count < 1_000, "the quota does not limit");
    }
    count
}

/// Starts a call that fails and waits for its retry.
async fn start_failing(client: &Client, service: &Scripted) -> tokio::task::JoinHandle<()> {
    let before = service.seen().len();
    let list = client.list_tables();
    let call = tokio::spawn(async move { list.send().await.map(drop).unwrap() });
    while service.seen().len() == before {
        tokio::task::yield_now().await;
    }
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    call
}

#[tokio::test(start_paused = true)]
async fn side_by_side_sdk_success_refunds_retry_of_another_call() {
    let answers = || [Answer::throttled(), Answer::ok(), Answer::ok()];
    let service = Scripted::new(answers());
    let quota = TokenBucket::builder().capacity(5).throttling_retry_cost(5).build();
    let client_of_sdk = sdk(&service, RetryConfig::standard(), &quota);
    let waiting = start_failing(&client_of_sdk, &service).await;
    assert!(quota.is_empty(), "the retry took all");
    client_of_sdk.list_tables().send().await.unwrap();
    assert!(quota.is_full(), "another call's success gave it back, and the retry still waits");
    waiting.await.unwrap();

    let service = Scripted::new(answers());
    let strategy = StandardRetryStrategy::aws_2026().capacity(5.0);
    let strategy = strategy.cost(redial::FailureKind::Server, 5.0);
    let retries = RetryInterceptor::standard(strategy).unwrap();
    let client = client(service.config(), &retries);
    let waiting = start_failing(&client, &service).await;
    assert_eq!(retries.policy().tokens(0), Some(0.0));
    client.list_tables().send().await.unwrap();
    assert_eq!(retries.policy().tokens(0), Some(1.0), "a first success adds one");
    waiting.await.unwrap();
    assert_eq!(retries.policy().tokens(0), Some(5.0), "its own success refunds the retry");
}

/// How many retries the quota allows after 16 calls at once, with two failures and a success each.
async fn retries_after_a_burst(client: &Client, service: &Scripted) -> u32 {
    let calls = (0..16).map(|_| {
        let list = client.list_tables();
        tokio::spawn(async move { list.send().await.map(drop) })
    });
    for call in calls.collect::<Vec<_>>() {
        call.await.unwrap().unwrap();
    }
    service.answer_always(Answer::status(503));
    retries_left(client, service).await
}

fn two_failures() -> Scripted {
    Scripted::each_call([Answer::status(503), Answer::status(503), Answer::ok()])
}

#[tokio::test(start_paused = true)]
async fn side_by_side_quota_after_16_concurrent_calls() {
    // Each call withdraws 14 twice, and its success refunds the last 14: 500 - 16 * 14 = 276, which is 9
    // more calls with two retries each, and one with one.
    let service = two_failures();
    let retries = RetryInterceptor::aws_2026();
    let own = client(service.config(), &retries);
    assert_eq!(retries_after_a_burst(&own, &service).await, 10);
    assert_eq!(retries.policy().tokens(0), Some(276.0 - 19.0 * 14.0));

    // In the SDK all calls of a client share one place for a permit: retries forget each other's, and most
    // successes add one token and refund nothing.
    let service = two_failures();
    let of_sdk = sdk(&service, rules_of_2026(), &quota(500));
    let left = retries_after_a_burst(&of_sdk, &service).await;
    assert!(left < 10, "the SDK's quota is right: {left}");
}

#[tokio::test(start_paused = true)]
async fn side_by_side_sdk_ignores_retry_after_of_modeled_errors() {
    // The service asks for 3 s, with an error that its model marks as retryable.
    let conflict = Answer::error("ReplicatedWriteConflictException");
    let conflict = conflict.header("x-amz-retry-after", "3000");
    let put = async |service: &Scripted, client: Client| {
        let put = client.put_item().table_name("orders");
        put.item("id", AttributeValue::S("1".into())).send().await.unwrap();
        service.starts_ms()[1]
    };
    let service = Scripted::new([conflict.clone(), Answer::ok()]);
    let of_sdk = put(&service, sdk(&service, rules_of_2026(), &quota(500))).await;
    assert!(of_sdk <= 1_000.0, "{of_sdk}");
    let service = Scripted::new([conflict, Answer::ok()]);
    let own = put(&service, client(service.config(), &RetryInterceptor::aws_2026())).await;
    assert_eq!(own, 3_000.0);
}

#[tokio::test(start_paused = true)]
async fn side_by_side_default_delays_of_the_sdk_are_longer() {
    let service = Scripted::always(Answer::status(503));
    let of_sdk = Client::from_conf(service.config().build());
    let mut longest = 0.0_f64;
    for _ in 0..20 {
        let before = service.seen().len();
        of_sdk.list_tables().send().await.unwrap_err();
        let starts = &service.starts_ms()[before..];
        assert_eq!(starts.len(), 3);
        assert!(starts[1] - starts[0] <= 1_000.0 && starts[2] - starts[1] <= 2_000.0);
        longest = longest.max(starts[2] - starts[0]);
    }
    assert!(longest > 150.0, "aws-2026 waits at most 50 ms and 100 ms: {longest}");
    let service = Scripted::always(Answer::status(503));
    let of_2026 = sdk(&service, rules_of_2026(), &TokenBucket::unlimited());
    for _ in 0..20 {
        let before = service.seen().len();
        of_2026.list_tables().send().await.unwrap_err();
        let starts = &service.starts_ms()[before..];
        assert!(starts[1] - starts[0] <= 51.0 && starts[2] - starts[1] <= 101.0, "{starts:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn side_by_side_sdk_call_dropped_in_backoff_keeps_tokens() {
    // The other half is `client_dropped_during_a_delay_refunds_the_retry`.
    let service = Scripted::always(Answer::throttled());
    let quota = TokenBucket::builder().capacity(5).throttling_retry_cost(5).build();
    let waiting = start_failing(&sdk(&service, RetryConfig::standard(), &quota), &service).await;
    assert!(quota.is_empty());
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    assert!(quota.is_full(), "the client is gone, and its strategy with the permit");

    let of_sdk = sdk(&service, RetryConfig::standard(), &quota);
    let waiting = start_failing(&of_sdk, &service).await;
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    assert!(quota.is_empty(), "as long as the client lives, the tokens are lost");
}

#[tokio::test(start_paused = true)]
async fn side_by_side_sdk_waits_for_a_late_retry() {
    // The other half is `client_operation_timeout_of_the_sdk_limits_the_policy`.
    let service = Scripted::new([Answer::status(503)]);
    let far = Duration::from_secs(1_000_000);
    let late = RetryConfig::standard().with_initial_backoff(far).with_max_backoff(far);
    let timeouts = TimeoutConfig::builder().operation_timeout(Duration::from_secs(2)).build();
    let config = service.config().retry_config(late).timeout_config(timeouts);
    let began = tokio::time::Instant::now();
    let error = Client::from_conf(config.build()).list_tables().send().await.unwrap_err();
    assert!(matches!(error, SdkError::TimeoutError(_)), "{error:?}");
    assert!(began.elapsed() >= Duration::from_secs(2), "{:?}", began.elapsed());
}
