//! Positions and messages of problems: line, column and byte range are exact, also in texts with several
//! lines and with multi-byte characters. An `@` marks the expected positions.

use redial_service_config::{Problem, ServiceConfig};

/// The problems of a text; each must be at one of its marks, in order.
fn at_marks(marked: &str) -> Vec<Problem> {
    let text = marked.replace('@', "");
    let marks: Vec<_> =
        marked.match_indices('@').enumerate().map(|(index, (at, _))| at - index).collect();
    let Err(problems) = ServiceConfig::parse(&text) else { panic!("{text} is valid") };
    let problems: Vec<_> = problems.into_iter().collect();
    let starts: Vec<_> = problems.iter().map(|problem| problem.range.start).collect();
    assert_eq!(starts, marks, "{text}\n{problems:#?}");
    for problem in &problems {
        let before = &text[..problem.range.start];
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        assert_eq!((problem.line, problem.column), (line, column), "{problem}");
        assert!(text.get(problem.range.clone()).is_some(), "{problem:?}");
    }
    problems
}

#[test]
fn diagnostics_count_lines_and_columns_in_characters() {
    let problems = at_marks(
        "{ \"größe\": \"😀\",\r\n  \"methodConfig\": [\n    { \"name\": [{\"service\": \"ä.Ö\", \"méthode\": \"\"}], \"timeout\": @\"5 µs\" },\n\n    @7 ] }",
    );
    let places: Vec<_> = problems.iter().map(|it| (it.line, it.column)).collect();
    assert_eq!(places, [(3, 63), (5, 5)]);
}

#[test]
fn diagnostics_range_covers_the_value() {
    let text = "{\"methodConfig\": [{\"name\": [{}, {\"method\": \"ü\"}], \"timeout\": \"5m\"}]}";
    let problems = ServiceConfig::parse(text).unwrap_err();
    let parts: Vec<_> = problems.iter().map(|problem| &text[problem.range.clone()]).collect();
    assert_eq!(parts, ["{\"method\": \"ü\"}", "\"5m\""]);
}

#[test]
fn diagnostics_point_at_object_for_missing_field() {
    at_marks(r#"{"retryThrottling": {"maxTokens": @null, "tokenRatio": 1}}"#);
    let problems = at_marks(r#"{"retryThrottling": @{"tokenRatio": 1}}"#);
    assert_eq!(problems[0].path, "retryThrottling.maxTokens");
}

#[test]
fn diagnostics_point_at_second_duplicate_key() {
    at_marks(r#"{"a": {"b": 1, @"b": 2}, "c": [], @"a": 5, @"a": 6}"#);
}

#[test]
fn diagnostics_point_at_entry_for_both_policies() {
    let policy = r#"{"maxAttempts": 2, "initialBackoff": "1s", "maxBackoff": "1s", "backoffMultiplier": 1, "retryableStatusCodes": [14]}"#;
    at_marks(&format!(
        "{{\"methodConfig\": [{{\"name\": [{{}}]}}, @{{\"retryPolicy\": {policy}, \"hedgingPolicy\": {{\"maxAttempts\": 2}}}}]}}"
    ));
    at_marks(
        r#"{"methodConfig": [{"name": [{"service": "a"}, @{"service": "a"}]}, {"name": [@{"method": "M"}]}]}"#,
    );
}

#[test]
fn diagnostics_point_at_json_syntax_error() {
    at_marks("@");
    at_marks("{\"a\": 1@,}");
    at_marks("{\"a\": @'b'}");
    at_marks("{} @{}");
    at_marks("{ @// why\n}");
    at_marks("{\"ü\": \"@\t\"}");
    at_marks("{\"ü\": @\u{a0}1}");
    at_marks("@\u{feff}{}");
    at_marks("@{\"a\": [1, 2]");
    let problems = at_marks("{\n  @methodConfig: []\n}");
    assert_eq!(
        problems[0].to_string(),
        "2:3: error[json]: expected a name in double quotes; write names like \"name\""
    );
}

#[test]
fn diagnostics_read_like_compiler_messages() {
    let text = r#"{"methodConfig": [{"name": [{"service": "a.B"}],
  "retryPolicy": {"maxAttempts": "4", "initialBackoff": "100ms", "maxBackoff": 5,
    "backoffMultiplier": -1, "retryableStatusCodes": ["UNAVAILABEL", 99, {}]},
  "waitForReady": "yes", "maxRequestMessageBytes": [1]}],
  "retryThrottling": {"maxTokens": 1001}, "loadBalancingPolicy": 5}"#;
    let problems = ServiceConfig::parse(text).unwrap_err();
    let expected = r#"2:34: error[max-attempts]: methodConfig[0].retryPolicy.maxAttempts: expected a whole number above 1, found "4"; write 4 without quotes
2:57: error[backoff]: methodConfig[0].retryPolicy.initialBackoff: expected a duration above 0 like "0.1s", found "100ms"; write "0.1s"
2:80: error[backoff]: methodConfig[0].retryPolicy.maxBackoff: expected a duration above 0 like "0.1s", found 5; write "5s"
3:26: error[multiplier]: methodConfig[0].retryPolicy.backoffMultiplier: expected a number above 0, found -1
3:55: error[code]: methodConfig[0].retryPolicy.retryableStatusCodes[0]: expected the name of a status code, or a number from 0 to 16, found "UNAVAILABEL"; did you mean "UNAVAILABLE"?
3:70: error[code]: methodConfig[0].retryPolicy.retryableStatusCodes[1]: expected the name of a status code, or a number from 0 to 16, found 99
3:74: error[code]: methodConfig[0].retryPolicy.retryableStatusCodes[2]: expected the name of a status code, or a number from 0 to 16, found an object
4:19: error[type]: methodConfig[0].waitForReady: expected true or false, found "yes"
4:52: error[type]: methodConfig[0].maxRequestMessageBytes: expected a whole number from 0 to 4294967295, found a list
5:22: error[token-ratio]: retryThrottling.tokenRatio: is required: a number of at least 0.001
5:36: error[max-tokens]: retryThrottling.maxTokens: expected a whole number from 1 to 1000, found 1001
5:66: error[type]: loadBalancingPolicy: expected a string, found 5"#;
    assert_eq!(problems.to_string(), expected);
}

/// The only problem of a text, as it is printed.
fn only(text: &str) -> String {
    let problems = ServiceConfig::parse(text).unwrap_err();
    let [problem] = problems.as_slice() else { panic!("{problems}") };
    problem.to_string()
}

/// A config with a retry policy, in which this field has another value.
fn with_field(name: &str, value: &str) -> String {
    let fields = [
        ("maxAttempts", "3"),
        ("initialBackoff", "\"0.1s\""),
        ("maxBackoff", "\"1s\""),
        ("backoffMultiplier", "2"),
        ("retryableStatusCodes", "[\"UNAVAILABLE\"]"),
    ];
    let fields = fields.map(|(field, usual)| {
        format!("\"{field}\": {}", if field == name { value } else { usual })
    });
    format!(
        "{{\"methodConfig\": [{{\"name\": [{{}}], \"retryPolicy\": {{{}}}}}]}}",
        fields.join(", ")
    )
}

#[test]
fn diagnostics_hint_removes_quotes_around_numbers() {
    let throttling = |max: &str, ratio: &str| {
        format!("{{\"retryThrottling\": {{\"maxTokens\": {max}, \"tokenRatio\": {ratio}}}}}")
    };
    for (text, number) in [
        (with_field("maxAttempts", "\"3\""), "3"),
        (with_field("backoffMultiplier", "\"1.5\""), "1.5"),
        (with_field("retryableStatusCodes", "[\"14\"]"), "14"),
        (throttling("\"10\"", "0.1"), "10"),
        (throttling("10", "\"0.1\""), "0.1"),
        ("{\"methodConfig\": [{\"name\": [{}], \"waitForReady\": \"true\"}]}".into(), "true"),
    ] {
        let printed = only(&text);
        let hint = format!("; write {number} without quotes");
        assert!(printed.ends_with(&hint), "{printed}");
    }
    // No such hint for a number that would be invalid without quotes too.
    for text in [
        with_field("maxAttempts", "\"1\""),
        with_field("maxAttempts", "\"three\""),
        with_field("maxAttempts", "\"03\""),
        with_field("backoffMultiplier", "\"-1\""),
        with_field("retryableStatusCodes", "[\"17\"]"),
        throttling("\"1001\"", "0.1"),
        throttling("10", "\"0\""),
    ] {
        assert!(!only(&text).contains("quotes"), "{}", only(&text));
    }
}

#[test]
fn diagnostics_duration_too_long_is_not_called_too_small() {
    for value in ["\"315576000001s\"", "\"99999999999999999999s\"", "\"-315576000001s\""] {
        let printed = only(&with_field("maxBackoff", value));
        let expected = format!(
            "methodConfig[0].retryPolicy.maxBackoff: expected a duration of at most \
             \"315576000000s\", found {value}"
        );
        assert!(printed.ends_with(&expected), "{printed}");
    }
    assert!(ServiceConfig::parse(&with_field("maxBackoff", "\"315576000000s\"")).is_ok());
}

#[test]
fn diagnostics_duration_with_leading_zero_suggests_correction() {
    for (written, meant) in [("00.1s", "0.1s"), ("01s", "1s"), ("010s", "10s")] {
        let printed = only(&with_field("maxBackoff", &format!("{written:?}")));
        assert!(printed.ends_with(&format!("; write {meant:?}")), "{printed}");
    }
    assert!(only(&with_field("maxBackoff", "\"00s\"")).contains("error[backoff]"));
}

#[test]
fn diagnostics_hint_for_yaml_asks_for_json() {
    for text in [
        "methodConfig:\n  - name:\n      - service: a.B\n",
        "# retries\n\nmethodConfig: []\n",
        "---\nretryThrottling:\n  maxTokens: 10\n",
        "- clientLanguage: [go]\n",
    ] {
        let printed = only(text);
        assert!(printed.contains("error[json]"), "{printed}");
        assert!(
            printed.ends_with("this looks like YAML, and JSON is needed: convert it to JSON"),
            "{printed}"
        );
    }
    for text in
        ["{methodConfig: []}", "retry", "{\"a\": 1,}", "// a: b\n{}", "\"a\": 1", "http://a.b"]
    {
        let printed = only(text);
        assert!(!printed.contains("YAML"), "{printed}");
    }
}

#[test]
fn diagnostics_hint_translates_http_statuses_and_names_around_codes() {
    for (written, hint) in [
        ("503", "503 is an HTTP status, which gRPC clients see as \"UNAVAILABLE\""),
        ("\"429\"", "429 is an HTTP status, which gRPC clients see as \"UNAVAILABLE\""),
        ("500", "500 is an HTTP status, which gRPC clients see as \"UNKNOWN\""),
        ("\"StatusCode.UNAVAILABLE\"", "did you mean \"UNAVAILABLE\"?"),
        ("\"INTERNAL_SERVER_ERROR\"", "did you mean \"INTERNAL\"?"),
    ] {
        let printed = only(&with_field("retryableStatusCodes", &format!("[{written}]")));
        assert!(printed.ends_with(&format!("; {hint}")), "{printed}");
    }
    let printed = only(&with_field("retryableStatusCodes", "[\"TIMEOUT\"]"));
    assert!(printed.contains("; the names are CANCELLED, UNKNOWN, "), "{printed}");
    assert!(!only(&with_field("retryableStatusCodes", "[99]")).contains(';'));
}

#[test]
fn diagnostics_hint_names_the_field_that_other_libraries_call_differently() {
    let text = with_field("maxAttempts", "3").replace("maxAttempts", "maxRetries");
    let problems = ServiceConfig::parse(&text).unwrap_err();
    let printed = problems.to_string();
    assert!(printed.ends_with("; is \"maxRetries\" meant to be it?"), "{printed}");
    let hint = problems.warnings().iter().find_map(|it| it.hint.as_deref());
    assert_eq!(hint, Some("the field is called maxAttempts, and counts the first attempt, too"));
}

#[test]
fn diagnostics_hint_for_wrong_value_kind_says_what_to_write() {
    for (text, hint) in [
        ("{\"methodConfig\": {\"name\": [{}]}}", "write it in brackets: [{...}]"),
        ("[{\"name\": [{}]}]", "write {\"methodConfig\": [...]} around the list"),
        ("[{\"serviceConfig\": {}}]", "write only what is in serviceConfig"),
        ("\"{}\"", "write the config itself, without the quotes around it"),
    ] {
        let printed = only(text);
        assert!(printed.ends_with(hint), "{printed}");
    }
    assert!(only("5").ends_with("expected an object, found 5"));
}
