//! Warnings about likely mistakes, at their position and with a hint; sound configs have none. A table of
//! configs, with an `@` before every value that has a warning.

use redial_service_config::{ClientOptions, Jitter, Problem, ServiceConfig, Severity};

const RETRY: &str = r#""retryPolicy": {"maxAttempts": 4, "initialBackoff": "0.1s", "maxBackoff": "1s", "backoffMultiplier": 2, "retryableStatusCodes": ["UNAVAILABLE"]}"#;
const HEDGING: &str = r#""hedgingPolicy": {"maxAttempts": 3, "hedgingDelay": "0.5s", "nonFatalStatusCodes": ["UNAVAILABLE", "DEADLINE_EXCEEDED"]}"#;
const THROTTLING: &str = r#""retryThrottling": {"maxTokens": 10, "tokenRatio": 0.1}"#;

/// The warnings of a marked text, which must be exactly at its marks.
fn warnings(marked: &str, client: &ClientOptions) -> Vec<Problem> {
    let marked = marked
        .replace("RETRY", RETRY)
        .replace("HEDGING", HEDGING)
        .replace("THROTTLING", THROTTLING);
    let text = marked.replace('@', "");
    let marks = marked.match_indices('@').enumerate().map(|(index, (at, _))| at - index);
    let config = match ServiceConfig::parse_for(&text, client) {
        Ok(config) => config,
        Err(problems) => panic!("{text}\n{problems}"),
    };
    let found = config.warnings().to_vec();
    let starts: Vec<_> = found.iter().map(|warning| warning.range.start).collect();
    assert_eq!(starts, marks.collect::<Vec<_>>(), "{text}\n{found:#?}");
    assert!(found.iter().all(|warning| warning.severity() == Severity::Warning));
    found
}

/// Configs, with the rule, path, message and hint of their only warning.
#[rustfmt::skip]
const TABLE: [(&str, &str, &str, &str, &str); 39] = [
    // Unknown fields.
    (r#"{@"methodConfigs": []}"#, "unknown-field", "methodConfigs",
     "is no field of the top of the config", "did you mean \"methodConfig\"?"),
    (r#"{@"method_config": []}"#, "unknown-field", "method_config",
     "is no field of the top of the config", "did you mean \"methodConfig\"?"),
    (r#"{@"colour": "red"}"#, "unknown-field", "colour", "is no field of the top of the config", ""),
    (r#"{@"loadBalancingConfig": []}"#, "unknown-field", "loadBalancingConfig",
     "is a gRPC field that has no effect here", ""),
    (r#"{"methodConfig": [{"name": [{}], @"timeOut": 5}]}"#, "unknown-field", "methodConfig[0].timeOut",
     "is no field of an entry of methodConfig", "did you mean \"timeout\"?"),
    (r#"{"methodConfig": [{"name": [{"service": "a.B", @"methods": "C"}]}]}"#, "unknown-field",
     "methodConfig[0].name[0].methods", "is no field of a name of an entry", "did you mean \"method\"?"),
    (r#"{"methodConfig": [{"name": [{}], "hedgingPolicy": {"maxAttempts": 2, "nonFatalStatusCodes": [4], @"hedgeDelay": "1s"}}], THROTTLING}"#,
     "unknown-field", "methodConfig[0].hedgingPolicy.hedgeDelay", "is no field of a hedgingPolicy",
     "did you mean \"hedgingDelay\"?"),
    (r#"{"methodConfig": [{"name": [{}], "hedgingPolicy": {"maxAttempts": 2, "nonFatalStatusCodes": [4], @"perAttemptRecvTimeout": "1s"}}], THROTTLING}"#,
     "unknown-field", "methodConfig[0].hedgingPolicy.perAttemptRecvTimeout",
     "is a gRPC field that has no effect here", ""),
    (r#"{"retryThrottling": {"maxTokens": 10, "tokenRatio": 0.1, @"tokenRation": 0.1}}"#, "unknown-field",
     "retryThrottling.tokenRation", "is no field of retryThrottling", "did you mean \"tokenRatio\"?"),
    // Fields in the wrong place.
    (r#"{@RETRY}"#, "misplaced-field", "retryPolicy", "is not read in the top of the config",
     "it belongs in an entry of methodConfig"),
    (r#"{@"timeout": "1s"}"#, "misplaced-field", "timeout", "is not read in the top of the config",
     "it belongs in an entry of methodConfig"),
    (r#"{@"maxTokens": 10}"#, "misplaced-field", "maxTokens", "is not read in the top of the config",
     "it belongs in retryThrottling"),
    (r#"{"methodConfig": [{"name": [{}], @THROTTLING}]}"#, "misplaced-field",
     "methodConfig[0].retryThrottling", "is not read in an entry of methodConfig",
     "it belongs in the top of the config"),
    (r#"{"methodConfig": [{"name": [{}], @"maxAttempts": 5}]}"#, "misplaced-field",
     "methodConfig[0].maxAttempts", "is not read in an entry of methodConfig",
     "it belongs in a retryPolicy or a hedgingPolicy"),
    (r#"{"methodConfig": [{"name": [{@HEDGING}]}]}"#, "misplaced-field",
     "methodConfig[0].name[0].hedgingPolicy", "is not read in a name of an entry",
     "it belongs in an entry of methodConfig"),
    // Attempts above the cap.
    (r#"{"methodConfig": [{"name": [{}], "hedgingPolicy": {"maxAttempts": @6, "nonFatalStatusCodes": [4]}}], THROTTLING}"#,
     "attempts-above-cap", "methodConfig[0].hedgingPolicy.maxAttempts", "5 attempts are made at most",
     "lower it, or raise the client's attempts cap"),
    (r#"{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": @50, "initialBackoff": "0.1s", "maxBackoff": "1s", "backoffMultiplier": 2, "retryableStatusCodes": [14]}}], THROTTLING}"#,
     "attempts-above-cap", "methodConfig[0].retryPolicy.maxAttempts", "5 attempts are made at most",
     "lower it, or raise the client's attempts cap"),
    // Throttling that is missing or disables all retries.
    (r#"{"methodConfig": [{"name": [{"service": "a.B"}], "retryPolicy": @{"maxAttempts": 4, "initialBackoff": "0.1s", "maxBackoff": "1s", "backoffMultiplier": 2, "retryableStatusCodes": [14]}}, {"name": [{}], HEDGING}]}"#,
     "no-throttling", "methodConfig[0].retryPolicy", "nothing limits retries when the server is down",
     "add \"retryThrottling\": {\"maxTokens\": 10, \"tokenRatio\": 0.1} beside methodConfig"),
    (r#"{"retryThrottling": {"maxTokens": @2, "tokenRatio": 1}}"#, "nothing-retried", "retryThrottling.maxTokens",
     "after one failure no more than half is left, so nothing is ever retried", "write 3 or more"),
    (r#"{"retryThrottling": {"maxTokens": @1.0, "tokenRatio": 1}}"#, "nothing-retried", "retryThrottling.maxTokens",
     "after one failure no more than half is left, so nothing is ever retried", "write 3 or more"),
    // Delays and timeouts.
    (r#"{"methodConfig": [{"name": [{}], RETRY, "timeout": @"0.35s"}], THROTTLING}"#, "backoff-beyond-timeout",
     "methodConfig[0].timeout", "on average 2 of 3 retries start before 0.35s",
     "raise it, or lower the delays or maxAttempts"),
    (r#"{"methodConfig": [{"name": [{}], RETRY, "timeout": @"0.05s"}], THROTTLING}"#, "backoff-beyond-timeout",
     "methodConfig[0].timeout", "on average 0 of 3 retries start before 0.05s",
     "raise it, or lower the delays or maxAttempts"),
    (r#"{"methodConfig": [{"name": [{}], HEDGING, "timeout": @"1s"}], THROTTLING}"#, "backoff-beyond-timeout",
     "methodConfig[0].timeout", "on average 1 of 2 hedges start before 1s",
     "raise it, or lower the delays or maxAttempts"),
    (r#"{"methodConfig": [{"name": [{}], "timeout": @"0.0s"}]}"#, "zero-timeout", "methodConfig[0].timeout",
     "no call can complete within zero time", "leave it out for no timeout"),
    (r#"{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 2, "initialBackoff": @"5s", "maxBackoff": "1.5s", "backoffMultiplier": 2, "retryableStatusCodes": [14]}}], THROTTLING}"#,
     "backoff-clamped", "methodConfig[0].retryPolicy.initialBackoff", "is above maxBackoff, so every delay is 1.5s",
     "swap them, or raise maxBackoff"),
    (r#"{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 2, "initialBackoff": "1s", "maxBackoff": "5s", "backoffMultiplier": @0.5, "retryableStatusCodes": [14]}}], THROTTLING}"#,
     "backoff-shrinks", "methodConfig[0].retryPolicy.backoffMultiplier",
     "below 1 the delays get shorter with each retry", "write 2 to double them, 1 to keep them"),
    // Names.
    (r#"{"methodConfig": [@{"timeout": "1s"}]}"#, "no-names", "methodConfig[0].name",
     "an entry without a name applies to no method", "write [{}] to apply it to all methods"),
    (r#"{"methodConfig": [{"name": @[], "timeout": "1s"}]}"#, "no-names", "methodConfig[0].name",
     "an entry without a name applies to no method", "write [{}] to apply it to all methods"),
    (r#"{"methodConfig": [{"name": [{"service": "x.Y"}, @{"service": "/a.B"}]}]}"#, "unmatchable-name",
     "methodConfig[0].name[1]", "no service and no method has a slash in its name",
     "write {\"service\": \"package.Service\", \"method\": \"Method\"}"),
    (r#"{"methodConfig": [{"name": [@{"service": "a.B", "method": "a.B/C"}]}]}"#, "unmatchable-name",
     "methodConfig[0].name[0]", "no service and no method has a slash in its name",
     "write {\"service\": \"package.Service\", \"method\": \"Method\"}"),
    (r#"{"methodConfig": [{"name": [{"service": "a.B"}], RETRY, "waitForReady": true}, {"name": [{"service": "x.Y"}, @{"service": "a.B", "method": "C"}], "timeout": "9s"}], THROTTLING}"#,
     "shadowed", "methodConfig[1].name[1]",
     "/a.B/C gets this entry alone: not the policy, waitForReady of methodConfig[0], whose name is wider",
     "repeat here what should apply"),
    (r#"{"methodConfig": [{"name": [@{"service": "a.B"}], RETRY}, {"name": [{}], "timeout": "9s"}], THROTTLING}"#,
     "shadowed", "methodConfig[0].name[0]",
     "/a.B/ gets this entry alone: not timeout of methodConfig[1], whose name is wider",
     "repeat here what should apply"),
    (r#"{"methodConfig": [{"name": [{}], "timeout": "9s"}, {"name": [@{"service": "a.B", "method": "C"}], "waitForReady": true}]}"#,
     "shadowed", "methodConfig[1].name[0]",
     "/a.B/C gets this entry alone: not timeout of methodConfig[0], whose name is wider",
     "repeat here what should apply"),
    (r#"{"methodConfig": [{"name": [{"service": "a.B"}, @{"service": "a.B", "method": "C"}], RETRY}], THROTTLING}"#,
     "shadowed", "methodConfig[0].name[1]", "a wider name of this entry covers /a.B/C already", "remove it"),
    // Codes.
    (r#"{"methodConfig": [{"name": [{}], "hedgingPolicy": {"maxAttempts": 2, "nonFatalStatusCodes": @["UNAVAILABLE"]}}], THROTTLING}"#,
     "hangs-uncounted", "methodConfig[0].hedgingPolicy.nonFatalStatusCodes",
     "without DEADLINE_EXCEEDED, attempts that time out never drain the tokens", "add \"DEADLINE_EXCEEDED\""),
    (r#"{"methodConfig": [{"name": [{}], "hedgingPolicy": @{"maxAttempts": 2}}], THROTTLING}"#,
     "hangs-uncounted", "methodConfig[0].hedgingPolicy.nonFatalStatusCodes",
     "without DEADLINE_EXCEEDED, attempts that time out never drain the tokens", "add \"DEADLINE_EXCEEDED\""),
    (r#"{"methodConfig": [{"name": [{}], "hedgingPolicy": {"maxAttempts": 2, "nonFatalStatusCodes": [4, @"ok"]}}], THROTTLING}"#,
     "ok-listed", "methodConfig[0].hedgingPolicy.nonFatalStatusCodes[1]",
     "OK is no failure, and has no effect here", "remove it"),
    (r#"{"methodConfig": [{"name": [{}], "hedgingPolicy": {"maxAttempts": 2, "nonFatalStatusCodes": [4, @"deadline_exceeded"]}}], THROTTLING}"#,
     "listed-twice", "methodConfig[0].hedgingPolicy.nonFatalStatusCodes[1]",
     "DEADLINE_EXCEEDED is in the list already", ""),
    // Load balancing.
    (r#"{"loadBalancingPolicy": @"roundrobin"}"#, "unknown-balancing", "loadBalancingPolicy",
     "\"roundrobin\" is not known; pick_first is used", "did you mean \"round_robin\"?"),
];

#[test]
fn warnings_report_each_likely_mistake_once() {
    for (marked, rule, path, what, hint) in TABLE {
        let found = warnings(marked, &ClientOptions::default());
        let [warning] = found.as_slice() else { panic!("{marked}\n{found:#?}") };
        assert_eq!((warning.rule.name(), warning.path.as_str()), (rule, path), "{marked}");
        assert_eq!(warning.what, what, "{marked}");
        assert_eq!(warning.hint.as_deref().unwrap_or_default(), hint, "{marked}");
    }
}

#[test]
fn warnings_table_covers_every_warning_rule() {
    let rules: std::collections::BTreeSet<_> = TABLE.iter().map(|row| row.1).collect();
    assert_eq!(rules.len(), 16, "{rules:?}");
}

#[test]
fn warnings_are_absent_for_sound_configs() {
    for text in [
        "{}",
        r#"{"loadBalancingPolicy": "pick_first"}"#,
        r#"{"loadBalancingPolicy": "ROUND_ROBIN"}"#,
        r#"{"methodConfig": []}"#,
        r#"{"methodConfig": [{"name": [{}], RETRY}], THROTTLING}"#,
        r#"{"methodConfig": [{"name": [{}], RETRY, "timeout": "0.351s"}], THROTTLING}"#,
        r#"{"methodConfig": [{"name": [{}], HEDGING, "timeout": "1.001s"}], THROTTLING}"#,
        r#"{"retryThrottling": {"maxTokens": 3, "tokenRatio": 1}}"#,
        // A method that is excluded on purpose, and one that repeats the settings of its service.
        r#"{"methodConfig": [{"name": [{"service": "a.B"}], RETRY}, {"name": [{"service": "a.B", "method": "C"}]}], THROTTLING}"#,
        r#"{"methodConfig": [{"name": [{}], RETRY}, {"name": [{"service": "a.B"}], HEDGING, "timeout": "9s"}], THROTTLING}"#,
        r#"{"methodConfig": [{"name": [{"service": "a.B"}], RETRY}, {"name": [{"service": "x.Y", "method": "C"}], "timeout": "9s"}], THROTTLING}"#,
    ] {
        assert_eq!(warnings(text, &ClientOptions::default()), [], "{text}");
    }
}

#[test]
fn warnings_use_client_cap_and_jitter() {
    let six = r#"{"methodConfig": [{"name": [{}], "hedgingPolicy": {"maxAttempts": 6, "nonFatalStatusCodes": [4]}}], THROTTLING}"#;
    let raised = ClientOptions::builder().attempts_cap(6).build();
    assert_eq!(warnings(six, &raised), []);
    let many = r#"{"methodConfig": [{"name": [{}], "hedgingPolicy": {"maxAttempts": @33, "nonFatalStatusCodes": [4]}}], THROTTLING}"#;
    let raised = ClientOptions::builder().attempts_cap(u32::MAX).build();
    assert_eq!(warnings(many, &raised)[0].what, "32 attempts are made at most");
    // On average 50, 150, 350 ms with full jitter; 100, 300, 700 ms with proportional jitter.
    let slow = r#"{"methodConfig": [{"name": [{}], RETRY, "timeout": @"0.25s"}], THROTTLING}"#;
    let today = ClientOptions::builder().jitter(Jitter::Proportional(0.2)).build();
    let full = warnings(slow, &ClientOptions::default());
    assert_eq!(full[0].what, "on average 2 of 3 retries start before 0.25s");
    let today = warnings(slow, &today);
    assert_eq!(today[0].what, "on average 1 of 3 retries start before 0.25s");
    // The largest number of attempts is checked in constant time.
    let endless = r#"{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 1e9, "initialBackoff": "0.000000001s", "maxBackoff": "0.000000001s", "backoffMultiplier": 1, "retryableStatusCodes": [14]}, "timeout": "9s"}], THROTTLING}"#;
    assert_eq!(warnings(endless, &raised), []);
}

#[test]
fn warnings_ignore_lists_with_errors() {
    let text = r#"{"methodConfig": [{"name": [{}], "hedgingPolicy": {"maxAttempts": 2, "nonFatalStatusCodes": [14, "DEADLINE_EXCEEDD"]}}]}"#;
    let problems = ServiceConfig::parse(text).unwrap_err();
    assert_eq!(problems.as_slice()[0].hint.as_deref(), Some("did you mean \"DEADLINE_EXCEEDED\"?"));
    assert_eq!(problems.warnings(), []);
}

#[test]
fn warnings_are_reported_beside_problems() {
    let text = r#"{"methodConfig": [{"name": [{}], "hedgingPolicy": {"maxAttempt": 2}}]}"#;
    let problems = ServiceConfig::parse(text).unwrap_err();
    assert_eq!(
        problems.to_string(),
        "1:51: error[max-attempts]: methodConfig[0].hedgingPolicy.maxAttempts: is required: a whole number above 1; is \"maxAttempt\" meant to be it?"
    );
    let warnings: Vec<_> = problems.warnings().iter().map(ToString::to_string).collect();
    assert_eq!(
        warnings,
        [
            "1:52: warning[unknown-field]: methodConfig[0].hedgingPolicy.maxAttempt: is no field of a hedgingPolicy; did you mean \"maxAttempts\"?"
        ]
    );
}
