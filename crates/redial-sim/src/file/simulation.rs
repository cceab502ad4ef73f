//! The simulation of a file.
//!
//! A value that is wrong is reported and replaced by one that is valid, so that the checks of the whole
//! simulation still find the problems of the others. A simulation with a problem is never returned to the
//! caller of [`parse`](super::parse).

use std::time::Duration;

use super::Rule;
use super::policy::SOURCES;
use super::reader::{Reader, Table};
use super::tree::{Node, Value};
use crate::did_you_mean;
use crate::model::{
    Balancing, BudgetScope, Clients, Disturbance, Effect, Load, NestedRetries, Service, Simulation,
    SlowServers, Variant,
};
use crate::{CallPolicy, Distribution};

/// A duration in place of one that is wrong.
const PLACEHOLDER: Duration = Duration::from_secs(1);
/// An effect in place of one that is wrong.
const NO_EFFECT: Effect = Effect::Slow { service: 0, factor: 1.0 };

const ROOT: [&str; 9] = [
    "name",
    "about",
    "duration",
    "seed",
    "interval",
    "clients",
    "services",
    "disturbances",
    "policies",
];

impl Reader<'_> {
    pub(super) fn simulation(&self, root: &Node) -> Option<Simulation> {
        let table = self.table(root, "", &ROOT, "a simulation")?;
        let text = |key: &str| {
            let read = table.read(key, |reader, node, path| reader.text(node, path, "a text"));
            read.unwrap_or_default().to_owned()
        };
        let duration = table.needs("duration", "duration = \"60s\"", Reader::duration);
        let clients =
            table.needs("clients", "[clients] with calls_per_second = 100", Reader::clients);
        let services =
            table.needs("services", "[[services]] with a name and a time", |it, node, path| {
                it.each(node, path, Reader::service)
            });
        // Also those of services with a problem.
        let names: Vec<&str> = match table.get("services").map(|node| &node.value) {
            Some(Value::List(list)) => list.iter().map(service_name).collect(),
            _ => Vec::new(),
        };
        let disturbances = match table.get("disturbances") {
            None => Some(Vec::new()),
            Some(node) => {
                self.each(node, "disturbances", |it, node, path| it.disturbance(node, path, &names))
            }
        };
        let policies =
            table.needs("policies", "[[policies]] with a name and a policy", |it, node, path| {
                it.each(node, path, Reader::variant)
            });
        let (name, about) = (text("name"), text("about"));
        let (seed, interval) = (table.count("seed", u64::MAX), table.duration("interval"));
        let mut simulation = Simulation {
            name,
            about,
            duration: duration.unwrap_or(PLACEHOLDER),
            seed: seed.unwrap_or(1),
            interval,
            clients: clients.unwrap_or_default(),
            services: services.unwrap_or_default(),
            disturbances: disturbances.unwrap_or_default(),
            policies: policies.unwrap_or_default(),
        };
        if duration.is_none() {
            without_times(&mut simulation);
        }
        Some(simulation)
    }

    /// Reads each entry of a list.
    fn each<T>(
        &self,
        node: &Node,
        path: &str,
        read: impl Fn(&Self, &Node, &str) -> T,
    ) -> Option<Vec<T>> {
        let list = self.list(node, path, &format!("a list, with [[{path}]] for each entry"))?;
        let entry = |(index, node): (usize, &Node)| read(self, node, &format!("{path}[{index}]"));
        Some(list.iter().enumerate().map(entry).collect())
    }

    fn clients(&self, node: &Node, path: &str) -> Option<Clients> {
        const LOADS: [&str; 3] = ["calls_per_second", "burst_at", "think_time"];
        let keys = [&LOADS[..], &["count", "arrivals", "calls"]].concat();
        let table = self.table(node, path, &keys, "a table like { calls_per_second = 100 }")?;
        let given: Vec<&str> = LOADS.into_iter().filter(|key| table.get(key).is_some()).collect();
        let [load] = given[..] else {
            let text =
                "write one of calls_per_second = 100, burst_at = \"1s\" and think_time = \"1s\"";
            self.problem_at(Rule::MissingField, node.range.clone(), path, text);
            return None;
        };
        let arrivals = table.read("arrivals", |it, node, path| {
            it.choice(node, path, &[("poisson", false), ("even", true)])
        });
        let load = match load {
            "calls_per_second" => {
                let calls_per_second = table.number(load).unwrap_or(1.0);
                match arrivals {
                    Some(true) => Load::Even { calls_per_second },
                    _ => Load::Poisson { calls_per_second },
                }
            }
            "burst_at" => Load::Burst { at: table.duration(load).unwrap_or_default() },
            _ => {
                let think_time = table.read(load, Reader::distribution);
                Load::Closed { think_time: think_time.unwrap_or(Distribution::Fixed(PLACEHOLDER)) }
            }
        };
        let count = table.small("count").unwrap_or(1);
        Some(Clients { count, load, calls_max: table.count("calls", u64::MAX) })
    }

    fn service(&self, node: &Node, path: &str) -> Service {
        self.written_service(node, path)
            .unwrap_or_else(|| Service::new(&unnamed(path), Distribution::Fixed(PLACEHOLDER)))
    }

    fn written_service(&self, node: &Node, path: &str) -> Option<Service> {
        const KEYS: [&str; 12] = [
            "name",
            "servers",
            "workers",
            "queue",
            "time",
            "slow_servers",
            "network",
            "failure_rate",
            "fan_out",
            "deadline_propagation",
            "balancing",
            "optimistic_lock",
        ];
        let table = self.table(node, path, &KEYS, "a service with a name and a time")?;
        let name = table.needs("name", "name = \"backend\"", |it, node, path| {
            it.text(node, path, "a name like \"backend\"")
        });
        let time = table.needs("time", "time = \"5ms\"", Reader::distribution);
        let (unnamed, no_time) = (unnamed(path), Distribution::Fixed(PLACEHOLDER));
        let mut service = Service::new(name.unwrap_or(&unnamed), time.unwrap_or(no_time));
        if let Some(servers) = table.small("servers") {
            service.servers = servers;
        }
        service.workers = match table.get("workers") {
            Some(Node { value: Value::Text(text), .. }) if text == "unlimited" => None,
            _ => table.small("workers"),
        };
        if let Some(queue) = table.small("queue") {
            service.queue = queue;
        }
        service.slow_servers = table.read("slow_servers", Reader::slow_servers);
        service.network = table.read("network", Reader::distribution);
        service.failure_rate = table.number("failure_rate").unwrap_or(0.0);
        service.fan_out = table.small("fan_out").unwrap_or(1);
        service.deadline_propagation = table.boolean("deadline_propagation").unwrap_or(false);
        service.optimistic_lock = table.boolean("optimistic_lock").unwrap_or(false);
        let balancing = [
            ("random", Balancing::Random),
            ("avoid-previous", Balancing::AvoidPrevious),
            ("round-robin", Balancing::RoundRobin),
        ];
        let chosen = table.read("balancing", |it, node, path| it.choice(node, path, &balancing));
        service.balancing = chosen.unwrap_or_default();
        Some(service)
    }

    fn slow_servers(&self, node: &Node, path: &str) -> Option<SlowServers> {
        let table =
            self.table(node, path, &["count", "time"], "{ count = 1, time = \"500ms\" }")?;
        let time = table.needs("time", "time = \"500ms\"", Reader::distribution);
        let time = time.unwrap_or(Distribution::Fixed(PLACEHOLDER));
        Some(SlowServers { count: table.small("count").unwrap_or(1), time })
    }

    fn disturbance(&self, node: &Node, path: &str, services: &[&str]) -> Disturbance {
        self.written_disturbance(node, path, services).unwrap_or(Disturbance {
            at: Duration::ZERO,
            lasts: PLACEHOLDER,
            effect: NO_EFFECT,
        })
    }

    fn written_disturbance(
        &self,
        node: &Node,
        path: &str,
        services: &[&str],
    ) -> Option<Disturbance> {
        let keys = ["at", "for", "service", "effect", "load"];
        let table = self.table(node, path, &keys, "a disturbance with at, for and effect")?;
        let at = table.needs("at", "at = \"30s\"", Reader::duration);
        let lasts = table.needs("for", "for = \"10s\"", Reader::duration);
        let effect = match (table.get("load"), table.get("effect")) {
            (Some(_), None) => {
                if let Some(service) = table.get("service") {
                    let text =
                        "load changes the calls of all clients, and not a service; remove it";
                    self.problem(service, &table.at("service"), text);
                }
                table.number("load").map(|factor| Effect::Load { factor })
            }
            (None, Some(_)) => self.effect(&table, services),
            _ => {
                let text = "write effect = \"stall\" for a service, or load = 1.5 for all clients";
                self.problem_at(Rule::MissingField, node.range.clone(), path, text);
                None
            }
        };
        Some(Disturbance {
            at: at.unwrap_or_default(),
            lasts: lasts.unwrap_or(PLACEHOLDER),
            effect: effect.unwrap_or(NO_EFFECT),
        })
    }

    fn effect(&self, table: &Table<'_, '_>, services: &[&str]) -> Option<Effect> {
        let service = match (table.get("service"), services.len()) {
            (None, 1) => Some(0),
            // Without services, that is the problem.
            (None, 0) => None,
            (None, _) => {
                let text =
                    "service is missing; write the name of the service, since there are several";
                let range = table.node().range.clone();
                self.problem_at(Rule::MissingField, range, &table.at("service"), text);
                None
            }
            (Some(node), _) => {
                let path = &table.at("service");
                self.text(node, path, "the name of a service").and_then(|name| {
                    let found = services.iter().position(|service| *service == name);
                    if found.is_none() && !services.is_empty() {
                        let known = did_you_mean::known(name, services);
                        self.problem(node, path, format!("no service is called {name:?}; {known}"));
                    }
                    found
                })
            }
        };
        // The effect is read in any case: it can have a problem of its own.
        self.effect_on(table, service.unwrap_or(0))
    }

    fn effect_on(&self, table: &Table<'_, '_>, service: usize) -> Option<Effect> {
        let node = table.get("effect")?;
        let path = &table.at("effect");
        if let Value::Table(_) = node.value {
            let example = "{ fail = 0.5 } or { slow = 3 }";
            let effect = self.table(node, path, &["fail", "slow"], example)?;
            return match (effect.get("fail"), effect.get("slow")) {
                (Some(_), None) => effect.number("fail").map(|rate| Effect::Fail { service, rate }),
                (None, Some(_)) => {
                    effect.number("slow").map(|factor| Effect::Slow { service, factor })
                }
                _ => {
                    self.problem(node, path, format!("write {example}"));
                    None
                }
            };
        }
        let effects = [("stall", true), ("refuse", false)];
        let stalls = self.choice(node, path, &effects)?;
        Some(if stalls { Effect::Stall { service } } else { Effect::Refuse { service } })
    }

    fn variant(&self, node: &Node, path: &str) -> Variant {
        self.written_variant(node, path)
            .unwrap_or_else(|| Variant::new(&unnamed(path), CallPolicy::default()))
    }

    fn written_variant(&self, node: &Node, path: &str) -> Option<Variant> {
        let own = ["name", "callers", "budget", "nested_retries", "deadline_propagation"];
        let keys = [&own[..], &SOURCES].concat();
        let table = self.table(node, path, &keys, "a policy with a name")?;
        let name = table.needs("name", "name = \"3 attempts\"", |it, node, path| {
            it.text(node, path, "a name like \"3 attempts\"")
        });
        let policy = self.policy_source(&table);
        let callers = match table.get("callers") {
            None => Some(Vec::new()),
            Some(node) => self.callers(node, &table.at("callers")),
        };
        let unnamed = unnamed(path);
        let mut variant = Variant::new(name.unwrap_or(&unnamed), policy.unwrap_or_default());
        variant.callers = callers.unwrap_or_default();
        let scopes = [("local", BudgetScope::Local), ("shared", BudgetScope::Shared)];
        let scope = table.read("budget", |it, node, path| it.choice(node, path, &scopes));
        variant.budget = scope.unwrap_or_default();
        let nested = [("allowed", NestedRetries::Allowed), ("stopped", NestedRetries::Stopped)];
        let chosen = table.read("nested_retries", |it, node, path| it.choice(node, path, &nested));
        variant.nested_retries = chosen.unwrap_or_default();
        variant.deadline_propagation = table.boolean("deadline_propagation");
        Some(variant)
    }

    fn callers(&self, node: &Node, path: &str) -> Option<Vec<(String, CallPolicy)>> {
        let Value::Table(entries) = &node.value else {
            return self.wrong(node, path, "a table like { backend = { policy = { .. } } }");
        };
        let mut callers = Vec::new();
        for (key, node) in entries {
            let path = format!("{path}.{}", key.name);
            let table = self.table(node, &path, &SOURCES, "a table like { policy = { .. } }");
            let policy = table.and_then(|table| self.policy_source(&table));
            callers.push((key.name.clone(), policy.unwrap_or_default()));
        }
        Some(callers)
    }
}

/// The first character of a name in place of one that is missing; no text of a file has it.
pub(super) const UNNAMED: char = '\0';

/// A name in place of one that is missing; no other entry has it.
fn unnamed(path: &str) -> String {
    format!("{UNNAMED}{path}")
}

/// Removes what cannot be compared with the length of a run, if that is not known.
fn without_times(simulation: &mut Simulation) {
    simulation.interval = None;
    if let Load::Burst { at } = &mut simulation.clients.load {
        *at = Duration::ZERO;
    }
    for disturbance in &mut simulation.disturbances {
        disturbance.at = Duration::ZERO;
    }
}

/// The name of a service as it is written; empty without one.
fn service_name(service: &Node) -> &str {
    match service.get("name").map(|node| &node.value) {
        Some(Value::Text(name)) => name,
        _ => "",
    }
}
