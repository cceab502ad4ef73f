//! What a call that succeeds at its first attempt costs in an SDK client, in instructions: without retries, with
//! the SDK's standard mode, and with this crate.
//!
//! `cargo run --release` starts callgrind by itself; `apt-get install valgrind`. The service is a connector in
//! the process, so that nothing but the client is counted.

use std::process::Command;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::config::{BehaviorVersion, Builder, Config, Credentials, Region};
use aws_smithy_runtime_api::box_error::BoxError;
use aws_smithy_runtime_api::client::http::{
    HttpConnector, HttpConnectorFuture, SharedHttpConnector, http_client_fn,
};
use aws_smithy_runtime_api::client::interceptors::context::{
    BeforeTransmitInterceptorContextMut, InterceptorContext,
};
use aws_smithy_runtime_api::client::interceptors::{
    Intercept, SharedInterceptor, dyn_dispatch_hint,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::retries::classifiers::{ClassifyRetry, RetryAction};
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_runtime_api::http::StatusCode;
use aws_smithy_types::body::SdkBody;
use aws_smithy_types::config_bag::{ConfigBag, Storable, StoreReplace};
use redial::throttle::RetryBudget;
use redial::{Policy, Throttle, ms};
use redial_aws::{RetryInterceptor, with_retries};

/// Calls before those that are counted, and the counted ones.
const WARM_UP: u64 = 200;
const CALLS: u64 = 1_000;

static BUDGET: RetryBudget = RetryBudget::standard();
static POLICY: Policy = Policy::exponential(ms(50)).throttle(Throttle::budget(&BUDGET)).build();

const CASES: [&str; 7] = [
    "retries off",
    "standard mode",
    "standard mode, empty interceptor",
    "standard mode, empty interceptor and classifier",
    "standard mode, storing interceptor and empty classifier",
    "redial, aws_2026",
    "redial, budget",
];

/// Does nothing in every hook: what the SDK itself spends on one more interceptor and classifier.
#[derive(Debug)]
struct Empty;

#[dyn_dispatch_hint]
impl Intercept for Empty {
    fn name(&self) -> &'static str {
        "Empty"
    }
}

impl ClassifyRetry for Empty {
    fn classify_retry(&self, _context: &InterceptorContext) -> RetryAction {
        RetryAction::NoActionIndicated
    }

    fn name(&self) -> &'static str {
        "Empty"
    }
}

/// Stores a value for each call, as any interceptor with a state does.
#[derive(Debug)]
struct Storing;

/// The value of [`Storing`].
#[derive(Debug)]
struct Stored(#[expect(dead_code, reason = "it only takes its place")] u64);

impl Storable for Stored {
    type Storer = StoreReplace<Self>;
}

#[dyn_dispatch_hint]
impl Intercept for Storing {
    fn name(&self) -> &'static str {
        "Storing"
    }

    fn modify_before_retry_loop(
        &self,
        _context: &mut BeforeTransmitInterceptorContextMut<'_>,
        _components: &RuntimeComponents,
        cfg: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        cfg.interceptor_state().store_put(Stored(1));
        Ok(())
    }
}

#[derive(Debug)]
struct Answers;

impl HttpConnector for Answers {
    fn call(&self, _request: HttpRequest) -> HttpConnectorFuture {
        let status = StatusCode::try_from(200).expect("a status");
        HttpConnectorFuture::ready(Ok(HttpResponse::new(status, SdkBody::from("{}"))))
    }
}

fn config() -> Builder {
    let connector = SharedHttpConnector::new(Answers);
    Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("us-east-1"))
        .credentials_provider(Credentials::new("key", "secret", None, None, "bench"))
        .endpoint_url("http://scripted.invalid")
        .http_client(http_client_fn(move |_, _| connector.clone()))
}

/// In standard mode. As that of redial-aws, the interceptor cannot be turned off.
fn with_interceptor(interceptor: SharedInterceptor) -> Builder {
    let mut config = config().retry_config(RetryConfig::standard());
    config.push_interceptor(interceptor);
    config
}

fn client(case: &str) -> Client {
    let config = match case {
        "retries off" => config().retry_config(RetryConfig::disabled()),
        "standard mode" => config().retry_config(RetryConfig::standard()),
        "standard mode, empty interceptor" => with_interceptor(SharedInterceptor::permanent(Empty)),
        "standard mode, empty interceptor and classifier" => {
            with_interceptor(SharedInterceptor::permanent(Empty)).retry_classifier(Empty)
        }
        "standard mode, storing interceptor and empty classifier" => {
            with_interceptor(SharedInterceptor::permanent(Storing)).retry_classifier(Empty)
        }
        "redial, aws_2026" => with_retries!(config(), RetryInterceptor::aws_2026()),
        "redial, budget" => {
            with_retries!(config(), RetryInterceptor::new(POLICY.clone()).expect("it fits"))
        }
        other => panic!("there is no case {other:?}"),
    };
    Client::from_conf(config.build())
}

/// Makes these calls; run under callgrind.
fn run(case: &str, calls: u64) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let client = client(case);
        for _ in 0..calls {
            client.list_tables().send().await.expect("a success");
        }
    });
}

/// The instructions of a program that makes these calls.
fn instructions(case: &str, calls: u64) -> Result<u64, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .args(["run", case, &calls.to_string()])
        .output()
        .map_err(|error| format!("valgrind: {error}"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    let line = text.lines().find_map(|line| line.split_once("Collected : "));
    let (_, count) = line.ok_or_else(|| format!("callgrind counted nothing: {text}"))?;
    count.trim().parse().map_err(|_| format!("no number: {count:?}"))
}

fn main() -> Result<(), String> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [first, case, calls] = arguments.as_slice()
        && first == "run"
    {
        run(case, calls.parse().map_err(|_| format!("no number: {calls:?}"))?);
        return Ok(());
    }
    println!("| a successful call | instructions | over retries off |\n| --- | --- | --- |");
    let mut base = None;
    for case in CASES {
        let counted = instructions(case, WARM_UP + CALLS)? - instructions(case, WARM_UP)?;
        let each = counted / CALLS;
        let base = *base.get_or_insert(each);
        println!("| {case} | {each} | {:+} |", each as i64 - base as i64);
    }
    Ok(())
}
