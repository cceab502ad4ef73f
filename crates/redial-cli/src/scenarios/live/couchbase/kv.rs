//! Runs a KV call through the reference client.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redial::strategy::Strategy;
use redial::{CallLog, ms, s, time::Ns};
use redial_couchbase::client::{
    Address, Cas, CircuitBreakerOptions, Client, ClientOptions, Collection, Lookup, PathMutation,
    RequestError,
};
use redial_couchbase::{BackoffCalculator, BestEffort, Error, RequestOperation, RetryLogEvent};
use redial_faults::couchbase::Answer;
use tokio::time::Instant;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto::ring};

use super::environment::{Environment, NAMED, USER, UnsentState};
use super::{Step, arrivals_differ, observed, steps, timeout, unless_dropped};
use crate::scenarios::compare::Difference;
use crate::scenarios::model::Call;
use crate::scenarios::play::ActualCall;

const KEY: &str = "key";
const SETUP: &str = "setup";
/// Time for background tasks, before the call.
const SETTLE: Duration = Duration::from_millis(1);

/// Runs a call; `core` is its result at the core level.
pub(super) async fn play(
    call: &Call,
    operation: &str,
    strategy: impl Strategy + Clone + 'static,
    core: &ActualCall,
) -> (ActualCall, Vec<Difference>) {
    let origin = Instant::now();
    let steps = steps(call);
    let environment = Arc::new(Environment::new(steps.clone(), operation));
    let running = Arc::new(AtomicBool::new(false));
    let first = environment.step(0).cloned();
    let initially = matches!(&first, Some(Step::Unsent(state)) if state.is_initial() && *state != UnsentState::OpenBreaker);
    if initially {
        environment.prepare(0);
    }
    let client = Client::open(options(&environment, &running, core));
    let mut cas = Cas(0);
    if !initially {
        client.wait_until_ready(s(1)).await.expect("the scripted cluster is ready");
        cas = set_up(&client, operation).await;
        if matches!(&first, Some(Step::Unsent(UnsentState::OpenBreaker))) {
            open_breaker(&client, &environment).await;
        }
        environment.prepare(0);
    }
    tokio::time::sleep(SETTLE).await;
    let collection = if steps
        .iter()
        .any(|(_, step)| matches!(step, Step::Unsent(state) if state.needs_collection()))
    {
        client.collection(NAMED.0, NAMED.1)
    } else {
        client.default_collection()
    };
    let mut log = CallLog::default();
    running.store(true, Ordering::Relaxed);
    let start = Instant::now();
    let request = Sending { client: &client, collection: &collection, call, cas };
    let result = unless_dropped(call, request.send(operation, strategy, &mut log)).await;
    let ran_for = start.elapsed();
    running.store(false, Ordering::Relaxed);
    drop((collection, client));
    // Late answers of the server.
    let late = steps.iter().map(|(after, _)| *after).max().unwrap_or(0);
    tokio::time::sleep(Duration::from_nanos(late) + SETTLE).await;
    let actual = observed(result.as_ref(), &log, ran_for);
    let sent: Vec<Ns> = actual
        .starts
        .iter()
        .zip(&steps)
        .filter(|(_, (_, step))| !matches!(step, Step::Unsent(_)))
        .map(|(at, _)| *at)
        .collect();
    let mut arrived: Vec<Ns> = environment
        .server
        .requests()
        .iter()
        .filter_map(|request| request.at.checked_sub(start - origin))
        .map(redial::testing::nanoseconds)
        .collect();
    arrived.sort_unstable();
    let differences = arrivals_differ(&sent, &arrived).into_iter().collect();
    (actual, differences)
}

fn options(
    environment: &Arc<Environment>,
    running: &Arc<AtomicBool>,
    core: &ActualCall,
) -> ClientOptions {
    let hooked = (environment.clone(), running.clone());
    // Between the first attempt and the second one, the breaker lets the probe pass.
    let gap = match core.starts[..] {
        [first, second, ..] => Duration::from_nanos((second - first) / 2),
        _ => ms(1),
    };
    let mut breaker = CircuitBreakerOptions::DEFAULT;
    // One failure opens it, although the requests of the preparation succeeded.
    (breaker.requests_min, breaker.failures_percent) = (1, 1);
    breaker.open_for = SETTLE + gap;
    let has_breaker = matches!(environment.step(0), Some(Step::Unsent(UnsentState::OpenBreaker)));
    let options = ClientOptions::new([Address::new("node0", 11210)], "default")
        .credentials(USER.0, USER.1)
        .connector(environment.connector())
        .strategy(BestEffort::new())
        // The gate of the environment paces connections.
        .reconnect(BackoffCalculator::from_fn(|_| Duration::ZERO))
        .circuit_breaker(has_breaker.then_some(breaker))
        .on_log(move |_, line| {
            let (environment, running) = &hooked;
            if running.load(Ordering::Relaxed) && matches!(line.event, RetryLogEvent::Retry { .. })
            {
                environment.prepare(line.attempt as usize);
            }
        });
    match environment.trusted() {
        None => options,
        Some(identity) => {
            let mut roots = RootCertStore::empty();
            roots.add(identity.certificate().clone()).expect("it is a certificate");
            let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
                .with_safe_default_protocol_versions()
                .expect("the provider has them")
                .with_root_certificates(roots)
                .with_no_client_auth();
            options.tls(Arc::new(config))
        }
    }
}

/// Writes the document that the operation needs; returns the CAS of its lock.
async fn set_up(client: &Client, operation: &str) -> Cas {
    let documents = client.default_collection();
    if operation != "kv.insert" {
        documents.upsert(KEY, "5").await.expect("the scripted cluster serves");
    }
    if operation != "kv.unlock" {
        return Cas(0);
    }
    documents.get_and_lock(KEY, s(30)).await.expect("the scripted cluster serves").cas
}

/// Makes a request fail, which opens the breaker.
async fn open_breaker(client: &Client, environment: &Environment) {
    environment.server.push_answers([Answer::close()]);
    let lost = client.default_collection().upsert(SETUP, "1").await;
    lost.expect_err("its connection is closed");
}

/// A request of the scenario.
struct Sending<'a> {
    client: &'a Client,
    collection: &'a Collection,
    call: &'a Call,
    cas: Cas,
}

impl Sending<'_> {
    async fn send(
        &self,
        operation: &str,
        strategy: impl Strategy + 'static,
        log: &mut CallLog,
    ) -> Result<(), Error<RequestError>> {
        let Sending { client, collection, call, cas } = *self;
        let timeout = timeout(call);
        macro_rules! send {
            ($request:expr) => {
                $request.timeout(timeout).strategy(strategy).call_log(log).await.map(drop)
            };
        }
        match operation {
            "kv.get" => send!(collection.get(KEY)),
            "kv.get_replica" => send!(collection.get_replica(KEY, 1)),
            "kv.exists" => send!(collection.exists(KEY)),
            "kv.lookup_in" => send!(collection.lookup_in(KEY, [Lookup::get("a")])),
            "kv.mutate_in" => {
                send!(collection.mutate_in(KEY, [PathMutation::upsert("a", "1")]))
            }
            "kv.get_collection_id" => send!(collection.collection_id()),
            "kv.upsert" => send!(collection.upsert(KEY, "6")),
            "kv.insert" => send!(collection.insert(KEY, "6")),
            "kv.replace" => send!(collection.replace(KEY, "6")),
            "kv.remove" => send!(collection.remove(KEY)),
            "kv.append" => send!(collection.append(KEY, "6")),
            "kv.prepend" => send!(collection.prepend(KEY, "6")),
            "kv.increment" => send!(collection.increment(KEY, 1, None)),
            "kv.decrement" => send!(collection.decrement(KEY, 1, None)),
            "kv.touch" => send!(collection.touch(KEY, s(60))),
            "kv.get_and_touch" => send!(collection.get_and_touch(KEY, s(60))),
            "kv.get_and_lock" => send!(collection.get_and_lock(KEY, s(1))),
            "kv.unlock" => send!(collection.unlock(KEY, cas)),
            // The client does not have it: a command that does nothing, annotated as it.
            name => {
                let opcode = match name {
                    "kv.dcp_open" => 0x50,
                    "kv.dcp_stream_request" => 0x53,
                    "kv.dcp_mutation" => 0x57,
                    _ => 0x0a,
                };
                send!(client.annotated_command(opcode, annotated(name, call)))
            }
        }
    }
}

/// The operation with this name; one that RFC 49 does not list has the call's idempotency.
fn annotated(name: &str, call: &Call) -> RequestOperation {
    match RequestOperation::parse(name) {
        Ok(operation) => operation,
        Err(_) if call.idempotent => RequestOperation::declared_idempotent("kv.unlisted"),
        Err(_) => RequestOperation::new("kv.unlisted"),
    }
}
