//! Goal: for any file, the loader returns scenarios or errors, and loaded scenarios run at both
//! levels; the fields it reads are those of `docs/scenarios.md`. Method: the project's own files, with
//! values and bytes replaced at random, and with an unknown field in each part.

use redial_cli::scenarios::load::load;
use redial_cli::scenarios::source::Source;
use redial_cli::scenarios::{Arguments, play_file};
use redial_core::Random;
use serde_json::{Value, json};

/// How many files are generated.
const FILES: usize = 6_000;

fn scenarios() -> Vec<Value> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .expect("the folder is there")
        .map(|entry| entry.expect("it can be read").path())
        .collect();
    files.sort();
    let mut all = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(file).expect("it can be read");
        let value: Value = serde_json::from_str(&text).expect("it is JSON");
        all.extend(value["scenarios"].as_array().cloned().unwrap_or_default());
    }
    all
}

fn below(random: &mut Random, most: usize) -> usize {
    (random.bits() % most as u64) as usize
}

/// Values that replace others.
fn odd(random: &mut Random) -> Value {
    let values = [
        json!(null),
        json!(0),
        json!(1),
        json!(-1),
        json!(0.5),
        json!(1e300),
        json!(18_446_744_073_709_551_615_u64),
        json!(18_446_744_073_709.0),
        json!(""),
        json!("ok"),
        json!("hang"),
        json!("stop"),
        json!("unlimited"),
        json!("none"),
        json!("0ms"),
        json!("1ns"),
        json!("200000000000d"),
        json!(true),
        json!([]),
        json!({}),
        json!([{}]),
        json!({ "": 0 }),
    ];
    values[below(random, values.len())].clone()
}

/// Replaces, removes or adds one value.
fn change(value: &mut Value, random: &mut Random) {
    let here = below(random, 6) == 0;
    match value {
        Value::Object(fields) if !here && !fields.is_empty() => {
            let index = below(random, fields.len());
            let name = fields.keys().nth(index).expect("it is below the length").clone();
            match below(random, 12) {
                0 => drop(fields.remove(&name)),
                1 => drop(fields.insert(format!("{name}x"), odd(random))),
                _ => change(&mut fields[&name], random),
            }
        }
        Value::Array(list) if !here && !list.is_empty() => {
            let index = below(random, list.len());
            match below(random, 12) {
                0 => drop(list.remove(index)),
                1 => list.push(odd(random)),
                _ => change(&mut list[index], random),
            }
        }
        // Mostly of the same type, so that not every file is refused early.
        other => {
            let kind = std::mem::discriminant(other);
            let any = below(random, 4) == 0;
            let new =
                (0..64).map(|_| odd(random)).find(|new| any || std::mem::discriminant(new) == kind);
            *other = new.unwrap_or_default();
        }
    }
}

#[test]
fn loader_never_panics_on_any_file() {
    let originals = scenarios();
    let mut random = Random::new(5);
    let (mut loaded, mut refused) = (0, 0);
    for _ in 0..FILES {
        let mut scenario = originals[below(&mut random, originals.len())].clone();
        for _ in 0..=below(&mut random, 2) {
            let part = ["policy", "calls", "draws"][below(&mut random, 3)];
            match scenario.get_mut(part) {
                Some(part) => change(part, &mut random),
                None => change(&mut scenario, &mut random),
            }
        }
        let mut text = json!({ "scenarios": [scenario] }).to_string().into_bytes();
        if below(&mut random, 8) == 0 {
            let at = below(&mut random, text.len());
            text[at] = b"\"{}[],:0-\\ \x01\xff"[below(&mut random, 13)];
        }
        let text = String::from_utf8_lossy(&text).into_owned();
        match load(&Source::new("odd", text)) {
            Ok(file) => {
                loaded += 1;
                for live in [false, true] {
                    let arguments = Arguments { live, json: live, ..Arguments::default() };
                    play_file(&file, &arguments, &mut Vec::new()).expect("a vector takes it all");
                }
            }
            Err(diagnostics) => {
                refused += 1;
                assert!(!diagnostics.is_empty(), "something must be wrong");
                assert!(diagnostics.iter().all(|diagnostic| diagnostic.position.is_some()));
            }
        }
    }
    assert!(loaded > FILES / 20 && refused > FILES / 20, "{loaded} loaded, {refused} refused");
}

/// The fields of each part of a scenario. A new one is also a row of `docs/scenarios.md`.
const FIELDS: [(&str, &str, &str); 18] = [
    ("generic", "/x", "name from policy draws calls expect refused"),
    ("generic", "/calls/0/x", "at deadline cancel idempotent attempts expect"),
    ("generic", "/calls/0/attempts/0/x", "after outcome hint stage"),
    ("generic", "/calls/0/expect/x", "starts cancels end tokens"),
    ("generic", "/calls/0/expect/end/x", "at outcome attempt why"),
    ("smithy", "/calls/0/attempts/0/x", "after outcome hint stage"),
    ("grpc", "/calls/0/x", "at deadline cancel method messages attempts expect"),
    ("grpc", "/calls/0/attempts/0/x", "after outcome pushback headers seen accepts"),
    ("grpc", "/calls/0/expect/x", "starts cancels end previous timeouts sent tokens"),
    ("grpc", "/expect/x", "tokens stats"),
    ("grpc", "/calls/0/messages/0/x", "at bytes"),
    ("couchbase", "/calls/0/x", "at deadline cancel idempotent operation attempts expect"),
    ("couchbase", "/calls/0/attempts/0/x", "after outcome"),
    ("couchbase", "/calls/0/expect/x", "starts cancels end log"),
    ("couchbase", "/calls/0/expect/end/x", "at outcome attempt why error"),
    ("milvus", "/calls/0/x", "at attempts expect"),
    ("milvus", "/calls/0/attempts/0/x", "after outcome"),
    ("milvus", "/calls/0/expect/x", "starts cancels end text log"),
];

/// The text of the first error in a file with this scenario.
fn error_of(scenario: &Value) -> String {
    let text = json!({ "scenarios": [scenario] }).to_string();
    let errors = load(&Source::new("file", text)).expect_err("it has an unknown field");
    errors.into_iter().next().expect("an error").text
}

#[test]
fn loader_refuses_fields_that_are_not_documented() {
    let document = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/scenarios.md");
    let document = std::fs::read_to_string(document).expect("it can be read");
    let all = scenarios();
    for (design, place, fields) in FIELDS {
        let (parent, unknown) = place.rsplit_once('/').expect("a path");
        let scenario = all.iter().find(|scenario| {
            scenario["policy"].get(design).is_some()
                && scenario.pointer(parent).is_some_and(Value::is_object)
        });
        let mut scenario = scenario.unwrap_or_else(|| panic!("{design} has {parent}")).clone();
        scenario.pointer_mut(parent).expect("it was there")[unknown] = json!(0);
        let error = error_of(&scenario);
        let (start, known) = error.split_once("; expected one of ").expect("the known fields");
        assert!(start.starts_with("unknown field \"x\" in "), "{design} {place}: {error}");
        let known: Vec<&str> = known.split(", ").map(|name| name.trim_matches('"')).collect();
        assert_eq!(known.join(" "), fields, "{design} {place}");
        for field in known {
            assert!(document.contains(&format!("`{field}`")), "{field} of {place} is documented");
        }
    }
}
