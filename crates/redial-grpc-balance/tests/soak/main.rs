//! Goal: whatever servers, applications and operators do, every call ends exactly once, no message
//! is lost, doubled or reordered within an attempt, every stream at a server is closed, and buffers,
//! tokens and tasks are back where they belong. Method: calls of all four kinds at random, many at
//! once, through the balanced channel, in real time over loopback, against scripted servers that
//! fail in every way that a script knows and come and go; with random deadlines and dropped calls,
//! while configs are swapped and retries switched.
//!
//! So many calls as `REDIAL_SOAK_CALLS` says, at random as `REDIAL_SOAK_SEED` says: `cargo xtask test
//! soak` makes more. What happens is random in its timing too, so that a seed repeats the calls and
//! not the run.

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

/// A client's channel.
type Channel = redial_grpc_balance::BalancedChannel;

/// How many calls are made if nobody says how many.
const CALLS: u64 = 20_000;
/// How many calls run at once.
const AT_ONCE: usize = 64;
const BACKENDS: usize = 3;
/// How many calls that succeed fill the throttle, wherever it was.
const FILLED: u64 = 1000;
/// How many calls are made whose tokens are counted one by one: so few that the throttle, which each
/// of them may cost as many tokens as there are servers, stays above its threshold.
const COUNTED: usize = 150;
/// How long what is cancelled last may need to be gone.
const PATIENCE: Duration = Duration::from_secs(30);

/// What is in force while calls are made: retries, hedges with and without a delay, tight limits and
/// generous ones, and nothing.
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
        // Behind some doors nobody ever says anything.
        .endpoint(move |endpoint| {
            let endpoint = endpoint.keep_alive_while_idle(true).http2_keep_alive_interval(ms(500));
            Ok(endpoint.keep_alive_timeout(ms(1_000)))
        })
        .connect_backoff(ms(5), ms(50))
        .build()
        .expect("it is right")
}

/// Prepares what a call's attempts meet at each server: as a rule more than one of them fails.
fn prepare(random: &mut Rng, backends: &[Backend], call: u64) {
    for backend in backends {
        let answers = (0..random.u32(0..=2)).map(|_| answers::answer(random, call)).collect();
        backend.prepare(call, answers);
    }
}

/// Swaps configs and switches retries until it is told to stop.
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

/// Lets one server after the other go and come back until it is told to stop.
async fn disturb(mut random: Rng, backends: Arc<Vec<Backend>>, stop: Arc<AtomicBool>) {
    while !stop.load(Ordering::Relaxed) {
        sleep(Duration::from_millis(random.u64(500..=2_000))).await;
        let away = Duration::from_millis(random.u64(0..=200));
        let script = answers::script(&mut random);
        backends[random.usize(0..BACKENDS)].restart(script, away).await;
    }
}

/// Makes the calls that `next` gives, many at once, and notes how each ended.
async fn all(
    client: &EchoClient<Channel>,
    faults: &Arc<Faults>,
    mut next: impl FnMut() -> Option<Call>,
) {
    let mut running = JoinSet::new();
    loop {
        while running.len() < AT_ONCE
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

/// Waits for something that is true in a moment.
async fn soon(what: &str, is_so: impl Fn() -> bool) {
    let waiting = async {
        while !is_so() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(timeout(PATIENCE, waiting).await.is_ok(), "{what}");
}

/// Chaos, until all calls are made.
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

/// Counts the tokens of calls that all fail at each server once, and then succeed.
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
    let mut ids = first..first + FILLED;
    all(client, faults, || ids.next().map(Call::plain)).await;
    assert_eq!(control.tokens(), Some(1000.0), "calls that succeed fill the throttle");

    control.set_json(COUNTING).expect("it is valid");
    let made = |control: &Control| control.statistics()[UNARY].retries.retries;
    let (retries, failures) = (made(control), faults.consecutive_failures());
    let mut ids = (first + FILLED..).take(COUNTED);
    all(client, faults, || {
        let id = ids.next()?;
        for backend in backends.iter() {
            backend.prepare(id, vec![answers::unavailable(id)]);
        }
        Some(Call::plain(id))
    })
    .await;
    let failures = faults.consecutive_failures() - failures;
    assert!(failures >= COUNTED as u64, "each call failed at least once: {failures}");
    assert_eq!(made(control) - retries, failures, "each failure was followed by a retry");
    let left = 1000.0 - failures as f64 + 0.01 * COUNTED as f64;
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
    // As a rule it is every third; on a machine that is busy with other things many are too late.
    assert!(
        succeeded > calls / 50,
        "too few calls succeeded to show anything: {:?}",
        faults.ends()
    );
    soon("what calls kept is given back", || control.bytes_kept() == 0).await;
    let quiet = || channel.snapshot().backends.iter().all(|backend| backend.in_flight == 0);
    soon("no attempt is under way", quiet).await;
    count_tokens(calls + 1, &client, &control, &backends, &faults).await;
    faults.none();
    let ends = faults.ends();
    let made = calls + FILLED + COUNTED as u64;
    assert_eq!(ends.values().sum::<u64>(), made, "each call ended once: {ends:?}");
    assert_eq!(control.bytes_kept(), 0);

    drop((client, channel));
    for backend in backends.iter() {
        backend.finish().await;
    }
    soon("no task is left", || tasks() == before).await;
    faults.none();
    println!("seed {seed}: {made} calls, {} streams; {ends:?}", faults.streams());
}
