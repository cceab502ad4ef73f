//! Goal: the project's scenario files pass at both levels, and fail if any number changes. Method:
//! all of them run; then each constant of a preset is changed in the policies of its file, which
//! must fail a scenario.

use std::collections::BTreeSet;
use std::time::Instant;

use redial_cli::scenarios::load::{load, open};
use redial_cli::scenarios::source::Source;
use redial_cli::scenarios::{Arguments, Counts, File, play_file};
use serde_json::{Value, json};

fn path(name: &str) -> String {
    format!("{}/../../scenarios/{name}.json", env!("CARGO_MANIFEST_DIR"))
}

fn text(name: &str) -> Value {
    let text = std::fs::read_to_string(path(name)).expect("the file is there");
    serde_json::from_str(&text).expect("it is JSON")
}

fn loaded(file: &Value) -> File {
    load(&Source::new("changed", file.to_string()))
        .unwrap_or_else(|diagnostics| panic!("{diagnostics:?}"))
}

/// Runs a file, and returns the counts and the output.
fn played(file: &File, live: bool) -> (Counts, String) {
    let mut out = Vec::new();
    let arguments = Arguments { live, ..Arguments::default() };
    let counts = play_file(file, &arguments, &mut out).expect("a vector takes everything");
    (counts, String::from_utf8(out).expect("it is text"))
}

fn counts(passed: usize, failed: usize, skipped: usize) -> Counts {
    let mut counts = Counts::default();
    (counts.passed, counts.failed, counts.skipped) = (passed, failed, skipped);
    counts
}

#[test]
fn scenario_files_pass_for_every_design() {
    for (name, scenarios) in [
        ("limits", 11),
        ("generic", 13),
        ("smithy", 12),
        ("couchbase", 25),
        ("milvus", 15),
        ("refused", 9),
        ("grpc-buffer", 5),
        ("grpc-config", 62),
        ("grpc-hedging", 13),
        ("grpc-refused", 1),
        ("grpc-retry", 19),
        ("grpc-throttle", 8),
        ("grpc-transparent", 7),
    ] {
        let file = open(&path(name)).unwrap_or_else(|diagnostics| panic!("{diagnostics:?}"));
        let (found, text) = played(&file, false);
        assert_eq!(found, counts(scenarios, 0, 0), "{name}: {text}");
        assert_eq!(text, "", "what holds prints nothing");
    }
}

#[test]
fn scenario_files_live_counts_are_pinned() {
    for (name, expected) in [
        ("limits", counts(11, 0, 0)),
        ("generic", counts(13, 0, 0)),
        ("smithy", counts(12, 0, 0)),
        ("couchbase", counts(25, 0, 0)),
        ("milvus", counts(15, 0, 0)),
        ("refused", counts(9, 0, 0)),
        ("grpc-buffer", counts(5, 0, 0)),
        ("grpc-config", counts(62, 0, 0)),
        ("grpc-hedging", counts(13, 0, 0)),
        ("grpc-refused", counts(1, 0, 0)),
        ("grpc-retry", counts(19, 0, 0)),
        ("grpc-throttle", counts(8, 0, 0)),
        ("grpc-transparent", counts(7, 0, 0)),
    ] {
        let file = open(&path(name)).unwrap_or_else(|diagnostics| panic!("{diagnostics:?}"));
        let (found, text) = played(&file, true);
        assert_eq!(found, expected, "{name}: {text}");
    }
}

/// The names of the scenarios of all files that are not skipped at the live level.
fn names_that_play_live() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for folder in ["../../scenarios", "tests/decisions"] {
        let folder = format!("{}/{folder}", env!("CARGO_MANIFEST_DIR"));
        for entry in std::fs::read_dir(folder).expect("the folder is there") {
            let path = entry.expect("it can be read").path();
            let path = path.to_str().expect("it is text");
            let file = open(path).unwrap_or_else(|diagnostics| panic!("{diagnostics:?}"));
            let arguments = Arguments { live: true, json: true, ..Arguments::default() };
            let mut out = Vec::new();
            play_file(&file, &arguments, &mut out).expect("a vector takes everything");
            for line in String::from_utf8(out).expect("it is text").lines() {
                let played: Value = serde_json::from_str(line).expect("one object per line");
                if played["skipped"].is_null() {
                    names.insert(played["name"].as_str().expect("a name").to_owned());
                }
            }
        }
    }
    names
}

#[test]
fn scenario_names_of_statements_in_clients_play_live() {
    let names = names_that_play_live();
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/statements.md");
    let page = std::fs::read_to_string(page).expect("the page is there");
    let mut checked = 0;
    for line in page.lines() {
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        let ["", number, _, library, client, live, _, ""] = cells[..] else { continue };
        for cell in [client, live] {
            let cell = if cell == "same" { library } else { cell };
            // Every other part is between quotes.
            for name in cell.split('"').skip(1).step_by(2) {
                assert!(
                    names.contains(name),
                    "row {number}: --live skips {name:?}, or there is none"
                );
                checked += 1;
            }
        }
    }
    assert!(checked > 300, "{checked}");
}

#[test]
fn scenario_files_of_decisions_pass_at_both_levels() {
    for (name, core, live) in [
        ("generic", counts(167, 0, 0), counts(163, 0, 4)),
        ("limits", counts(29, 0, 0), counts(29, 0, 0)),
        ("smithy", counts(59, 0, 0), counts(59, 0, 0)),
        ("couchbase", counts(48, 0, 0), counts(39, 0, 9)),
        ("milvus", counts(30, 0, 0), counts(24, 0, 6)),
        ("refused", counts(78, 0, 0), counts(78, 0, 0)),
        ("grpc", counts(146, 0, 0), counts(133, 0, 13)),
        ("grpc-config", counts(99, 0, 0), counts(99, 0, 0)),
        ("combined", counts(39, 0, 0), counts(9, 0, 30)),
    ] {
        let path = format!("{}/tests/decisions/{name}.json", env!("CARGO_MANIFEST_DIR"));
        let file = open(&path).unwrap_or_else(|diagnostics| panic!("{diagnostics:?}"));
        for (level, expected) in [(false, core), (true, live)] {
            let (found, text) = played(&file, level);
            assert_eq!(found, expected, "{name}: {text}");
        }
    }
}

/// Sets a field in the policies of a file that match a condition and do not set it themselves; a
/// path names a nested field.
fn with(name: &str, path: &[&str], value: &Value, has: impl Fn(&Value) -> bool) -> Value {
    let mut file = text(name);
    let design = name.split('-').next().unwrap_or(name);
    for scenario in file["scenarios"].as_array_mut().expect("a list") {
        let policy = &mut scenario["policy"][design];
        let mut current = policy.clone();
        for field in path {
            current = current[field].clone();
        }
        if current.is_null() && has(policy) {
            path.iter().fold(policy, |policy, field| &mut policy[field]).clone_from(value);
        }
    }
    file
}

/// Which policies are changed.
type Condition<'a> = &'a dyn Fn(&Value) -> bool;

#[test]
fn scenario_files_fail_for_any_changed_preset_number() {
    let standard = |policy: &Value| policy["preset"].is_null();
    let aws_2026 = |policy: &Value| policy["preset"] == "aws-2026";
    // Without a capacity every cost fits.
    let large =
        |policy: &Value| policy["preset"].is_null() && policy["bucket"]["capacity"].is_null();
    let cases: [(&str, &[&str], Value, Condition<'_>); 27] = [
        ("smithy", &["attempts"], json!(4), &standard),
        ("smithy", &["backoff_first"], json!("11ms"), &standard),
        ("smithy", &["backoff_factor"], json!(1.6), &standard),
        ("smithy", &["jitter"], json!("equal"), &standard),
        ("smithy", &["order"], json!("token-first"), &standard),
        ("smithy", &["bucket", "capacity"], json!(499), &standard),
        ("smithy", &["bucket", "costs", "server"], json!(4), &large),
        ("smithy", &["bucket", "costs", "throttling"], json!(5), &large),
        ("smithy", &["bucket", "costs", "timeout"], json!(9), &large),
        ("smithy", &["bucket", "success"], json!(2), &standard),
        ("smithy", &["bucket", "refill_per_second"], json!(11), &standard),
        ("smithy", &["backoff_first"], json!("51ms"), &aws_2026),
        ("smithy", &["backoff_factor"], json!(1.5), &aws_2026),
        ("smithy", &["throttling_first"], json!("50ms"), &aws_2026),
        ("smithy", &["bucket", "costs", "server"], json!(13), &aws_2026),
        ("smithy", &["attempts"], json!(2), &aws_2026),
        ("milvus", &["maxRetries"], json!(4), &|_| true),
        ("milvus", &["retryDelay"], json!(11), &|_| true),
        ("couchbase", &["backoff"], json!({"constant": "1ms"}), &|_| true),
        ("grpc-retry", &["client", "attempts_cap"], json!(6), &|_| true),
        ("grpc-retry", &["client", "attempts_cap"], json!(4), &|_| true),
        ("grpc-retry", &["client", "jitter"], json!({"proportional": 0.2}), &|_| true),
        ("grpc-retry", &["client", "late"], json!("early"), &|_| true),
        ("grpc-retry", &["client", "retries"], json!("transparent"), &|_| true),
        ("grpc-retry", &["client", "pushback_max"], json!(776), &|_| true),
        ("grpc-buffer", &["client", "per_rpc_buffer_limit_in_bytes"], json!(79), &|_| true),
        ("grpc-transparent", &["client", "retries"], json!(false), &|_| true),
    ];
    for (name, path, value, has) in cases {
        let file = with(name, path, &value, has);
        let (found, _) = played(&loaded(&file), false);
        assert!(found.failed > 0, "{name}: nobody notices {path:?} = {value}");
    }
}

/// Changes one number in the expectations of each scenario, and counts the detected and the total
/// changes.
fn changed_and_found(name: &str, field: &str, by: f64, live: bool) -> (usize, usize) {
    let mut file = text(name);
    let scenarios = file["scenarios"].as_array().expect("a list").len();
    let mut changed = 0;
    for scenario in file["scenarios"].as_array_mut().expect("a list") {
        for call in scenario["calls"].as_array_mut().expect("a list") {
            let pointer = match field {
                "starts" => "/expect/starts/0",
                "cancels" => "/expect/cancels/1",
                "tokens" => "/expect/tokens",
                "timeouts" => "/expect/timeouts/0",
                "sent" => "/expect/sent/0",
                "at" => "/expect/end/at",
                _ => "/expect/end/attempt",
            };
            let Some(target) = call.pointer_mut(pointer) else { continue };
            if let Some(number) = target.as_f64() {
                // Attempts and messages are integers.
                *target = match field {
                    "attempt" | "sent" => json!(number as u64 + 1),
                    _ => json!(number + by),
                };
                changed += 1;
                break;
            }
        }
    }
    let (found, _) = played(&loaded(&file), live);
    assert_eq!(found.passed + found.failed, scenarios, "{name}");
    (changed, found.failed)
}

#[test]
fn scenario_files_expected_numbers_are_all_compared() {
    // One more millisecond, token or attempt in any expectation is detected.
    for name in [
        "limits",
        "generic",
        "smithy",
        "couchbase",
        "milvus",
        "grpc-buffer",
        "grpc-hedging",
        "grpc-retry",
        "grpc-throttle",
        "grpc-transparent",
    ] {
        for field in ["starts", "cancels", "at", "attempt", "tokens", "timeouts", "sent"] {
            // Just above the tolerance.
            let (changed, found) = changed_and_found(name, field, 0.002, false);
            assert_eq!(found, changed, "{name} {field}");
        }
    }
}

#[test]
fn scenario_files_expected_grpc_numbers_are_compared_live() {
    let mut all = 0;
    for name in ["grpc-buffer", "grpc-hedging", "grpc-retry", "grpc-throttle", "grpc-transparent"] {
        for field in ["starts", "cancels", "at", "attempt", "tokens", "timeouts", "sent"] {
            let (changed, found) = changed_and_found(name, field, 1.002, true);
            assert_eq!(found, changed, "{name} {field}");
            all += changed;
        }
    }
    assert!(all > 150, "{all}");
}

/// Runs a scenario of a decision at both levels after one change, which must be detected.
fn is_found(scenario: &Value, pointer: &str, value: Value) {
    let mut file = json!({ "scenarios": [scenario] });
    let target = file["scenarios"][0].pointer_mut(pointer);
    *target.unwrap_or_else(|| panic!("{pointer} is not there")) = value;
    for live in [false, true] {
        assert_eq!(played(&loaded(&file), live).0, counts(0, 1, 0), "{pointer}, live: {live}");
    }
}

#[test]
fn scenario_files_grpc_only_expectations_are_compared() {
    let file: Value =
        serde_json::from_str(include_str!("../decisions/grpc.json")).expect("it is JSON");
    let named = |name: &str| {
        let mut all = file["scenarios"].as_array().into_iter().flatten();
        all.find(|scenario| scenario["name"] == name).unwrap_or_else(|| panic!("{name}"))
    };
    let replaced = named("replacements are no attempts, cost no tokens and keep their number");
    is_found(replaced, "/calls/0/expect/previous/0", json!("1"));
    is_found(replaced, "/calls/0/expect/previous/3", json!("2"));
    is_found(replaced, "/calls/0/expect/previous", json!([null, null, "1"]));
    is_found(replaced, "/expect/stats/~1a.B~1C/retries", json!(2));
    is_found(replaced, "/expect/stats/~1a.B~1C/failed", json!(1));
    is_found(replaced, "/expect/stats/~1a.B~1C/transparent", json!(1));
    is_found(replaced, "/expect/stats/~1a.B~1C/histogram", json!({}));
    is_found(replaced, "/expect/stats/~1a.B~1C/histogram", json!({">=2": 1}));
    is_found(replaced, "/expect/stats", json!({"/x.Y/Z": {"transparent": 2}}));
    let deadlines = named("the smaller of the two deadlines counts");
    is_found(deadlines, "/calls/0/expect/timeouts/1", json!(221.002));
    is_found(deadlines, "/calls/0/expect/timeouts/1", json!(null));
    is_found(deadlines, "/calls/2/expect/timeouts/0", json!(5));
    let kept = named("what exactly fits is kept");
    is_found(kept, "/calls/0/expect/sent", json!([2]));
    is_found(kept, "/calls/0/messages/1/bytes", json!(41));
}

#[test]
fn scenario_files_config_expectations_are_compared() {
    let file = text("grpc-config");
    let case = |name: &str| {
        let mut all = file["configs"].as_array().into_iter().flatten();
        all.find(|case| case["name"] == name).unwrap_or_else(|| panic!("{name}")).clone()
    };
    let found = |mut case: Value, pointer: &str, value: Value| {
        *case.pointer_mut(pointer).unwrap_or_else(|| panic!("{pointer}")) = value;
        let (found, text) = played(&loaded(&json!({ "configs": [case] })), false);
        assert_eq!(found, counts(0, 1, 0), "{pointer}");
        text
    };
    let retry = || case("the seed's retry policy");
    for (part, value) in [
        ("attempts", json!(5)),
        ("first", json!(100.002)),
        ("cap", json!(999)),
        ("factor", json!(2.1)),
        ("codes", json!(["UNAVAILABLE", "ABORTED"])),
    ] {
        found(retry(), &format!("/lookup/~1a.B~1C/retry/{part}"), value);
    }
    let text = found(retry(), "/lookup/~1a.B~1C", json!(null));
    assert!(text.contains("lookup       expected  /a.B/C null"), "{text}");
    let hedge = || case("the seed's hedging policy");
    found(hedge(), "/lookup/~1a.B~1C", json!({"retry": {}}));
    found(hedge(), "/lookup/~1a.B~1C/hedge/delay", json!(499));
    found(case("nothing at all"), "/lookup/~1a.B~1C", json!({"hedge": {}}));
    found(case("maxAttempts 1"), "/problems", json!([]));
    found(case("maxAttempts 1"), "/problems/0/rule", json!("backoff"));
    found(case("maxAttempts 1"), "/problems/0/path", json!("methodConfig[0].retryPolicy"));
    found(case("a key twice"), "/problems/0/path", json!("methodconfig"));
    found(case("maxAttempts 1"), "/text", json!("{}"));
    let text = found(retry(), "/text", json!("{"));
    assert!(text.contains("valid        expected  valid\n                 happened  not valid"));
}

#[test]
fn scenario_files_ten_thousand_on_one_line_are_played() {
    let mut scenarios = Vec::new();
    let files = [
        "limits",
        "generic",
        "smithy",
        "couchbase",
        "milvus",
        "refused",
        "grpc-retry",
        "grpc-hedging",
        "grpc-buffer",
    ]
    .map(text);
    for round in 0.. {
        for scenario in files.iter().flat_map(|file| file["scenarios"].as_array()).flatten() {
            let mut scenario = scenario.clone();
            scenario["name"] = json!(format!("{round}: {}", scenario["name"]));
            scenarios.push(scenario);
        }
        if scenarios.len() >= 10_000 {
            scenarios.truncate(10_000);
            break;
        }
    }
    // All on one line, as some tools write it.
    let source = Source::new("many", json!({ "scenarios": scenarios }).to_string());
    let began = Instant::now();
    let file = load(&source).unwrap_or_else(|diagnostics| panic!("{diagnostics:?}"));
    let (found, _) = played(&file, false);
    let took = began.elapsed();
    assert_eq!(found, counts(10_000, 0, 0));
    println!("10,000 scenarios took {took:?}");
    // Takes seconds, or minutes on a busy machine; a scan of the line for each position would take
    // hours.
    assert!(took.as_secs() < 600, "{took:?}");
}
