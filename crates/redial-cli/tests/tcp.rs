//! Goal: scenarios that pass on a paused clock also pass in real time over sockets. Method: a
//! subset of the gRPC scenarios runs through the layer, a generated client and loopback TCP, ten
//! times slower than written. Tolerance: 20 ms of scenario time, 200 ms of real time; a failed
//! scenario is repeated alone up to twice, since a busy machine may stall.

use std::thread;

use redial_cli::scenarios::load::open;
use redial_cli::scenarios::play_over_tcp;

/// Scenarios without simultaneous events, one for each network behaviour.
const SCENARIOS: [(&str, &[&str]); 6] = [
    (
        "scenarios/grpc-retry.json",
        &[
            "backoff doubles, jitter is the whole interval",
            "one deadline for all attempts",
            "the deadline during backoff",
            "response headers commit",
            "negative pushback stops",
            "a method without a policy is not retried",
        ],
    ),
    ("scenarios/grpc-hedging.json", &["delay 0: all at once", "throttled hedges are not sent"]),
    (
        "scenarios/grpc-throttle.json",
        &["a status that is not listed does not count", "all methods share the tokens"],
    ),
    (
        "scenarios/grpc-transparent.json",
        &[
            "unprocessed: once, at once, without any policy",
            "connection refused goes to the policy",
            "connection refused without a policy is handed on",
        ],
    ),
    (
        "scenarios/grpc-buffer.json",
        &[
            "too large from the start: sent, never repeated",
            "the channel's limit is shared by its calls",
        ],
    ),
    (
        "crates/redial-cli/tests/decisions/grpc.json",
        &[
            "after a failure the rhythm goes on from the hedge that it sent",
            "what a hedge committed to may hang until the deadline",
        ],
    ),
];

/// Runs one scenario; returns its failures as text.
fn play(path: &str, name: &str) -> String {
    let path = format!("{}/../../{path}", env!("CARGO_MANIFEST_DIR"));
    let file = open(&path).unwrap_or_else(|diagnostics| panic!("{diagnostics:?}"));
    let mut out = Vec::new();
    let holds = play_over_tcp(&file, name, &mut out).unwrap_or_else(|error| panic!("{error}"));
    let text = String::from_utf8(out).expect("it is text");
    assert_eq!(holds, text.is_empty());
    text
}

#[test]
fn tcp_scenarios_pass_over_loopback() {
    let each = SCENARIOS.iter().flat_map(|(path, names)| names.iter().map(move |it| (path, it)));
    // Concurrently: they mostly wait.
    let threads: Vec<_> =
        each.map(|(path, name)| (path, name, thread::spawn(|| play(path, name)))).collect();
    assert_eq!(threads.len(), 17);
    let played = threads.into_iter().map(|(path, name, thread)| {
        let text = thread.join().expect("it is played");
        (path, name, text)
    });
    // All have ended before the first one is repeated.
    for (path, name, text) in played.collect::<Vec<_>>() {
        let mut tries = (0..2).map(|_| play(path, name));
        assert!(text.is_empty() || tries.any(|again| again.is_empty()), "{text}");
    }
}

#[test]
fn tcp_scenario_that_sockets_cannot_show_is_refused() {
    let path = format!("{}/../../scenarios/grpc-transparent.json", env!("CARGO_MANIFEST_DIR"));
    let file = open(&path).unwrap_or_else(|diagnostics| panic!("{diagnostics:?}"));
    let error = play_over_tcp(&file, "unsent: until it is sent", &mut Vec::new()).unwrap_err();
    assert_eq!(error.to_string(), "an unsent attempt over TCP is a race");
    let error = play_over_tcp(&file, "not there", &mut Vec::new()).unwrap_err();
    assert_eq!(error.to_string(), "no scenario \"not there\"");
}
