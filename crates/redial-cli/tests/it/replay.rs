//! Goal: `redial replay` makes the recorded decisions again, and says what another policy would have
//! done; `redial explain` puts a call log into words. Method: the binary reads call logs that the
//! library has played on virtual time.

use std::path::PathBuf;
use std::process::{Command, Output};

use redial::testing::{self, Play, Script};
use redial::{Jitter, Policy, Throttle, ms};
use serde_json::Value;

struct TestFolder(tempfile::TempDir);

impl TestFolder {
    /// A folder with the log of three failures, 10 ms each, and the policy that made it.
    fn new() -> Self {
        let folder = TestFolder(tempfile::tempdir().expect("the temporary folder can be written"));
        let policy = policy();
        let attempts = [testing::fails().after(ms(10)); 3];
        let played = Play::new().draws([0.25, 0.75]).call(Script::new(&policy, attempts)).run();
        folder.write("log.jsonl", &played[0].call_log().to_json_lines());
        folder.write("same.json", POLICY);
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).expect("the folder can be written");
    }

    fn redial(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_redial"));
        command.args(arguments).current_dir(self.0.path()).env("COLUMNS", "80");
        let Output { status, stdout, stderr } = command.output().expect("it runs");
        let text = |bytes| String::from_utf8(bytes).expect("it is text");
        (status.code(), text(stdout), text(stderr))
    }

    /// What another policy would have done.
    fn what_if(&self, policy: &str, options: &[&str]) -> Value {
        self.write("other.json", policy);
        let mut arguments = vec!["replay", "log.jsonl", "--policy", "other.json", "--json"];
        arguments.extend(options);
        let (code, out, err) = self.redial(&arguments);
        assert_eq!(code, Some(1), "{out}{err}");
        serde_json::from_str(&out).expect("it is JSON")
    }
}

const POLICY: &str = r#"{ "attempts": 3, "jitter": "full", "throttle": "none",
    "backoff": { "exponential": { "first": "100ms", "factor": 2 } } }"#;

fn policy() -> Policy {
    Policy::exponential(ms(100))
        .jitter(Jitter::Full)
        .attempts(3)
        .throttle(Throttle::none())
        .try_build()
        .expect("it is valid")
}

#[test]
fn replay_makes_the_same_decisions() {
    let folder = TestFolder::new();
    let (code, out, err) = folder.redial(&["replay", "log.jsonl", "--policy", "same.json"]);
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    assert!(out.starts_with("the same decisions: "), "{out}");
}

#[test]
fn replay_finds_the_policy_beside_the_log() {
    let folder = TestFolder::new();
    let (code, _, err) = folder.redial(&["replay", "log.jsonl"]);
    assert_eq!(code, Some(2));
    assert!(err.contains("which policy? there is no log.jsonl.policy.json"), "{err}");
    folder.write("log.jsonl.policy.json", POLICY);
    assert_eq!(folder.redial(&["replay", "log.jsonl"]).0, Some(0));
}

#[test]
fn replay_with_fewer_attempts_stops_earlier() {
    let folder = TestFolder::new();
    let report = folder.what_if(&POLICY.replace("\"attempts\": 3", "\"attempts\": 2"), &[]);
    assert_eq!(report["same"], false);
    assert_eq!(report["recorded"]["attempts"], 3);
    assert_eq!(report["replayed"]["attempts"], 2);
    // The first draw is the recorded one: 25 ms of 100.
    assert_eq!(report["replayed"]["elapsed_ms"], 45.0);
    assert_eq!(report["assumptions"], Value::Array(Vec::new()));
}

#[test]
fn replay_with_more_attempts_states_what_it_assumes() {
    let folder = TestFolder::new();
    let five = POLICY.replace("\"attempts\": 3", "\"attempts\": 5");
    for (beyond, attempts, reason, how) in [
        (
            "last",
            5,
            "attempts",
            "attempts 4 to 5 never happened: taken to have ended like attempt 3, after 10 ms",
        ),
        ("fail", 5, "attempts", "attempts 4 to 5 never happened: taken to have failed after 10 ms"),
        (
            "succeed",
            4,
            "succeeded",
            "attempt 4 never happened: taken to have succeeded after 10 ms",
        ),
    ] {
        let report = folder.what_if(&five, &["--beyond", beyond]);
        assert_eq!(report["replayed"]["attempts"], attempts, "{beyond}");
        assert_eq!(report["replayed"]["stop_reason"], reason, "{beyond}");
        assert_eq!(report["assumptions"][0], how);
    }
    // An attempt without an end needs a deadline.
    let bounded = five.replace("\"attempts\"", "\"deadline\": \"2s\", \"attempts\"");
    let report = folder.what_if(&bounded, &["--beyond", "hang"]);
    assert_eq!(report["replayed"]["stop_reason"], "deadline");
    assert_eq!(report["replayed"]["elapsed_ms"], 2000.0);
}

#[test]
fn replay_shows_both_calls_and_the_first_difference() {
    let folder = TestFolder::new();
    folder.write("other.json", r#"{ "attempts": 2, "throttle": "none" }"#);
    let (code, out, _) = folder.redial(&["replay", "log.jsonl", "--policy", "other.json"]);
    assert_eq!(code, Some(1));
    assert!(out.starts_with("recorded: 3 attempts in "), "{out}");
    assert!(out.contains("\nunder other.json: 2 attempts in "), "{out}");
    assert!(out.contains("\nfirst difference: event "), "{out}");
}

#[test]
fn replay_attempt_that_was_cut_off_never_ends() {
    let folder = TestFolder::new();
    let cut = Policy::constant(ms(10)).attempts(1).attempt_timeout(ms(50)).retry_timeouts();
    let cut = cut.throttle(Throttle::none()).try_build().expect("it is valid");
    let played = testing::play(&cut, [testing::hangs()]);
    folder.write("log.jsonl", &played.call_log().to_json_lines());
    let report = folder.what_if(r#"{ "attempts": 1, "attempt_timeout": "200ms" }"#, &[]);
    assert_eq!(report["replayed"]["elapsed_ms"], 200.0);
    assert_eq!(report["assumptions"][0], "attempt 1 was cut off, so it is taken to never end");
}

#[test]
fn replay_and_explain_reject_what_is_no_call_log() {
    let folder = TestFolder::new();
    folder.write("empty.jsonl", "{\"redial_call_log\":2}\n");
    for (file, text) in [
        ("missing", "cannot be read"),
        ("same.json", "line 1: expected {\"redial_call_log\":2}; `redial run --log` and "),
        ("empty.jsonl", "the call log has no events"),
    ] {
        for command in ["replay", "explain"] {
            let (code, out, err) = folder.redial(&[command, file]);
            assert_eq!((code, out.as_str()), (Some(2), ""), "{command} {file}");
            assert!(err.contains(text), "{err}");
        }
    }
    folder.write("wrong.json", "{ \"attempts\": 0 }");
    let (code, _, err) = folder.redial(&["replay", "log.jsonl", "--policy", "wrong.json"]);
    assert_eq!(code, Some(2));
    assert!(err.contains("wrong.json: attempts: 0 would never try"), "{err}");
}

#[test]
fn explain_tells_each_attempt_and_the_reason() {
    let folder = TestFolder::new();
    let (code, out, err) = folder.redial(&["explain", "log.jsonl"]);
    assert_eq!((code, err.as_str()), (Some(0), ""));
    for sentence in [
        "The call was idempotent and had no deadline.\n",
        "Attempt 1 failed after 10 ms: a server failure.\n",
        "A retry was scheduled 25 ms later (random draw 0.250).\n",
        "A retry was scheduled 150 ms later (random draw 0.750).\n",
        "The call ended at 205 ms with attempt 3: no attempt left.\n",
        "More attempts or longer delays outlast a longer failure",
    ] {
        assert!(out.contains(sentence), "{sentence}: {out}");
    }
    let (_, out, _) = folder.redial(&["explain", "log.jsonl", "--json"]);
    let report: Value = serde_json::from_str(&out).expect("it is JSON");
    assert_eq!(report["stop_reason"], "attempts");
    assert_eq!(report["sentences"][0], "The call was idempotent and had no deadline.");
}

#[test]
fn explain_of_standard_input_says_the_call_has_not_ended() {
    let folder = TestFolder::new();
    let log = std::fs::read_to_string(folder.path("log.jsonl")).expect("it is there");
    let begun: String = log.split_inclusive('\n').take(3).collect();
    folder.write("begun.jsonl", &begun);
    let begun = std::fs::File::open(folder.path("begun.jsonl")).expect("it is there");
    let ran = Command::new(env!("CARGO_BIN_EXE_redial"))
        .args(["explain", "-"])
        .stdin(begun)
        .output()
        .expect("it runs");
    let out = String::from_utf8(ran.stdout).expect("it is text");
    assert_eq!(ran.status.code(), Some(0), "{out}");
    assert!(out.contains("\nThe log ends here: the call had not ended yet.\n"), "{out}");
}

#[test]
fn replay_states_draws_throttle_and_deadline_it_used() {
    let folder = TestFolder::new();
    let assumed = |folder: &TestFolder, policy: &str, options: &[&str]| {
        let report = folder.what_if(policy, options);
        let texts = report["assumptions"].as_array().expect("it is a list").clone();
        texts.iter().filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>()
    };
    let more = r#"{ "attempts": 5, "backoff": { "constant": "9ms" } , "jitter": "full" }"#;
    let texts = assumed(&folder, more, &[]);
    assert!(
        texts.contains(&"random draws after the 2 recorded ones are 0.5".to_owned()),
        "{texts:?}"
    );
    let full = "the throttle of the policy was full at the start".to_owned();
    assert!(texts.contains(&full), "{texts:?}");
    let fewer = r#"{ "attempts": 2, "throttle": "none", "backoff": { "constant": "9ms" } }"#;
    assert_eq!(assumed(&folder, fewer, &[]), [""; 0]);
    let policy = policy();
    let script = Script::new(&policy, [testing::fails().after(ms(10)); 3]).deadline(ms(5000));
    let played = Play::new().draws([0.25, 0.75]).call(script).run();
    folder.write("log.jsonl", &played[0].call_log().to_json_lines());
    let applied = "the recorded deadline of 5.00 s still applied".to_owned();
    assert_eq!(assumed(&folder, fewer, &[]), [applied]);
    assert_eq!(assumed(&folder, fewer, &["--without-recorded-deadline"]), [""; 0]);
}
