//! Goal: the public API behaves like the decision core for any scenario. Method: random policies
//! and scripts run through the core; the result becomes the expectation of the same scenario at the
//! live level: the async driver, or the gRPC layer with a client and a server.

mod dice;
mod generic;
mod grpc;

use dice::Dice;
use redial_cli::scenarios::load::load;
use redial_cli::scenarios::source::Source;
use redial_cli::scenarios::{Arguments, Counts, play_file};
use redial_core::Random;
use serde_json::{Value, json};

/// The seed of the random scenarios; `REDIAL_LEVELS=60000,77` runs 60,000 from seed 77.
const SEED: u64 = 20_260_101;

fn size_and_seed(size: usize) -> (usize, u64) {
    let Ok(text) = std::env::var("REDIAL_LEVELS") else { return (size, SEED) };
    let (size, seed) = text.split_once(',').expect("a size, a comma, a seed");
    (size.parse().expect("a size"), seed.parse().expect("a seed"))
}

/// Runs scenarios, and returns the output.
fn play(scenarios: &[Value], live: bool, json: bool) -> (Counts, String) {
    let text = json!({ "scenarios": scenarios }).to_string();
    let file = match load(&Source::new("random", text)) {
        Ok(file) => file,
        Err(diagnostics) => panic!("{diagnostics:?}"),
    };
    let mut out = Vec::new();
    let arguments = Arguments { live, json, ..Arguments::default() };
    let counts = play_file(&file, &arguments, &mut out).expect("a vector takes everything");
    (counts, String::from_utf8(out).expect("it is text"))
}

/// Runs random scenarios at both levels, and returns how many were not skipped.
fn both_levels_agree(size: usize, make: impl Fn(&mut Dice, usize) -> Value) -> Counts {
    let (size, seed) = size_and_seed(size);
    let mut dice = Dice(Random::new(seed));
    let mut scenarios: Vec<_> = Vec::new();
    while scenarios.len() < size {
        let scenario = make(&mut dice, scenarios.len());
        // Some choices contradict each other; those policies are refused and skipped.
        let text = json!({ "scenarios": [scenario] }).to_string();
        if load(&Source::new("random", text)).is_ok() {
            scenarios.push(scenario);
        }
    }
    let (_, played) = play(&scenarios, false, true);
    for (scenario, line) in scenarios.iter_mut().zip(played.lines()) {
        let actual: Value = serde_json::from_str(line).expect("one object on each line");
        let calls = actual["actual"]["calls"].as_array().expect("it was played");
        for (call, actual) in calls.iter().enumerate() {
            scenario["calls"][call]["expect"] = actual.clone();
        }
        for whole in ["tokens", "stats"] {
            if !actual["actual"][whole].is_null() {
                scenario["expect"][whole] = actual["actual"][whole].clone();
            }
        }
    }
    let (counts, text) = play(&scenarios, false, false);
    assert_eq!(counts, Counts { passed: size, failed: 0, skipped: 0 }, "{text}");
    let (counts, text) = play(&scenarios, true, false);
    let first = text.split("FAILED").nth(1).unwrap_or_default();
    let name = first.split('"').nth(1).unwrap_or_default();
    let shown = scenarios.iter().find(|scenario| scenario["name"] == *name);
    let shown = shown.unwrap_or(&Value::Null);
    assert_eq!(counts.failed, 0, "{counts:?}\n{first}\n{shown}");
    println!("{counts:?}");
    counts
}

#[test]
fn levels_driver_matches_the_core() {
    let Counts { passed, skipped, .. } = both_levels_agree(3_000, Dice::generic_scenario);
    assert!(passed > skipped, "most can be shown: {passed} of {}", passed + skipped);
}

#[test]
fn levels_grpc_layer_matches_the_core() {
    // Each runs twice over a connection.
    let Counts { passed, skipped, .. } = both_levels_agree(500, Dice::grpc_scenario);
    assert!(passed > skipped, "most can be shown: {passed} of {}", passed + skipped);
}
