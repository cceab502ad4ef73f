//! An outage of ten seconds under three policies: no retry, two attempts, and two attempts with a retry
//! budget.
//!
//! `cargo run -p redial-sim --example outage`

use std::error::Error;

use redial::config::PolicyConfig;
use redial_core::{ms, s};
use redial_sim::{
    CallPolicy, Distribution, Disturbance, Effect, Load, Service, Simulation, Variant,
};

/// A server for 300 requests per second under 280 calls per second. It does no work for ten seconds.
fn outage() -> Result<Simulation, Box<dyn Error>> {
    let mut simulation = Simulation::new("outage", s(200));
    simulation.clients.load = Load::Poisson { calls_per_second: 280.0 };
    let mut database = Service::new("database", Distribution::Fixed(ms(10) / 3));
    database.workers = Some(1);
    simulation.services.push(database);
    let effect = Effect::Stall { service: 0 };
    simulation.disturbances.push(Disturbance { at: s(30), lasts: s(10), effect });
    for (name, text) in [
        ("no retry", r#"{ "attempts": 1, "attempt_timeout": "1s" }"#),
        ("2 attempts", r#"{ "attempts": 2, "attempt_timeout": "1s", "throttle": "none" }"#),
        ("2 attempts, budget", r#"{ "attempts": 2, "attempt_timeout": "1s" }"#),
    ] {
        let config: PolicyConfig = serde_json::from_str(text)?;
        simulation.policies.push(Variant::new(name, CallPolicy::from_config(&config)?));
    }
    Ok(simulation)
}

fn main() -> Result<(), Box<dyn Error>> {
    for policy in outage()?.run()?.policies {
        println!("{:<20} {}", policy.name, policy.verdict);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn outage_ends_only_with_a_budget_or_without_retries() {
        let report = super::outage().expect("policies").run().expect("a run");
        let recovered = report.policies.iter().map(|it| it.recovered_after_seconds.is_some());
        assert_eq!(recovered.collect::<Vec<_>>(), [true, false, true]);
    }
}
