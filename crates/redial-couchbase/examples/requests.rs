//! Requests to a scripted fake of a Couchbase server: no network, virtual time.
//!
//! `cargo run -p redial-couchbase --example requests`

use std::sync::Mutex;
use std::time::Duration;

use redial::{
    ms,
    strategy::{Decision, Request, Strategy},
};
use redial_couchbase::{
    AttemptError, BestEffort, CollectionMap, Error, Orchestrator, Reason, RequestAttempt,
    RequestOperation, RequestTarget, Response, TerminalState, operation, reason,
};

/// The application's reason to retry a replace of a missing document: nothing was changed, and the
/// document is about to be created.
const NOT_THERE_YET: Reason = Reason::new("NOT_THERE_YET").allow_non_idempotent();

/// A fake server that returns the results of its script, each after 2 ms.
struct FakeServer(Mutex<Vec<Result<&'static str, AttemptError>>>);

impl FakeServer {
    fn new(script: impl IntoIterator<Item = Result<&'static str, AttemptError>>) -> Self {
        let mut script: Vec<_> = script.into_iter().collect();
        script.reverse();
        FakeServer(Mutex::new(script))
    }

    async fn respond(&self, _attempt: RequestAttempt) -> Result<&'static str, AttemptError> {
        tokio::time::sleep(ms(2)).await;
        let response = self.0.lock().map(|mut script| script.pop()).unwrap_or_default();
        response.unwrap_or_else(|| Err(reason::SOCKET_CLOSED_WHILE_IN_FLIGHT.into()))
    }
}

fn status(status: u16) -> Result<&'static str, AttemptError> {
    Err(Response::kv(status).into())
}

/// Prints a result and returns its text.
fn print(result: Result<&'static str, Error<AttemptError>>) -> String {
    let text = result.map_or_else(|error| format!("error: {error}"), str::to_owned);
    println!("  => {text}");
    text
}

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() {
    run_requests().await;
}

/// Runs and prints all requests; returns their results.
async fn run_requests() -> Vec<String> {
    let mut results = Vec::new();
    let orchestrator = Orchestrator::new().on_log(|context, line| match line.delay() {
        Some(delay) => println!("  {context}: {line}, attempt {} again in {delay:?}", line.attempt),
        None => println!("  {context}: {line}, attempt {}", line.attempt),
    });
    let request = |operation: RequestOperation, timeout: Duration| {
        orchestrator.request(operation, timeout).label("airline_10")
    };

    println!("The server is busy, then the vbucket has moved: both are retried.");
    let server = FakeServer::new([status(0x86), status(0x07), status(0x07), Ok("{\"id\": 10}")]);
    results.push(print(
        request(operation::KV_GET, ms(2500)).run(|attempt| server.respond(attempt)).await,
    ));

    println!(
        "The connection is lost during a write: it may have been executed, so it is not retried."
    );
    let server = FakeServer::new([Err(reason::SOCKET_CLOSED_WHILE_IN_FLIGHT.into())]);
    results.push(print(
        request(operation::KV_UPSERT, ms(2500)).run(|attempt| server.respond(attempt)).await,
    ));

    println!("The document stays locked until the timeout.");
    let server = FakeServer::new(vec![status(0x09); 100]);
    results.push(print(
        request(operation::KV_REPLACE, ms(100)).run(|attempt| server.respond(attempt)).await,
    ));

    println!("The collection does not exist: the request fails immediately.");
    let state = TerminalState::new();
    state.collections_fetched("travel", CollectionMap::new().scope("inventory", ["hotel"]));
    let send = |_| async {
        let target = RequestTarget::collection("travel", "inventory", "airlines");
        state
            .terminal_reason_for(target)
            .map_or(Ok("sent"), |terminal| Err(AttemptError::from(terminal)))
    };
    results.push(print(request(operation::KV_INSERT, ms(2500)).run(send).await));

    println!("The document is unlocked with the wrong CAS: never retried.");
    let server = FakeServer::new([status(0x09)]);
    results.push(print(
        request(operation::KV_UNLOCK, ms(2500)).run(|attempt| server.respond(attempt)).await,
    ));

    println!(
        "The application knows that the document is about to be created, and retries the replace."
    );
    let server = FakeServer::new([status(0x01), status(0x01), Ok("replaced")]);
    let replace = |attempt: RequestAttempt| async {
        server.respond(attempt).await.map_err(|cause| match cause {
            AttemptError::Response(Response::Kv { status: 0x01, .. }) => NOT_THERE_YET.into(),
            cause => cause,
        })
    };
    results.push(print(request(operation::KV_REPLACE, ms(2500)).run(replace).await));

    println!("A custom strategy: at most two retries, with the delays of best effort.");
    let twice = |request: &Request<'_>| match request.retry_attempts() {
        0 | 1 => BestEffort::new().retry_after(request),
        _ => Decision::Decline,
    };
    let server = FakeServer::new(vec![status(0x86); 3]);
    let request = request(operation::KV_LOOKUP_IN, ms(2500)).strategy(twice);
    results.push(print(request.run(|attempt| server.respond(attempt)).await));
    results
}

#[tokio::test(start_paused = true)]
async fn requests_example_retries_only_what_is_safe() {
    let not_idempotent = "(1 attempt in 2 ms; gave up: not idempotent, and it may have run)";
    let expected = [
        "{\"id\": 10}",
        &format!("error: kv.upsert airline_10: SOCKET_CLOSED_WHILE_IN_FLIGHT {not_idempotent}"),
        "error: kv.replace airline_10: unambiguous timeout, kv status 0x09 (7 attempts in 100 ms; \
         gave up: no time left before the deadline)",
        "error: kv.insert airline_10: COLLECTION_NOT_FOUND, collection not found (1 attempt in 0 ms; \
         gave up: the strategy declined)",
        "error: kv.unlock airline_10: CAS mismatch, kv status 0x09 (1 attempt in 2 ms; not retryable)",
        "replaced",
        "error: kv.lookup_in airline_10: kv status 0x86 (3 attempts in 9 ms; gave up: the strategy \
         declined)",
    ];
    assert_eq!(run_requests().await, expected);
}
