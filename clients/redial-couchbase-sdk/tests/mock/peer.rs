//! The official Rust SDK as a program for the tests that compare clients on `CouchbaseMock`: `version`, or
//! `client HOST:PORT` (interop/README.md). The SDK needs the relay of `shim.rs` in front of the mock, and it has
//! no timeouts: the program drops an operation at the timeout.

#[allow(dead_code, reason = "the tests close its connections")]
mod shim;

use std::error::Error;
use std::io::{BufRead as _, Write as _};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use couchbase::authenticator::PasswordAuthenticator;
use couchbase::cluster::Cluster;
use couchbase::collection::Collection;
use couchbase::options::cluster_options::{ClusterOptions, PollerOptions};
use couchbase::retry::{
    BestEffortRetryStrategy, ExponentialBackoffCalculator, RetryAction, RetryReason, RetryRequest,
    RetryStrategy,
};
use serde_json::{Value, json};

const ACCOUNT: (&str, &str) = ("secure", "secret");
/// How long connecting may take on a busy machine.
const READY_MAX: Duration = Duration::from_secs(60);
/// The mock's injected failures hit polls of the configuration, too.
const POLL_NEVER: Duration = Duration::from_secs(3600);

/// The SDK's own best effort, which notes what it was asked and what it answered.
#[derive(Debug, Default)]
struct Noting {
    best_effort: BestEffortRetryStrategy<ExponentialBackoffCalculator>,
    asked: Mutex<Vec<Value>>,
}

impl Noting {
    fn take(&self) -> Vec<Value> {
        std::mem::take(&mut self.asked.lock().expect("no panic"))
    }
}

impl RetryStrategy for Noting {
    fn retry_after(&self, request: &RetryRequest, reason: &RetryReason) -> Option<RetryAction> {
        let action = self.best_effort.retry_after(request, reason);
        let delay = action.as_ref().map(|action| action.duration.as_secs_f64() * 1e3);
        let asked = json!({ "reason": reason.to_string(), "delay_ms": delay });
        self.asked.lock().expect("no panic").push(asked);
        action
    }
}

fn print_line(line: &Value) -> Result<(), Box<dyn Error>> {
    let mut out = std::io::stdout();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

/// Makes the request of a line; the outcome has the names of interop/README.md.
async fn outcome(documents: &Collection, request: &Value) -> Result<String, Box<dyn Error>> {
    let key = request["key"].as_str().ok_or("a request has a key")?;
    let timeout = request["timeout_ms"].as_f64().ok_or("a request has a timeout")?;
    let executed = async {
        match request["operation"].as_str() {
            Some("get") => documents.get(key, None).await.map(drop),
            _ => documents.upsert(key, "1", None).await.map(drop),
        }
    };
    Ok(match tokio::time::timeout(Duration::from_secs_f64(timeout / 1e3), executed).await {
        Err(_) => "dropped by the caller".to_owned(),
        Ok(Ok(())) => "ok".to_owned(),
        Ok(Err(error)) => match error.to_string() {
            text if text.starts_with("request cancelled: Closed in flight") => {
                "connection lost".to_owned()
            }
            text => text,
        },
    })
}

async fn serve(address: &str) -> Result<(), Box<dyn Error>> {
    let port = address.strip_prefix("127.0.0.1:").ok_or("the mock listens on 127.0.0.1")?;
    let relay = shim::Shim::start(&[port.parse()?]).await;
    let noting = Arc::new(Noting::default());
    let options = ClusterOptions::new(PasswordAuthenticator::new(ACCOUNT.0, ACCOUNT.1).into())
        .poller_options(PollerOptions::new().config_poll_interval(POLL_NEVER))
        .default_retry_strategy(noting.clone());
    let connected = tokio::time::timeout(READY_MAX, Cluster::connect(relay.url(), options));
    let cluster = connected.await??;
    let bucket = cluster.bucket(ACCOUNT.0);
    tokio::time::timeout(READY_MAX, bucket.wait_until_ready(None)).await??;
    let documents = bucket.default_collection();
    noting.take();
    print_line(&json!({ "ready": true }))?;
    // The requests come one after the other, so nothing else waits for this thread's input.
    for line in std::io::stdin().lock().lines() {
        let request: Value = serde_json::from_str(&line?)?;
        let began = Instant::now();
        let outcome = outcome(&documents, &request).await?;
        let elapsed = began.elapsed().as_secs_f64() * 1e3;
        let asked = noting.take();
        print_line(&json!({ "outcome": outcome, "elapsed_ms": elapsed, "asked": asked }))?;
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["version"] => print_line(&json!({ "library": "couchbase", "runtime": "Rust" })),
        ["client", address] => serve(address).await,
        _ => Err("expected `version` or `client HOST:PORT`".into()),
    }
}
