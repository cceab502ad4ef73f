//! Requests to a scripted double of a Couchbase server: no network, no server, virtual time.
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

/// Why the application wants a replace that finds nothing to be retried: nothing was changed, and the
/// document will be there soon.
const NOT_THERE_YET: Reason = Reason::new("NOT_THERE_YET").allow_non_idempotent();

/// The double: it answers with what its script says, each after 2 ms.
struct Double(Mutex<Vec<Result<&'static str, AttemptError>>>);

impl Double {
    fn new(script: impl IntoIterator<Item = Result<&'static str, AttemptError>>) -> Self {
        let mut script: Vec<_> = script.into_iter().collect();
        script.reverse();
        Double(Mutex::new(script))
    }

    async fn answer(&self, _attempt: RequestAttempt) -> Result<&'static str, AttemptError> {
        tokio::time::sleep(ms(2)).await;
        let answer = self.0.lock().map(|mut script| script.pop()).unwrap_or_default();
        answer.unwrap_or_else(|| Err(reason::SOCKET_CLOSED_WHILE_IN_FLIGHT.into()))
    }
}

fn status(status: u16) -> Result<&'static str, AttemptError> {
    Err(Response::kv(status).into())
}

fn tell(result: Result<&'static str, Error<AttemptError>>) {
    match result {
        Ok(value) => println!("  => {value}"),
        Err(error) => println!("  => error: {error}"),
    }
}

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() {
    let orchestrator = Orchestrator::new().on_log(|context, line| match line.delay() {
        Some(delay) => println!("  {context}: {line}, attempt {} again in {delay:?}", line.attempt),
        None => println!("  {context}: {line}, attempt {}", line.attempt),
    });
    let request = |operation: RequestOperation, timeout: Duration| {
        orchestrator.request(operation, timeout).about("airline_10")
    };

    println!("The server is busy, then the vbucket has moved: both pass.");
    let double = Double::new([status(0x86), status(0x07), status(0x07), Ok("{\"id\": 10}")]);
    tell(request(operation::KV_GET, ms(2500)).run(|attempt| double.answer(attempt)).await);

    println!("The connection is lost under a write: it may have run, so it is not repeated.");
    let double = Double::new([Err(reason::SOCKET_CLOSED_WHILE_IN_FLIGHT.into())]);
    tell(request(operation::KV_UPSERT, ms(2500)).run(|attempt| double.answer(attempt)).await);

    println!("The document stays locked until the timeout.");
    let double = Double::new(vec![status(0x09); 100]);
    tell(request(operation::KV_REPLACE, ms(100)).run(|attempt| double.answer(attempt)).await);

    println!("The collection does not exist: that is said at once.");
    let state = TerminalState::new();
    state.collections_fetched("travel", CollectionMap::new().scope("inventory", ["hotel"]));
    let send = |_| async {
        let target = RequestTarget::collection("travel", "inventory", "airlines");
        state
            .terminal_reason_for(target)
            .map_or(Ok("sent"), |terminal| Err(AttemptError::from(terminal)))
    };
    tell(request(operation::KV_INSERT, ms(2500)).run(send).await);

    println!("The document is unlocked with the wrong CAS: that is never retried.");
    let double = Double::new([status(0x09)]);
    tell(request(operation::KV_UNLOCK, ms(2500)).run(|attempt| double.answer(attempt)).await);

    println!("The document to replace is about to be written: only the application knows that.");
    let double = Double::new([status(0x01), status(0x01), Ok("replaced")]);
    let replace = |attempt: RequestAttempt| async {
        double.answer(attempt).await.map_err(|cause| match cause {
            AttemptError::Response(Response::Kv { status: 0x01, .. }) => NOT_THERE_YET.into(),
            cause => cause,
        })
    };
    tell(request(operation::KV_REPLACE, ms(2500)).run(replace).await);

    println!("A strategy of one's own: at most two retries, and best effort otherwise.");
    let twice = |request: &Request<'_>| match request.retry_attempts() {
        0 | 1 => BestEffort::new().retry_after(request),
        _ => Decision::Decline,
    };
    let double = Double::new(vec![status(0x86); 3]);
    let request = request(operation::KV_LOOKUP_IN, ms(2500)).strategy(twice);
    tell(request.run(|attempt| double.answer(attempt)).await);
}
