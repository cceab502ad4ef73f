//! Goal: `redial simulate` and `redial plan` print what a terminal, a pipe or a program needs, with the
//! documented exit codes. Method: the binary runs on scenarios and small files.

use std::process::{Command, Output};

use serde_json::Value;

use crate::temporary::Temporary;

/// The exit code, the standard output and the standard error.
fn redial(arguments: &[&str]) -> (Option<i32>, String, String) {
    redial_with(arguments, &[])
}

/// The same, with variables of the environment.
fn redial_with(arguments: &[&str], environment: &[(&str, &str)]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_redial"));
    command
        .args(arguments)
        .env("COLUMNS", "80")
        .env_remove("NO_COLOR")
        .env_remove("CLICOLOR_FORCE");
    command.envs(environment.iter().copied());
    let Output { status, stdout, stderr } = command.output().expect("it runs");
    let text = |bytes| String::from_utf8(bytes).expect("it is text");
    (status.code(), text(stdout), text(stderr))
}

fn json(arguments: &[&str]) -> Value {
    let (code, out, err) = redial(arguments);
    assert_eq!((code, err.as_str()), (Some(0), ""));
    serde_json::from_str(&out).expect("one JSON object")
}

const SIMULATION: &str = r#"{ "duration": "10s", "clients": { "calls_per_second": 50 },
    "services": [{ "name": "backend", "time": "5ms" }],
    "policies": [{ "name": "default", "policy": {} }] }"#;

#[test]
fn simulate_lists_every_scenario() {
    let (code, out, _) = redial(&["simulate", "--list"]);
    assert_eq!(code, Some(0));
    let names: Vec<&str> = out.lines().filter_map(|line| line.split(' ').next()).collect();
    let expected = [
        "metastability",
        "retry-storm",
        "layers",
        "overload",
        "slow-replica",
        "thundering-herd",
        "small-buckets",
    ];
    assert_eq!(names, expected);
}

#[test]
fn simulate_json_has_rates_and_recovery() {
    let report = json(&["simulate", "metastability", "--json"]);
    let policies = report["policies"].as_array().expect("a list");
    let recovered: Vec<bool> =
        policies.iter().map(|it| it["recovered_after_seconds"].is_number()).collect();
    assert_eq!(recovered, [true, false, false, true, true]);
    assert!(policies[1]["recovered_after_seconds"].is_null());
    assert!(policies[1]["offered_per_second"].as_f64().is_some_and(|it| it > 500.0));
    assert_eq!(policies[1]["goodput_per_second"].as_f64(), Some(0.0));
    assert_eq!(policies[0]["name"], "no retry");
}

#[test]
fn simulate_seed_changes_the_result_reproducibly() {
    let run = |seed| redial(&["simulate", "slow-replica", "--json", "--seed", seed]).1;
    assert_eq!(run("5"), run("5"));
    assert_ne!(run("5"), run("6"));
}

#[test]
fn simulate_text_fits_the_terminal_without_colour_in_a_pipe() {
    let (code, out, err) = redial(&["simulate", "layers"]);
    assert_eq!((code, err.as_str()), (Some(0), ""));
    assert!(!out.contains('\u{1b}'), "colour in a pipe");
    let plots = out.lines().filter(|line| line.contains(['│', '└']));
    assert!(plots.count() >= 20);
    assert!(out.lines().all(|line| line.chars().count() <= 80), "{out}");
    // Above its plot, and above its figures, where the column is too narrow for it.
    assert_eq!(out.matches("\n3 attempts in each layer\n").count(), 2, "{out}");
}

#[test]
fn simulate_text_uses_the_width_of_the_terminal() {
    let file = Temporary::new("{}");
    for (arguments, plots) in [(["simulate", "metastability"], 5), (["plan", file.path()], 2)] {
        for columns in [80, 200] {
            let (code, out, err) =
                redial_with(&arguments, &[("COLUMNS", columns.to_string().as_str())]);
            assert_eq!((code, err.as_str()), (Some(0), ""));
            let longest = out.lines().map(|line| line.chars().count()).max();
            // A column is left, and the curves of a plan have 100 columns at most.
            let expected = if arguments[0] == "plan" { columns.min(100) } else { columns };
            let axes = out.lines().filter(|line| line.contains('└'));
            let axes: Vec<usize> = axes.map(|line| line.chars().count()).collect();
            assert_eq!(axes, vec![expected - 1; plots], "{out}");
            assert!(longest <= Some(columns), "{out}");
        }
    }
}

#[test]
fn simulate_and_plan_follow_the_variables_for_colour() {
    let file = Temporary::new("{}");
    for arguments in [["simulate", "layers"], ["plan", file.path()]] {
        let is_coloured = |environment: &[(&str, &str)]| {
            redial_with(&arguments, environment).1.contains("\u{1b}[")
        };
        assert!(!is_coloured(&[]), "standard output is a pipe");
        assert!(is_coloured(&[("CLICOLOR_FORCE", "1")]));
        assert!(!is_coloured(&[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")]));
    }
}

#[test]
fn simulate_picture_goes_to_standard_output() {
    let file = Temporary::new(SIMULATION);
    let (code, out, err) = redial(&["simulate", file.path(), "--svg", "-"]);
    assert_eq!((code, err.as_str()), (Some(0), ""));
    assert!(out.starts_with("<svg") && out.ends_with("</svg>\n"), "{out}");
    assert!(!std::path::Path::new("-").exists());
    let (code, out, err) = redial(&["simulate", file.path(), "--svg", "-", "--json"]);
    assert_eq!((code, out.as_str()), (Some(2), ""));
    assert!(err.contains("name a file for the others"), "{err}");
}

#[test]
fn simulate_file_runs_and_writes_pictures() {
    let (file, svg, html) = (Temporary::new(SIMULATION), Temporary::new(""), Temporary::new(""));
    let (code, out, err) =
        redial(&["simulate", file.path(), "--svg", svg.path(), "--html", html.path()]);
    assert_eq!((code, err.as_str()), (Some(0), ""));
    assert!(out.contains("100 % of calls succeeded"), "{out}");
    let read = |file: &Temporary| std::fs::read_to_string(file.path()).expect("a file");
    assert!(read(&svg).starts_with("<svg"));
    let page = read(&html);
    assert!(page.starts_with("<!doctype html>") && !page.contains("http-equiv"));
    assert!(!page.contains("<script") && !page.contains("src="), "no request, no script");
}

#[test]
fn simulate_exit_codes_are_documented() {
    let wrong = Temporary::new(SIMULATION.replace("5ms", "5 parsecs"));
    let (code, out, err) = redial(&["simulate", wrong.path()]);
    assert_eq!((code, out.as_str()), (Some(1), ""));
    assert!(err.contains("2:47: services[0].time: "), "{err}");
    let (code, _, err) = redial(&["simulate", "no/such/file.toml"]);
    assert_eq!(code, Some(2));
    assert!(err.contains("cannot be read"), "{err}");
    let (code, _, err) = redial(&["simulate", "metastabilty"]);
    assert_eq!(code, Some(2));
    assert!(
        err.contains("; did you mean \"metastability\"? the scenarios are metastability, "),
        "{err}"
    );
    assert_eq!(redial(&["simulate"]).0, Some(2));
    let (code, _, err) = redial(&["simulate", "layers", "--svg", "/no/such/folder/x.svg"]);
    assert_eq!(code, Some(2));
    assert!(err.contains("cannot be written"), "{err}");
}

#[test]
fn simulate_sweep_runs_seeds_and_loads() {
    let file = Temporary::new(SIMULATION);
    let (code, out, _) = redial(&["simulate", file.path(), "--seeds", "3", "--load", "1,2"]);
    assert_eq!(code, Some(0));
    assert!(out.contains("load × 1, 3 runs") && out.contains("load × 2, 3 runs"), "{out}");
    let (code, _, err) = redial(&["simulate", file.path(), "--seeds", "10001"]);
    assert_eq!(code, Some(2));
    assert!(err.contains("ask for 1 to 10000"), "{err}");
}

#[test]
fn simulate_file_of_the_documentation_is_the_example() {
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");
    let read = |name| std::fs::read_to_string(format!("{docs}/{name}")).expect("it is there");
    let text = read("simulation.md");
    let file = text.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next());
    assert_eq!(file, Some(read("examples/outage.toml").as_str()));
}

#[test]
fn simulate_prints_the_file_of_a_scenario() {
    let (code, out, _) = redial(&["simulate", "overload", "--print"]);
    assert_eq!(code, Some(0));
    assert!(out.contains("name = \"overload\""), "{out}");
    assert_eq!(redial(&["simulate", "overlaod", "--print"]).0, Some(2));
}

#[test]
fn plan_shows_attempts_success_and_load() {
    let file = Temporary::new(
        r#"{ "attempts": 4, "backoff": {"constant": "100ms"}, "jitter": "none", "throttle": "none" }"#,
    );
    let arguments = ["plan", file.path(), "--json", "--failure-rate", "0.5", "--latency", "10ms"];
    let plans = json(&arguments);
    let plan = &plans["plans"][0];
    let starts: Vec<f64> = plan["attempts"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|attempt| attempt["typical"].as_f64().expect("a time"))
        .collect();
    assert_eq!(starts, [0.0, 0.11, 0.22, 0.33]);
    assert_eq!(plan["gives_up_after_seconds"]["typical"].as_f64(), Some(0.34));
    // Success 1 - p^4, load 1 + p + p^2 + p^3.
    let near = |key: &str, expected: f64| {
        let found = plan[key].as_f64().expect("a number");
        assert!((found - expected).abs() < 0.02, "{key} {found}");
    };
    near("success", 0.9375);
    near("amplification", 1.875);
    assert_eq!(plan["worst_case"]["attempts"], 4);
    assert!(plan["worst_case"]["seconds"].is_null());
}

#[test]
fn plan_attempts_beyond_the_deadline_end_at_it() {
    // Without jitter cut short, the third attempt would start after 0.8 s.
    let file = Temporary::new(
        r#"{ "attempts": 3, "backoff": {"constant": "400ms"}, "jitter": "full", "deadline": "600ms", "throttle": "none" }"#,
    );
    let plans = json(&["plan", file.path(), "--json", "--latency", "10ms"]);
    let plan = &plans["plans"][0];
    let third = &plan["attempts"][2];
    assert_eq!((third["earliest"].as_f64(), third["latest"].as_f64()), (Some(0.0), Some(0.6)));
    assert_eq!(plan["gives_up_after_seconds"]["latest"].as_f64(), Some(0.6));
}

#[test]
fn plan_of_hedging_compares_the_tail() {
    let file =
        Temporary::new(r#"{ "attempts": 2, "hedge": {"delay": "10ms"}, "throttle": "none" }"#);
    let latency = r#"{ mixture = [{ weight = 99, time = "5ms" }, { weight = 1, time = "1s" }] }"#;
    let plans = json(&["plan", file.path(), "--json", "--latency", latency]);
    let plan = &plans["plans"][0];
    let p999 = |key: &str| plan[key]["p999_ms"].as_f64().expect("a number");
    assert!(p999("latency_of_one_attempt") > 990.0 && p999("latency") < 20.0, "{plan}");
    assert!(plan["healthy_amplification"].as_f64().is_some_and(|load| load < 1.02));
}

#[test]
fn plan_latency_is_a_file_with_a_histogram_or_samples() {
    let policy = Temporary::new(r#"{ "attempts": 2, "hedge": {"delay": "10ms"} }"#);
    let median = |latency: &str| {
        let file = Temporary::new(latency);
        let plans = json(&["plan", policy.path(), "--json", "--latency", file.path()]);
        plans["plans"][0]["latency_of_one_attempt"]["p50_ms"].as_f64()
    };
    let histogram =
        r#"{ "histogram": [{ "up_to": "4ms", "count": 50 }, { "up_to": "90ms", "count": 50 }] }"#;
    assert!(median(histogram).is_some_and(|median| (3.5..6.0).contains(&median)));
    let samples = r#"["1ms", "7ms", "7ms", "7ms", "90ms"]"#;
    assert!(median(samples).is_some_and(|median| (6.9..7.1).contains(&median)));
    let lognormal = r#"{ "lognormal": { "median": "20ms", "sigma": 0.5 } }"#;
    assert!(median(lognormal).is_some_and(|median| (18.0..22.0).contains(&median)));
}

#[test]
fn plan_of_two_policies_is_side_by_side() {
    let (one, two) = (Temporary::new("{}"), Temporary::new(r#"{ "attempts": 5 }"#));
    let (code, out, err) = redial(&["plan", one.path(), two.path()]);
    assert_eq!((code, err.as_str()), (Some(0), ""));
    assert_eq!(out.matches("gives up").count(), 2, "{out}");
    assert!(out.lines().all(|line| line.chars().count() <= 80), "{out}");
}

#[test]
fn plan_names_files_with_the_same_name_by_path() {
    let folder = std::env::temp_dir().join(format!("redial-plan-{}", std::process::id()));
    let paths = ["old/policy.json", "new/policy.json", "other.json"].map(|name| folder.join(name));
    for path in &paths {
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        std::fs::write(path, "{}").expect("a file");
    }
    let [old, new, other] = paths.map(|path| path.to_string_lossy().into_owned());
    let plans = json(&["plan", &old, &new, &other, "--json"]);
    let names: Vec<_> = (0..3).map(|index| plans["plans"][index]["name"].as_str()).collect();
    assert_eq!(names, [Some(old.as_str()), Some(new.as_str()), Some("other")]);
    std::fs::remove_dir_all(folder).expect("it was there");
}

#[test]
fn plan_writes_pictures() {
    let file = Temporary::new(r#"{ "attempts": 3, "deadline": "2s" }"#);
    let (png, html) = (Temporary::new(""), Temporary::new(""));
    let (code, out, err) =
        redial(&["plan", file.path(), "--html", html.path(), "--png", png.path()]);
    assert!(out.contains("gives up") || err.contains("no font is installed"), "{out}{err}");
    let page = std::fs::read_to_string(html.path()).expect("a file");
    let image = std::fs::read(png.path()).expect("a file");
    match code {
        Some(0) => assert!(image.starts_with(b"\x89PNG")),
        // A system without fonts cannot write the labels.
        _ => assert!(err.contains("no font is installed") && image.is_empty(), "{err}"),
    }
    if code == Some(0) {
        assert!(page.starts_with("<!doctype html>") && page.contains("<svg"));
        assert!(!page.contains("<script") && !page.contains("src="), "no request, no script");
        assert!(page.contains("worst_case") && page.contains("gives up"), "JSON and text");
    }
}

#[test]
fn plan_of_a_service_config_needs_a_method() {
    let entry = r#"{ "name": [{ "service": "a.B" }], "timeout": "1s",
        "retryPolicy": { "maxAttempts": 3, "initialBackoff": "0.1s", "maxBackoff": "1s",
        "backoffMultiplier": 2, "retryableStatusCodes": ["UNAVAILABLE"] } }"#;
    let other = r#"{ "name": [{ "service": "c.E", "method": "Get" }] }"#;
    let two = Temporary::new(format!(r#"{{ "methodConfig": [{entry}, {other}] }}"#));
    let (code, _, err) = redial(&["plan", two.path()]);
    assert_eq!(code, Some(2));
    let entries = "--method /package.Service/Method; its entries are for /a.B/, /c.E/Get\n";
    assert!(err.contains(entries), "{err}");
    // The only entry needs no name.
    let file = Temporary::new(format!(r#"{{ "methodConfig": [{entry}] }}"#));
    let only = json(&["plan", file.path(), "--json"]);
    assert_eq!(only["plans"][0]["deadline_seconds"].as_f64(), Some(1.0));
    assert_eq!(redial(&["plan", file.path(), "--method", "/c.D/Get"]).0, Some(1));
    let plans = json(&["plan", file.path(), "--method", "/a.B/Get", "--json"]);
    assert_eq!(plans["plans"][0]["deadline_seconds"].as_f64(), Some(1.0));
    assert_eq!(plans["plans"][0]["attempts"].as_array().map(Vec::len), Some(3));
}

#[test]
fn plan_reports_problems_with_their_position() {
    let file = Temporary::new("{ \"attempts\": 0 }");
    let (code, _, err) = redial(&["plan", file.path()]);
    assert_eq!(code, Some(1));
    assert!(err.contains(":1:15: attempts: 0 would never try"), "{err}");
    let file = Temporary::new("{}");
    let (code, _, err) = redial(&["plan", file.path(), "--latency", "fast"]);
    assert_eq!(code, Some(2));
    assert!(err.starts_with("--latency fast: \"fast\" is not a duration"), "{err}");
    let (_, _, err) = redial(&["plan", file.path(), "--latency", "no/samples.json"]);
    assert!(err.starts_with("--latency no/samples.json: there is no such file; "), "{err}");
    assert_eq!(redial(&["plan", file.path(), "--failure-rate", "2"]).0, Some(2));
}

#[test]
fn simulate_disturbance_may_outlast_every_run() {
    for lasts in ["18446744073s", "18446744073709551615s"] {
        let simulation = SIMULATION.replace(
            r#""policies""#,
            &format!(
                r#""disturbances": [{{ "at": "1s", "for": "{lasts}", "effect": "refuse" }}], "policies""#
            ),
        );
        let file = Temporary::new(&simulation);
        let report = json(&["simulate", file.path(), "--json"]);
        assert_eq!(report["disturbances"], serde_json::json!([[1.0, 10.0]]), "{lasts}");
        assert!(report["policies"][0]["recovered_after_seconds"].is_null());
    }
}

#[test]
fn simulate_load_that_is_no_factor_is_wrong_usage() {
    let file = Temporary::new(SIMULATION);
    for factor in ["nan", "inf", "0", "-1", "much"] {
        let (code, out, err) = redial(&["simulate", file.path(), &format!("--load={factor}")]);
        assert_eq!((code, out.as_str()), (Some(2), ""), "{factor}");
        assert!(err.contains("write a number above 0, like 1.5"), "{err}");
    }
    let (code, _, err) = redial(&["simulate", file.path(), "--load", "1e300"]);
    assert_eq!(code, Some(2));
    assert!(err.starts_with("--load: "), "{err}");
}

#[test]
fn simulate_load_of_clients_without_a_rate_is_wrong_usage() {
    let file =
        Temporary::new(SIMULATION.replace(r#""calls_per_second": 50"#, r#""think_time": "100ms""#));
    let (code, out, err) = redial(&["simulate", file.path(), "--load", "2"]);
    assert_eq!((code, out.as_str()), (Some(2), ""));
    assert!(err.contains("--load needs clients with calls_per_second"), "{err}");
    assert_eq!(redial(&["simulate", file.path(), "--load", "1"]).0, Some(0));
}

#[test]
fn plan_accepts_every_preset_by_name() {
    for preset in redial_cli::presets::Preset::ALL {
        let plans = json(&["plan", preset.name(), "--deadline", "3s", "--json"]);
        let plan = &plans["plans"][0];
        assert_eq!(plan["name"], preset.name());
        let policy = preset.policy_within(redial::s(3)).expect("a policy");
        let expected = serde_json::json!(policy.rules().attempts);
        assert_eq!(plan["worst_case"]["attempts"], expected, "{}", preset.name());
        assert_eq!(plan["deadline_seconds"], 3.0, "{}", preset.name());
    }
}

#[test]
fn plan_of_a_preset_has_its_throttle() {
    let load = |name: &str| {
        let plans = json(&["plan", name, "--json"]);
        let curve = plans["plans"][0]["curve"].as_array().expect("a curve").clone();
        curve.last().and_then(|point| point["amplification"].as_f64()).expect("a number")
    };
    // In an outage, 500 tokens pay for 35 retries at 14 tokens, in 20,000 calls. Smithy's standard mode waits
    // for tokens, so every retry comes, if late. Milvus has no throttle.
    assert!((load("aws-2026") - 1.0).abs() < 0.01);
    assert!((load("smithy-standard") - 3.0).abs() < 0.01);
    assert!((load("milvus") - 4.0).abs() < 0.01);
}

#[test]
fn plan_of_a_preset_explains_wrong_usage() {
    let errors = [
        (&["plan", "couchbase-best-effort"][..], "add --deadline 2.5s"),
        (&["plan", "aws-2025"], "did you mean \"aws-2026\"?"),
        (&["plan", "limits", "--deadline", "soon"], "--deadline"),
    ];
    for (arguments, text) in errors {
        let (code, out, err) = redial(arguments);
        assert_eq!((code, out.as_str()), (Some(2), ""), "{arguments:?}");
        assert!(err.contains(text), "{err}");
    }
    let file = Temporary::new("{}");
    let (code, _, err) = redial(&["plan", file.path(), "--deadline", "1s"]);
    assert_eq!(code, Some(2));
    assert!(err.contains("--deadline is for presets"), "{err}");
}

#[test]
fn gallery_of_the_documentation_is_current() {
    /// Pictures of other generators: `clients/redial-aws/examples/shared_budget.rs`.
    const OTHERS: [&str; 1] = ["pictures/shared-budget.svg"];
    let files = redial_cli::simulate::gallery(&docs()).expect("the scenarios run");
    for (path, content) in &files {
        let stored = std::fs::read_to_string(docs().join(path)).unwrap_or_default();
        assert!(stored == *content, "{path} is old: run `redial simulate --gallery docs`");
    }
    for picture in std::fs::read_dir(docs().join("pictures")).expect("a folder") {
        let name = picture.expect("a file").file_name().into_string().expect("text");
        let path = format!("pictures/{name}");
        let is_known =
            files.iter().any(|(file, _)| *file == path) || OTHERS.contains(&path.as_str());
        assert!(is_known, "{path} is in no gallery: remove it");
    }
}

#[test]
fn gallery_plan_is_what_its_command_draws() {
    let page = std::fs::read_to_string(docs().join("gallery.md")).expect("a page");
    let line = page.lines().find(|line| line.starts_with("`redial plan ")).expect("a command");
    let command = line.split('`').nth(1).expect("between backquotes");
    let output = Command::new(env!("CARGO_BIN_EXE_redial"))
        .args(command.split(' ').skip(1))
        .args(["--svg", "-"])
        .current_dir(docs())
        .output()
        .expect("it runs");
    let stored = std::fs::read(docs().join("pictures/plan.svg")).expect("a picture");
    assert!(output.stdout == stored, "{command} draws another picture");
}

/// The folder of the documentation.
fn docs() -> std::path::PathBuf {
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs").into()
}
