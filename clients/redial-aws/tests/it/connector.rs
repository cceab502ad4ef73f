//! Goal: retries below signing, for what the SDK cannot wait for. Method: an HTTP client around a scripted
//! service, on a paused clock, in a client without retries of its own.

use std::io::ErrorKind;
use std::sync::Arc;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::config::timeout::TimeoutConfig;
use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::types::AttributeValue;
use aws_sdk_s3::primitives::{ByteStream, SdkBody};
use bytes::Bytes;
use http_body_util::Full;
use redial::rules::{ChargeAt, Rules};
use redial::strategy::{Decision, Request};
use redial::testing::draws;
use redial::throttle::{CostBucket, CostBucketConfig, WhenEmpty};
use redial::{Policy, Throttle, ms, s};
use redial_aws::RetryHttpClient;
use redial_smithy::StandardRetryStrategy;

use crate::clients;
use crate::scripted::{Answer, Scripted};

fn quick(attempts: u32) -> Policy {
    Policy::constant(ms(5)).attempts(attempts).throttle(Throttle::none()).build()
}

fn client(service: &Scripted, policy: Policy) -> Client {
    let http = RetryHttpClient::new(service.http_client(), policy);
    let config = service.config().http_client(http).retry_config(RetryConfig::disabled());
    Client::from_conf(config.build())
}

#[tokio::test(start_paused = true)]
async fn connector_repeats_the_signed_request() {
    let io = Answer::io(ErrorKind::ConnectionReset);
    let service = Scripted::new([Answer::status(503), io, Answer::timeout(), Answer::ok()]);
    let put = client(&service, quick(4)).put_item().table_name("pages");
    put.item("id", AttributeValue::S("a".into())).send().await.unwrap();
    assert_eq!(service.starts_ms(), [0.0, 5.0, 10.0, 15.0]);
    let seen = service.seen();
    assert!(seen.iter().all(|it| it.attempt == "attempt=1; max=1"), "{seen:?}");
    assert!(!seen[0].signature.is_empty());
    assert!(seen.iter().all(|it| it.signature == seen[0].signature && it.body == seen[0].body));
}

#[tokio::test(start_paused = true)]
async fn connector_strategy_may_answer_later() {
    let strategy = |_: &Request<'_>| {
        Decision::later(async {
            tokio::time::sleep(ms(30)).await;
            Some(ms(12))
        })
    };
    let policy = Policy::constant(ms(1)).throttle(Throttle::none()).build();
    let policy = policy.with_strategy(strategy).unwrap();
    let service = Scripted::new([Answer::status(503), Answer::ok()]);
    client(&service, policy).list_tables().send().await.unwrap();
    assert_eq!(service.starts_ms(), [0.0, 42.0]);
}

#[tokio::test(start_paused = true)]
async fn connector_backoff_comes_before_a_bucket_that_waits() {
    let _guard = draws([0.5]);
    let policy = StandardRetryStrategy::standard().capacity(5.0).policy().unwrap();
    let service = Scripted::new([Answer::status(503), Answer::status(503), Answer::ok()]);
    client(&service, policy).list_tables().send().await.unwrap();
    let starts = service.starts_ms();
    assert_eq!(starts[1], 5.0);
    assert!((495.0..515.0).contains(&(starts[2] - starts[1])), "{starts:?}");
}

#[tokio::test(start_paused = true)]
async fn connector_returns_the_last_error_of_the_service() {
    let service = Scripted::new([Answer::status(500), Answer::status(503)]);
    let error = client(&service, quick(2)).list_tables().send().await.unwrap_err();
    assert_eq!(error.raw_response().unwrap().status().as_u16(), 503);
    let service = Scripted::always(Answer::io(ErrorKind::ConnectionRefused));
    let error = client(&service, quick(3)).list_tables().send().await.unwrap_err();
    assert!(error.as_service_error().is_none() && service.seen().len() == 3);
}

#[tokio::test(start_paused = true)]
async fn connector_final_error_refunds_nothing() {
    let policy = StandardRetryStrategy::aws_2026().capacity(20.0).policy().unwrap();
    let invalid = || Answer::error("ValidationException");
    let service = Scripted::new([Answer::status(503), invalid(), invalid(), Answer::ok()]);
    let client = client(&service, policy.clone());
    client.list_tables().send().await.unwrap_err();
    assert_eq!(policy.tokens(0), Some(6.0), "the retry stays paid");
    client.list_tables().send().await.unwrap_err();
    assert_eq!(policy.tokens(0), Some(6.0), "an error at once adds nothing");
    client.list_tables().send().await.unwrap();
    assert_eq!(policy.tokens(0), Some(7.0));
}

#[tokio::test(start_paused = true)]
async fn connector_reads_statuses_headers_and_hints() {
    for (answer, retried) in [
        (Answer::status(429), true),
        (Answer::status(500), true),
        (Answer::status(400), false),
        (Answer::status(501), false),
        (Answer::status(400).header("x-amzn-errortype", "a#ThrottlingException:http://b/"), true),
        (Answer::status(400).header("x-amzn-errortype", "RequestTimeout"), true),
        (Answer::status(400).header("x-amzn-errortype", "ValidationException"), false),
        // Its code is in the body.
        (Answer::throttled(), false),
    ] {
        let service = Scripted::new([answer.clone(), Answer::ok()]);
        let result = client(&service, quick(2)).list_tables().send().await;
        assert_eq!((result.is_ok(), service.seen().len() == 2), (retried, retried), "{answer:?}");
    }
    let busy = Answer::status(503).header("x-amz-retry-after", "70");
    let service = Scripted::new([busy, Answer::ok()]);
    client(&service, quick(2)).list_tables().send().await.unwrap();
    assert_eq!(service.starts_ms(), [0.0, 70.0]);
}

#[tokio::test(start_paused = true)]
async fn connector_attempt_timeout_of_the_sdk_covers_all_attempts() {
    let service = Scripted::always(Answer::status(503));
    let policy = Policy::constant(ms(60)).attempts(10).throttle(Throttle::none()).build();
    let http = RetryHttpClient::new(service.http_client(), policy);
    let timeouts = TimeoutConfig::builder().operation_attempt_timeout(ms(100)).build();
    let config = service.config().http_client(http).timeout_config(timeouts);
    let client = Client::from_conf(config.retry_config(RetryConfig::disabled()).build());
    let error = client.list_tables().send().await.unwrap_err();
    assert!(matches!(error, SdkError::TimeoutError(_)), "{error:?}");
    assert_eq!(service.starts_ms(), [0.0, 60.0]);
}

#[tokio::test(start_paused = true)]
async fn connector_stream_gets_one_attempt() {
    let service = Scripted::new([Answer::status(503), Answer::ok()]);
    let http = RetryHttpClient::new(service.http_client(), quick(2));
    let config = clients::s3("http://scripted.invalid").http_client(http);
    let config = config.retry_config(RetryConfig::disabled());
    let config = config
        .request_checksum_calculation(aws_sdk_s3::config::RequestChecksumCalculation::WhenRequired);
    let client = aws_sdk_s3::Client::from_conf(config.build());
    let stream = ByteStream::new(SdkBody::from_body_1_x(Full::new(Bytes::from("content"))));
    let put = client.put_object().bucket("shop").key("a").body(stream);
    let error = put.content_length(7).send().await.unwrap_err();
    assert_eq!(error.raw_response().unwrap().status().as_u16(), 503);
    assert_eq!(service.seen().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn connector_deadline_without_a_response_is_a_timeout() {
    let policy = Policy::constant(ms(5)).deadline(s(2)).throttle(Throttle::none()).build();
    let service = Scripted::always(Answer::hang());
    let error = client(&service, policy).list_tables().send().await.unwrap_err();
    let failure = format!("{:?}", aws_sdk_dynamodb::error::DisplayErrorContext(&error));
    assert!(failure.contains("no response: no time left before the deadline"), "{failure}");
    assert_eq!(service.seen().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn connector_deadline_in_the_second_attempt_is_a_timeout() {
    let before = Policy::constant(ms(5)).deadline(s(2)).throttle(Throttle::none()).build();
    // Smithy's order keeps the response during the backoff: the bucket may refuse the retry.
    let after = StandardRetryStrategy::standard().policy().unwrap();
    let rules = Rules { deadline: Some(s(2)), ..*after.rules() };
    assert_eq!(rules.charge_at, ChargeAt::AfterBackoff);
    let after = Policy::from_rules(rules).throttle(Throttle::none()).build();
    for policy in [before, after] {
        let service = Scripted::new([Answer::status(503), Answer::hang()]);
        let error = client(&service, policy).list_tables().send().await.unwrap_err();
        let failure = format!("{:?}", aws_sdk_dynamodb::error::DisplayErrorContext(&error));
        assert!(matches!(error, SdkError::DispatchFailure(_)), "{failure}");
        let text = "no response after 503: no time left before the deadline";
        assert!(failure.contains(text), "{failure}");
        assert_eq!(service.seen().len(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn connector_refused_after_the_backoff_returns_the_response() {
    let rules = StandardRetryStrategy::standard().policy().unwrap().rules().to_owned();
    let costs = CostBucketConfig::STANDARD;
    let costs =
        CostBucketConfig { capacity: 5.0, refill_per_second: 0.0, empty: WhenEmpty::Fail, ..costs };
    let policy = Policy::from_rules(rules).throttle(Throttle::none()).build();
    let policy = policy.sharing(Arc::new(CostBucket::new(costs).unwrap()));
    let service = Scripted::always(Answer::status(503));
    let error = client(&service, policy).list_tables().send().await.unwrap_err();
    assert_eq!(error.raw_response().unwrap().status().as_u16(), 503);
    assert_eq!(service.seen().len(), 2, "one token, one retry");
}

#[tokio::test(start_paused = true)]
async fn connector_response_that_is_retried_is_dropped_before_the_backoff() {
    let policy = Policy::constant(s(1)).attempts(2).throttle(Throttle::none()).build();
    let body = Arc::new(());
    let service = Scripted::new([Answer::status(503).in_body(&body), Answer::ok()]);
    let client = client(&service, policy);
    let call = tokio::spawn(async move { client.list_tables().send().await.map(drop) });
    tokio::time::sleep(ms(500)).await;
    assert_eq!((service.seen().len(), Arc::strong_count(&body)), (1, 1));
    call.await.unwrap().unwrap();
    assert_eq!(service.seen().len(), 2);
}
