//! The discrete-event engine: one run of one policy.
//!
//! The engine moves requests between callers and servers in virtual time. Whether and when an attempt
//! is repeated is decided by `redial-core`: by [`redial_core::Call`], with the same lazy start as the
//! drivers of `redial` ([`FirstAttempt`](redial_core::FirstAttempt)), or by [`redial_core::decide`] for calls
//! that need only counters. `calls.rs` carries out the commands.
//!
//! Invariant: a call has at most one timer, at [`Call::wake_at`](redial_core::Call::wake_at) or at the end of
//! its backoff.

mod buckets;
mod calls;
mod metrics;
mod requests;
mod state;

use std::ops::ControlFlow;

use redial_core::{NEVER, Ns, PolicyError, Random, duration, ns};
use slab::Slab;

pub(crate) use buckets::Buckets;
pub(crate) use metrics::{Interval, Metrics, ServiceCounts};
use state::{
    CallState, Condition, FirstTimers, FullCall, Hop, NONE, Request, ServerState, ServiceState,
};

use crate::distribution::{Sampler, exponential};
use crate::error::Error;
use crate::event_queue::EventQueue;
use crate::limits::{ATTEMPTS_MAX, IN_FLIGHT_MAX, SAME_TIME_MAX};
use crate::model::{BudgetScope, CLIENTS, Effect, Load, NestedRetries, Simulation, Variant};

/// An event: its kind and the index of what it concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Kind {
    /// A client has waited between two calls.
    ClientReady,
    /// The timer of a call.
    Wake,
    /// The timer of the first attempts of a hop.
    FirstTimer,
    /// A request reaches its server.
    Deliver,
    /// A worker is done with a request.
    Done,
    /// The second half of a request with an optimistic lock.
    Write,
    /// A response reaches the caller.
    Respond,
    /// A disturbance starts or ends.
    Disturbance,
    /// An interval of the time series ends.
    Tick,
}

impl Kind {
    const ALL: [Kind; 9] = [
        Kind::ClientReady,
        Kind::Wake,
        Kind::FirstTimer,
        Kind::Deliver,
        Kind::Done,
        Kind::Write,
        Kind::Respond,
        Kind::Disturbance,
        Kind::Tick,
    ];

    const fn of(self, index: u32) -> u64 {
        (self as u64) << 32 | index as u64
    }
}

/// A run asks after this many events whether it was stopped: some milliseconds apart.
const EVENTS_UNWATCHED: u64 = 1 << 16;

/// The throttles of a run. They outlive the engine, whose calls refer to them.
#[derive(Debug)]
pub(crate) struct Throttles(Vec<Buckets>);

impl Throttles {
    /// Whether the throttles of a policy can be built.
    pub(crate) fn check(simulation: &Simulation, variant: &Variant) -> Result<(), PolicyError> {
        let hops = 0..simulation.services.len();
        hops.map(|hop| variant.policy_of(caller(simulation, hop).0).throttle())
            .try_for_each(|throttle| Buckets::new(throttle, 1).map(drop))
    }

    pub(crate) fn new(simulation: &Simulation, variant: &Variant) -> Result<Self, PolicyError> {
        let hops = 0..simulation.services.len();
        let new = |hop| {
            let (name, count) = caller(simulation, hop);
            let count = match variant.budget {
                BudgetScope::Local => count,
                BudgetScope::Shared => 1,
            };
            Buckets::new(variant.policy_of(name).throttle(), count as usize)
        };
        hops.map(new).collect::<Result<_, _>>().map(Throttles)
    }
}

/// The name and number of the callers of a hop.
fn caller(simulation: &Simulation, hop: usize) -> (&str, u32) {
    match hop.checked_sub(1) {
        None => (CLIENTS, simulation.clients.count),
        Some(above) => (&simulation.services[above].name, simulation.services[above].servers),
    }
}

/// Independent streams of random numbers, so that every policy meets the same arrivals.
#[derive(Debug)]
struct Streams {
    arrivals: Random,
    service: Random,
    calls: Random,
}

impl Streams {
    fn new(seed: u64) -> Streams {
        let mut seeds = Random::new(seed);
        let mut stream = || Random::new(seeds.bits());
        Streams { arrivals: stream(), service: stream(), calls: stream() }
    }
}

/// The state of a run.
#[derive(Debug)]
pub(crate) struct Engine<'a> {
    simulation: &'a Simulation,
    queue: EventQueue,
    now: Ns,
    end: Ns,
    interval: Ns,
    hops: Vec<Hop<'a>>,
    services: Vec<ServiceState>,
    servers: Vec<ServerState>,
    calls: Slab<CallState>,
    machines: Slab<FullCall<'a>>,
    requests: Slab<Request>,
    streams: Streams,
    /// When the next client calls, and the mean time between two arrivals in nanoseconds; `NEVER`
    /// without arrivals, and 0 if there is one for all clients. Not in the queue: half of all events are
    /// arrivals.
    next_arrival: Ns,
    arrival_every: f64,
    is_poisson: bool,
    load: f64,
    think_time: Option<Sampler>,
    /// Calls that clients may still start.
    calls_left: u64,
    /// Calls of clients in flight, and attempts that have started.
    client_calls: u64,
    attempts: u64,
    same_time: u64,
    failure: Option<Error>,
    metrics: Metrics,
}

impl<'a> Engine<'a> {
    pub(crate) fn new(
        simulation: &'a Simulation,
        variant: &'a Variant,
        throttles: &'a Throttles,
        seed: u64,
    ) -> Engine<'a> {
        let end = ns(simulation.duration);
        let interval = ns(simulation.series_interval()).max(1);
        let intervals = end.div_ceil(interval) as usize;
        let hops = simulation.services.iter().enumerate().map(|(hop, _)| {
            let policy = variant.policy_of(caller(simulation, hop).0);
            let rules = policy.policy().rules();
            let buckets = &throttles.0[hop];
            Hop {
                policy: policy.policy(),
                failures: *policy.failures(),
                buckets,
                needs_only_counters: policy.policy().needs_only_counters()
                    && matches!(buckets, Buckets::None | Buckets::Budget(_)),
                deadline: rules.deadline.map_or(NEVER, ns),
                attempt_timeout: rules.attempt_timeout.map_or(NEVER, ns),
                stops_nested: variant.nested_retries == NestedRetries::Stopped,
                first_timers: FirstTimers::default(),
            }
        });
        let (services, servers) = services(simulation, variant);
        let mut engine = Engine {
            simulation,
            queue: EventQueue::new(),
            now: 0,
            end,
            interval,
            hops: hops.collect(),
            metrics: Metrics::new(intervals, services.len()),
            services,
            servers,
            calls: Slab::new(),
            machines: Slab::new(),
            requests: Slab::new(),
            streams: Streams::new(seed),
            next_arrival: NEVER,
            arrival_every: 0.0,
            is_poisson: matches!(simulation.clients.load, Load::Poisson { .. }),
            load: 1.0,
            think_time: None,
            calls_left: simulation.clients.calls_max.unwrap_or(u64::MAX),
            client_calls: 0,
            attempts: 0,
            same_time: 0,
            failure: None,
        };
        // The servers of a service are the callers of the next one.
        let callers = engine.metrics.services.iter_mut().zip(engine.hops.iter().skip(1));
        for (counts, _) in callers.filter(|(_, hop)| !matches!(hop.buckets, Buckets::None)) {
            counts.tokens = vec![None; counts.offered.len()];
        }
        engine.schedule();
        engine
    }

    /// Adds the first events.
    fn schedule(&mut self) {
        for disturbance in &self.simulation.disturbances {
            self.queue.push(ns(disturbance.at), Kind::Disturbance.of(0));
            self.queue.push(ns(disturbance.end()), Kind::Disturbance.of(0));
        }
        self.queue.push(self.interval, Kind::Tick.of(0));
        match &self.simulation.clients.load {
            Load::Poisson { calls_per_second } | Load::Even { calls_per_second } => {
                self.arrival_every = 1e9 / calls_per_second;
                self.schedule_arrival();
            }
            Load::Burst { at } => {
                self.calls_left = self.calls_left.min(u64::from(self.simulation.clients.count));
                self.next_arrival = ns(*at);
            }
            Load::Closed { think_time } => {
                let sampler = Sampler::new(think_time);
                for client in 0..self.simulation.clients.count {
                    let at = sampler.draw(&mut self.streams.arrivals);
                    self.queue.push(at, Kind::ClientReady.of(client));
                }
                self.think_time = Some(sampler);
            }
        }
    }

    #[inline]
    fn schedule_arrival(&mut self) {
        if self.load <= 0.0 {
            self.next_arrival = NEVER;
            return;
        }
        let mean = self.arrival_every / self.load;
        let after = match self.is_poisson {
            true => exponential(mean, &mut self.streams.arrivals),
            false => mean as Ns,
        };
        self.next_arrival = self.now.saturating_add(after);
    }

    /// Changes the wait for the next arrival in proportion to the rate of calls. At another rate, what is
    /// left of an exponential wait is exponential, too.
    fn reschedule_arrival(&mut self, load_before: f64) {
        if load_before <= 0.0 || self.load <= 0.0 || self.next_arrival == NEVER {
            self.schedule_arrival();
            return;
        }
        let left = (self.next_arrival - self.now) as f64 * (load_before / self.load);
        self.next_arrival = self.now.saturating_add(left as Ns);
    }

    /// Runs to the end, or until `watch` stops it. It is called at the end of each interval, and after
    /// [`EVENTS_UNWATCHED`], with the share that is done.
    pub(crate) fn run(mut self, watch: &dyn Fn(f64) -> ControlFlow<()>) -> Result<Metrics, Error> {
        loop {
            // At the same moment, other events come before an arrival.
            match self.queue.pop(self.end.min(self.next_arrival)) {
                Some((time, payload)) => {
                    self.advance(time);
                    self.handle(payload, watch);
                }
                None if self.next_arrival <= self.end => {
                    self.advance(self.next_arrival);
                    self.arrival();
                }
                None => break,
            }
            if self.metrics.events.is_multiple_of(EVENTS_UNWATCHED) {
                self.ask(watch);
            }
            if let Some(failure) = self.failure.take() {
                return Err(failure);
            }
            // Only the ticks are left: nothing can happen any more.
            if self.calls_left == 0 && self.client_calls == 0 && self.requests.is_empty() {
                break;
            }
        }
        self.metrics.end_interval();
        Ok(self.metrics)
    }

    #[inline]
    fn advance(&mut self, time: Ns) {
        self.metrics.events += 1;
        if time != self.now {
            (self.now, self.same_time) = (time, 0);
        }
    }

    #[inline]
    fn handle(&mut self, payload: u64, watch: &dyn Fn(f64) -> ControlFlow<()>) {
        let index = payload as u32;
        match Kind::ALL[(payload >> 32) as usize] {
            Kind::ClientReady => self.client_call(index),
            Kind::Wake => self.wake(index),
            Kind::FirstTimer => self.first_timers_due(index as usize),
            Kind::Deliver => self.deliver(index),
            Kind::Done => self.work_done(index),
            Kind::Write => self.write(index),
            Kind::Respond => self.finish_request(index),
            Kind::Disturbance => self.apply_disturbances(),
            Kind::Tick => {
                self.end_interval();
                self.ask(watch);
            }
        }
    }

    /// Reports the progress, and asks whether to go on.
    fn ask(&mut self, watch: &dyn Fn(f64) -> ControlFlow<()>) {
        if watch((self.now as f64 / self.end as f64).min(1.0)).is_break() {
            self.failure = Some(Error::Stopped);
        }
    }

    #[inline]
    fn arrival(&mut self) {
        let count = self.simulation.clients.count;
        if self.arrival_every == 0.0 {
            // All at once. The arrival itself is counted as an event already.
            self.next_arrival = NEVER;
            self.metrics.events += u64::from(count) - 1;
            for client in 0..count {
                self.client_call(client);
            }
            return;
        }
        let client = (f64::from(count) * self.streams.arrivals.draw()) as u32;
        self.schedule_arrival();
        self.client_call(client.min(count - 1));
    }

    #[inline]
    fn client_call(&mut self, client: u32) {
        if self.calls_left == 0 {
            return;
        }
        self.calls_left -= 1;
        self.client_calls += 1;
        self.metrics.call_started();
        self.start_call(0, client, NONE);
    }

    fn end_interval(&mut self) {
        let Metrics { current, intervals, services, .. } = &mut self.metrics;
        intervals[*current].tokens = self.hops[0].buckets.tokens(self.now);
        for (counts, service) in services.iter_mut().zip(&self.services) {
            let servers = &self.servers[service.first as usize..][..service.servers as usize];
            counts.queued[*current] = servers.iter().map(|it| it.waiting.len() as u64).sum();
        }
        for (counts, hop) in services.iter_mut().zip(self.hops.iter().skip(1)) {
            if let Some(tokens) = counts.tokens.get_mut(*current) {
                *tokens = hop.buckets.tokens(self.now);
            }
        }
        if *current + 1 < intervals.len() {
            self.metrics.end_interval();
            self.metrics.current += 1;
            self.queue.push(self.now.saturating_add(self.interval), Kind::Tick.of(0));
        }
    }

    /// Applies the disturbances that are active now.
    fn apply_disturbances(&mut self) {
        let now = duration(self.now);
        let load_before = std::mem::replace(&mut self.load, 1.0);
        for service in &mut self.services {
            service.condition = Condition::NORMAL;
        }
        for disturbance in &self.simulation.disturbances {
            if now < disturbance.at || now >= disturbance.end() {
                continue;
            }
            match disturbance.effect {
                Effect::Stall { service } => self.services[service].condition.stalled = true,
                Effect::Refuse { service } => self.services[service].condition.refusing = true,
                Effect::Fail { service, rate } => {
                    let fail = &mut self.services[service].condition.fail;
                    *fail = either(*fail, rate);
                }
                Effect::Slow { service, factor } => self.services[service].condition.slow *= factor,
                Effect::Load { factor } => self.load *= factor,
            }
        }
        if self.arrival_every > 0.0 && self.load != load_before {
            self.reschedule_arrival(load_before);
        }
        for service in 0..self.services.len() {
            self.resume(service);
        }
    }

    /// Counts an attempt against the limits of a run.
    fn count_attempt(&mut self) {
        self.attempts += 1;
        self.same_time += 1;
        let fits = self.requests.len() < IN_FLIGHT_MAX
            && self.same_time <= SAME_TIME_MAX
            && self.attempts <= ATTEMPTS_MAX;
        if !fits {
            self.attempts_exceeded();
        }
    }

    #[cold]
    fn attempts_exceeded(&mut self) {
        let at = duration(self.now);
        self.failure = Some(if self.requests.len() >= IN_FLIGHT_MAX {
            Error::TooManyInFlight { at }
        } else if self.same_time > SAME_TIME_MAX {
            Error::NoProgress { at }
        } else {
            Error::TooManyAttempts { at }
        });
    }
}

/// The probability of one of two independent events, or both.
fn either(a: f64, b: f64) -> f64 {
    1.0 - (1.0 - a) * (1.0 - b)
}

/// The services and their servers, before the run.
fn services(simulation: &Simulation, variant: &Variant) -> (Vec<ServiceState>, Vec<ServerState>) {
    let mut servers = Vec::new();
    let services = simulation.services.iter().map(|service| {
        let first = servers.len() as u32;
        servers.resize_with(servers.len() + service.servers as usize, ServerState::default);
        let slow = service.slow_servers.as_ref();
        ServiceState {
            first,
            servers: service.servers,
            slow_from: first + service.servers - slow.map_or(0, |slow| slow.count),
            workers: service.workers.unwrap_or(u32::MAX),
            queue_max: service.queue as usize,
            time: Sampler::new(&service.time),
            slow_time: slow.map(|slow| Sampler::new(&slow.time)),
            network: service.network.as_ref().map(Sampler::new),
            failure_rate: service.failure_rate,
            fan_out: service.fan_out,
            propagates: variant.deadline_propagation.unwrap_or(service.deadline_propagation),
            balancing: service.balancing,
            optimistic_lock: service.optimistic_lock,
            next_in_turn: 0,
            condition: Condition::NORMAL,
        }
    });
    (services.collect(), servers)
}

#[cfg(test)]
mod tests {
    use redial_core::{ms, s};

    use super::*;
    use crate::model::{CLIENTS, NestedRetries};
    use crate::{CallPolicy, Distribution, Service};

    #[test]
    fn engine_counters_decide_as_the_state_machine() {
        let policies = [
            r#"{ "attempts": 4, "throttle": "none" }"#,
            r#"{ "attempts": 3 }"#,
            r#"{ "attempts": 9, "jitter": "equal", "limits": { "soft": "300ms", "hard": "500ms" },
                "throttle": { "budget": { "reserve": 5, "ratio": 0.3, "per_second": 2 } } }"#,
        ];
        // A call that depends on its caller has its state machine in any case.
        let nested = [
            (false, NestedRetries::Allowed),
            (true, NestedRetries::Allowed),
            (false, NestedRetries::Stopped),
        ];
        for (policy, (propagates, retries)) in
            policies.iter().flat_map(|policy| nested.map(|nested| (policy, nested)))
        {
            let mut simulation = Simulation::new("plain", s(60));
            simulation.clients.count = 10;
            simulation.clients.load = Load::Poisson { calls_per_second: 100.0 };
            let mut front = Service::new("front", Distribution::Exponential { mean: ms(5) });
            front.failure_rate = 0.3;
            let mut back = Service::new("back", Distribution::Exponential { mean: ms(8) });
            (back.failure_rate, back.workers, back.queue) = (0.2, Some(1), 5);
            simulation.services = vec![front, back];
            let config = serde_json::from_str(policy).expect("a policy");
            let config = CallPolicy::from_config(&config).expect("a valid policy");
            let mut variant = Variant::new("tested", config);
            (variant.deadline_propagation, variant.nested_retries) = (Some(propagates), retries);
            if propagates {
                // The calls of the clients have deadlines, so that the calls of the front have them, too.
                let clients = r#"{ "attempts": 3, "deadline": "40ms", "attempt_timeout": "25ms" }"#;
                let clients = serde_json::from_str(clients).expect("a policy");
                let clients = CallPolicy::from_config(&clients).expect("a valid policy");
                variant.callers = vec![(CLIENTS.to_owned(), clients)];
            }
            let run = |counters: bool| {
                let throttles = Throttles::new(&simulation, &variant).expect("they fit");
                let mut engine = Engine::new(&simulation, &variant, &throttles, 1);
                assert!(engine.hops[1].needs_only_counters);
                assert_eq!(engine.hops[0].needs_only_counters, !propagates);
                engine.hops.iter_mut().for_each(|hop| hop.needs_only_counters &= counters);
                let metrics = engine.run(&|_| ControlFlow::Continue(())).expect("it runs");
                let services = metrics.services.iter().map(|it| (it.attempts, it.rejected));
                let services: Vec<_> = services.collect();
                (metrics.intervals, metrics.stop_reasons, services, metrics.latency_us)
            };
            assert_eq!(run(true), run(false), "{policy} {propagates} {retries:?}");
        }
    }
}
