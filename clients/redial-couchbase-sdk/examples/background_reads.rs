//! A cluster whose user-facing operations give up early, and background reads that go on for longer. All of
//! them share one retry budget.
//!
//! Run with `cargo run --example background_reads`: it starts a scripted cluster in this process, which fails
//! some requests with a temporary failure. With the arguments `URL USER PASSWORD BUCKET` it works on a real
//! cluster, which fails nothing.

use std::sync::Arc;
use std::time::Instant;

use couchbase::authenticator::PasswordAuthenticator;
use couchbase::cluster::Cluster;
use couchbase::options::cluster_options::ClusterOptions;
use couchbase::options::kv_options::GetOptions;
use redial::throttle::RetryBudget;
use redial::{Policy, Throttle, ms, s};
use redial_couchbase_sdk::{SdkStrategy, attempt};
use redial_faults::couchbase::{Answer, Handle, Script, Server};

/// Thirty retries at once, then one for every ten successes of Redial's own calls, and five per second.
static DATABASE: RetryBudget = RetryBudget::new(30.0, 0.1).per_second(5.0);

/// A user waits for the answer.
static INTERACTIVE: Policy =
    Policy::exponential(ms(2)).attempts(3).throttle(Throttle::budget(&DATABASE)).build();

/// A batch job can wait while the cluster fails over.
static BACKGROUND: Policy = Policy::exponential(ms(10))
    .cap(s(1))
    .attempts(12)
    .throttle(Throttle::budget(&DATABASE))
    .build();

/// The same with a time limit, which only Redial's own loop can keep.
static REPORT: Policy = Policy::exponential(ms(10))
    .attempts(12)
    .deadline(s(5))
    .throttle(Throttle::budget(&DATABASE))
    .build();

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut argument = |default: &str| arguments.next().unwrap_or_else(|| default.to_owned());
    let (url, user, password) = (argument(""), argument("app"), argument("secret"));
    let bucket = argument("travel");
    let (url, server) = if url.is_empty() { scripted_cluster().await? } else { (url, None) };
    let fail = |count| {
        if let Some(server) = &server {
            server.push_answers(vec![Answer::status(0x86).to("get"); count]);
        }
    };

    // Every operation of the cluster, unless it has a strategy of its own.
    let interactive =
        SdkStrategy::new(INTERACTIVE.clone())?.on_decision(|decision| println!("  {decision}"));
    let options = ClusterOptions::new(PasswordAuthenticator::new(user, password).into())
        .default_retry_strategy(Arc::new(interactive));
    let cluster = Cluster::connect(url, options).await?;
    let bucket = cluster.bucket(bucket);
    bucket.wait_until_ready(None).await?;
    let airlines = bucket.default_collection();
    airlines.upsert("airline_10", "40-Mile Air", None).await?;

    println!("interactive read:");
    fail(3);
    match airlines.get("airline_10", None).await {
        Ok(_) => println!("  found"),
        Err(error) => println!("  gave up: {}", error.kind()),
    }

    println!("background read:");
    fail(6);
    let background = Arc::new(SdkStrategy::new(BACKGROUND.clone())?);
    let began = Instant::now();
    airlines.get("airline_10", GetOptions::new().retry_strategy(background)).await?;
    println!("  found after {:?}", began.elapsed());

    println!("read with a deadline:");
    fail(4);
    let read = || {
        attempt(|strategy| airlines.get("airline_10", GetOptions::new().retry_strategy(strategy)))
    };
    let (_, report) = REPORT.retry(read).with_report().await?;
    println!("  found at attempt {} after {:?}", report.attempts, report.elapsed);
    Ok(())
}

/// A cluster inside this process: its connection string, and the handle that injects failures.
async fn scripted_cluster() -> std::io::Result<(String, Option<Handle>)> {
    let script =
        Script::new().bucket("travel").user("app", "secret").scope("_default", ["_default"]);
    let server = Server::new(script).listen("127.0.0.1").await?;
    let (host, port) = server.address(0);
    Ok((format!("couchbase://{host}:{port}"), Some(server)))
}

#[test]
fn example_runs_to_its_end() {
    main().unwrap();
}
