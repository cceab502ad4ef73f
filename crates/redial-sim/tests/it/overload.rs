//! Goal: an overload of one percent grows without end if every rejected call is retried. Method: evenly
//! spaced arrivals, one worker and a short queue.

use std::time::Duration;

use redial_core::s;
use redial_sim::{Distribution, Load, Service, Simulation};

use crate::common::{policy, run};

#[test]
fn overload_by_one_percent_grows_each_second() {
    // F9: 10 100 calls per second on 10 000, retried each second: 100 more requests every second.
    let mut simulation = Simulation::new("overload", s(30));
    simulation.interval = Some(s(1));
    simulation.clients.load = Load::Even { calls_per_second: 10_100.0 };
    let mut service = Service::new("backend", Distribution::Fixed(Duration::from_micros(100)));
    service.workers = Some(1);
    service.queue = 10;
    simulation.services.push(service);
    let retry = r#"{ "attempts": "forever", "backoff": {"constant": "1s"}, "throttle": "none" }"#;
    let report = run(simulation, policy(retry));
    for (second, point) in report.series.iter().enumerate() {
        let expected = 10_100.0 + 100.0 * second as f64;
        let difference = (point.offered_per_second - expected).abs();
        assert!(difference <= 20.0, "second {second}: {}", point.offered_per_second);
    }
}
