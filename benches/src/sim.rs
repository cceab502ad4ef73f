//! The cost of a simulated attempt in instructions (callgrind), next to the same number of events of
//! 32 bytes in a binary heap, and the memory of idle clients.
//!
//! `cargo run --release --manifest-path benches/Cargo.toml --features sim --bin sim` prints the tables.
//! Instructions are the difference of two whole runs, divided by the difference of their counts.

#[path = "count.rs"]
#[allow(dead_code)]
mod count;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::process::Command;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use redial_sim::{
    CallPolicy, Clients, Disturbance, Distribution, Effect, Load, Service, Simulation, Variant,
};

#[global_allocator]
static ALLOCATOR: count::Counting = count::Counting;

const MILLION: u32 = 1_000_000;

/// A simulation, and the number of events that are pending in it.
struct Case {
    name: &'static str,
    pending: usize,
    simulation: fn(u64) -> Simulation,
}

const CASES: &[Case] = &[
    Case {
        name: "a million clients, healthy, attempt timeout 1 s, lognormal latency of 100 ms",
        pending: 20_000,
        simulation: |calls| {
            let time = Distribution::Lognormal { median: Duration::from_millis(100), sigma: 0.4 };
            steady(calls, time, r#"{ "attempt_timeout": "1s" }"#)
        },
    },
    Case {
        name: "a million clients, every attempt fails, 3 attempts, full jitter",
        pending: 30_000,
        simulation: |calls| {
            let time = Distribution::Fixed(Duration::from_millis(100));
            let mut simulation = steady(calls, time, r#"{ "throttle": "none" }"#);
            simulation.services[0].failure_rate = 1.0;
            simulation
        },
    },
    Case {
        name: "all of the clients call at once, and every attempt times out",
        pending: 500_000,
        simulation: |calls| {
            let time = Distribution::Fixed(Duration::from_secs(3600));
            let policy = r#"{ "attempt_timeout": "1s", "throttle": "none" }"#;
            let mut simulation = steady(calls, time, policy);
            let count = u32::try_from(calls).expect("a number of clients");
            let load = Load::Burst { at: Duration::from_secs(1) };
            simulation.clients = Clients { count, load, calls_max: None };
            // Requests wait in the queue, so that timers alone are events.
            let effect = Effect::Stall { service: 0 };
            let (at, lasts) = (Duration::ZERO, Duration::from_secs(7200));
            simulation.disturbances.push(Disturbance { at, lasts, effect });
            simulation.services[0].queue = 10 * MILLION;
            simulation
        },
    },
];

/// Calls of a million clients at 100,000 per second.
fn steady(calls: u64, time: Distribution, policy: &str) -> Simulation {
    let mut simulation = Simulation::new("steady", Duration::from_secs(600));
    simulation.clients.count = MILLION;
    simulation.clients.load = Load::Poisson { calls_per_second: 100_000.0 };
    simulation.clients.calls_max = Some(calls);
    simulation.services.push(Service::new("backend", time));
    let config = serde_json::from_str(policy).expect("a policy");
    let policy = CallPolicy::from_config(&config).expect("a valid policy");
    simulation.policies.push(Variant::new("policy", policy));
    simulation
}

/// A bare event.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Event {
    time: u64,
    order: u64,
    payload: [u64; 2],
}

/// Pops and pushes this many events in a heap with `pending` of them. The times come from the generator
/// that the simulator uses.
fn heap(pending: usize, events: u64) {
    let mut random = redial_core::Random::new(1);
    let mut heap = BinaryHeap::new();
    let mut order = 0;
    let mut push = |heap: &mut BinaryHeap<Reverse<Event>>, now: u64| {
        order += 1;
        let time = now + random.bits() % 1_000_000_000;
        heap.push(Reverse(Event { time, order, payload: [order; 2] }));
    };
    for _ in 0..pending {
        push(&mut heap, 0);
    }
    for _ in 0..events {
        let Reverse(event) = heap.pop().expect("an event");
        std::hint::black_box(event.payload);
        push(&mut heap, event.time);
    }
}

/// Makes this many decisions about failed attempts, with full jitter: what every simulator that runs the
/// production code pays for a failed attempt beside its events.
fn decisions(count: u64) {
    use redial_core::throttle::Unthrottled;
    use redial_core::{
        Advice, CallCounters, CallEnvironment, Failure, NEVER, Policy, Random, Rules, decide,
    };
    let policy = std::hint::black_box(Policy::new(Rules { attempts: Some(9), ..Rules::DEFAULT }));
    let mut env = CallEnvironment::new(Unthrottled, Random::new(1));
    for now in 0..count {
        let mut counters = CallCounters { attempts: 1, ..CallCounters::new(now) };
        let failure = std::hint::black_box(Failure::server());
        let verdict =
            decide(&policy, &mut counters, &failure, Advice::None, now, NEVER, &mut env);
        std::hint::black_box(verdict);
    }
}

/// Attempts and events of a run.
fn simulate(case: &Case, calls: u64) -> (u64, u64) {
    let report = (case.simulation)(calls).run().expect("it runs");
    let policy = &report.policies[0];
    (policy.services[0].attempts, policy.events)
}

/// The instructions of this program with these arguments.
fn instructions(arguments: &[String]) -> f64 {
    let this = std::env::current_exe().expect("this program");
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(this)
        .args(arguments)
        .output()
        .expect("valgrind is installed");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    let line = text.lines().find(|line| line.contains("Collected")).expect("a total");
    line.rsplit(' ').next().and_then(|number| number.parse().ok()).expect("a number")
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize| arguments[index].parse::<u64>().expect("a number");
    match arguments.first().map(String::as_str) {
        Some("run") => drop(simulate(&CASES[number(1) as usize], number(2))),
        Some("heap") => heap(number(1) as usize, number(2)),
        Some("decide") => decisions(number(1)),
        Some("memory") => memory(),
        Some("time") => time(),
        None => {
            attempts();
            memory();
            time();
        }
        Some(other) => panic!("no argument, or memory or time, not {other}"),
    }
}

fn attempts() {
    const FEW: u64 = 200_000;
    const MANY: u64 = 500_000;
    println!("## instructions per simulated attempt");
    println!("| case | per attempt | events per attempt | the same events in a heap | ratio |");
    println!("| --- | --- | --- | --- | --- |");
    for (index, case) in CASES.iter().enumerate() {
        let ((few, few_events), (many, many_events)) = (simulate(case, FEW), simulate(case, MANY));
        let whole = |calls: u64| instructions(&["run".into(), index.to_string(), calls.to_string()]);
        let per_attempt = (whole(MANY) - whole(FEW)) / (many - few) as f64;
        let events = (many_events - few_events) as f64 / (many - few) as f64;
        let bare = |n: u64| instructions(&["heap".into(), case.pending.to_string(), n.to_string()]);
        let in_heap = (bare(MANY) - bare(FEW)) / (MANY - FEW) as f64 * events;
        println!(
            "| {} | {per_attempt:.0} | {events:.2} | {in_heap:.0} | {:.2} |",
            case.name,
            per_attempt / in_heap
        );
    }
    let decide = |n: u64| instructions(&["decide".into(), n.to_string()]);
    let decision = (decide(MANY) - decide(FEW)) / (MANY - FEW) as f64;
    println!("\none decision with its draw, alone: {decision:.0}");
}

/// Bytes per idle client: a run whose clients make no call.
fn memory() {
    println!("\n## heap per idle client, a million of them\n| throttle | bytes |\n| --- | --- |");
    for (name, policy) in [
        ("none", r#"{ "throttle": "none" }"#),
        ("retry budget", r#"{}"#),
        ("gRPC token bucket", r#"{ "throttle": {"tokens": {"max": 10, "ratio": 0.1}} }"#),
        ("cost bucket", r#"{ "throttle": {"cost": {}} }"#),
    ] {
        let peak = |clients| {
            let mut simulation = steady(1, Distribution::Fixed(Duration::ZERO), policy);
            simulation.clients.count = clients;
            let most = AtomicI64::new(0);
            let look = |_: f64| {
                most.fetch_max(count::live(), Ordering::Relaxed);
            };
            // A call in an hour: the first tick comes before it.
            simulation.clients.load = Load::Poisson { calls_per_second: 1.0 / 3600.0 };
            simulation.run_with_progress(&look).expect("it runs");
            most.into_inner()
        };
        peak(1);
        let bytes = (peak(MILLION) - peak(1)) as f64 / f64::from(MILLION);
        println!("| {name} | {bytes:.1} |");
    }
}

/// Seconds on this machine, to give an idea.
fn time() {
    println!("\n## seconds for a million calls\n| case | seconds | attempts per second |\n| --- | --- | --- |");
    for case in CASES {
        let began = std::time::Instant::now();
        let (attempts, _) = simulate(case, u64::from(MILLION));
        let seconds = began.elapsed().as_secs_f64();
        println!("| {} | {seconds:.2} | {:.2} million |", case.name, attempts as f64 / seconds / 1e6);
    }
}
