//! Goal: `redial check` finds what is wrong with a file, where, and says what to write instead.
//! Method: the binary checks small files.

use std::process::{Command, Output};

use prost::Message;
use prost_types::method_options::IdempotencyLevel;
use prost_types::{
    FileDescriptorProto, FileDescriptorSet, MethodDescriptorProto, MethodOptions,
    ServiceDescriptorProto,
};
use serde_json::Value;

use crate::temporary::Temporary;

struct Checked {
    code: Option<i32>,
    out: String,
    err: String,
}

fn check(arguments: &[&str]) -> Checked {
    let output = Command::new(env!("CARGO_BIN_EXE_redial")).arg("check").args(arguments).output();
    let Output { status, stdout, stderr } = output.expect("it runs");
    let text = |bytes| String::from_utf8(bytes).expect("it is text");
    Checked { code: status.code(), out: text(stdout), err: text(stderr) }
}

/// Checks one text, with the name of its file replaced.
fn one(text: &str, options: &[&str]) -> Checked {
    let file = Temporary::new(text);
    let mut arguments = vec![file.path()];
    arguments.extend(options);
    let checked = check(&arguments);
    Checked { out: checked.out.replace(file.path(), "FILE"), ..checked }
}

/// The same with a name that ends in `.toml`.
fn one_toml(text: &str, options: &[&str]) -> Checked {
    let folder = tempfile::tempdir().expect("the temporary folder can be written");
    let path = folder.path().join("file.toml");
    std::fs::write(&path, text).expect("the folder can be written");
    let path = path.to_str().expect("it is text");
    let checked = check(&[&[path], options].concat());
    Checked { out: checked.out.replace(path, "FILE"), ..checked }
}

/// The rules that a text breaks, with severity, line and column.
fn rules(text: &str, options: &[&str]) -> Vec<(String, String, u64, u64)> {
    let mut all = vec!["--format", "json"];
    all.extend(options);
    rules_of(&one(text, &all))
}

fn rules_of(checked: &Checked) -> Vec<(String, String, u64, u64)> {
    let report: Value = serde_json::from_str(&checked.out).expect("it is JSON");
    let findings = report["files"][0]["findings"].as_array().cloned().unwrap_or_default();
    let of = |it: &Value, name: &str| it[name].as_str().unwrap_or_default().to_owned();
    let number = |it: &Value, name: &str| it[name].as_u64().unwrap_or_default();
    findings
        .iter()
        .map(|it| (of(it, "severity"), of(it, "rule"), number(it, "line"), number(it, "column")))
        .collect()
}

fn names(text: &str, options: &[&str]) -> Vec<String> {
    rules(text, options)
        .into_iter()
        .map(|(severity, rule, ..)| format!("{severity} {rule}"))
        .collect()
}

const RETRY: &str = r#""retryPolicy": { "maxAttempts": 4, "initialBackoff": "0.1s", "maxBackoff": "1s", "backoffMultiplier": 2, "retryableStatusCodes": ["UNAVAILABLE"] }"#;

fn config(entry: &str) -> String {
    format!(
        "{{ \"methodConfig\": [{{\n\"name\": [{{ \"service\": \"echo.Echo\" }}],\n{entry} }}],\n\"retryThrottling\": {{ \"maxTokens\": 10, \"tokenRatio\": 0.1 }} }}"
    )
}

/// A descriptor set: `Get` has no side effects, `Put` is idempotent, `Pay` says nothing.
fn proto() -> Temporary {
    let method = |name: &str, level: Option<IdempotencyLevel>| MethodDescriptorProto {
        name: Some(name.into()),
        options: level.map(|level| MethodOptions {
            idempotency_level: Some(level.into()),
            ..MethodOptions::default()
        }),
        ..MethodDescriptorProto::default()
    };
    let service = ServiceDescriptorProto {
        name: Some("Echo".into()),
        method: vec![
            method("Get", Some(IdempotencyLevel::NoSideEffects)),
            method("Put", Some(IdempotencyLevel::Idempotent)),
            method("Pay", None),
        ],
        ..ServiceDescriptorProto::default()
    };
    let file = FileDescriptorProto {
        package: Some("echo".into()),
        service: vec![service],
        ..FileDescriptorProto::default()
    };
    Temporary::new(FileDescriptorSet { file: vec![file] }.encode_to_vec())
}

#[test]
fn check_clean_config_prints_no_problem() {
    let checked = one(&config(RETRY), &[]);
    assert_eq!((checked.code, checked.out.as_str()), (Some(0), ""), "{}", checked.err);
    assert_eq!(checked.err, "1 file checked, no problem found\n");
}

#[test]
fn check_incident_lost_method_config_wrapper() {
    let text = format!("{{ \"name\": [{{ \"service\": \"echo.Echo\" }}],\n  {RETRY} }}");
    let checked = one(&text, &[]);
    assert_eq!(checked.code, Some(1));
    let first = checked.out.lines().next().unwrap_or_default();
    assert_eq!(
        first,
        "error[lost-wrapper]: this policy is never used: retryPolicy is at the top of the config, \
         where every gRPC client ignores it without a message"
    );
    assert!(checked.out.contains("help: wrap it in an entry of methodConfig: {\"methodConfig\": "));
    assert_eq!(rules(&text, &[]), [("error".into(), "lost-wrapper".into(), 2, 3)]);
    let mistyped = config(RETRY).replace("methodConfig", "methodConfigs");
    assert_eq!(names(&mistyped, &[])[0], "error lost-wrapper");
}

#[test]
fn check_incident_policy_that_no_client_reads() {
    let fields = RETRY.split_once('{').and_then(|(_, rest)| rest.rsplit_once('}'));
    let fields = fields.map_or("", |(fields, _)| fields);
    let all = config(RETRY);
    for (text, line, help) in [
        (format!("{{ {fields} }}"), 1, "\"retryPolicy\": {...}}]}"),
        (
            "{ \"hedgingDelay\": \"1s\", \"maxAttempts\": 3 }".to_owned(),
            1,
            "\"hedgingPolicy\": {...}}]}",
        ),
        (format!("{{ \"serviceConfig\": {all} }}"), 1, "write only what is in \"serviceConfig\""),
        (all.replace("retryPolicy", "retry_policy"), 3, "write \"retryPolicy\""),
        (config(fields), 3, "wrap the fields of the policy: \"retryPolicy\": {...}"),
    ] {
        let found = rules(&text, &[]);
        let [(severity, rule, at, _)] = &found[..] else { panic!("{text}: {found:?}") };
        assert_eq!((severity.as_str(), rule.as_str(), *at), ("error", "lost-wrapper", line));
        let printed = one(&text, &[]).out;
        assert!(printed.contains(help), "{printed}");
    }
    // Go compares names without their case.
    let printed = one(&all.replace("retryPolicy", "retrypolicy"), &[]).out;
    assert!(printed.contains("gRPC clients in other languages than Go ignore other names"));
}

#[test]
fn check_incident_duration_with_milliseconds() {
    let checked = one(&config(&RETRY.replace("0.1s", "100ms")), &[]);
    assert_eq!(checked.code, Some(1));
    assert!(checked.out.contains("expected a duration above 0 like \"0.1s\", found \"100ms\""));
    assert!(checked.out.contains("help: write \"0.1s\""), "{}", checked.out);
    assert!(checked.out.contains("FILE:3:54\n"), "{}", checked.out);
    assert!(checked.out.contains("^^^^^^^\n"), "the position is underlined: {}", checked.out);
}

#[test]
fn check_incident_misspelt_code() {
    let checked = one(&config(&RETRY.replace("UNAVAILABLE", "UNAVAILABEL")), &[]);
    assert_eq!(checked.code, Some(1));
    assert!(checked.out.contains("found \"UNAVAILABEL\""), "{}", checked.out);
    assert!(checked.out.contains("help: did you mean \"UNAVAILABLE\"?"), "{}", checked.out);
}

#[test]
fn check_incident_wrong_service_name() {
    let proto = proto();
    for (wrong, help) in [
        ("echo.Eco", "did you mean \"echo.Echo\"?"),
        ("Echo", "did you mean \"echo.Echo\"?"),
        ("other.Service", "its services are echo.Echo"),
    ] {
        let text = config(RETRY).replace("echo.Echo", wrong);
        let checked = one(&text, &["--proto", proto.path()]);
        assert_eq!(checked.code, Some(1));
        let sentence = format!("no service is called {wrong:?} in ");
        assert!(checked.out.contains(&sentence), "{}", checked.out);
        assert!(checked.out.contains(": this entry applies to no call, and no client says so"));
        assert!(checked.out.contains(&format!("help: {help}")), "{}", checked.out);
    }
    let method = config(RETRY).replace("\"echo.Echo\"", "\"echo.Echo\", \"method\": \"Gett\"");
    let checked = one(&method, &["--proto", proto.path()]);
    assert!(checked.out.contains("echo.Echo has no method \"Gett\""), "{}", checked.out);
    assert!(checked.out.contains("did you mean \"Get\"?"), "{}", checked.out);
}

#[test]
fn check_proto_compares_idempotency() {
    let proto = proto();
    let all = names(&config(RETRY), &["--proto", proto.path()]);
    assert_eq!(all, ["warning not-idempotent"]);
    let one_method = config(RETRY).replace("\"echo.Echo\"", "\"echo.Echo\", \"method\": \"Get\"");
    assert_eq!(names(&one_method, &["--proto", proto.path()]), ["warning not-retried"]);
    let checked = one(&one_method, &["--proto", proto.path(), "--strict"]);
    assert_eq!(checked.code, Some(1));
    assert!(
        checked.out.contains("echo.Echo/Put is idempotent, as its proto says, and is not retried")
    );
    let none = one("{}", &["--proto", proto.path()]);
    assert_eq!(none.code, Some(0));
    assert!(none.out.contains("echo.Echo/Get has no side effects"), "{}", none.out);
}

#[test]
fn check_for_languages_adds_their_rules() {
    let lower = config(&RETRY.replace("UNAVAILABLE", "unavailable"));
    assert_eq!(names(&lower, &[]), Vec::<String>::new());
    let go = names(&lower, &["--for", "go"]);
    assert_eq!(go, ["error go-code-not-upper-case"]);
    let node = names(&lower, &["--for", "node"]);
    assert_eq!(node, ["note node-retry-policy"]);
    let hedging = config(r#""hedgingPolicy": { "maxAttempts": 3 }"#);
    let found = names(&hedging, &["--for", "go,java,cpp"]);
    for expected in [
        "warning go-hedging-policy",
        "error java-hedging-without-delay",
        "warning cpp-hedging-policy",
    ] {
        assert!(found.iter().any(|it| it == expected), "{expected}: {found:?}");
    }
    let checked = one(&hedging, &["--for", "go"]);
    assert_eq!(checked.code, Some(0), "a warning is no failure");
    assert!(checked.out.contains("in Go: hedgingPolicy is ignored: calls make one attempt"));
    assert_eq!(one(&hedging, &["--for", "go", "--strict"]).code, Some(1));
    assert_eq!(one(&hedging, &["--for", "cobol"]).code, Some(2));
}

#[test]
fn check_policy_reports_every_problem() {
    let text = "{ \"attempts\": 0,\n \"backof\": {},\n \"deadline\": \"5\",\n \"backoff\": { \"exponential\": { \"first\": \"1s\", \"factor\": \"2\" } } }";
    let found = rules(text, &[]);
    let expected = [
        ("error", "policy", 1, 15),
        ("error", "unknown-field", 2, 2),
        ("error", "value", 3, 14),
        ("error", "value", 4, 57),
    ];
    let expected = expected
        .map(|(severity, rule, line, column)| (severity.to_owned(), rule.to_owned(), line, column));
    assert_eq!(found, expected);
    assert!(one(text, &[]).out.contains("did you mean \"backoff\"?"));
    let unlimited = r#"{ "attempts": "unlimited", "deadline": "5s" }"#;
    assert_eq!(names(unlimited, &[]), Vec::<String>::new(), "keys that need each other");
    assert_eq!(names(r#"{ "attempts": "unlimited" }"#, &[]), ["error policy"]);
    assert_eq!(names(r#"{ "attempts": 3, "attempts": 4 }"#, &[]), ["error duplicate-key"]);
}

#[test]
fn check_policy_with_a_vendor_preset_names_the_command() {
    let checked = one(r#"{ "preset": "aws-2026", "attempts": 5 }"#, &[]);
    assert_eq!(checked.code, Some(1));
    assert!(checked.out.contains("expected the name of a preset: \"limits\""), "{}", checked.out);
    assert!(checked.out.contains("`redial plan aws-2026` shows it"), "{}", checked.out);
    let checked = one(r#"{ "preset": "aws-2025" }"#, &[]);
    assert!(!checked.out.contains("redial plan"), "{}", checked.out);
}

#[test]
fn check_policy_warns_of_likely_mistakes() {
    for (text, rule) in [
        (r#"{ "attempts": 1 }"#, "nothing-retried"),
        (r#"{ "throttle": "none" }"#, "no-throttling"),
        (r#"{ "backoff": { "fibonacci": { "first": "2s", "cap": "1s" } } }"#, "backoff-clamped"),
        (
            r#"{ "attempts": 7, "throttle": { "budget": { "reserve": 5 } } }"#,
            "attempts-above-reserve",
        ),
        (
            r#"{ "attempts": "forever", "throttle": { "budget": { "reserve": 5 } } }"#,
            "attempts-above-reserve",
        ),
        (r#"{ "attempt_timeout": "0s" }"#, "zero-timeout"),
    ] {
        assert_eq!(names(text, &[]), [format!("warning {rule}")], "{text}");
    }
    for text in [
        r#"{ "attempt_timeout": "1s", "deadline": "5s" }"#,
        r#"{ "attempts": 6, "throttle": { "budget": { "reserve": 5 } } }"#,
        r#"{ "attempts": 7, "throttle": { "budget": { "reserve": 5, "per_second": 1 } } }"#,
    ] {
        assert_eq!(names(text, &[]), Vec::<String>::new(), "{text}");
    }
}

#[test]
fn check_toml_policy_has_positions() {
    let folder = tempfile::tempdir().expect("the temporary folder can be written");
    let path = folder.path().join("policy.toml");
    let found = |text: &str| {
        std::fs::write(&path, text).expect("the folder can be written");
        let report = check(&[path.to_str().expect("it is text"), "--json"]);
        let report: Value = serde_json::from_str(&report.out).expect("it is JSON");
        let finding = &report["files"][0]["findings"][0];
        (
            finding["rule"].as_str().map(str::to_owned),
            finding["line"].as_u64(),
            finding["column"].as_u64(),
        )
    };
    let value = found("attempts = 3\njitter = \"ful\"\n");
    assert_eq!(value, (Some("value".into()), Some(2), Some(10)));
    let inner =
        found("attempts = 3\nbackoff = { exponential = { first = \"100\", factor = 2 } }\n");
    assert_eq!(inner, (Some("value".into()), Some(2), Some(37)));
    let whole = found("attempts = 3\n[limits]\nsoft = \"5s\"\nhard = \"1s\"\n");
    assert_eq!(whole, (Some("policy".into()), Some(2), Some(1)));
    assert_eq!(found("attempts = ").0, Some("toml".into()));
    assert_eq!(found("throttle = \"none\"\n"), (Some("no-throttling".into()), Some(1), Some(1)));
    assert_eq!(found("attempts = 3\n").0, None);
}

#[test]
fn check_scenario_files_are_loaded() {
    let good = r#"{ "scenarios": [{ "name": "a", "policy": { "generic": {} },
        "calls": [{ "attempts": [{ "outcome": "ok" }] }] }] }"#;
    assert_eq!(one(good, &[]).code, Some(0));
    let bad = good.replace("\"outcome\"", "\"outcom\"");
    let found = rules(&bad, &[]);
    assert!(found.iter().all(|it| it.0 == "error" && it.1 == "scenario" && it.2 == 2), "{found:?}");
    assert!(!found.is_empty());
}

/// A simulation file with a mistake of each kind, in TOML. The same in JSON is below.
const SIMULATION: &str = r#"duration = 60
seed = -1
[clients]
calls_per_secnd = 100
[[services]]
name = "database"
time = { lognormal = { median = "8ms", sigma = -1 } }
[[disturbances]]
at = "20s"
for = "10s"
service = "databse"
effect = "stall"
[[policies]]
name = "default"
policy = { atempts = 3, jitter = "ful" }
"#;

#[test]
fn check_simulation_files_report_every_problem() {
    let error = |rule: &str, line, column| ("error".to_owned(), rule.to_owned(), line, column);
    let expected = [
        error("type", 1, 12),
        error("value", 2, 8),
        error("missing-field", 3, 1),
        error("unknown-field", 4, 1),
        error("value", 7, 8),
        error("value", 11, 11),
        error("unknown-field", 15, 12),
        error("value", 15, 34),
    ];
    assert_eq!(rules_of(&one_toml(SIMULATION, &["--json"])), expected);
    let checked = one_toml(SIMULATION, &[]);
    assert_eq!(checked.code, Some(1));
    let snippet = "error[value]: disturbances[0].service: no service is called \"databse\"\n  \
                   --> FILE:11:11\n   |\n11 | service = \"databse\"\n   |           ^^^^^^^^^\n   |\n   \
                   = help: did you mean \"database\"?\n";
    assert!(checked.out.contains(snippet), "{}", checked.out);
}

#[test]
fn check_simulation_in_json_has_positions() {
    let good = r#"{ "duration": "10s",
        "clients": { "calls_per_second": 5 },
        "services": [{ "name": "a", "time": "5ms" }],
        "policies": [{ "name": "p", "policy": {} }] }"#;
    let checked = one(good, &["--json"]);
    assert_eq!(checked.code, Some(0));
    let report: Value = serde_json::from_str(&checked.out).expect("it is JSON");
    assert_eq!(report["files"][0]["kind"], "simulation file");
    let bad = good.replace("\"time\"", "\"tiem\"").replace("\"policy\": {}", "\"policy\": 5");
    let found: Vec<_> = rules(&bad, &[]).into_iter().map(|it| (it.1, it.2, it.3)).collect();
    let expected = [
        ("missing-field".to_owned(), 3, 22),
        ("unknown-field".to_owned(), 3, 37),
        ("type".to_owned(), 4, 47),
    ];
    assert_eq!(found, expected);
}

#[test]
fn check_simulation_reads_the_files_it_names() {
    let folder = tempfile::tempdir().expect("the temporary folder can be written");
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("the folder can be written");
        path.to_str().expect("it is text").to_owned()
    };
    write("policy.toml", "attempts = 0\n");
    let fixed = SIMULATION
        .replace("policy = { atempts = 3, jitter = \"ful\" }", "policy_file = \"policy.toml\"");
    let path = write("simulation.toml", &fixed);
    let checked = check(&[&path]);
    let text = "policies[0].policy_file: policy.toml:1:12: attempts: 0 would never try";
    assert!(checked.out.contains(text), "{}", checked.out);
}

#[test]
fn check_ready_made_simulations_have_no_problem() {
    for scenario in redial_sim::scenarios::ALL {
        let checked = one_toml(scenario.text, &["--strict"]);
        assert_eq!((checked.code, checked.out.as_str()), (Some(0), ""), "{}", scenario.name);
    }
}

#[test]
fn check_simulation_with_a_syntax_error_is_recognised() {
    let report = one_toml(&SIMULATION.replace("seed = -1", "seed = "), &["--json"]);
    let report: Value = serde_json::from_str(&report.out).expect("it is JSON");
    let file = &report["files"][0];
    assert_eq!(
        (&file["kind"], &file["findings"][0]["rule"]),
        (&"simulation file".into(), &"toml".into())
    );
    assert_eq!(file["findings"][0]["line"], 2);
}

#[test]
fn check_invalid_json_is_a_problem_of_the_content() {
    let checked = one("{ \"methodConfig\": [,] }", &[]);
    assert_eq!(checked.code, Some(1));
    assert!(checked.out.starts_with("error[json]: "), "{}", checked.out);
    let file = Temporary::new([0xff, 0xfe, b'{']);
    assert_eq!(check(&[file.path()]).code, Some(1));
    assert_eq!(one("", &[]).code, Some(1));
}

#[test]
fn check_unreadable_file_or_usage_is_2() {
    let checked = check(&["/no/such/file.json"]);
    assert_eq!((checked.code, checked.out.as_str()), (Some(2), ""));
    assert!(checked.err.contains("/no/such/file.json: cannot be read: "), "{}", checked.err);
    assert_eq!(check(&[]).code, Some(2));
    assert_eq!(one("{}", &["--proto", "/no/such/file"]).code, Some(2));
    let not_proto = Temporary::new("not a descriptor set");
    let checked = one("{}", &["--proto", not_proto.path()]);
    assert_eq!(checked.code, Some(2));
    assert!(checked.err.contains("not a descriptor set"), "{}", checked.err);
    let no_services = Temporary::new("");
    let checked = one("{}", &["--proto", no_services.path()]);
    assert_eq!(checked.code, Some(2));
    assert!(checked.err.contains("it has no services"), "{}", checked.err);
    // A problem in another file is still reported.
    let bad = Temporary::new("[");
    let both = check(&["/no/such/file.json", bad.path()]);
    assert_eq!(both.code, Some(2));
    assert!(both.out.contains("error[json]"), "{}", both.out);
}

#[test]
fn check_allow_leaves_warnings_out_and_errors_in() {
    let text = config(RETRY).replace("retryThrottling", "comment");
    let strict = |options: &[&str]| one(&text, &[&["--strict"], options].concat()).code;
    assert_eq!(names(&text, &[]), ["warning no-throttling", "warning unknown-field"]);
    assert_eq!(strict(&["--allow", "no-throttling"]), Some(1));
    assert_eq!(strict(&["--allow", "no-throttling,unknown-field"]), Some(0));
    assert_eq!(names("[", &["--allow", "json"]), ["error json"]);
    let checked = one(&text, &["--allow", "no-throtling"]);
    assert_eq!(checked.code, Some(2));
    assert!(checked.err.contains("did you mean no-throttling?"), "{}", checked.err);
}

#[test]
fn check_exit_code_stays_if_the_reader_is_gone() {
    let many = format!("{{ \"methodConfig\": [{}1] }}", "1,".repeat(900));
    for text in ["[", &many] {
        let file = Temporary::new(text);
        let script = "exec 3>&1; { \"$0\" check \"$1\" 2>/dev/null; echo $? >&3; } | true";
        let ran = Command::new("sh")
            .args(["-c", script, env!("CARGO_BIN_EXE_redial"), file.path()])
            .output()
            .expect("it runs");
        assert_eq!(String::from_utf8_lossy(&ran.stdout), "1\n", "{ran:?}");
    }
    // Neither stream can be written: no panic.
    let file = Temporary::new("[");
    let full = || std::fs::OpenOptions::new().write(true).open("/dev/full");
    if let (Ok(out), Ok(err)) = (full(), full()) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_redial"));
        let status = command.args(["check", file.path()]).stdout(out).stderr(err).status();
        assert_eq!(status.expect("it runs").code(), Some(2));
    }
}

#[test]
fn check_shows_lines_of_files_from_windows() {
    let text = config(&RETRY.replace("0.1s", "100ms")).replace('\n', "\r\n");
    let printed = one(&text, &[]).out;
    assert!(printed.contains("FILE:3:54\n") && printed.contains("^^^^^^^\n"), "{printed}");
    assert!(!printed.contains(['\r', '\u{240d}']), "{printed}");
}

#[test]
fn check_sarif_has_positions_and_rules() {
    let report: Value = serde_json::from_str(
        &one(&config(&RETRY.replace("0.1s", "100ms")), &["--format", "sarif"]).out,
    )
    .expect("it is JSON");
    assert_eq!(report["version"], "2.1.0");
    let run = &report["runs"][0];
    let result = &run["results"][0];
    assert_eq!((&result["ruleId"], &result["level"]), (&"backoff".into(), &"error".into()));
    let region = &result["locations"][0]["physicalLocation"]["region"];
    assert_eq!((&region["startLine"], &region["startColumn"]), (&3.into(), &54.into()));
    assert_eq!((&region["endLine"], &region["endColumn"]), (&3.into(), &61.into()));
    let rule = &run["tool"]["driver"]["rules"][0];
    assert_eq!(rule["id"], "backoff");
    let text = "initialBackoff and maxBackoff are durations above 0";
    assert_eq!(rule["shortDescription"]["text"], text);
    assert_eq!(run["columnKind"], "unicodeCodePoints");
}

#[test]
fn check_colors_only_on_request_without_a_terminal() {
    let file = Temporary::new("[");
    let run = |variables: &[(&str, &str)]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_redial"));
        command.args(["check", file.path()]).env_remove("NO_COLOR").env_remove("CLICOLOR_FORCE");
        let output = command.envs(variables.iter().copied()).output().expect("it runs");
        output.stdout.contains(&0x1b)
    };
    assert!(!run(&[]));
    assert!(run(&[("CLICOLOR_FORCE", "1")]));
    assert!(!run(&[("NO_COLOR", "1")]));
}

#[test]
fn check_lists_a_thousand_findings_in_linear_time() {
    let policy = |count: usize| {
        let keys: Vec<String> = (0..count).map(|it| format!("\"k{it}\": 1")).collect();
        format!("{{\"attempts\": 3, {}}}", keys.join(", "))
    };
    assert_eq!(rules(&policy(1000), &[]).len(), 1000, "as many as are listed");
    let begin = std::time::Instant::now();
    let text = policy(20_000);
    for options in [&["--format", "json"][..], &["--format", "sarif"], &[]] {
        let checked = one(&text, options);
        assert_eq!(checked.code, Some(1));
        assert!(checked.out.contains("and 19000 more errors"), "{:.400}", checked.out);
    }
    let found = rules(&text, &[]);
    assert_eq!(found.len(), 1001, "one says how many more there are");
    let entry = r#"{"name":[{}],"retryPolicy":{"maxAttempts":"3"}}"#;
    let many = format!(r#"{{"methodConfig":[{}]}}"#, vec![entry; 900].join(","));
    let found = rules(&many, &[]);
    let limits = found.iter().filter(|(_, rule, ..)| rule == "limit").count();
    assert_eq!((found.len(), limits), (1001, 1), "the parser has counted them already");
    // Quadratic, it was minutes.
    assert!(begin.elapsed() < std::time::Duration::from_secs(30), "{:?}", begin.elapsed());
}

#[test]
fn check_toml_policy_reports_every_problem() {
    let text = "atempts = 3\njitter = \"ful\"\ndeadline = \"5 ms later\"\n";
    let checked = one_toml(text, &["--json"]);
    let lines: Vec<_> =
        rules_of(&checked).into_iter().map(|(_, rule, line, _)| (rule, line)).collect();
    let value = |line| ("value".to_owned(), line);
    assert_eq!(lines, [("unknown-field".to_owned(), 1), value(2), value(3)]);
    assert!(checked.out.contains("did you mean \\\"attempts\\\"?"), "{}", checked.out);
}

#[test]
fn check_policy_is_recognised_by_each_of_its_keys() {
    for text in [r#"{"reset_after": "1m"}"#, r#"{"deadline": "1m"}"#] {
        let report: Value = serde_json::from_str(&one(text, &["--json"]).out).expect("it is JSON");
        assert_eq!(report["files"][0]["kind"], "policy", "{text}");
    }
}

#[test]
fn check_reads_standard_input() {
    let folder = tempfile::tempdir().expect("the temporary folder can be written");
    let path = folder.path().join("input");
    std::fs::write(&path, "atempts = 3\n").expect("the folder can be written");
    let mut command = Command::new(env!("CARGO_BIN_EXE_redial"));
    let input = std::fs::File::open(&path).expect("it can be read");
    let output = command.args(["check", "-"]).stdin(input).output().expect("it runs");
    let out = String::from_utf8(output.stdout).expect("it is text");
    assert_eq!(output.status.code(), Some(1), "{out}");
    assert!(out.contains(" --> -:1:1\n") && out.contains("did you mean"), "{out}");
}
