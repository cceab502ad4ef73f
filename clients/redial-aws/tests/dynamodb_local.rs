//! Goal: retries of DynamoDB operations against Amazon's own server. Method: DynamoDB Local behind the fault
//! proxy, in real time; `cargo xtask test aws-dynamodb` installs it and runs this test.
//!
//! One server for all parts, because it takes seconds to start.

#[path = "it/clients.rs"]
mod clients;

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType,
    ScalarAttributeType, TableStatus,
};
use redial::throttle::RetryBudget;
use redial::{Policy, StopReason, Throttle, ms, s};
use redial_aws::{CallOptions, ReportSlot, RetryInterceptor, Wait, is_not_found, wait};
use redial_faults::proxy::{Fault, Handle, Proxy, ProxyRule};
use redial_smithy::StandardRetryStrategy;

/// The folder with the jars and native libraries of DynamoDB Local.
const FOLDER: &str = "REDIAL_DYNAMODB_LOCAL";

/// How long the server may take to start on a busy machine.
const START_MAX: Duration = Duration::from_secs(120);

/// The server; dropping it ends the process.
struct DynamoDbLocal {
    process: Child,
    port: u16,
}

impl DynamoDbLocal {
    fn start() -> Self {
        let folder = std::env::var(FOLDER).unwrap_or_else(|_| {
            panic!("{FOLDER} is not set: run `cargo xtask test aws-dynamodb`, which installs it")
        });
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let process = Command::new("java")
            .arg(format!("-Djava.library.path={folder}"))
            .args(["-cp", &format!("{folder}/*")])
            .arg("com.amazonaws.services.dynamodbv2.local.main.ServerRunner")
            .args(["-inMemory", "-disableTelemetry", "-port", &port.to_string()])
            .env("DDB_LOCAL_TELEMETRY", "0")
            .stdout(Stdio::null())
            .spawn()
            .expect("java runs");
        DynamoDbLocal { process, port }
    }

    async fn proxy(&mut self) -> Handle {
        let began = Instant::now();
        let address = ("127.0.0.1", self.port);
        while tokio::net::TcpStream::connect(address).await.is_err() {
            let ended = self.process.try_wait().unwrap();
            assert!(ended.is_none(), "DynamoDB Local ended: {ended:?}");
            assert!(began.elapsed() < START_MAX, "DynamoDB Local does not answer");
            tokio::time::sleep(ms(100)).await;
        }
        Proxy::http(format!("127.0.0.1:{}", self.port)).listen("127.0.0.1:0").await.unwrap()
    }
}

impl Drop for DynamoDbLocal {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn error(status: u16, code: &str) -> Fault {
    let body = format!(r#"{{"__type":"com.amazonaws.dynamodb.v20120810#{code}","message":"no"}}"#);
    Fault::status(status).header("content-type", "application/x-amz-json-1.0").body(body)
}

fn throttled() -> Fault {
    error(400, "ProvisionedThroughputExceededException")
}

fn quick(attempts: u32) -> RetryInterceptor {
    let policy = Policy::constant(ms(5)).attempts(attempts).throttle(Throttle::none()).build();
    RetryInterceptor::new(policy).unwrap()
}

fn client(proxy: &Handle, retries: &RetryInterceptor) -> Client {
    clients::client(clients::dynamodb(&proxy.url()), retries)
}

fn text(value: &str) -> AttributeValue {
    AttributeValue::S(value.into())
}

static POLL: Policy =
    Policy::constant(ms(50)).unlimited().deadline(s(60)).throttle(Throttle::none()).build();

/// A waiter on a real operation: it starts before the table exists, and sees it become active.
async fn table_becomes_active(proxy: &Handle) {
    let client = client(proxy, &quick(4));
    let polls_without = AtomicU32::new(0);
    let describe = || client.describe_table().table_name("orders").send();
    let active = wait(&POLL, describe, |result| match result {
        Ok(output) => match output.table().and_then(|table| table.table_status()) {
            Some(TableStatus::Active) => Wait::Done,
            _ => Wait::NotYet,
        },
        Err(error) if is_not_found(error) => {
            polls_without.fetch_add(1, Relaxed);
            Wait::NotYet
        }
        Err(_) => Wait::Other,
    });
    let create = async {
        while polls_without.load(Relaxed) == 0 {
            tokio::time::sleep(ms(5)).await;
        }
        proxy.requests([Fault::status(500), throttled(), Fault::reset()]);
        create_table(&client).await;
    };
    let (waited, ()) = tokio::join!(active.with_report(), create);
    let (_, report) = waited.unwrap();
    assert!(report.attempts > polls_without.load(Relaxed), "{report:?}");
    assert_eq!(report.stop_reason, StopReason::Succeeded);
}

async fn create_table(client: &Client) {
    let attribute = AttributeDefinition::builder()
        .attribute_name("id")
        .attribute_type(ScalarAttributeType::S)
        .build();
    let key = KeySchemaElement::builder().attribute_name("id").key_type(KeyType::Hash).build();
    let create = client
        .create_table()
        .table_name("orders")
        .attribute_definitions(attribute.unwrap())
        .key_schema(key.unwrap())
        .billing_mode(BillingMode::PayPerRequest);
    create.send().await.unwrap();
}

/// Put, get and query, each through every kind of fault.
async fn operations_succeed_through_faults(proxy: &Handle) {
    let client = client(proxy, &quick(8));
    let faults = || {
        [
            Fault::status(500),
            Fault::status(503),
            throttled(),
            error(400, "ThrottlingException"),
            Fault::reset(),
            Fault::close(),
            Fault::pass().delay(ms(20)),
        ]
    };
    proxy.requests(faults());
    let put = client.put_item().table_name("orders").item("id", text("1")).item("is", text("paid"));
    put.send().await.unwrap();
    proxy.requests(faults());
    let get = client.get_item().table_name("orders").key("id", text("1")).send().await.unwrap();
    assert_eq!(get.item().unwrap()["is"], text("paid"));
    proxy.requests(faults());
    let query = client
        .query()
        .table_name("orders")
        .key_condition_expression("id = :id")
        .expression_attribute_values(":id", text("1"));
    assert_eq!(query.send().await.unwrap().count(), 1);
    let record = proxy.record();
    let last = record.exchanges.last().unwrap();
    assert_eq!(last.headers["amz-sdk-request"], "attempt=7; max=8");
}

/// A slow answer is cut by the attempt timeout, and the next attempt succeeds.
async fn slow_answer_is_cut(proxy: &Handle) {
    let policy = Policy::constant(ms(5)).attempts(3).attempt_timeout(s(2)).retry_timeouts();
    let retries = RetryInterceptor::new(policy.throttle(Throttle::none()).build()).unwrap();
    proxy.requests([Fault::pass().delay(s(60))]);
    let began = Instant::now();
    let get = client(proxy, &retries).get_item().table_name("orders").key("id", text("1"));
    let report = ReportSlot::new();
    let options = CallOptions::new().report(&report);
    get.customize().interceptor(options).send().await.unwrap();
    assert_eq!(report.take().unwrap().attempts, 2);
    // Generous: a timeout and an answer.
    assert!((s(2)..s(30)).contains(&began.elapsed()), "{:?}", began.elapsed());
}

/// Errors of the real service are classified.
async fn condition_that_fails_is_not_retried(proxy: &Handle) {
    let client = client(proxy, &quick(8));
    let before = proxy.counts().exchanges;
    let put = client.put_item().table_name("orders").item("id", text("1"));
    let put = put.condition_expression("attribute_not_exists(id)").send().await;
    let error = put.unwrap_err().into_service_error();
    assert!(error.is_conditional_check_failed_exception(), "{error:?}");
    assert_eq!(proxy.counts().exchanges, before + 1);
}

/// A counter is not incremented twice: the lost answer of a call that is not idempotent is not repeated.
async fn increment_is_not_repeated(proxy: &Handle) {
    let client = client(proxy, &quick(4));
    let add = || {
        client
            .update_item()
            .table_name("orders")
            .key("id", text("hits"))
            .update_expression("ADD n :one")
            .expression_attribute_values(":one", AttributeValue::N("1".into()))
            .customize()
    };
    proxy.requests([Fault::reset().after_upstream()]);
    let report = ReportSlot::new();
    let options = CallOptions::new().not_idempotent().report(&report);
    add().interceptor(options).send().await.unwrap_err();
    assert_eq!(report.take().unwrap().stop_reason, StopReason::NotIdempotent);
    let get = client.get_item().table_name("orders").key("id", text("hits")).send().await.unwrap();
    assert_eq!(get.item().unwrap()["n"], AttributeValue::N("1".into()));
    // Without the option it is, and the server counts two.
    proxy.requests([Fault::reset().after_upstream()]);
    add().send().await.unwrap();
    let get = client.get_item().table_name("orders").key("id", text("hits")).send().await.unwrap();
    assert_eq!(get.item().unwrap()["n"], AttributeValue::N("3".into()));
}

/// The quota is exact with 16 calls at once: each fails twice and succeeds.
async fn quota_is_exact_under_concurrency(proxy: &Handle) {
    let strategy = StandardRetryStrategy::aws_2026().backoff_first(ms(5)).throttling_first(ms(5));
    let retries = RetryInterceptor::standard(strategy).unwrap();
    let client = client(proxy, &retries);
    // The attempt header decides, so that each call fails at its first two attempts.
    for (attempt, fault) in [(1, Fault::status(503)), (2, throttled())] {
        let header = format!("attempt={attempt}; max=3");
        proxy.rule(ProxyRule::new(fault).header("amz-sdk-request", &header));
    }
    let calls: Vec<_> = (0..16)
        .map(|_| {
            let get = client.get_item().table_name("orders").key("id", text("1"));
            tokio::spawn(async move { get.send().await.map(drop) })
        })
        .collect();
    for call in calls {
        call.await.unwrap().unwrap();
    }
    // 14 and then 5 each; a success refunds the 5 of its last retry.
    assert_eq!(retries.policy().tokens(0), Some(500.0 - 16.0 * 14.0));
    proxy.clear();
}

/// An outage: the budget that the process shares limits the load, and then the service is back.
async fn budget_limits_the_load_of_an_outage(proxy: &Handle) {
    static BUDGET: RetryBudget = RetryBudget::new(10.0, 0.1);
    let policy = Policy::constant(ms(1)).attempts(4).throttle(Throttle::budget(&BUDGET)).build();
    let client = client(proxy, &RetryInterceptor::new(policy).unwrap());
    proxy.rule(ProxyRule::new(Fault::status(503)));
    let before = proxy.counts().exchanges;
    for _ in 0..50 {
        client.get_item().table_name("orders").key("id", text("1")).send().await.unwrap_err();
    }
    assert_eq!(proxy.counts().exchanges, before + 50 + 10, "and not 200");
    proxy.clear();
    client.get_item().table_name("orders").key("id", text("1")).send().await.unwrap();
}

#[tokio::test]
#[ignore = "needs DynamoDB Local: run `cargo xtask test aws-dynamodb`"]
async fn dynamodb_local_calls_are_retried_through_faults() {
    let mut server = DynamoDbLocal::start();
    let proxy = server.proxy().await;
    table_becomes_active(&proxy).await;
    operations_succeed_through_faults(&proxy).await;
    slow_answer_is_cut(&proxy).await;
    condition_that_fails_is_not_retried(&proxy).await;
    increment_is_not_repeated(&proxy).await;
    quota_is_exact_under_concurrency(&proxy).await;
    budget_limits_the_load_of_an_outage(&proxy).await;
}
