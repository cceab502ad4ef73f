//! The validation of a simulation: what is wrong, where, and what to write instead.

use std::time::Duration;

use redial_core::ns;

use crate::Distribution;
use crate::error::Error;
use crate::limits::{
    ABOUT_MAX, CALLS_MAX, CLIENTS_MAX, DISTURBANCES_MAX, DURATION_MAX, FAN_OUT_MAX, INTERVALS_MAX,
    NAME_MAX, POLICIES_MAX, SERVERS_MAX, SERVICES_MAX,
};
use crate::model::{CLIENTS, Clients, Effect, Load, Service, Simulation};

/// The number of intervals that a time series has by default.
const INTERVALS: u32 = 200;

/// The lengths of intervals to choose from, in milliseconds.
const STEPS_MS: [u64; 12] = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000];

impl Simulation {
    /// Every problem of the description.
    #[must_use]
    pub fn problems(&self) -> Vec<Error> {
        let mut problems = Problems(Vec::new());
        problems.general(self);
        problems.clients(&self.clients, self.duration);
        for (index, service) in self.services.iter().enumerate() {
            problems.service(&format!("services[{index}]"), service);
        }
        problems.names(self);
        for (index, disturbance) in self.disturbances.iter().enumerate() {
            let path = format!("disturbances[{index}]");
            problems.effect(&path, &disturbance.effect, self);
            if disturbance.at >= self.duration {
                problems.add(format!("{path}.at"), "it starts after the end; lengthen the run");
            }
        }
        problems.0
    }

    /// The interval of the time series.
    #[must_use]
    pub fn series_interval(&self) -> Duration {
        self.interval.unwrap_or_else(|| {
            let ideal = self.duration / INTERVALS;
            let step = STEPS_MS.into_iter().map(Duration::from_millis).find(|it| *it >= ideal);
            step.unwrap_or(ideal)
        })
    }
}

struct Problems(Vec<Error>);

impl Problems {
    fn add(&mut self, path: impl Into<String>, problem: impl Into<String>) {
        self.0.push(Error::invalid(path, problem));
    }

    /// A number within bounds.
    fn within<N: PartialOrd + Copy + std::fmt::Display>(
        &mut self,
        path: &str,
        n: N,
        min: N,
        max: N,
    ) {
        if !(n >= min && n <= max) {
            self.add(path, format!("{n} is out of range; write a number from {min} to {max}"));
        }
    }

    fn text(&mut self, path: &str, text: &str, max: usize) {
        if text.len() > max {
            self.add(path, format!("{} bytes are too long; write at most {max}", text.len()));
        }
    }

    fn distribution(&mut self, path: &str, distribution: &Distribution) {
        if let Some(problem) = distribution.problem() {
            self.add(path, problem);
        }
    }

    fn general(&mut self, simulation: &Simulation) {
        let Simulation { name, about, duration, services, policies, disturbances, .. } = simulation;
        self.text("name", name, NAME_MAX);
        self.text("about", about, ABOUT_MAX);
        if duration.is_zero() || *duration > DURATION_MAX {
            self.add("duration", format!("{duration:?}: write a duration from 1ns to 30d"));
        }
        let interval = simulation.series_interval();
        if interval.is_zero() {
            self.add("interval", "0 is no interval; write a duration like \"1s\"");
        } else if ns(*duration) / ns(interval) > INTERVALS_MAX {
            let least = *duration / u32::try_from(INTERVALS_MAX).unwrap_or(u32::MAX);
            let text = format!("too short for this run; write at least \"{}ns\"", least.as_nanos());
            self.add("interval", text);
        }
        for (path, length, max) in
            [("services", services.len(), SERVICES_MAX), ("policies", policies.len(), POLICIES_MAX)]
        {
            match length {
                0 => self.add(path, format!("there are none; add one with [[{path}]]")),
                _ if length > max => self.add(path, format!("{length} are too many, of {max}")),
                _ => {}
            }
        }
        if disturbances.len() > DISTURBANCES_MAX {
            let text = format!("{} are too many, of {DISTURBANCES_MAX}", disturbances.len());
            self.add("disturbances", text);
        }
    }

    fn clients(&mut self, clients: &Clients, duration: Duration) {
        self.within("clients.count", clients.count, 1, CLIENTS_MAX);
        match &clients.load {
            Load::Poisson { calls_per_second } | Load::Even { calls_per_second } => {
                let most = CALLS_MAX / duration.as_secs_f64().max(1.0);
                let path = "clients.calls_per_second";
                self.within(path, *calls_per_second, 1e-6, most);
            }
            Load::Burst { at } if *at >= duration => {
                self.add("clients.burst_at", "it is after the end; lengthen the run");
            }
            Load::Burst { .. } => {}
            Load::Closed { think_time } => {
                self.distribution("clients.think_time", think_time);
                if think_time.mean_seconds() <= 0.0 {
                    self.add(
                        "clients.think_time",
                        "0 would call without end; write \"1ms\" or more",
                    );
                }
            }
        }
    }

    fn service(&mut self, path: &str, service: &Service) {
        let at = |field: &str| format!("{path}.{field}");
        if service.name.is_empty() || service.name == CLIENTS {
            self.add(at("name"), "write a name other than \"clients\"");
        }
        self.text(&at("name"), &service.name, NAME_MAX);
        self.within(&at("servers"), service.servers, 1, SERVERS_MAX);
        if service.workers == Some(0) {
            self.add(at("workers"), "0 workers never start a request; write 1 or more");
        }
        self.distribution(&at("time"), &service.time);
        if let Some(network) = &service.network {
            self.distribution(&at("network"), network);
        }
        if let Some(slow) = &service.slow_servers {
            self.within(&at("slow_servers.count"), slow.count, 1, service.servers.max(1));
            self.distribution(&at("slow_servers.time"), &slow.time);
        }
        self.within(&at("failure_rate"), service.failure_rate, 0.0, 1.0);
        self.within(&at("fan_out"), service.fan_out, 1, FAN_OUT_MAX);
    }

    fn names(&mut self, simulation: &Simulation) {
        let services: Vec<&str> = simulation.services.iter().map(|it| it.name.as_str()).collect();
        let policies: Vec<&str> = simulation.policies.iter().map(|it| it.name.as_str()).collect();
        for (list, names) in [("services", &services), ("policies", &policies)] {
            for (index, name) in names.iter().enumerate() {
                if names[..index].contains(name) {
                    let text = format!("{name:?} is there twice; each needs a name of its own");
                    self.add(format!("{list}[{index}].name"), text);
                }
            }
        }
        for (index, variant) in simulation.policies.iter().enumerate() {
            self.text(&format!("policies[{index}].name"), &variant.name, NAME_MAX);
            for (caller, _) in &variant.callers {
                if caller != CLIENTS && !services.contains(&caller.as_str()) {
                    let known =
                        crate::did_you_mean::known(caller, &[&[CLIENTS], &services[..]].concat());
                    let path = format!("policies[{index}].callers.{caller}");
                    self.add(path, format!("no caller has this name; {known}"));
                }
            }
        }
    }

    fn effect(&mut self, path: &str, effect: &Effect, simulation: &Simulation) {
        let service = match effect {
            Effect::Stall { service } | Effect::Refuse { service } => *service,
            Effect::Fail { service, rate } => {
                self.within(&format!("{path}.effect.fail"), *rate, 0.0, 1.0);
                *service
            }
            Effect::Slow { service, factor } => {
                self.within(&format!("{path}.effect.slow"), *factor, 0.0, 1e6);
                *service
            }
            Effect::Load { factor } => {
                let path = format!("{path}.load");
                self.within(&path, *factor, 0.0, 1e6);
                if let Load::Burst { .. } | Load::Closed { .. } = simulation.clients.load {
                    let text = "these clients have no rate of calls to multiply; write \
                                clients.calls_per_second, or an effect on a service";
                    self.add(path, text);
                }
                return;
            }
        };
        if service >= simulation.services.len() {
            self.add(format!("{path}.service"), "there is no such service");
        }
    }
}
