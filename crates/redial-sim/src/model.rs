//! The description of a simulation: clients, services, disturbances, and the policies to compare.
//!
//! Clients call the first service, and each service calls the next one in the list. Every call, at
//! every layer, runs under a policy of Redial.

use std::time::Duration;

use crate::{CallPolicy, Distribution};

/// A simulation of one fleet under one or more policies.
#[derive(Clone, Debug)]
pub struct Simulation {
    /// A short name.
    pub name: String,
    /// What is simulated, and which assumptions it makes, in a few sentences.
    pub about: String,
    /// How long the simulation runs, in virtual time.
    pub duration: Duration,
    /// The seed of all random numbers.
    pub seed: u64,
    /// The interval of the time series; `None`: chosen from the duration.
    pub interval: Option<Duration>,
    /// The clients.
    pub clients: Clients,
    /// The services. Clients call the first, and each service calls the next.
    pub services: Vec<Service>,
    /// Outages, overloads and other changes in the course of the run.
    pub disturbances: Vec<Disturbance>,
    /// The policies to compare. Each gets a run of its own with the same arrivals.
    pub policies: Vec<Variant>,
}

impl Simulation {
    /// A simulation of this length, with one client and neither services nor policies yet.
    ///
    /// ```
    /// use redial_sim::{CallPolicy, Distribution, Load, Service, Simulation, Variant};
    /// use redial_core::{ms, s};
    ///
    /// let mut simulation = Simulation::new("steady", s(10));
    /// simulation.clients.load = Load::Poisson { calls_per_second: 100.0 };
    /// simulation.services.push(Service::new("backend", Distribution::Fixed(ms(5))));
    /// simulation.policies.push(Variant::new("default", CallPolicy::default()));
    /// let report = simulation.run()?;
    /// assert!(report.policies[0].goodput_per_second > 80.0);
    /// # Ok::<(), redial_sim::Error>(())
    /// ```
    #[must_use]
    pub fn new(name: &str, duration: Duration) -> Simulation {
        Simulation {
            name: name.to_owned(),
            about: String::new(),
            duration,
            seed: 1,
            interval: None,
            clients: Clients::default(),
            services: Vec::new(),
            disturbances: Vec::new(),
            policies: Vec::new(),
        }
    }

    /// The capacity of a service in requests per second; `None` if its workers are unlimited.
    #[must_use]
    pub fn capacity(&self, service: usize) -> Option<f64> {
        let Service { servers, workers, time, slow_servers, .. } = self.services.get(service)?;
        let workers = f64::from((*workers)?);
        let rate = |time: &Distribution| workers / time.mean_seconds();
        let slow = slow_servers.as_ref().map_or(0, |slow| slow.count);
        let slow_rate = slow_servers.as_ref().map_or(0.0, |slow| rate(&slow.time));
        Some(f64::from(servers - slow) * rate(time) + f64::from(slow) * slow_rate)
    }
}

/// The clients of a simulation.
#[derive(Clone, Debug, PartialEq)]
pub struct Clients {
    /// How many there are. Each has a retry budget of its own, unless the policy shares one.
    pub count: u32,
    /// When they call.
    pub load: Load,
    /// The number of calls after which no new one starts; the run ends when the last one has ended.
    pub calls_max: Option<u64>,
}

impl Default for Clients {
    fn default() -> Self {
        Clients { count: 1, load: Load::Poisson { calls_per_second: 1.0 }, calls_max: None }
    }
}

/// When clients call.
#[derive(Clone, Debug, PartialEq)]
pub enum Load {
    /// Calls arrive at random, at this rate for all clients together. A slow server does not slow down
    /// the arrivals, as with users who do not know of each other.
    Poisson {
        /// Calls per second of all clients together.
        calls_per_second: f64,
    },
    /// The same, at even distances.
    Even {
        /// Calls per second of all clients together.
        calls_per_second: f64,
    },
    /// Every client makes one call at this time.
    Burst {
        /// The time.
        at: Duration,
    },
    /// Every client makes one call after the other, and waits in between.
    Closed {
        /// The time between the end of a call and the start of the next one.
        think_time: Distribution,
    },
}

/// A service: servers with workers and a queue each.
///
/// A worker is busy for the service time only. A request that then calls the next service holds no
/// worker while it waits, as in an asynchronous server.
#[derive(Clone, Debug, PartialEq)]
pub struct Service {
    /// The name.
    pub name: String,
    /// The number of servers.
    pub servers: u32,
    /// The number of requests that a server works on at the same time; `None`: any number, so that
    /// nothing ever waits in a queue.
    pub workers: Option<u32>,
    /// The number of requests that can wait at each server. A request beyond that is rejected at once.
    pub queue: u32,
    /// The time that a worker needs for a request.
    pub time: Distribution,
    /// Servers with another service time.
    pub slow_servers: Option<SlowServers>,
    /// The time of a message from the caller to the server, and back again.
    pub network: Option<Distribution>,
    /// The share of requests that fail after their service time, from 0 to 1.
    pub failure_rate: f64,
    /// How many calls a request makes to the next service, all at the same time. It succeeds if all of
    /// them do.
    pub fan_out: u32,
    /// Whether the caller's deadline and cancellation reach the server: it drops expired requests
    /// instead of working on them, and passes the remaining time to the next service.
    pub deadline_propagation: bool,
    /// How callers choose a server.
    pub balancing: Balancing,
    /// Whether a request is a read and a write of one row that other requests change, too: the write
    /// fails if the row has changed since the read.
    pub optimistic_lock: bool,
}

impl Service {
    /// A service of one server with any number of workers and this service time.
    #[must_use]
    pub fn new(name: &str, time: Distribution) -> Service {
        Service {
            name: name.to_owned(),
            servers: 1,
            workers: None,
            queue: Service::QUEUE,
            time,
            slow_servers: None,
            network: None,
            failure_rate: 0.0,
            fan_out: 1,
            deadline_propagation: false,
            balancing: Balancing::Random,
            optimistic_lock: false,
        }
    }

    /// The default length of a queue.
    pub const QUEUE: u32 = 1_000_000;
}

/// Servers that are slower than the others.
#[derive(Clone, Debug, PartialEq)]
pub struct SlowServers {
    /// How many.
    pub count: u32,
    /// Their service time.
    pub time: Distribution,
}

/// How a caller chooses the server of an attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Balancing {
    /// At random.
    #[default]
    Random,
    /// At random, but not the server of the attempt before it.
    AvoidPrevious,
    /// In turn.
    RoundRobin,
}

/// A change in the course of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Disturbance {
    /// When it starts.
    pub at: Duration,
    /// How long it lasts.
    pub lasts: Duration,
    /// What changes.
    pub effect: Effect,
}

impl Disturbance {
    /// When it ends: one that outlasts every run ends at the largest duration.
    pub(crate) const fn end(&self) -> Duration {
        self.at.saturating_add(self.lasts)
    }
}

/// What a disturbance changes.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// A service accepts requests and starts none of them.
    Stall {
        /// The index of the service.
        service: usize,
    },
    /// A service refuses connections, so that every request fails at once.
    Refuse {
        /// The index of the service.
        service: usize,
    },
    /// A share of the requests to a service fails after the service time, in addition to and
    /// independent of [`Service::failure_rate`].
    Fail {
        /// The index of the service.
        service: usize,
        /// The share, from 0 to 1.
        rate: f64,
    },
    /// A service needs more time for each request.
    Slow {
        /// The index of the service.
        service: usize,
        /// The factor on the service time.
        factor: f64,
    },
    /// Clients call more or less often.
    Load {
        /// The factor on the rate of calls.
        factor: f64,
    },
}

/// One of the policies that a simulation compares.
#[derive(Clone, Debug)]
pub struct Variant {
    /// The name.
    pub name: String,
    /// The policy of every caller: of the clients, and of the services that call another one.
    pub policy: CallPolicy,
    /// The policies of single callers: a service by its name, or `clients`.
    pub callers: Vec<(String, CallPolicy)>,
    /// Which calls share a throttle.
    pub budget: BudgetScope,
    /// What a service does below a retry of its caller.
    pub nested_retries: NestedRetries,
    /// Overrides [`Service::deadline_propagation`] of all services.
    pub deadline_propagation: Option<bool>,
}

impl Variant {
    /// The same policy for every caller, with a throttle per client and server.
    #[must_use]
    pub fn new(name: &str, policy: CallPolicy) -> Variant {
        Variant {
            name: name.to_owned(),
            policy,
            callers: Vec::new(),
            budget: BudgetScope::Local,
            nested_retries: NestedRetries::Allowed,
            deadline_propagation: None,
        }
    }

    /// The policy of a caller: 0 are the clients, `n` is the service with index `n - 1`.
    #[must_use]
    pub fn policy_of(&self, caller: &str) -> &CallPolicy {
        let own = self.callers.iter().find(|(name, _)| name == caller);
        own.map_or(&self.policy, |(_, policy)| policy)
    }
}

/// The name of the clients as callers.
pub const CLIENTS: &str = "clients";

/// Which calls share a throttle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BudgetScope {
    /// The calls of one client, or of one server.
    #[default]
    Local,
    /// The calls of all clients, or of all servers of a service, as with `redial-fleet`.
    Shared,
}

/// What a service does when the request that it serves is itself a retry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NestedRetries {
    /// It retries its calls as usual.
    #[default]
    Allowed,
    /// It makes a single attempt, so that retries of retries do not multiply.
    Stopped,
}
