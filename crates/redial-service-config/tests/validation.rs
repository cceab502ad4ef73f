//! Validation: the cases of the shared file, and the rules that the decisions add. For each text the paths
//! and rules of its problems, and the policies of its methods, are compared.

use std::collections::BTreeSet;

use redial_service_config::{MethodPolicy, ServiceConfig};
use serde_json::{Value, json};

/// The problems of a text as pairs of path and rule.
fn problems(text: &str) -> BTreeSet<(String, String)> {
    match ServiceConfig::parse(text) {
        Ok(_) => BTreeSet::new(),
        Err(problems) => {
            let pair = |problem: &redial_service_config::Problem| {
                (problem.path.clone(), problem.rule.name().to_owned())
            };
            let set: BTreeSet<_> = problems.iter().map(pair).collect();
            assert_eq!(set.len(), problems.iter().len(), "one is reported twice:\n{problems}");
            assert!(!set.is_empty(), "rejected without a problem");
            set
        }
    }
}

fn pairs(list: &[(&str, &str)]) -> BTreeSet<(String, String)> {
    list.iter().map(|(path, rule)| ((*path).to_owned(), (*rule).to_owned())).collect()
}

/// The policy of a method, in the format of the shared file.
fn gets(config: &ServiceConfig, path: &str) -> Value {
    let ms = |span: std::time::Duration| json!(span.as_secs_f64() * 1000.0);
    let policy = config.method(path).and_then(|method| method.policy);
    let codes = |codes: redial_service_config::Codes| -> Vec<&str> {
        codes.iter().map(redial_service_config::Code::name).collect()
    };
    match policy {
        None => Value::Null,
        Some(MethodPolicy::Retry(retry)) => json!({ "retry": {
            "attempts": retry.max_attempts,
            "first": ms(retry.initial_backoff),
            "cap": ms(retry.max_backoff),
            "factor": retry.backoff_multiplier,
            "codes": codes(retry.retryable_status_codes),
        } }),
        Some(MethodPolicy::Hedging(hedging)) => json!({ "hedge": {
            "attempts": hedging.max_attempts,
            "delay": ms(hedging.hedging_delay),
            "codes": codes(hedging.non_fatal_status_codes),
        } }),
    }
}

/// Numbers as floats, so that 1 and 1.0 are the same.
fn plain(value: &Value) -> Value {
    match value {
        Value::Number(number) => json!(number.as_f64()),
        Value::Array(list) => list.iter().map(plain).collect(),
        Value::Object(map) => {
            map.iter().map(|(name, value)| (name.clone(), plain(value))).collect()
        }
        other => other.clone(),
    }
}

#[test]
fn validation_agrees_with_shared_cases() {
    let file = include_str!("../../../scenarios/grpc-config.json");
    let file: Value = serde_json::from_str(file).expect("it is JSON");
    let cases = file["configs"].as_array().expect("it has cases");
    assert!(cases.len() > 50, "only {} cases", cases.len());
    for case in cases {
        let (name, text) = (&case["name"], case["text"].as_str().expect("it has a text"));
        let expected: BTreeSet<_> = case["problems"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|problem| {
                let part = |part: &str| problem[part].as_str().expect("a string").to_owned();
                (part("path"), part("rule"))
            })
            .collect();
        assert_eq!(problems(text), expected, "{name}");
        assert_eq!(case["valid"].as_bool(), Some(expected.is_empty()), "{name}");
        for (path, expected) in case["lookup"].as_object().into_iter().flatten() {
            let config = ServiceConfig::parse(text).expect("it is valid");
            assert_eq!(plain(&gets(&config, path)), plain(expected), "{name} {path}");
        }
    }
}

const RETRY: &str = r#"{"maxAttempts": 4, "initialBackoff": "0.1s", "maxBackoff": "1s", "backoffMultiplier": 2, "retryableStatusCodes": [14]}"#;

/// A config with one entry, whose retry policy has this field.
fn retry_with(name: &str, value: &str) -> String {
    let mut policy: Vec<(String, String)> = [
        ("maxAttempts", "4"),
        ("initialBackoff", "\"0.1s\""),
        ("maxBackoff", "\"1s\""),
        ("backoffMultiplier", "2"),
        ("retryableStatusCodes", "[14]"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .to_vec();
    policy.retain(|(known, _)| known != name);
    policy.push((name.to_owned(), value.to_owned()));
    let fields: Vec<_> =
        policy.iter().map(|(name, value)| format!("\"{name}\": {value}")).collect();
    format!(
        "{{\"methodConfig\": [{{\"name\": [{{}}], \"retryPolicy\": {{{}}}}}]}}",
        fields.join(", ")
    )
}

fn hedging_with(fields: &str) -> String {
    format!("{{\"methodConfig\": [{{\"name\": [{{}}], \"hedgingPolicy\": {{{fields}}}}}]}}")
}

fn entry_with(fields: &str) -> String {
    format!("{{\"methodConfig\": [{{\"name\": [{{}}], {fields}}}]}}")
}

/// G32: right types, and null is absent.
#[test]
fn validation_null_counts_as_absent_except_in_lists() {
    for valid in [
        r#"{"methodConfig": null, "retryThrottling": null, "loadBalancingPolicy": null}"#,
        r#"{"methodConfig": [{"name": null}]}"#,
        r#"{"methodConfig": [{"name": [{"service": null, "method": null}], "timeout": null, "waitForReady": null, "maxRequestMessageBytes": null, "maxResponseMessageBytes": null, "retryPolicy": null, "hedgingPolicy": null}]}"#,
        r#"{"methodConfig": [{"name": [{}], "hedgingPolicy": {"maxAttempts": 2, "hedgingDelay": null, "nonFatalStatusCodes": null}}]}"#,
    ] {
        assert_eq!(problems(valid), pairs(&[]), "{valid}");
    }
    let both = entry_with(&format!("\"retryPolicy\": {RETRY}, \"hedgingPolicy\": null"));
    assert_eq!(problems(&both), pairs(&[]));
    for (text, path) in [
        (r#"{"methodConfig": [null]}"#, "methodConfig[0]"),
        (r#"{"methodConfig": [{"name": [null]}]}"#, "methodConfig[0].name[0]"),
        (r#"null"#, ""),
    ] {
        assert_eq!(problems(text), pairs(&[(path, "type")]), "{text}");
    }
    for (name, rule) in [
        ("maxAttempts", "max-attempts"),
        ("initialBackoff", "backoff"),
        ("maxBackoff", "backoff"),
        ("backoffMultiplier", "multiplier"),
        ("retryableStatusCodes", "codes"),
    ] {
        let path = format!("methodConfig[0].retryPolicy.{name}");
        assert_eq!(problems(&retry_with(name, "null")), pairs(&[(&path, rule)]), "{name}");
    }
    let throttling = r#"{"retryThrottling": {"maxTokens": null, "tokenRatio": null}}"#;
    let expected = [
        ("retryThrottling.maxTokens", "max-tokens"),
        ("retryThrottling.tokenRatio", "token-ratio"),
    ];
    assert_eq!(problems(throttling), pairs(&expected));
}

/// G32: `type` at the value.
#[test]
fn validation_reports_wrong_type_at_its_path() {
    for (text, path) in [
        ("5", ""),
        ("\"{}\"", ""),
        (r#"{"methodConfig": "x"}"#, "methodConfig"),
        (r#"{"methodConfig": [5]}"#, "methodConfig[0]"),
        (r#"{"methodConfig": [{}, []]}"#, "methodConfig[1]"),
        (r#"{"methodConfig": [{"name": {}}]}"#, "methodConfig[0].name"),
        (r#"{"methodConfig": [{"name": [{}, "a.B"]}]}"#, "methodConfig[0].name[1]"),
        (r#"{"methodConfig": [{"name": [{"service": 5}]}]}"#, "methodConfig[0].name[0].service"),
        (
            r#"{"methodConfig": [{"name": [{"service": "a", "method": []}]}]}"#,
            "methodConfig[0].name[0].method",
        ),
        (&entry_with("\"retryPolicy\": []"), "methodConfig[0].retryPolicy"),
        (&entry_with("\"hedgingPolicy\": true"), "methodConfig[0].hedgingPolicy"),
        (&entry_with("\"waitForReady\": 1"), "methodConfig[0].waitForReady"),
        (r#"{"retryThrottling": 5}"#, "retryThrottling"),
        (r#"{"loadBalancingPolicy": ["round_robin"]}"#, "loadBalancingPolicy"),
    ] {
        assert_eq!(problems(text), pairs(&[(path, "type")]), "{text}");
    }
}

/// G32, G41: the two message sizes.
#[test]
fn validation_message_sizes_are_whole_numbers_or_strings() {
    for name in ["maxRequestMessageBytes", "maxResponseMessageBytes"] {
        let size = |value: &str| {
            let config = ServiceConfig::parse(&entry_with(&format!("\"{name}\": {value}"))).ok()?;
            let entry = &config.entries()[0];
            let sizes = (entry.max_request_message_bytes, entry.max_response_message_bytes);
            if name == "maxRequestMessageBytes" { sizes.0 } else { sizes.1 }
        };
        for (value, bytes) in [
            ("0", 0),
            ("14.0", 14),
            ("1e3", 1000),
            ("4294967295", u32::MAX),
            ("\"0\"", 0),
            ("\"4096\"", 4096),
            ("\"4294967295\"", u32::MAX),
        ] {
            assert_eq!(size(value), Some(bytes), "{value}");
        }
        let path = format!("methodConfig[0].{name}");
        for value in [
            "-1",
            "1.5",
            "4294967296",
            "1e300",
            "\"4294967296\"",
            "\"-1\"",
            "\"\"",
            "\" 5\"",
            "\"+5\"",
            "\"05\"",
            "\"1.5\"",
            "\"0x10\"",
            "\"many\"",
            "true",
            "[]",
            "{}",
        ] {
            let text = entry_with(&format!("\"{name}\": {value}"));
            assert_eq!(problems(&text), pairs(&[(&path, "type")]), "{value}");
        }
    }
}

/// G33: `maxAttempts`.
#[test]
fn validation_max_attempts_accepts_whole_numbers_above_one() {
    for (value, attempts) in [
        ("2", 2),
        ("14.0", 14),
        ("0.2e1", 2),
        ("4294967295", u32::MAX),
        ("4294967296", u32::MAX),
        ("1e300", u32::MAX),
    ] {
        let config = ServiceConfig::parse(&retry_with("maxAttempts", value)).expect(value);
        let policy = config.entries()[0].policy.expect("it has one");
        assert_eq!(policy.max_attempts(), attempts, "{value}");
    }
    let long = "1.00000000000000000000000000000000000000001";
    for value in ["1", "1.0", "0", "-0", "-2", "2.5", long, "\"4\"", "true", "[4]", "{}"] {
        let path = "methodConfig[0].retryPolicy.maxAttempts";
        let expected = pairs(&[(path, "max-attempts")]);
        assert_eq!(problems(&retry_with("maxAttempts", value)), expected, "{value}");
        let hedging = hedging_with(&format!("\"maxAttempts\": {value}"));
        let path = "methodConfig[0].hedgingPolicy.maxAttempts";
        assert_eq!(problems(&hedging), pairs(&[(path, "max-attempts")]), "{value}");
    }
}

/// G33: `backoffMultiplier`.
#[test]
fn validation_multiplier_accepts_any_positive_number() {
    for (value, factor) in [
        ("2", 2.0),
        ("0.1", 0.1),
        ("1e-400", f64::MIN_POSITIVE),
        ("1e400", f64::MAX),
        ("1.5e0", 1.5),
    ] {
        let config = ServiceConfig::parse(&retry_with("backoffMultiplier", value)).expect(value);
        let Some(MethodPolicy::Retry(retry)) = config.entries()[0].policy else {
            panic!("{value}")
        };
        assert_eq!(retry.backoff_multiplier, factor, "{value}");
    }
    for value in ["0", "0.0", "-0", "-1", "-1e-400", "0e5", "\"2\"", "true", "[2]", "{}"] {
        let expected = pairs(&[("methodConfig[0].retryPolicy.backoffMultiplier", "multiplier")]);
        assert_eq!(problems(&retry_with("backoffMultiplier", value)), expected, "{value}");
    }
}

/// G33: codes; G37: a status listed twice counts once, OK may be listed.
#[test]
fn validation_codes_accept_names_and_numbers() {
    let codes = |value: &str| {
        let config = ServiceConfig::parse(&retry_with("retryableStatusCodes", value)).ok()?;
        Some(config.entries()[0].policy?.codes().to_string())
    };
    assert_eq!(
        codes("[14, \"unavailable\", \"Unavailable\", 14.0]").as_deref(),
        Some("UNAVAILABLE")
    );
    assert_eq!(codes("[\"OK\", 0, 16, 1.6e1]").as_deref(), Some("OK, UNAUTHENTICATED"));
    assert_eq!(codes("[1, 2, 3]").as_deref(), Some("CANCELLED, UNKNOWN, INVALID_ARGUMENT"));
    for value in [
        "17",
        "-1",
        "14.5",
        "1e300",
        "\"\"",
        "\"14\"",
        "\" UNAVAILABLE\"",
        "\"CANCELED\"",
        "true",
        "[]",
        "{}",
        "null",
    ] {
        let path = "methodConfig[0].retryPolicy.retryableStatusCodes[1]";
        let text = retry_with("retryableStatusCodes", &format!("[8, {value}]"));
        assert_eq!(problems(&text), pairs(&[(path, "code")]), "{value}");
        let path = "methodConfig[0].hedgingPolicy.nonFatalStatusCodes[0]";
        let text = hedging_with(&format!("\"maxAttempts\": 2, \"nonFatalStatusCodes\": [{value}]"));
        assert_eq!(problems(&text), pairs(&[(path, "code")]), "{value}");
    }
    for value in ["14", "\"UNAVAILABLE\"", "{}", "true"] {
        let path = "methodConfig[0].hedgingPolicy.nonFatalStatusCodes";
        let text = hedging_with(&format!("\"maxAttempts\": 2, \"nonFatalStatusCodes\": {value}"));
        assert_eq!(problems(&text), pairs(&[(path, "codes")]), "{value}");
    }
}

/// G33, G34: durations, each under the rule of its field.
#[test]
fn validation_reports_each_duration_under_its_rule() {
    for bad in ["\"1\"", "1", "\"-1s\"", "\"1m\"", "[]", "{}", "true", "\"315576000001s\""] {
        for name in ["initialBackoff", "maxBackoff"] {
            let path = format!("methodConfig[0].retryPolicy.{name}");
            assert_eq!(problems(&retry_with(name, bad)), pairs(&[(&path, "backoff")]), "{bad}");
        }
        let text = hedging_with(&format!("\"maxAttempts\": 2, \"hedgingDelay\": {bad}"));
        let path = "methodConfig[0].hedgingPolicy.hedgingDelay";
        assert_eq!(problems(&text), pairs(&[(path, "hedging-delay")]), "{bad}");
        let text = entry_with(&format!("\"timeout\": {bad}"));
        assert_eq!(problems(&text), pairs(&[("methodConfig[0].timeout", "timeout")]), "{bad}");
    }
    assert_eq!(problems(&entry_with("\"timeout\": \"0s\"")), pairs(&[]));
    assert_eq!(problems(&entry_with("\"timeout\": \"-0s\"")), pairs(&[]));
}

/// G35: names; both policies.
#[test]
fn validation_rejects_duplicate_method_names() {
    let text = r#"{"methodConfig": [
        {"name": [{}, {"service": "a.B"}, {"service": "a.B", "method": "C"}]},
        {"name": [{"service": "", "method": ""}, {"service": "a.B", "method": ""}, {"service": "x.Y", "method": "C"}]},
        {"name": [{"service": "a.B", "method": "C"}, {"service": "a.B", "method": "C"}, {"method": "C"}, {"service": null, "method": "C"}]}]}"#;
    let expected = [
        ("methodConfig[1].name[0]", "duplicate-name"),
        ("methodConfig[1].name[1]", "duplicate-name"),
        ("methodConfig[2].name[0]", "duplicate-name"),
        ("methodConfig[2].name[1]", "duplicate-name"),
        ("methodConfig[2].name[2]", "name"),
        ("methodConfig[2].name[3]", "name"),
    ];
    assert_eq!(problems(text), pairs(&expected));
}

#[test]
fn validation_checks_both_policies_of_an_entry() {
    let text = entry_with("\"retryPolicy\": {}, \"hedgingPolicy\": {\"maxAttempts\": 1}");
    let retry = |name: &str| format!("methodConfig[0].retryPolicy.{name}");
    let expected = [
        ("methodConfig[0]", "both-policies"),
        (&retry("maxAttempts"), "max-attempts"),
        (&retry("initialBackoff"), "backoff"),
        (&retry("maxBackoff"), "backoff"),
        (&retry("backoffMultiplier"), "multiplier"),
        (&retry("retryableStatusCodes"), "codes"),
        ("methodConfig[0].hedgingPolicy.maxAttempts", "max-attempts"),
    ];
    assert_eq!(problems(&text), pairs(&expected));
}

/// G36: tokens, and truncation of further decimals.
#[test]
fn validation_tokens_and_ratio_are_exact_decimals() {
    let read = |max: &str, ratio: &str| {
        let text =
            format!("{{\"retryThrottling\": {{\"maxTokens\": {max}, \"tokenRatio\": {ratio}}}}}");
        let throttling = ServiceConfig::parse(&text).map(|config| config.retry_throttling());
        (throttling.ok().flatten().map(|it| (it.max_tokens(), it.token_ratio())), problems(&text))
    };
    for (max, ratio, expected) in [
        ("10", "0.1", (10, 100)),
        ("10.0", "0.5466", (10, 546)),
        ("1e3", "0.001", (1000, 1)),
        ("1", "0.0019999999999999999999", (1, 1)),
        ("1000", "1.0005", (1000, 1000)),
        ("7", "0.29", (7, 290)),
        ("7", "5", (7, 5000)),
        ("7", "1e300", (7, u32::MAX)),
        ("7", "100e-3", (7, 100)),
    ] {
        assert_eq!(read(max, ratio).0, Some(expected), "{max} {ratio}");
    }
    for max in ["0", "-1", "1001", "1000.5", "10.5", "1e300", "\"10\"", "true", "[]", "{}"] {
        let expected = pairs(&[("retryThrottling.maxTokens", "max-tokens")]);
        assert_eq!(read(max, "0.1").1, expected, "{max}");
    }
    for ratio in ["0", "-0.1", "0.0009", "1e-4", "1e-400", "\"0.1\"", "true", "[]", "{}"] {
        let expected = pairs(&[("retryThrottling.tokenRatio", "token-ratio")]);
        assert_eq!(read("10", ratio).1, expected, "{ratio}");
    }
}

/// G32: strict JSON, one problem at "".
#[test]
fn validation_invalid_json_is_one_problem() {
    for text in [
        "",
        " ",
        "\n",
        "{",
        "}",
        "[",
        "{]",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\": 1,}",
        "[1,]",
        "[,1]",
        "[1 2]",
        "{\"a\": 1 \"b\": 2}",
        "{a: 1}",
        "{'a': 1}",
        "{\"a\": 'b'}",
        "// c\n{}",
        "{} // c",
        "{/* c */}",
        "/* c",
        "{} {}",
        "{},",
        "{}]",
        "nul",
        "True",
        "NaN",
        "Infinity",
        "-Infinity",
        "-",
        "+1",
        "01",
        "-01",
        "1.",
        ".5",
        "1.e5",
        "1e",
        "1e+",
        "0x10",
        "1_000",
        "\"",
        "\"\\\"",
        "\"\\x41\"",
        "\"\\v\"",
        "\"\\'\"",
        "\"\\u12\"",
        "\"\\u12G4\"",
        "\"\\ud800\"",
        "\"\\ud800\\n\"",
        "\"\\ud800\\u0041\"",
        "\"\\udc00\"",
        "\"a\tb\"",
        "\"\u{1f}\"",
        "\"a\nb\"",
        "\"\u{0}\"",
        "\"\\\n\"",
        "\u{feff}{}",
        "{}\u{feff}",
        "{}\u{a0}",
        "\u{2028}{}",
        "{}\u{b}",
        "\u{c}{}",
        "{\u{0}}",
        "{\"a\":\u{3000}1}",
        "\u{1}",
        "ü",
        "{\"a\": ü}",
        "\\u007b}",
    ] {
        assert_eq!(problems(text), pairs(&[("", "json")]), "{text:?}");
    }
}

#[test]
fn validation_reads_every_string_escape() {
    let text = "\t\r\n {\"methodConfig\": [{\"name\": [{\"service\": \
        \"\\u0061\\ud83d\\ude00\\/\\b\\f\\n\\r\\t\\\\\\\"\u{7f}\u{2028}ü😀\"}]}]} \n";
    let config = ServiceConfig::parse(text).expect("it is JSON");
    let service = config.entries()[0].names[0].service.as_deref();
    assert_eq!(service, Some("a😀/\u{8}\u{c}\n\r\t\\\"\u{7f}\u{2028}ü😀"));
}

/// G32: duplicate keys at every depth.
#[test]
fn validation_finds_duplicate_keys_at_every_depth() {
    let text = r#"{"methodConfig": [{"name": [], "n\u0061me": []}], "other": {"x": [{"a": 1, "b": 2, "a": 3, "a": 4}]}}"#;
    let Err(found) = ServiceConfig::parse(text) else { panic!("it is refused") };
    let found: Vec<_> = found.iter().map(|it| (it.path.as_str(), it.rule.name())).collect();
    let key = "duplicate-key";
    let expected = [("methodConfig[0].name", key), ("other.x[0].a", key), ("other.x[0].a", key)];
    assert_eq!(found, expected);
}
