//! Goal: the Smithy scenarios hold for an SDK client. Method: each is played on a paused clock against a
//! scripted service: inside the client if its retries are charged before the backoff, and around the operation
//! otherwise; and each of them below signing, where the reason of the end is not visible.

use std::io::ErrorKind;
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::retry::RetryConfig;
use redial::testing::draws;
use redial::time::{Sleeper as _, Tokio};
use redial::{Policy, StopReason};
use redial_aws::{CallOptions, ReportSlot, RetryHttpClient, RetryInterceptor, sdk_failure};
use redial_smithy::StandardRetryStrategy;
use serde_json::Value;
use tokio::time::Instant;

use crate::scripted::{Answer, Scripted};

const SCENARIOS: &str = include_str!("../../../../scenarios/smithy.json");

/// How many scenarios play inside the client, around the operation, and below signing.
const PLAYED: [usize; 3] = [2, 10, 12];

/// The SDK's timers count in milliseconds, rounded up.
const TOLERANCE: Duration = Duration::from_millis(1);

fn time(value: &Value) -> Duration {
    Duration::from_secs_f64(value.as_f64().expect("a time in ms") / 1e3)
}

fn answer(attempt: &Value) -> Answer {
    let answer = match attempt["outcome"].as_str().expect("an outcome") {
        "ok" => Answer::ok(),
        "fatal" => Answer::error("ValidationException"),
        "server" => Answer::status(503),
        "client" => Answer::io(ErrorKind::ConnectionReset),
        // Services with another protocol have the code in this header, which is also seen below signing.
        "throttling" => {
            Answer::throttled().header("x-amzn-errortype", "ProvisionedThroughputExceededException")
        }
        "timeout" => Answer::timeout(),
        "hang" => Answer::hang(),
        other => panic!("an unknown outcome {other:?}"),
    };
    answer.after(attempt.get("after").map_or(Duration::ZERO, time))
}

fn assert_close(found: Duration, expected: &Value, what: &str) {
    let expected = time(expected);
    let is_close =
        expected <= found + Duration::from_micros(1) && found <= expected + TOLERANCE * 3;
    assert!(is_close, "{what}: {found:?}, expected {expected:?}");
}

/// The reason as scenarios name it.
fn why(stop_reason: StopReason) -> &'static str {
    match stop_reason {
        StopReason::Succeeded => "succeeded",
        StopReason::NotRetryable => "fatal",
        StopReason::AttemptsExhausted => "attempts",
        StopReason::Throttled => "throttled",
        StopReason::Deadline => "deadline",
        other => panic!("unexpected: {other:?}"),
    }
}

/// Plays the calls of a scenario one after the other; `call` makes one and returns how it ended, and why if
/// that is visible.
async fn play<C>(scenario: &Value, policy: &Policy, service: &Scripted, mut call: C)
where
    C: AsyncFnMut() -> (Option<StopReason>, bool),
{
    let draws_of = |list: &Vec<Value>| list.iter().map(|it| it.as_f64().unwrap()).collect();
    let list: Vec<f64> = scenario["draws"].as_array().map_or_else(|| vec![0.5], draws_of);
    let _guard = draws(list);
    let began = Instant::now();
    for expected in scenario["calls"].as_array().expect("calls") {
        tokio::time::sleep_until(began + expected.get("at").map_or(Duration::ZERO, time)).await;
        let before = service.seen().len();
        service.clear();
        service.push(expected["attempts"].as_array().expect("attempts").iter().map(answer));
        let start = Instant::now();
        let (stop_reason, is_ok) = call().await;
        let end = &expected["expect"]["end"];
        assert_close(start.elapsed(), &end["at"], "end");
        let seen = &service.seen()[before..];
        let starts = expected["expect"]["starts"].as_array().expect("starts");
        assert_eq!(seen.len(), starts.len(), "attempts");
        for (seen, expected) in seen.iter().zip(starts) {
            assert_close(seen.at - start, expected, "start");
        }
        if let Some(stop_reason) = stop_reason {
            assert_eq!(why(stop_reason), end["why"].as_str().expect("why"));
        }
        assert_eq!(is_ok, end["outcome"] == "ok");
        let tokens = policy.tokens(Tokio.now()).expect("a bucket");
        let expected = expected["expect"]["tokens"].as_f64().expect("tokens");
        // A bucket with a refill gains what the rounded timers took longer.
        assert!((tokens - expected).abs() < 0.05, "tokens: {tokens}, expected {expected}");
    }
}

/// Inside the client: an interceptor.
async fn play_inside(scenario: &Value, policy: Policy) {
    let service = Scripted::default();
    let retries = RetryInterceptor::new(policy.clone()).expect("charged before the backoff");
    let client = crate::clients::client(service.config(), &retries);
    let call = async || {
        let report = ReportSlot::new();
        let options = CallOptions::new().report(&report);
        let result = client.list_tables().customize().interceptor(options).send().await;
        (Some(report.take().expect("a report").stop_reason), result.is_ok())
    };
    play(scenario, &policy, &service, call).await;
}

/// Around the operation, with the SDK's retries off.
async fn play_around(scenario: &Value, policy: Policy) {
    let service = Scripted::default();
    let config = service.config().retry_config(RetryConfig::disabled()).build();
    let client = Client::from_conf(config);
    let call = async || {
        let list = policy.retry(|| client.list_tables().send()).when(sdk_failure);
        match list.await {
            Ok(_) => (Some(StopReason::Succeeded), true),
            Err(error) => (Some(error.stop_reason()), false),
        }
    };
    play(scenario, &policy, &service, call).await;
}

/// Below signing, with the SDK's retries off.
async fn play_below(scenario: &Value, policy: Policy) {
    let service = Scripted::default();
    let http = RetryHttpClient::new(service.http_client(), policy.clone());
    let config = service.config().http_client(http).retry_config(RetryConfig::disabled());
    let client = Client::from_conf(config.build());
    let call = async || (None, client.list_tables().send().await.is_ok());
    play(scenario, &policy, &service, call).await;
}

#[tokio::test(start_paused = true)]
async fn scenarios_of_smithy_hold_for_an_sdk_client() {
    let file: Value = serde_json::from_str(SCENARIOS).expect("JSON");
    let mut played = [0; 3];
    for scenario in file["scenarios"].as_array().expect("scenarios") {
        println!("{}", scenario["name"]);
        // A bucket of its own for each way.
        let policy = || {
            let strategy = scenario["policy"]["smithy"].clone();
            let strategy: StandardRetryStrategy =
                serde_json::from_value(strategy).expect("a strategy");
            strategy.policy().expect("a policy")
        };
        if RetryInterceptor::new(policy()).is_ok() {
            play_inside(scenario, policy()).await;
            played[0] += 1;
        } else {
            play_around(scenario, policy()).await;
            played[1] += 1;
        }
        play_below(scenario, policy()).await;
        played[2] += 1;
    }
    assert_eq!(played, PLAYED);
}

#[tokio::test(start_paused = true)]
async fn scenarios_of_smithy_hold_token_first_inside_the_client() {
    // Where the bucket is not empty and does not refill, the order of backoff and tokens makes no
    // difference, so these scenarios also hold inside the client.
    let names = [
        "the block always runs at least once",
        "a failure that is not retryable ends it",
        "throttling costs more",
        "success returns what its last retry took",
        "first success adds one",
    ];
    let file: Value = serde_json::from_str(SCENARIOS).expect("JSON");
    let scenarios = file["scenarios"].as_array().expect("scenarios");
    for name in names {
        let scenario = scenarios.iter().find(|it| it["name"] == name).expect(name);
        let strategy = scenario["policy"]["smithy"].clone();
        let strategy: StandardRetryStrategy = serde_json::from_value(strategy).expect("a strategy");
        let strategy = strategy.order(redial_smithy::TokenOrder::TokenFirst);
        play_inside(scenario, strategy.policy().expect("a policy")).await;
    }
}
