//! The invariants of the balanced channel under random faults: servers close after n requests,
//! refuse, reset, hang, restart and respond slowly, under random policies and deadlines, over
//! pipes. Then all of them are healthy. Runs many times on a paused clock, and once in real time
//! with callers that repeat a failed call immediately.
//!
//! Checked:
//! - over consecutive picks between two changes of the ready set, the numbers of first attempts per
//!   backend differ by at most one;
//! - no call ends later than its deadline plus a tolerance;
//! - the runtime is never starved: a ticker sees no gap above a tolerance;
//! - each backend that is healthy again gets calls again within a stated time;
//! - while all servers are healthy no call fails, hedged or not; and no call ever fails with a
//!   status that came neither from a server nor from a lost connection.
//!
//! `REDIAL_MODEL_RUNS` is the number of runs on the paused clock, `REDIAL_MODEL_SEED` the first
//! seed. A failure prints its seed.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use fastrand::Rng;
use h2::Reason;
use redial_grpc_balance::{BackendId, UsedBackends};
use redial_grpc_balance::{BalancedChannel, ConnectivityState, OutlierDetection};
use tokio::time::{Instant, sleep, timeout};
use tonic::{Code, Request, Status};

use super::faulty_server::{Behaviour, Closing, Faulty, Treatment};
use super::support::{Client, Pipes, SERVER, config, failing};

const RUNS: u64 = 4;
const BACKENDS: usize = 4;
const CALLERS: usize = 6;
const CHAOS: Duration = Duration::from_secs(1);
/// How long no server can be reached at the start.
const BLACKOUT: Duration = Duration::from_millis(200);
/// How many calls each caller makes while all servers are healthy.
const QUIET_CALLS: usize = 40;
/// The time limit of a run in real time, on a busy machine.
const RUN_MAX: Duration = Duration::from_secs(300);

const POLICIES: [&str; 4] = [
    "",
    r#""retryPolicy": { "maxAttempts": 4, "initialBackoff": "0.005s", "maxBackoff": "0.05s",
        "backoffMultiplier": 2, "retryableStatusCodes": ["UNAVAILABLE"] }"#,
    r#""hedgingPolicy": { "maxAttempts": 2, "hedgingDelay": "0s",
        "nonFatalStatusCodes": ["UNAVAILABLE"] }"#,
    r#""hedgingPolicy": { "maxAttempts": 3, "hedgingDelay": "0.005s",
        "nonFatalStatusCodes": ["UNAVAILABLE", "CANCELLED", "INTERNAL"] }"#,
];

/// The codes that servers, resets, lost connections and deadlines produce.
const EXPECTED: [Code; 5] =
    [Code::Unavailable, Code::DeadlineExceeded, Code::Cancelled, Code::Internal, Code::Unknown];

/// The tolerances, which depend on the clock.
#[derive(Clone, Copy, Debug)]
struct Clock {
    paused: bool,
    /// How much later than its deadline a call may end.
    late_max: Duration,
    /// The longest gap between two ticks.
    gap_max: Duration,
    /// How soon a backend that is healthy again gets calls: the longest connection backoff and the
    /// longest ejection, doubled.
    recovery_max: Duration,
}

const PAUSED: Clock = Clock {
    paused: true,
    late_max: Duration::from_millis(10),
    gap_max: Duration::from_millis(20),
    recovery_max: Duration::from_millis(1000),
};
const REAL: Clock = Clock {
    paused: false,
    late_max: Duration::from_secs(3),
    gap_max: Duration::from_secs(3),
    recovery_max: Duration::from_secs(20),
};
const CONNECT_BACKOFF: (Duration, Duration) =
    (Duration::from_millis(10), Duration::from_millis(100));
const AVOIDED: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(200));
const TICK: Duration = Duration::from_millis(5);

/// First attempts per backend since the ready set changed.
#[derive(Debug, Default)]
struct Spread {
    ready: Vec<BackendId>,
    counts: BTreeMap<BackendId, usize>,
    /// The most consecutive picks that were counted.
    longest: usize,
}

impl Spread {
    /// Counts a first attempt on this backend while `ready` were ready; `None` if it is unknown
    /// which of them could be picked.
    fn picked(&mut self, backend: BackendId, ready: Option<Vec<BackendId>>) -> Result<(), String> {
        let ready = ready.unwrap_or_default();
        if ready.is_empty() || ready != self.ready {
            self.counts = ready.iter().map(|id| (*id, 0)).collect();
            self.ready = ready;
        }
        let Some(count) = self.counts.get_mut(&backend) else {
            return if self.ready.is_empty() { Ok(()) } else { Err("not a ready one".to_owned()) };
        };
        *count += 1;
        self.longest = self.longest.max(self.counts.values().sum());
        let (least, most) = (self.counts.values().min(), self.counts.values().max());
        match most.unwrap() - least.unwrap() {
            0 | 1 => Ok(()),
            _ => Err(format!("first attempts are skewed: {:?}", self.counts)),
        }
    }
}

/// The backends that a first attempt may use; `None` if an ejected one may be probed, or all ready
/// ones are ejected.
fn ready(channel: &BalancedChannel) -> Option<Vec<BackendId>> {
    let open =
        channel.snapshot().backends.into_iter().filter(|it| it.state == ConnectivityState::Ready);
    let mut ready = Vec::new();
    for backend in open {
        match backend.ejected_for {
            None => ready.push(backend.id),
            Some(Duration::ZERO) => return None,
            Some(_) => {}
        }
    }
    Some(ready).filter(|ready| !ready.is_empty())
}

/// One run, shared by its tasks.
struct Run {
    clock: Clock,
    channel: BalancedChannel,
    spread: Mutex<Spread>,
    /// Which servers have responded since this was last cleared.
    answered: Mutex<[bool; BACKENDS]>,
    calls: AtomicUsize,
    succeeded: AtomicUsize,
    fault: Mutex<Option<String>>,
    stop: AtomicBool,
}

impl Run {
    fn report(&self, fault: String) {
        self.fault.lock().unwrap().get_or_insert(fault);
        self.stop.store(true, Ordering::Relaxed);
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Makes one call, and checks its first pick and its result.
    async fn call(&self, client: &mut Client, deadline: Option<Duration>) -> Result<(), Status> {
        let (used, started) = (UsedBackends::new(), Instant::now());
        let mut request = Request::new(failing(0));
        request.extensions_mut().insert(used.clone());
        if let Some(deadline) = deadline {
            request.set_timeout(deadline);
        }
        let mut call = pin!(client.unary(request));
        let mut picked = false;
        let result = poll_fn(|cx| {
            let before = (!picked).then(|| ready(&self.channel));
            let polled = call.as_mut().poll(cx);
            if let Some(before) = before
                && let Some(first) = used.to_vec().first()
            {
                picked = true;
                // In real time, a backend may be due for a probe between the look and the pick.
                let unchanged =
                    before.filter(|before| Some(before) == ready(&self.channel).as_ref());
                if let Err(fault) = self.spread.lock().unwrap().picked(*first, unchanged) {
                    self.report(fault);
                }
            }
            polled
        })
        .await;
        self.calls.fetch_add(1, Ordering::Relaxed);
        let took = started.elapsed();
        if deadline.is_some_and(|deadline| took > deadline + self.clock.late_max) {
            self.report(format!("a call with a deadline of {deadline:?} took {took:?}"));
        }
        let response = match result {
            Ok(response) => response,
            Err(status) => {
                if !EXPECTED.contains(&status.code()) {
                    self.report(format!("nothing explains {status:?}"));
                }
                return Err(status);
            }
        };
        let server = response.metadata().get(SERVER).expect("answers are signed");
        let server: usize = server.to_str().unwrap().parse().unwrap();
        self.answered.lock().unwrap()[server - 1] = true;
        self.succeeded.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Makes calls with deadlines until the run stops.
    async fn keep_calling(&self, mut random: Rng) {
        let mut client = Client::new(self.channel.clone());
        while !self.stopped() {
            let deadline = Duration::from_millis(random.u64(20..=300));
            let failed = self.call(&mut client, Some(deadline)).await.is_err();
            // On a paused clock, time advances only when no task is ready.
            if self.clock.paused || !failed {
                sleep(Duration::from_millis(random.u64(1..=3))).await;
            }
        }
    }

    async fn tick(&self) {
        while !self.stopped() {
            let before = Instant::now();
            sleep(TICK).await;
            let gap = before.elapsed();
            if gap > TICK + self.clock.gap_max {
                self.report(format!("the runtime was starved for {gap:?}"));
            }
        }
    }
}

fn behaviour(random: &mut Rng) -> Behaviour {
    let reasons = [Reason::REFUSED_STREAM, Reason::CANCEL, Reason::INTERNAL_ERROR];
    let treatment = match random.u32(0..8) {
        0 => Treatment::Status(Code::Unavailable),
        1 => Treatment::Reset(reasons[random.usize(0..reasons.len())]),
        2 => Treatment::Hang,
        _ => Treatment::Answer,
    };
    let closing = if random.bool() { Closing::GoAway } else { Closing::Abrupt };
    let requests_max = random.bool().then(|| (random.u32(1..=40), closing));
    let delay = Duration::from_millis(if random.bool() { 0 } else { random.u64(1..=50) });
    Behaviour { requests_max, treatment, delay }
}

/// Changes the behaviour of one server after another.
async fn disturb(mut random: Rng, pipes: &Pipes, servers: &[Faulty]) {
    for (nth, server) in (1..).zip(servers) {
        pipes.refuse_at(nth);
        server.cut_connections();
    }
    sleep(BLACKOUT).await;
    let end = Instant::now() + CHAOS;
    while Instant::now() < end {
        sleep(Duration::from_millis(random.u64(1..=30))).await;
        let nth = random.usize(1..=BACKENDS);
        let server = &servers[nth - 1];
        server.behave(behaviour(&mut random));
        match random.u32(0..8) {
            0 => pipes.refuse_at(nth),
            1 => pipes.close_connections_at(nth),
            2 => pipes.stay_silent_at(nth),
            _ => pipes.let_misbehave_at(nth, server),
        }
        if random.u32(0..3) == 0 {
            server.cut_connections();
        }
    }
    for (nth, server) in (1..).zip(servers) {
        server.behave(Behaviour::HEALTHY);
        pipes.let_misbehave_at(nth, server);
        // Otherwise requests that hang would hang until their deadlines.
        server.cut_connections();
    }
}

/// Plays one run. Returns the violation, or how many of how many calls succeeded.
async fn play(seed: u64, clock: Clock) -> Result<(usize, usize), String> {
    let mut random = Rng::with_seed(seed);
    let pipes = Pipes::default();
    let servers: Vec<_> =
        (1..=BACKENDS).map(|nth| pipes.serve_faulty(nth, Behaviour::HEALTHY)).collect();
    let policy = POLICIES[random.usize(0..POLICIES.len())];
    let outliers = match random.bool() {
        true => OutlierDetection::off(),
        false => OutlierDetection::default().ejection_time(AVOIDED.0, AVOIDED.1),
    };
    let channel = pipes
        .to(BACKENDS, &config("round_robin", policy))
        .endpoint(|endpoint| Ok(endpoint.connect_timeout(Duration::from_millis(100))))
        .connect_backoff(CONNECT_BACKOFF.0, CONNECT_BACKOFF.1)
        .outlier_detection(outliers)
        .build()
        .unwrap();
    let run = Arc::new(Run {
        clock,
        channel,
        spread: Mutex::default(),
        answered: Mutex::default(),
        calls: AtomicUsize::new(0),
        succeeded: AtomicUsize::new(0),
        fault: Mutex::default(),
        stop: AtomicBool::new(false),
    });
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..CALLERS {
        let (run, random) = (run.clone(), random.fork());
        tasks.spawn(async move { run.keep_calling(random).await });
    }
    let ticker = run.clone();
    tasks.spawn(async move { ticker.tick().await });
    disturb(random.fork(), &pipes, &servers).await;

    *run.answered.lock().unwrap() = Default::default();
    let all = || run.answered.lock().unwrap().iter().all(|answered| *answered);
    let recovered = timeout(clock.recovery_max, async {
        while !all() && !run.stopped() {
            sleep(Duration::from_millis(1)).await;
        }
    });
    if recovered.await.is_err() {
        let snapshot = run.channel.snapshot().backends;
        run.report(format!("a healthy backend is not used again: {snapshot:?}"));
    }
    let mut client = Client::new(run.channel.clone());
    for _ in 0..QUIET_CALLS * CALLERS {
        if run.stopped() {
            break;
        }
        if let Err(status) = run.call(&mut client, None).await {
            run.report(format!("all servers are healthy, and a call fails: {status:?}"));
        }
    }
    run.stop.store(true, Ordering::Relaxed);
    while let Some(joined) = tasks.join_next().await {
        joined.expect("no task panics");
    }
    let longest = run.spread.lock().unwrap().longest;
    if longest < QUIET_CALLS {
        run.report(format!("only {longest} consecutive picks were counted"));
    }
    let (made, fault) = (run.calls.load(Ordering::Relaxed), run.fault.lock().unwrap().take());
    match fault {
        Some(fault) => Err(format!("{fault}, with the policy {policy:?}")),
        None => Ok((run.succeeded.load(Ordering::Relaxed), made)),
    }
}

/// Plays one run on its own thread, which a starved runtime may block forever.
fn check(seed: u64, clock: Clock) {
    let (done, result) = mpsc::channel();
    std::thread::spawn(move || {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().start_paused(clock.paused).build().unwrap();
        // An error means that the receiver has timed out.
        let _sent = done.send(runtime.block_on(play(seed, clock)));
    });
    match result.recv_timeout(RUN_MAX) {
        Ok(Ok((succeeded, made))) => println!("seed {seed}: {succeeded} of {made} calls succeeded"),
        Ok(Err(fault)) => panic!("seed {seed}: {fault}"),
        Err(_) => panic!("seed {seed}: it does not end, or panicked: see above"),
    }
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

#[test]
fn channel_invariants_hold_under_random_server_faults() {
    let (runs, seed) = (number("REDIAL_MODEL_RUNS", RUNS), number("REDIAL_MODEL_SEED", 1));
    for seed in seed..seed + runs {
        check(seed, PAUSED);
    }
}

#[test]
fn channel_invariants_hold_in_real_time() {
    check(number("REDIAL_MODEL_SEED", 1), REAL);
}
