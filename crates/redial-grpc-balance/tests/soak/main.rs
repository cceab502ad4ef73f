//! Whatever servers, applications and operators do, every call ends exactly once, no message is
//! lost, duplicated or reordered within an attempt, every stream at a server is closed, and
//! buffers, tokens and tasks are released. The test makes random calls of all four kinds, many in
//! parallel, through the balanced channel, in real time over loopback. Scripted servers fail in
//! every way that a script can express, and restart; calls have random deadlines and are dropped,
//! while configs are swapped and retries are switched off and on.
//!
//! `REDIAL_SOAK_CALLS` is the number of calls, `REDIAL_SOAK_SEED` the seed: `cargo xtask test soak`
//! makes more. A seed repeats the calls, but not their timing.

mod answers;
mod backends;
mod calls;
mod faults;
mod marks;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fastrand::Rng;
use redial_echo::echo_client::EchoClient;
use redial_grpc_balance::{Control, Retries};
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use backends::Backend;
use calls::Call;
use faults::Faults;

type Channel = redial_grpc_balance::BalancedChannel;

/// The default number of calls.
const CALLS: u64 = 20_000;
/// How many calls run in parallel.
const PARALLEL_CALLS: usize = 64;
const BACKENDS: usize = 3;
/// How many successful calls refill the token bucket, whatever its level.
const REFILL_CALLS: u64 = 1000;
/// How many calls are made whose tokens are counted exactly. Each of them may cost as many tokens
/// as there are servers; the number is small enough for the bucket to stay above its threshold.
const COUNTED_CALLS: usize = 150;
/// How long the last cancellations may need to take effect.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(30);

/// The configs that are swapped while calls are made: retries, hedging with and without a delay,
/// tight and generous limits, and none.
const CONFIGS: [&str; 6] = [
    r#"{ "methodConfig": [{ "name": [{}],
        "retryPolicy": { "maxAttempts": 4, "initialBackoff": "0.005s", "maxBackoff": "0.02s",
        "backoffMultiplier": 2, "retryableStatusCodes": ["UNAVAILABLE", "ABORTED"] } }],
        "retryThrottling": { "maxTokens": 1000, "tokenRatio": 1 } }"#,
    r#"{ "methodConfig": [{ "name": [{}],
        "hedgingPolicy": { "maxAttempts": 4, "hedgingDelay": "0.01s",
        "nonFatalStatusCodes": ["UNAVAILABLE", "ABORTED"] } }],
        "retryThrottling": { "maxTokens": 1000, "tokenRatio": 1 } }"#,
    r#"{ "methodConfig": [{ "name": [{}],
        "hedgingPolicy": { "maxAttempts": 3, "nonFatalStatusCodes": ["UNAVAILABLE"] } }] }"#,
    r#"{ "methodConfig": [{ "name": [{}], "waitForReady": true, "maxRequestMessageBytes": 150000,
        "retryPolicy": { "maxAttempts": 5, "initialBackoff": "0.001s", "maxBackoff": "0.001s",
        "backoffMultiplier": 1, "retryableStatusCodes": ["UNAVAILABLE", 8] } }],
        "retryThrottling": { "maxTokens": 10, "tokenRatio": 0.5 } }"#,
    r#"{ "loadBalancingPolicy": "round_robin", "methodConfig": [
        { "name": [{ "service": "redial.test.Echo", "method": "Bidi" }],
        "maxResponseMessageBytes": 10000,
        "hedgingPolicy": { "maxAttempts": 2, "hedgingDelay": "0.003s" } }],
        "retryThrottling": { "maxTokens": 100, "tokenRatio": 0.1 } }"#,
    "{}",
];

const FILLING: &str = r#"{ "loadBalancingPolicy": "round_robin", "methodConfig": [{ "name": [{}],
    "retryPolicy": { "maxAttempts": 5, "initialBackoff": "0.001s", "maxBackoff": "0.02s",
    "backoffMultiplier": 2, "retryableStatusCodes": ["UNAVAILABLE"] } }],
    "retryThrottling": { "maxTokens": 1000, "tokenRatio": 10 } }"#;
const COUNTING: &str = r#"{ "loadBalancingPolicy": "round_robin", "methodConfig": [{ "name": [{}],
    "retryPolicy": { "maxAttempts": 5, "initialBackoff": "0.001s", "maxBackoff": "0.02s",
    "backoffMultiplier": 2, "retryableStatusCodes": ["UNAVAILABLE"] } }],
    "retryThrottling": { "maxTokens": 1000, "tokenRatio": 0.01 } }"#;
const UNARY: &str = "/redial.test.Echo/Unary";

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

/// A channel over all servers.
fn channel(backends: &[Backend]) -> Channel {
    let ms = Duration::from_millis;
    redial_grpc_balance::channel("soak:1")
        .addresses(backends.iter().map(|backend| backend.address))
        // Some ports accept connections and stay silent.
        .endpoint(move |endpoint| {
            let endpoint = endpoint.keep_alive_while_idle(true).http2_keep_alive_interval(ms(500));
            Ok(endpoint.keep_alive_timeout(ms(1_000)))
        })
        .connect_backoff(ms(5), ms(50))
        .build()
        .expect("it is right")
}

/// Prepares the responses to a call's attempts on each server: usually more than one of them fails.
fn prepare(random: &mut Rng, backends: &[Backend], call: u64) {
    for backend in backends {
        let answers = (0..random.u32(0..=2)).map(|_| answers::answer(random, call)).collect();
        backend.prepare(call, answers);
    }
}

/// Swaps configs and switches retries until stopped.
async fn operate(mut random: Rng, control: Control, stop: Arc<AtomicBool>) {
    while !stop.load(Ordering::Relaxed) {
        sleep(Duration::from_millis(random.u64(1..=30))).await;
        let config = CONFIGS[random.usize(0..CONFIGS.len())];
        control.set_json(config).expect("it is valid");
        control.set_retries(match random.u32(0..8) {
            0 => Retries::Off,
            1 => Retries::Transparent,
            _ => Retries::All,
        });
    }
}

/// Restarts one server after another until stopped.
async fn disturb(mut random: Rng, backends: Arc<Vec<Backend>>, stop: Arc<AtomicBool>) {
    while !stop.load(Ordering::Relaxed) {
        sleep(Duration::from_millis(random.u64(500..=2_000))).await;
        let away = Duration::from_millis(random.u64(0..=200));
        let script = answers::script(&mut random);
        backends[random.usize(0..BACKENDS)].restart(script, away).await;
    }
}

/// Makes the calls that `next` returns, many in parallel, and records how each ended.
async fn all(
    client: &EchoClient<Channel>,
    faults: &Arc<Faults>,
    mut next: impl FnMut() -> Option<Call>,
) {
    let mut running = JoinSet::new();
    loop {
        while running.len() < PARALLEL_CALLS
            && let Some(call) = next()
        {
            let (client, faults) = (client.clone(), faults.clone());
            running.spawn(async move {
                match call.make(client).await {
                    Ok(how) => faults.ended(how),
                    Err(fault) => faults.report(fault),
                }
            });
        }
        match running.join_next().await {
            Some(joined) => joined.expect("no call panics"),
            None => return,
        }
    }
}

/// Waits for a condition that becomes true soon.
async fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let waiting = async {
        while !condition() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(timeout(DRAIN_TIMEOUT, waiting).await.is_ok(), "{what}");
}

/// Makes all calls under random faults.
async fn chaos(
    random: &mut Rng,
    calls: u64,
    client: &EchoClient<Channel>,
    control: &Control,
    backends: &Arc<Vec<Backend>>,
    faults: &Arc<Faults>,
) {
    let stop = Arc::new(AtomicBool::new(false));
    let operator = tokio::spawn(operate(random.fork(), control.clone(), stop.clone()));
    let disturber = tokio::spawn(disturb(random.fork(), backends.clone(), stop.clone()));
    let mut ids = 1..=calls;
    all(client, faults, || {
        let id = ids.next()?;
        prepare(random, backends, id);
        Some(Call::random(random, id))
    })
    .await;
    stop.store(true, Ordering::Relaxed);
    operator.await.expect("configs were swapped");
    disturber.await.expect("servers came back");
}

/// Counts the tokens of calls that fail once at each server and then succeed.
async fn count_tokens(
    first: u64,
    client: &EchoClient<Channel>,
    control: &Control,
    backends: &Arc<Vec<Backend>>,
    faults: &Arc<Faults>,
) {
    for backend in backends.iter() {
        backend.restart(answers::quiet(), Duration::ZERO).await;
    }
    control.set_retries(Retries::All);
    control.set_json(FILLING).expect("it is valid");
    let mut ids = first..first + REFILL_CALLS;
    all(client, faults, || ids.next().map(Call::plain)).await;
    assert_eq!(control.tokens(), Some(1000.0), "calls that succeed fill the throttle");

    control.set_json(COUNTING).expect("it is valid");
    let made = |control: &Control| control.statistics()[UNARY].retries.retries;
    let (retries, failures) = (made(control), faults.consecutive_failures());
    let mut ids = (first + REFILL_CALLS..).take(COUNTED_CALLS);
    all(client, faults, || {
        let id = ids.next()?;
        for backend in backends.iter() {
            backend.prepare(id, vec![answers::unavailable(id)]);
        }
        Some(Call::plain(id))
    })
    .await;
    let failures = faults.consecutive_failures() - failures;
    assert!(failures >= COUNTED_CALLS as u64, "each call failed at least once: {failures}");
    assert_eq!(made(control) - retries, failures, "each failure was followed by a retry");
    let left = 1000.0 - failures as f64 + 0.01 * COUNTED_CALLS as f64;
    assert_eq!(control.tokens(), Some(left), "after {failures} failures");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn soak_calls_end_once_and_leave_no_state() {
    let calls = number("REDIAL_SOAK_CALLS", CALLS);
    let seed = number("REDIAL_SOAK_SEED", 1);
    let tasks = || Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    let mut random = Rng::with_seed(seed);
    let faults = Arc::new(Faults::default());
    let mut backends = Vec::new();
    for _ in 0..BACKENDS {
        backends.push(Backend::start(faults.clone()).await);
    }
    let backends = Arc::new(backends);
    let channel = channel(&backends);
    let control = channel.control();
    let client = EchoClient::new(channel.clone());

    chaos(&mut random, calls, &client, &control, &backends, &faults).await;
    let succeeded = faults.ends().get("OK").copied().unwrap_or(0);
    // Usually every third; on a busy machine many are too late.
    assert!(
        succeeded > calls / 50,
        "too few calls succeeded to show anything: {:?}",
        faults.ends()
    );
    wait_until("what calls kept is given back", || control.bytes_kept() == 0).await;
    let quiet = || channel.snapshot().backends.iter().all(|backend| backend.in_flight == 0);
    wait_until("no attempt is under way", quiet).await;
    count_tokens(calls + 1, &client, &control, &backends, &faults).await;
    faults.none();
    let ends = faults.ends();
    let made = calls + REFILL_CALLS + COUNTED_CALLS as u64;
    assert_eq!(ends.values().sum::<u64>(), made, "each call ended once: {ends:?}");
    assert_eq!(control.bytes_kept(), 0);

    drop((client, channel));
    for backend in backends.iter() {
        backend.finish().await;
    }
    wait_until("no task is left", || tasks() == before).await;
    faults.none();
    println!("seed {seed}: {made} calls, {} streams; {ends:?}", faults.streams());
}
