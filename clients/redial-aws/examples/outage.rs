//! An outage of DynamoDB, with the SDK's standard mode and with a retry budget.
//!
//! Run with `cargo run --example outage`. The service is the fault proxy, which answers every request with
//! status 503, so the example runs anywhere.

use std::time::Instant;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::config::{BehaviorVersion, Builder, Config, Credentials, Region};
use aws_smithy_http_client::Builder as HttpBuilder;
use redial::throttle::RetryBudget;
use redial::{Policy, Throttle, ms};
use redial_aws::{CallOptions, ReportSlot, RetryInterceptor, with_retries};
use redial_faults::proxy::{Fault, Proxy, ProxyRule, Script};

/// One budget for all calls to this dependency: 10 retries, then 1 for every 10 successes and per second.
static ORDERS: RetryBudget = RetryBudget::standard();
static POLICY: Policy =
    Policy::exponential(ms(5)).attempts(3).throttle(Throttle::budget(&ORDERS)).build();

const CALLS: u64 = 50;

fn config(url: &str) -> Builder {
    Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("us-east-1"))
        .credentials_provider(Credentials::new("key", "secret", None, None, "example"))
        .http_client(HttpBuilder::new().build_http())
        .endpoint_url(url)
}

/// How many requests the calls of this client send while the service is down.
async fn requests(config: Builder, sent: impl Fn() -> u64) -> u64 {
    let before = sent();
    let client = Client::from_conf(config.build());
    for _ in 0..CALLS {
        client.list_tables().send().await.expect_err("the service is down");
    }
    sent() - before
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let down = Script::new().rule(ProxyRule::new(Fault::status(503)));
    let proxy = Proxy::http("127.0.0.1:9").script(down).listen("127.0.0.1:0").await?;
    let sent = || proxy.counts().exchanges;

    let standard = RetryConfig::standard().with_initial_backoff(ms(5));
    let plain = requests(config(&proxy.url()).retry_config(standard), sent).await;
    println!("standard mode: {plain} requests for {CALLS} calls");

    let retries = RetryInterceptor::new(POLICY.clone())?;
    let budget = with_retries!(config(&proxy.url()), retries.clone());
    let with_budget = requests(budget.clone(), sent).await;
    println!("with a budget: {with_budget} requests for {CALLS} calls");

    let report = ReportSlot::new();
    let began = Instant::now();
    let list = Client::from_conf(budget.build()).list_tables().customize();
    let result = list.interceptor(CallOptions::new().report(&report)).send().await;
    println!("one call more: {:?} after {:?}", result.is_ok(), began.elapsed());
    if let Some(report) = report.take() {
        println!("  {} attempts; stopped: {}", report.attempts, report.stop_reason);
    }
    Ok(())
}

#[test]
fn outage_example_runs() {
    main().unwrap();
}
