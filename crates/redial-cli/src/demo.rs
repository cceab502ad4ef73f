//! `redial demo`: runs a flaky operation under one policy of each design, and draws the timeline.
//!
//! It uses the public API and real time. Only the operation is a test double that fails on purpose.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use redial::throttle::RetryBudget;
use redial::{CallLog, Failure, FailureKind, Hedged, Policy, Reason, Stage, Throttle, ms, s};
use redial_couchbase::{AttemptError, Orchestrator, Response, operation};
use redial_echo::echo_client::EchoClient;
use redial_echo::echo_server::EchoServer;
use redial_echo::{EchoRequest, Responder};
use redial_grpc::{CallOptions, RetryLayer, SharedCallLog};
use redial_milvus::{GrpcStatus, MessageValidity, classify};
use tower::Layer;

use crate::presets::Preset;
use crate::timeline::timeline;

/// The test double: takes `takes` per attempt, and fails `failures` times before it succeeds.
struct Flaky {
    calls: AtomicU32,
    failures: u32,
    takes: Duration,
}

impl Flaky {
    const fn new(failures: u32, takes: Duration) -> Self {
        Flaky { calls: AtomicU32::new(0), failures, takes }
    }

    async fn answer<E>(&self, error: impl FnOnce() -> E) -> Result<&'static str, E> {
        tokio::time::sleep(self.takes).await;
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        if call < self.failures { Err(error()) } else { Ok("the answer") }
    }
}

/// The error of the test double for Milvus and gRPC.
#[derive(Debug)]
struct Unavailable(String);

impl GrpcStatus for Unavailable {
    fn code(&self) -> redial_service_config::Code {
        redial_service_config::Code::Unavailable
    }
    fn message(&self) -> &str {
        &self.0
    }
    fn with_message(self, message: String) -> Self {
        Unavailable(message)
    }
}

/// The output, and its width.
struct Page<'w, W> {
    out: &'w mut W,
    columns: usize,
}

impl<W: Write> Page<'_, W> {
    fn show(&mut self, title: &str, about: &str, call_log: &CallLog) -> io::Result<()> {
        writeln!(self.out, "{title}: {about}")?;
        writeln!(self.out, "{}", timeline(call_log.events(), self.columns))?;
        self.out.flush()
    }
}

/// Runs the demo for an output of this many columns.
///
/// # Errors
/// The output cannot be written.
pub async fn run(out: &mut impl Write, columns: usize) -> io::Result<()> {
    writeln!(out, "Each row is an attempt: · waiting, █ running, ✓ ✗ ⧖ ╳ how it ended.\n")?;
    let page = &mut Page { out, columns };
    defaults(page).await?;
    limits(page).await?;
    hedged(page).await?;
    grpc(page).await?;
    smithy(page).await?;
    couchbase(page).await?;
    milvus_interceptor(page).await?;
    budget(page).await
}

async fn defaults(page: &mut Page<'_, impl Write>) -> io::Result<()> {
    let (flaky, mut call_log) = (Flaky::new(2, ms(40)), CallLog::new());
    let call = redial::retry(|| flaky.answer(|| "connection refused"));
    let _ = call.when(|_| true).call_log(&mut call_log).await;
    page.show("redial::retry", "3 attempts, full jitter, a budget for this call site", &call_log)
}

async fn limits(page: &mut Page<'_, impl Write>) -> io::Result<()> {
    static LIMITS: Policy = redial::presets::limits().build();
    let (flaky, mut call_log) = (Flaky::new(9, ms(10)), CallLog::new());
    let _ = LIMITS.retry(|| flaky.answer(|| "busy")).when(|_| true).call_log(&mut call_log).await;
    page.show(
        "bounded retry time",
        "a soft limit of 1 s and a hard limit of 2 s for all delays",
        &call_log,
    )
}

async fn hedged(page: &mut Page<'_, impl Write>) -> io::Result<()> {
    static READ: Hedged = Policy::hedged(ms(60)).attempts(3).build();
    let (calls, mut call_log) = (AtomicU32::new(0), CallLog::new());
    let slow_at_first = || {
        let call = calls.fetch_add(1, Ordering::Relaxed);
        async move {
            tokio::time::sleep(if call == 2 { ms(30) } else { s(5) }).await;
            Ok::<_, &str>("the fast replica's answer")
        }
    };
    let _ = READ.retry(slow_at_first).when(|_| true).call_log(&mut call_log).await;
    page.show("hedged", "another attempt every 60 ms, the first answer wins", &call_log)
}

/// Uses the echo service, which fails as requested.
async fn grpc(page: &mut Page<'_, impl Write>) -> io::Result<()> {
    const CONFIG: &str = r#"{
      "methodConfig": [{
        "name": [{}],
        "retryPolicy": { "maxAttempts": 4, "initialBackoff": "0.1s", "maxBackoff": "1s",
                         "backoffMultiplier": 2, "retryableStatusCodes": ["UNAVAILABLE"] }
      }],
      "retryThrottling": { "maxTokens": 10, "tokenRatio": 0.1 }
    }"#;
    let layer = RetryLayer::from_json(CONFIG).map_err(io::Error::other)?;
    let mut client = EchoClient::new(layer.layer(EchoServer::new(Responder)));
    let flaky =
        EchoRequest { failures: 2, delay_ms: 20, pushback_ms: Some(50), ..EchoRequest::default() };
    let (mut request, call_log) = (tonic::Request::new(flaky), SharedCallLog::new());
    request.extensions_mut().insert(CallOptions::new().call_log(&call_log));
    let _ = client.unary(request).await;
    page.show(
        "gRPC's A6",
        "a service config, and pushback of 50 ms from the server",
        &call_log.take(),
    )
}

async fn smithy(page: &mut Page<'_, impl Write>) -> io::Result<()> {
    let policy = Preset::Aws2026.policy().map_err(io::Error::other)?;
    let (flaky, mut call_log) = (Flaky::new(2, ms(20)), CallLog::new());
    let call = policy.retry(|| flaky.answer(|| "internal error"));
    let _ = call.when(|_| Some(Failure::new(FailureKind::Server))).call_log(&mut call_log).await;
    page.show("smithy, aws-2026", "a retry costs 14 of 500 tokens, a success returns it", &call_log)
}

async fn couchbase(page: &mut Page<'_, impl Write>) -> io::Result<()> {
    const LOCKED: u16 = 0x09;
    let (flaky, mut call_log) = (Flaky::new(6, ms(4)), CallLog::new());
    let orchestrator = Orchestrator::new();
    let request = orchestrator.request(operation::KV_GET_AND_LOCK, s(2)).call_log(&mut call_log);
    let _ = request.run(|_| flaky.answer(|| AttemptError::from(Response::kv(LOCKED)))).await;
    page.show("couchbase", "best effort: 1, 2, 4, 8 ms ... until the timeout", &call_log)
}

async fn milvus_interceptor(page: &mut Page<'_, impl Write>) -> io::Result<()> {
    let interceptor = redial_milvus::Options::default().interceptor().map_err(io::Error::other)?;
    let (flaky, mut call_log) = (Flaky::new(9, ms(15)), CallLog::new());
    let call = interceptor.policy().retry(|| flaky.answer(|| Unavailable("boom".into())));
    let evaluate = |error: &Unavailable| classify(GrpcStatus::code(error), MessageValidity::Valid);
    let _ = call.when(evaluate).call_log(&mut call_log).await;
    page.show("milvus", "20, 40, 80 ms, then an error with the number of attempts", &call_log)
}

/// A retry budget: once it is empty, failed calls are not retried.
async fn budget(page: &mut Page<'_, impl Write>) -> io::Result<()> {
    static SHARED: RetryBudget = RetryBudget::new(4.0, 0.1);
    static POLICY: Policy =
        Policy::constant(ms(20)).attempts(5).throttle(Throttle::budget(&SHARED)).build();
    let down = Failure::client().at(Stage::Unsent).because(Reason::new("CONNECTION_REFUSED"));
    for (title, about) in [
        ("a budget of 4", "a dead server: the first call spends it"),
        ("the same budget", "the second call is not allowed to retry: no storm"),
    ] {
        let (flaky, mut call_log) = (Flaky::new(9, ms(5)), CallLog::new());
        let call = POLICY.retry(|| flaky.answer(|| "refused"));
        let _ = call.when(move |_| Some(down)).call_log(&mut call_log).await;
        page.show(title, about, &call_log)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[tokio::test(start_paused = true)]
    async fn demo_shows_every_design_and_its_outcome() {
        let mut out = Vec::new();
        super::run(&mut out, 80).await.expect("a vector takes everything");
        let text = String::from_utf8(out).expect("text");
        let shown = |title: &str, end: &str| {
            let part = text.split("\n\n").find(|part| part.contains(title));
            let last = part.and_then(|part| part.lines().last()).unwrap_or_default();
            assert!(last.contains(end), "{title}: {last}");
        };
        shown("redial::retry:", "succeeded after 3 attempts");
        shown("bounded retry time:", "limit");
        shown("hedged:", "succeeded after 3 attempts");
        shown("gRPC's A6:", "succeeded after 3 attempts");
        shown("smithy, aws-2026:", "succeeded after 3 attempts");
        shown("couchbase:", "succeeded after 7 attempts");
        shown("milvus:", "ended after 4 attempts");
        shown("the same budget:", "the retry budget is spent");
        shown("the same budget:", "ended after 1 attempt");
    }
}
