//! Goal: a simulation file is read completely, and every problem in it is reported with its position
//! and what to write instead. Method: small files in TOML and JSON.

use std::io;

use redial_core::{ms, s};
use redial_sim::file::{self, FILE_MAX, Format, PROBLEMS_MAX, no_files};
use redial_sim::{
    Balancing, BudgetScope, Distribution, Effect, HistogramBucket, Load, NestedRetries, Simulation,
    ThrottleSpec,
};

fn toml(text: &str) -> Result<Simulation, Vec<String>> {
    problems(file::parse(text, Format::Toml, &no_files))
}

fn problems<T>(read: Result<T, file::Problems>) -> Result<T, Vec<String>> {
    read.map_err(|problems| problems.as_slice().iter().map(ToString::to_string).collect())
}

/// A valid file with these lines added.
fn with(lines: &str) -> Result<Simulation, Vec<String>> {
    toml(&format!(
        "duration = \"10s\"\nclients = {{ calls_per_second = 5 }}\n\
         services = [{{ name = \"a\", time = \"5ms\" }}]\n\
         policies = [{{ name = \"p\", policy = {{}} }}]\n{lines}"
    ))
}

const WHOLE: &str = r#"
name = "whole"
about = "every key"
duration = "1m"
seed = 7
interval = "500ms"
[clients]
count = 20
think_time = { uniform = { min = "1ms", max = "3ms" } }
calls = 100
[[services]]
name = "front"
servers = 3
workers = "unlimited"
queue = 5
time = { mixture = [{ weight = 99, time = "1ms" }, { weight = 1, time = { exponential = "9ms" } }] }
slow_servers = { count = 2, time = { lognormal = { median = "1s", sigma = 0.2 } } }
network = { normal = { mean = "2ms", deviation = "1ms" } }
failure_rate = 0.25
fan_out = 4
deadline_propagation = true
balancing = "round-robin"
[[services]]
name = "back"
workers = 2
time = { histogram = [{ up_to = "1ms", count = 3 }, { up_to = "9ms", count = 1 }] }
optimistic_lock = true
[[disturbances]]
at = "10s"
for = "5s"
service = "back"
effect = { slow = 3 }
[[disturbances]]
at = "20s"
for = "5s"
effect = { fail = 0.5 }
service = "front"
[[policies]]
name = "mine"
budget = "shared"
nested_retries = "stopped"
deadline_propagation = false
policy = { attempts = 4, throttle = { tokens = { max = 10, ratio = 0.1 } } }
callers.front.service_config = '{"methodConfig": [{"name": [{}], "timeout": "2s"}]}'
callers.front.method = "/a.B/Get"
"#;

#[test]
fn file_with_every_key_is_read() {
    let simulation = toml(WHOLE).expect("a valid file");
    assert_eq!((simulation.name.as_str(), simulation.seed), ("whole", 7));
    assert_eq!((simulation.duration, simulation.interval), (s(60), Some(ms(500))));
    let clients = &simulation.clients;
    assert_eq!((clients.count, clients.calls_max), (20, Some(100)));
    assert!(matches!(clients.load, Load::Closed { .. }));
    let [front, back] = &simulation.services[..] else { panic!("two services") };
    assert_eq!((front.servers, front.workers, front.queue, front.fan_out), (3, None, 5, 4));
    assert_eq!((front.failure_rate, front.deadline_propagation), (0.25, true));
    assert_eq!(front.balancing, Balancing::RoundRobin);
    assert_eq!(front.slow_servers.as_ref().map(|slow| slow.count), Some(2));
    assert!(matches!(&front.time, Distribution::Mixture(parts) if parts.len() == 2));
    let buckets =
        [(1, 3.0), (9, 1.0)].map(|(up_to, count)| HistogramBucket { up_to: ms(up_to), count });
    assert_eq!(back.time, Distribution::Histogram(buckets.to_vec()));
    assert!(back.optimistic_lock && back.workers == Some(2));
    assert_eq!(simulation.disturbances[0].effect, Effect::Slow { service: 1, factor: 3.0 });
    assert_eq!(simulation.disturbances[1].effect, Effect::Fail { service: 0, rate: 0.5 });
    let mine = &simulation.policies[0];
    assert_eq!((mine.budget, mine.nested_retries), (BudgetScope::Shared, NestedRetries::Stopped));
    assert_eq!(mine.deadline_propagation, Some(false));
    assert_eq!(mine.policy.policy().rules().attempts, Some(4));
    assert_eq!(*mine.policy.throttle(), ThrottleSpec::Tokens { max: 10.0, ratio: 0.1 });
    assert_eq!(mine.policy_of("front").policy().rules().deadline, Some(s(2)));
    assert!(simulation.run().is_ok());
}

#[test]
fn file_in_json_is_the_same() {
    let text = r#"{ "duration": "10s", "clients": { "burst_at": "1s", "count": 3 },
        "services": [{ "name": "a", "time": ["1ms", "2ms"], "balancing": "avoid-previous" }],
        "policies": [{ "name": "p", "service_config": { "methodConfig": [{ "name": [{}] }] } }] }"#;
    let simulation = problems(file::parse(text, Format::Json, &no_files)).expect("a valid file");
    assert_eq!(simulation.clients.load, Load::Burst { at: s(1) });
    assert_eq!(simulation.services[0].time, Distribution::Samples(vec![ms(1), ms(2)]));
}

#[test]
fn file_problems_are_all_reported_with_their_position() {
    let text = "durration = \"10s\"\nseed = -1\n[clients]\ncount = 1\n[[services]]\nname = \"a\"\n\
                tiem = \"5ms\"\n[[policies]]\nname = \"p\"\npolicy = { attempts = 0 }\n\
                [[policies]]\nname = \"q\"\npolicy = { atempts = 2 }\n";
    let found = toml(text).expect_err("problems");
    let expected = [
        "1:1: durration: unknown key; did you mean \"duration\"?",
        "1:1: duration is missing; write duration = \"60s\"",
        "2:8: seed: -1 is out of range; write a number from 0 to 18446744073709551615",
        "3:1: clients: write one of calls_per_second = 100, burst_at = \"1s\" and think_time = \"1s\"",
        "5:1: services[0]: time is missing; write time = \"5ms\"",
        "7:1: services[0].tiem: unknown key; did you mean \"time\"?",
        "10:23: policies[0].policy: attempts: 0 would never try; write 1 for a single attempt",
        "13:12: policies[1].policy: unknown key \"atempts\"; did you mean \"attempts\"?",
    ];
    assert_eq!(found, expected);
}

#[test]
fn file_value_problems_do_not_hide_problems_of_the_whole() {
    let text = "duration = \"1 minute\"\n\
                clients = { count = 0, calls_per_second = \"5\" }\n\
                services = [{ name = \"a\", workers = 0, time = \"5\" }, { name = \"a\", time = \"5ms\" }]\n\
                disturbances = [{ at = \"2s\", for = 3, service = \"b\", effect = { fail = 2 } },\n\
                { at = \"2s\", for = \"3s\", effect = \"outage\" }]\n\
                [[policies]]\nname = \"p\"\npolicy = { atempts = 0 }\n\
                [[policies]]\nname = \"p\"\npolicy = {}\ncallers.c.policy = {}\n";
    let found = toml(text).expect_err("problems");
    let paths: Vec<_> =
        found.iter().map(|problem| problem.split(':').nth(2).unwrap_or_default().trim()).collect();
    let expected = [
        "duration",
        "clients.count",
        "clients.calls_per_second",
        "services[0].workers",
        "services[0].time",
        "services[1].name",
        "disturbances[0].for",
        "disturbances[0].service",
        "disturbances[0].effect.fail",
        "disturbances[1].service",
        "disturbances[1].effect",
        "policies[0].policy",
        "policies[1].name",
        "policies[1].callers.c",
    ];
    assert_eq!(paths, expected, "{found:#?}");
    // What is missing is reported once, and what depends on it is not.
    let found = toml("policies = [{ name = \"p\", policy = {} }]\ninterval = \"1ns\"\n\
                      disturbances = [{ at = \"2d\", for = \"1s\", service = \"a\", effect = \"stall\" }]")
        .expect_err("problems");
    assert_eq!(found.len(), 3, "{found:#?}");
    assert!(found.iter().all(|it| it.contains(" is missing; ")), "{found:#?}");
}

#[test]
fn file_values_out_of_range_are_reported_at_their_place() {
    let cases = [
        ("interval = \"0s\"", "5:12: interval: 0 is no interval"),
        (
            "interval = \"1ns\"",
            "5:12: interval: too short for this run; write at least \"100000ns\"",
        ),
        ("disturbances = [{ at = \"20s\", for = \"1s\", load = 2 }]", "starts after the end"),
        ("disturbances = [{ at = \"2s\", for = \"1s\" }]", "write effect = \"stall\""),
        (
            "disturbances = [{ at = \"2s\", for = \"1s\", service = \"b\", effect = \"stall\" }]",
            "no service is called \"b\"; did you mean \"a\"?",
        ),
        (
            "disturbances = [{ at = \"2s\", for = \"1s\", effect = \"stal\" }]",
            "\"stal\" is not known; did you mean \"stall\"?",
        ),
        (
            "disturbances = [{ at = \"2s\", for = \"1s\", effect = { fail = 1.5 } }]",
            "5:60: disturbances[0].effect.fail: 1.5 is out of range; write a number from 0 to 1",
        ),
        (
            "disturbances = [{ at = \"2s\", for = \"1s\", service = \"b\", load = 2 }]",
            "5:52: disturbances[0].service: load changes the calls of all clients, and not a service",
        ),
        ("seed = \"x\"", "5:8: seed: this is a text; write a number without a fraction, like 10"),
        ("seed = 1979-05-27", "5:8: dates are not used here"),
        ("seed = ", "not TOML"),
    ];
    for (line, expected) in cases {
        let found = with(line).expect_err("a problem");
        assert!(found[0].contains(expected), "{line}: {found:#?}");
    }
    assert!(with("").is_ok());
    let load =
        with("disturbances = [{ at = \"2s\", for = \"1s\", load = 1.5 }]").expect("a valid file");
    assert_eq!(load.disturbances[0].effect, Effect::Load { factor: 1.5 });
}

#[test]
fn file_load_factor_needs_a_rate_of_calls() {
    for load in ["think_time = \"1s\"", "burst_at = \"1s\""] {
        let text = format!(
            "duration = \"10s\"\nclients = {{ {load} }}\n\
             services = [{{ name = \"a\", time = \"5ms\" }}]\n\
             policies = [{{ name = \"p\", policy = {{}} }}]\n\
             disturbances = [{{ at = \"2s\", for = \"1s\", load = 2 }}]"
        );
        let found = toml(&text).expect_err("a problem");
        let expected = "5:49: disturbances[0].load: these clients have no rate of calls to multiply; \
                        write clients.calls_per_second";
        assert!(found[0].starts_with(expected), "{found:#?}");
    }
}

#[test]
fn file_limits_are_tested_at_and_past() {
    let clients = |count: u32| {
        let text = format!(
            "duration = \"10s\"\nclients = {{ calls_per_second = 5, count = {count} }}\n\
             services = [{{ name = \"a\", time = \"5ms\" }}]\n\
             policies = [{{ name = \"p\", policy = {{}} }}]"
        );
        toml(&text).is_ok()
    };
    let most = redial_sim::limits::CLIENTS_MAX;
    assert!(clients(most) && !clients(most + 1) && clients(1) && !clients(0));
    let services = |count: usize| {
        let list: Vec<String> =
            (0..count).map(|index| format!("{{ name = \"s{index}\", time = \"1ms\" }}")).collect();
        let text = format!(
            "duration = \"10s\"\nclients = {{ calls_per_second = 5 }}\nservices = [{}]\n\
             policies = [{{ name = \"p\", policy = {{}} }}]",
            list.join(", ")
        );
        toml(&text).is_ok()
    };
    let most = redial_sim::limits::SERVICES_MAX;
    assert!(services(most) && !services(most + 1) && !services(0));
    let comment = |length: usize| {
        let start = "duration = \"10s\"\nclients = { calls_per_second = 5 }\n\
                     services = [{ name = \"a\", time = \"5ms\" }]\n\
                     policies = [{ name = \"p\", policy = {} }]\n#";
        toml(&format!("{start}{}", "x".repeat(length - start.len()))).is_ok()
    };
    assert!(comment(FILE_MAX) && !comment(FILE_MAX + 1));
    let unknown: String = (0..PROBLEMS_MAX + 5).map(|index| format!("x{index} = 1\n")).collect();
    assert_eq!(toml(&unknown).expect_err("problems").len(), PROBLEMS_MAX);
}

#[test]
fn file_names_other_files() {
    let open = |name: &str| match name {
        "p.json" => Ok(r#"{ "attempts": 6 }"#.to_owned()),
        "bad.toml" => Ok("attempts = 0".to_owned()),
        _ => Err(io::Error::other("no such file")),
    };
    let text = |source: &str| {
        format!(
            "duration = \"10s\"\nclients = {{ calls_per_second = 5 }}\n\
             services = [{{ name = \"a\", time = \"5ms\" }}]\n\
             policies = [{{ name = \"p\", {source} }}]"
        )
    };
    let read = |source: &str| problems(file::parse(&text(source), Format::Toml, &open));
    let simulation = read("policy_file = \"p.json\"").expect("a valid file");
    assert_eq!(simulation.policies[0].policy.policy().rules().attempts, Some(6));
    let found = read("policy_file = \"bad.toml\"").expect_err("a problem");
    assert!(found[0].contains("bad.toml:1:12: attempts: 0 would never try"), "{found:?}");
    let found = read("service_config_file = \"x\"").expect_err("a problem");
    assert!(found[0].contains("x cannot be read: no such file"), "{found:?}");
    let found = read("policy_file = \"p.json\", policy = {}").expect_err("a problem");
    assert!(found[0].contains("write one of policy"), "{found:?}");
    assert!(toml(&text("policy_file = \"p.json\"")).is_err(), "no files are available");
}

#[test]
fn file_formats_are_known_by_name_or_text() {
    assert_eq!(Format::of("a.JSON", ""), Format::Json);
    assert_eq!(Format::of("a.toml", "{"), Format::Toml);
    assert_eq!(Format::of("-", "\n{"), Format::Json);
    assert_eq!(Format::of("-", "duration"), Format::Toml);
}
