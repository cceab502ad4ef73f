//! Goal: `redial scenarios` reports errors and failures with position and exit code. Method: the
//! binary runs on small files.

use std::process::{Command, Output};

use serde_json::Value;

use crate::temporary::Temporary;

fn redial(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_redial")).args(arguments).output().expect("it runs")
}

/// The exit code, the standard output and the standard error.
fn scenarios(arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut all = vec!["scenarios"];
    all.extend(arguments);
    let Output { status, stdout, stderr } = redial(&all);
    let text = |bytes| String::from_utf8(bytes).expect("it is text");
    (status.code(), text(stdout), text(stderr))
}

/// Runs a scenario with these fields in addition to its name.
fn one(fields: &str) -> (Option<i32>, String, String) {
    let text = format!("{{ \"scenarios\": [\n{{ \"name\": \"one\", {fields} }} ] }}");
    let file = Temporary::new(&text);
    let (code, out, err) = scenarios(&[file.path()]);
    (code, out.replace(file.path(), "FILE"), err.replace(file.path(), "FILE"))
}

const HOLDS: &str = r#""policy": {"generic": {}}, "calls": [
    { "attempts": [{"outcome": "ok", "after": 3}],
      "expect": {"starts": [0], "end": {"at": 3, "outcome": "ok", "why": "succeeded", "attempt": 1}} } ]"#;

const FAILS: &str = r#""policy": {"generic": {"jitter": "none"}}, "calls": [
    { "attempts": [{"outcome": "server", "after": 3}, {"outcome": "ok"}],
      "expect": {"starts": [0, 100], "cancels": {"2": 4},
                 "end": {"at": 3, "outcome": "ok", "why": "succeeded", "attempt": 2}} } ]"#;

#[test]
fn scenarios_passing_file_prints_only_the_counts() {
    assert_eq!(one(HOLDS), (Some(0), "1 passed, 0 failed\n".into(), String::new()));
}

#[test]
fn scenarios_failure_is_printed_with_its_call_log() {
    let (code, out, err) = one(FAILS);
    assert_eq!((code, err.as_str()), (Some(1), ""));
    let expected = r#"FAILED FILE:2 "one"
  call 1
    starts       expected  0, 100
                 happened  0, 103
    cancels      expected  2 at 4
                 happened  none
    end.at       expected  3
                 happened  103
    its call log
             0 ms  the call begins
             0 ms  attempt 1 starts
             3 ms  attempt 1 fails: server
             3 ms  retry scheduled in 100 ms
           103 ms  attempt 2 starts
           103 ms  attempt 2 succeeds
           103 ms  the call ends with attempt 2: succeeded
0 passed, 1 failed
"#;
    assert_eq!(out, expected);
}

#[test]
fn scenarios_unlisted_attempt_fails_the_scenario() {
    let (code, out, _) = one(
        r#""policy": {"generic": {"jitter": "none"}}, "calls": [{ "attempts": [{"outcome": "server"}] }]"#,
    );
    assert_eq!(code, Some(1));
    assert!(out.contains("attempts     expected  at most 1, as many as the script lists"), "{out}");
    assert!(out.contains("happened  attempt 2 started"), "{out}");
}

#[test]
fn scenarios_accepted_policy_fails_if_refusal_is_expected() {
    let (code, out, _) = one(r#""policy": {"generic": {}}, "refused": true"#);
    assert_eq!(code, Some(1));
    assert!(
        out.contains("policy       expected  refused\n                 happened  built"),
        "{out}"
    );
}

#[test]
fn scenarios_call_without_expectations_always_passes() {
    let fields = r#""policy": {"generic": {"deadline": "1s"}}, "calls": [
        { "attempts": [{"outcome": "hang"}] }, { "attempts": [{"outcome": "ok"}], "expect": {} } ]"#;
    assert_eq!(one(fields).0, Some(0));
    let (code, out, _) = one(&fields.replace("}] },", r#"}], "expect": {} },"#));
    assert_eq!(code, Some(1));
    assert!(out.contains("cancels      expected  none"), "{out}");
}

#[test]
fn scenarios_refused_policy_needs_no_calls() {
    let (code, out, err) =
        one(r#""policy": {"generic": {"attempts": 0}}, "refused": true, "calls": []"#);
    assert_eq!((code, out.as_str(), err.as_str()), (Some(0), "1 passed, 0 failed\n", ""));
}

#[test]
fn scenarios_call_that_never_ends_fails_at_both_levels() {
    let fields = r#""policy": {"generic": {}}, "calls": [
        { "attempts": [{"outcome": "hang"}], "expect": {"end": {"at": 1, "outcome": "ok", "why": "succeeded", "attempt": 1}} }]"#;
    let file = Temporary::new(format!("{{ \"scenarios\": [{{ \"name\": \"one\", {fields} }}] }}"));
    for level in [&[file.path()][..], &["--live", file.path()]] {
        let (code, out, _) = scenarios(level);
        assert_eq!(code, Some(1));
        assert!(out.contains("happened  the call never ended"), "{out}");
    }
}

#[test]
fn scenarios_json_is_one_object_per_scenario() {
    let text = format!(
        r#"{{ "scenarios": [ {{ "name": "a", {HOLDS} }}, {{ "name": "b", {FAILS} }},
        {{ "name": "c", "policy": {{"generic": {{"attempts": 0}}}}, "refused": true }},
        {{ "name": "d", "policy": {{"milvus": {{"maxRetries": 0}}}}, "calls": [{{"attempts": [{{"outcome": "UNAVAILABLE"}}]}}] }} ] }}"#
    );
    let file = Temporary::new(&text);
    let (code, out, err) = scenarios(&["--json", file.path()]);
    assert_eq!((code, err.as_str()), (Some(1), "3 passed, 1 failed\n"));
    let objects: Vec<Value> =
        out.lines().map(|line| serde_json::from_str(line).expect("one object")).collect();
    let names: Vec<_> = objects.iter().map(|object| object["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["a", "b", "c", "d"]);
    let passed: Vec<_> = objects.iter().map(|object| object["passed"].as_bool().unwrap()).collect();
    assert_eq!(passed, [true, false, true, true]);
    let call = &objects[1]["actual"]["calls"][0];
    assert_eq!(call["starts"], serde_json::json!([0, 103]));
    assert_eq!(call["end"]["why"], "succeeded");
    let refused = objects[2]["actual"]["refused"].as_str().unwrap();
    assert!(refused.starts_with("attempts: 0 would never try"), "{refused}");
    let call = &objects[3]["actual"]["calls"][0];
    assert_eq!(
        (&call["text"], &call["log"]),
        (&"boom".into(), &serde_json::json!(["request", "response"]))
    );
}

#[test]
fn scenarios_live_prints_skip_counts_and_reasons() {
    let text = format!(
        r#"{{ "scenarios": [ {{ "name": "a", {HOLDS} }},
        {{ "name": "b", "policy": {{"couchbase": {{}}}}, "calls": [{{"idempotent": true, "deadline": 9, "attempts": [{{"outcome": "ok", "after": 0.5}}]}}] }} ] }}"#
    );
    let file = Temporary::new(&text);
    let because = "couchbase: fractions of a millisecond: the client's delays are constants, and tokio's clock counts milliseconds";
    let summary = format!("1 skipped, {because}\n1 passed, 0 failed, 1 skipped\n");
    assert_eq!(scenarios(&["--live", file.path()]).1, summary);
    let (_, out, err) = scenarios(&["--live", "--json", file.path()]);
    let skipped: Value = serde_json::from_str(out.lines().nth(1).unwrap()).unwrap();
    assert_eq!((&skipped["skipped"], &skipped["passed"]), (&because.into(), &Value::Null));
    assert_eq!(err, summary);
}

/// Scenarios that the live level skips, each next to a similar one that runs: policy, calls, and
/// the skip reason.
const SKIPPED: [(&str, &str, Option<&str>); 9] = [
    (
        r#"{"generic": {"backoff": {"constant": "300h"}, "jitter": "none"}}"#,
        r#"{"attempts": [{"outcome": "server"}, {"outcome": "ok"}]}"#,
        Some("an event later than the player waits"),
    ),
    (
        r#"{"generic": {"backoff": {"constant": "200h"}, "jitter": "none"}}"#,
        r#"{"attempts": [{"outcome": "server"}, {"outcome": "ok"}]}"#,
        None,
    ),
    (
        r#"{"generic": {"throttle": {"budget": {}}}}"#,
        r#"{"attempts": [{"outcome": "ok", "after": 5}]}, {"attempts": [{"outcome": "ok", "after": 5}]}"#,
        Some("calls that share a throttle, random numbers or buffer space meet at one instant"),
    ),
    (
        r#"{"generic": {}}"#,
        r#"{"attempts": [{"outcome": "ok", "after": 5}]}, {"attempts": [{"outcome": "ok", "after": 5}]}"#,
        None,
    ),
    (
        r#"{"generic": {"throttle": {"budget": {}}}}"#,
        r#"{"attempts": [{"outcome": "ok", "after": 5}]}, {"at": 1, "attempts": [{"outcome": "ok", "after": 5}]}"#,
        None,
    ),
    (
        r#"{"generic": {"hedge": {"delay": "0ms"}}}"#,
        r#"{"attempts": [{"outcome": "ok"}, {"outcome": "ok"}, {"outcome": "ok"}], "expect": {"cancels": {"2": 0, "3": 0}}}"#,
        Some("hedges without a delay, and the first is answered at once"),
    ),
    (
        r#"{"generic": {"hedge": {"delay": "0ms"}}}"#,
        r#"{"attempts": [{"outcome": "ok", "after": 1}, {"outcome": "ok", "after": 1}, {"outcome": "ok", "after": 1}], "expect": {"cancels": {"2": 1, "3": 1}}}"#,
        None,
    ),
    (
        r#"{"generic": {}}"#,
        r#"{"deadline": 5, "attempts": [{"outcome": "ok", "after": 4.9995}]}"#,
        Some("times less than a microsecond apart"),
    ),
    (r#"{"generic": {}}"#, r#"{"deadline": 5, "attempts": [{"outcome": "ok", "after": 5}]}"#, None),
];

const PLAIN: &str = r#"{"grpc": {"config": {}}}"#;
const SMALL: &str = r#"{"grpc": {"config": {}, "client": {"per_rpc_buffer_limit_in_bytes": 60}}}"#;
const NARROW: &str = r#"{"grpc": {"config": {}, "client": {"retry_buffer_size_in_bytes": 60}}}"#;
const HEDGED: &str = r#"{"grpc": {"config": {"methodConfig": [{"name": [{}], "hedgingPolicy":
    {"maxAttempts": 2, "nonFatalStatusCodes": ["UNAVAILABLE"]}}]}}}"#;

/// The same for gRPC calls, which also have a method.
const SKIPPED_GRPC: [(&str, &str, Option<&str>); 30] = [
    (
        PLAIN,
        r#""attempts": [{"outcome": "OK", "after": 9e11}]"#,
        Some("an event later than the player waits"),
    ),
    (PLAIN, r#""attempts": [{"outcome": "OK", "after": 8e11}]"#, None),
    (
        NARROW,
        r#""messages": [{"bytes": 40}], "attempts": [{"outcome": "OK"}]}, {"method": "/a.B/C",
           "messages": [{"bytes": 40}], "attempts": [{"outcome": "OK"}]"#,
        Some("calls that share a throttle, random numbers or buffer space meet at one instant"),
    ),
    (
        NARROW,
        r#""messages": [{"bytes": 40}], "attempts": [{"outcome": "OK"}]}, {"method": "/a.B/C", "at": 1,
           "messages": [{"bytes": 40}], "attempts": [{"outcome": "OK"}]"#,
        None,
    ),
    (PLAIN, r#""attempts": [{"outcome": "ABORTED", "pushback": "5\n"}]"#, Some(NOT_ENCODABLE)),
    (PLAIN, r#""attempts": [{"outcome": "ABORTED", "pushback": "5\t"}]"#, None),
    (
        PLAIN,
        r#""attempts": [{"outcome": "ABORTED", "after": 0.5, "pushback": "2147484"}]"#,
        Some(NOT_ENCODABLE),
    ),
    (PLAIN, r#""attempts": [{"outcome": "ABORTED", "after": 0.5, "pushback": "2147483"}]"#, None),
    (PLAIN, r#""deadline": 123456789, "attempts": [{"outcome": "OK"}]"#, Some(NOT_ENCODABLE)),
    (PLAIN, r#""deadline": 123456000, "attempts": [{"outcome": "OK"}]"#, None),
    (
        PLAIN,
        r#""attempts": [{"seen": "unsent", "after": 0.5}, {"seen": "unsent"}, {"outcome": "OK"}]"#,
        Some(
            "grpc: fractions of a millisecond together with the pauses before a transparent retry",
        ),
    ),
    (PLAIN, r#""attempts": [{"seen": "unsent", "after": 0.5}, {"outcome": "OK"}]"#, None),
    (
        PLAIN,
        r#""attempts": [{"seen": "unsent", "after": 5}, {"seen": "unsent"}, {"outcome": "OK"}]"#,
        None,
    ),
    (
        PLAIN,
        r#""deadline": 5, "attempts": [{"outcome": "OK", "after": 5}]"#,
        Some("grpc: a response exactly at the deadline"),
    ),
    (PLAIN, r#""deadline": 5, "attempts": [{"outcome": "OK", "headers": 4, "after": 5}]"#, None),
    (
        HEDGED,
        r#""attempts": [{"outcome": "UNAVAILABLE"}, {"outcome": "ABORTED"}]"#,
        Some("grpc: among hedges, one is answered at once next to another response or a timer"),
    ),
    (
        HEDGED,
        r#""attempts": [{"outcome": "UNAVAILABLE", "after": 1}, {"outcome": "ABORTED", "after": 1}]"#,
        None,
    ),
    (
        PLAIN,
        r#""messages": [{"at": 5, "bytes": 9}], "attempts": [{"outcome": "OK", "after": 5}]"#,
        Some("grpc: a message at the instant of an outcome, a start or the deadline"),
    ),
    (
        PLAIN,
        r#""deadline": 5, "messages": [{"at": 5, "bytes": 9}], "attempts": [{"outcome": "hang"}],
           "expect": {"cancels": {"1": 5}}"#,
        Some("grpc: a message at the instant of an outcome, a start or the deadline"),
    ),
    (
        PLAIN,
        r#""deadline": 5, "messages": [{"at": 4, "bytes": 9}], "attempts": [{"outcome": "hang"}],
           "expect": {"cancels": {"1": 5}}"#,
        None,
    ),
    (
        PLAIN,
        r#""messages": [{"at": 5, "bytes": 9}], "attempts": [{"outcome": "OK", "after": 6}]"#,
        None,
    ),
    (
        SMALL,
        r#""messages": [{"bytes": 9}, {"at": 5, "bytes": 60}], "attempts": [{"seen": "unsent", "after": 9}]"#,
        Some("grpc: a message that cannot be buffered or is not allowed, and no attempt reads it"),
    ),
    (
        SMALL,
        r#""messages": [{"bytes": 9}, {"at": 5, "bytes": 60}], "attempts": [{"outcome": "OK", "after": 9}]"#,
        None,
    ),
    (
        PLAIN,
        r#""messages": [{"bytes": 9}, {"at": 1, "bytes": 9}], "cancel": 9, "expect": {"cancels": {"1": 9}},
           "attempts": [{"outcome": "hang", "headers": 5, "accepts": 1}]"#,
        Some("grpc: a call whose response has started is dropped while its request is stalled"),
    ),
    (
        PLAIN,
        r#""messages": [{"bytes": 9}, {"at": 1, "bytes": 9}], "cancel": 9, "expect": {"cancels": {"1": 9}},
           "attempts": [{"outcome": "hang", "headers": 5, "accepts": 2}]"#,
        None,
    ),
    (
        PLAIN,
        r#""messages": [{"bytes": 9}, {"at": 1, "bytes": 9}], "cancel": 9, "expect": {"cancels": {"1": 9}},
           "attempts": [{"outcome": "hang", "accepts": 1}]"#,
        None,
    ),
    (
        PLAIN,
        r#""attempts": [{"seen": "unconnected", "headers": 5, "after": 9}]"#,
        Some("grpc: response headers of an attempt that was not sent, or found no connection"),
    ),
    (PLAIN, r#""attempts": [{"seen": "unprocessed", "headers": 5, "after": 9}]"#, None),
    (
        SMALL,
        r#""messages": [{"bytes": 9}, {"at": 5, "bytes": 50}, {"at": 5, "bytes": 9}],
           "attempts": [{"outcome": "OK", "after": 9}]"#,
        Some(
            "grpc: of several messages written at one instant only some can be buffered, or are allowed",
        ),
    ),
    (
        SMALL,
        r#""messages": [{"bytes": 9}, {"at": 5, "bytes": 50}, {"at": 6, "bytes": 9}],
           "attempts": [{"outcome": "OK", "after": 9}]"#,
        None,
    ),
];

const NOT_ENCODABLE: &str = "grpc: values that no request, response or server can carry";

#[test]
fn scenarios_live_skips_exactly_the_listed_cases() {
    let grpc = SKIPPED_GRPC.map(|(policy, call, because)| {
        (policy, format!(r#"{{"method": "/a.B/C", {call}}}"#), because)
    });
    let others = SKIPPED.map(|(policy, calls, because)| (policy, calls.to_owned(), because));
    for (policy, calls, because) in others.into_iter().chain(grpc) {
        let text = format!(
            r#"{{ "scenarios": [{{ "name": "one", "policy": {policy}, "calls": [{calls}] }}] }}"#
        );
        let file = Temporary::new(&text);
        let (code, out, _) = scenarios(&["--live", file.path()]);
        let expected = match because {
            Some(name) => format!("1 skipped, {name}: "),
            None => "1 passed, 0 failed, 0 skipped".to_owned(),
        };
        assert_eq!(code, Some(0), "{policy} {calls}\n{out}");
        assert!(out.starts_with(&expected), "{policy} {calls}\n{out}");
        assert_eq!(scenarios(&[file.path()]).1, "1 passed, 0 failed\n");
    }
}

#[test]
fn scenarios_live_skips_more_attempts_than_the_server_tracks() {
    for (attempts, expected) in [
        (100_000, "1 passed, 0 failed, 0 skipped\n".to_owned()),
        (100_001, format!("1 skipped, {NOT_ENCODABLE}")),
    ] {
        let listed = vec![r#"{"outcome": "OK"}"#; attempts].join(",");
        let call = format!(r#"{{"method": "/a.B/C", "attempts": [{listed}]}}"#);
        let text = format!(
            r#"{{ "scenarios": [{{ "name": "one", "policy": {PLAIN}, "calls": [{call}] }}] }}"#
        );
        let file = Temporary::new(&text);
        let (_, out, _) = scenarios(&["--live", file.path()]);
        assert!(out.starts_with(&expected), "{attempts}: {out}");
    }
}

#[test]
fn scenarios_counts_cover_all_files() {
    let (one, other) = (
        Temporary::new(format!("{{ \"scenarios\": [{{ \"name\": \"one\", {HOLDS} }}] }}")),
        Temporary::new(format!("{{ \"scenarios\": [{{ \"name\": \"one\", {FAILS} }}] }}")),
    );
    let (code, out, _) = scenarios(&[one.path(), other.path()]);
    assert_eq!((code, out.lines().last()), (Some(1), Some("1 passed, 1 failed")));
}

#[test]
fn scenarios_unreadable_file_is_named() {
    let (code, out, err) = scenarios(&["/nowhere/at-all.json"]);
    assert_eq!((code, out.as_str()), (Some(2), ""));
    assert!(err.starts_with("/nowhere/at-all.json: cannot be read: "), "{err}");
    assert_eq!(scenarios(&[]).0, Some(2), "at least one file is needed");
    assert_eq!(redial(&[]).status.code(), Some(2));
}

#[test]
fn scenarios_binary_file_is_reported_with_its_position() {
    let file = Temporary::new(b"{ \"about\":\n  \"\xc3\xbc \xfc\" }");
    let (code, _, err) = scenarios(&[file.path()]);
    let expected = format!("{}:2:6: not UTF-8: save the text as UTF-8\n", file.path());
    assert_eq!((code, err), (Some(2), expected));
}

#[test]
fn scenarios_invalid_file_prevents_the_whole_run() {
    let valid = Temporary::new(format!("{{ \"scenarios\": [{{ \"name\": \"one\", {FAILS} }}] }}"));
    let invalid = Temporary::new("{ \"scenarios\": [}");
    let (code, out, err) = scenarios(&[valid.path(), invalid.path()]);
    assert_eq!((code, out.as_str()), (Some(2), ""));
    assert_eq!(err, format!("{}:1:17: not JSON: unexpected close brace\n", invalid.path()));
}

#[test]
fn scenarios_empty_file_is_an_error() {
    for (text, column, list) in [
        ("{ \"scenarios\": [] }", 16, "scenarios"),
        ("{ \"about\": \"none yet\", \"scenarios\": [ ] }", 37, "scenarios"),
        ("{ \"configs\": [] }", 14, "configs"),
    ] {
        for arguments in [&[][..], &["--live"], &["--json"]] {
            let file = Temporary::new(text);
            let (code, out, err) = scenarios(&[arguments, &[file.path()]].concat());
            assert_eq!((code, out.as_str()), (Some(2), ""), "{text} {arguments:?}");
            let expected = format!(
                "{}:1:{column}: {list}: the list is empty, so that this file checks nothing; at \
                 least one is needed\n",
                file.path()
            );
            assert_eq!(err, expected);
        }
    }
    let neither = Temporary::new("{ \"about\": \"nothing\" }");
    let (code, _, err) = scenarios(&[neither.path()]);
    assert_eq!(code, Some(2));
    let expected = ":1:1: a file has either \"scenarios\", or \"configs\" for the validator\n";
    assert_eq!(err, format!("{}{expected}", neither.path()));
}

/// Fields of a scenario with an `@` before the error, and the start of the message.
const MISTAKES: [(&str, &str); 65] = [
    (
        r#""policy": @{}"#,
        r#"a policy names one design: one of "generic", "smithy", "grpc", "couchbase", "milvus""#,
    ),
    (r#""policy": {@"genric": {}}"#, r#"unknown design "genric"; expected one of "#),
    (
        r#""policy": {"generic": {"jitter": @"ful"}}, "calls": []"#,
        r#"generic: unknown variant `ful`, expected one of `none`, `full`"#,
    ),
    (
        r#""policy": {"generic": {"attempts": @0}}, "calls": [{"attempts": []}]"#,
        r#"attempts: 0 would never try; write 1 for a single attempt"#,
    ),
    (
        r#""policy": {"generic": {@"atempts": 0}}, "calls": [{"attempts": []}]"#,
        r#"generic: unknown field `atempts`, expected one of `preset`"#,
    ),
    (
        r#""policy": {"generic": {"backoff": {"exponential": @{"first": "1ms"}}}}, "calls": []"#,
        r#"generic: missing field `factor`"#,
    ),
    (r#""policy": {"generic": @[]}, "calls": []"#, r#"generic: expected an object, found a list"#),
    (
        r#""policy": {"smithy": {"attempts": 2, "bucket": @[]}}, "calls": []"#,
        r#"smithy: expected an object, found a list"#,
    ),
    (
        r#""policy": {"generic": {"backoff": @{}}}, "calls": []"#,
        r#"generic: invalid value: an empty object, expected a backoff like {"constant": "250ms"}"#,
    ),
    (
        r#""policy": {"generic": {"attempts": 3, "throttle": @"budget"}}, "calls": []"#,
        r#"generic: invalid value: string "budget", expected a throttle like "none" or {"budget""#,
    ),
    (
        r#""policy": {"generic": {"throttle": {"budget": @10}}}, "calls": []"#,
        r#"generic: invalid type: integer `10`, expected a throttle like {"budget": {"reserve": 10}}"#,
    ),
    (
        r#""policy": {"generic": {"throttle": @"cost"}}, "calls": []"#,
        r#"generic: invalid value: string "cost", expected a throttle like "none" or {"budget""#,
    ),
    (
        r#""policy": {"generic": {"throttle": {"cost": {"success": @-1}}}}, "calls": [{"attempts": []}]"#,
        r#"throttle.cost.success: must be a number of at least 0; write 0 to add nothing"#,
    ),
    (
        r#""policy": {"generic": {"hedge": @"50ms"}}, "calls": []"#,
        r#"generic: invalid type: string "50ms", expected a hedge like {"delay": "20ms"}"#,
    ),
    (
        r#""policy": {"generic": {"jitter": {"proportional": @"2"}}}, "calls": []"#,
        r#"generic: invalid type: string "2", expected a number"#,
    ),
    (
        r#""policy": {"milvus": {"maxRetries": 1, "retryDelay": @-1 }}, "calls": []"#,
        r#"milvus: invalid value: floating point `-1.0`, expected a non-negative number of milliseconds"#,
    ),
    (
        r#""policy": {"smithy": {"backoff_factor": @0}}, "calls": [{"attempts": []}]"#,
        r#"backoff_factor: must be a number above 0"#,
    ),
    (
        r#""policy": {"smithy": {"attempts": @"unlimited"}}, "calls": [{"attempts": []}]"#,
        r#"attempts: unlimited attempts would never end; add time_max"#,
    ),
    (
        r#""policy": {"couchbase": {"strategy": @"eager"}}, "calls": []"#,
        r#"strategy: unknown strategy "eager"; expected one of "best-effort", "fail-fast""#,
    ),
    (
        r#""policy": {"couchbase": {}}, "calls": [{"idempotent": true, "attempts": [{"outcome": @"failed"}]}]"#,
        r#"outcome: unknown reason "failed"; expected "ok", "hang", one like "KV_LOCKED", or a response"#,
    ),
    (r#""policy": {"generic": {}}, "calls": @[]"#, r#"calls: at least one is needed"#),
    (
        r#""policy": {"generic": {}}, "refused": true, "calls": @[{"attempts": []}]"#,
        r#"a policy that is refused has no calls"#,
    ),
    (r#""policy": {"generic": {}}, "draws": [0.5, @1], "calls": []"#, r#"a draw is in [0, 1)"#),
    (r#""policy": {"generic": {}}, "draws": @[], "calls": []"#, r#"draws: at least one is needed"#),
    (
        r#""policy": {"generic": {}}, "calls": [{"attempts": [{"outcome": "ok", @"pushback": "5"}]}]"#,
        r#"unknown field "pushback" in an attempt of generic; expected one of "after", "outcome", "hint", "stage""#,
    ),
    (
        r#""policy": {"generic": {}}, "calls": [{"attempts": [{"outcome": @"okay"}]}]"#,
        r#"outcome: unknown outcome "okay"; expected one of "ok", "fatal""#,
    ),
    (
        r#""policy": {"generic": {}}, "calls": [{"attempts": [{"outcome": "hang", "hint": @5}]}]"#,
        r#"an attempt that hangs has no stage and no hint"#,
    ),
    (
        r#""policy": {"generic": {}}, "calls": [{"attempts": [{"outcome": "server", "hint": @"soon"}]}]"#,
        r#"hint: expected a number of milliseconds, or "stop""#,
    ),
    (
        r#""policy": {"generic": {}}, "calls": [{"attempts": [@{"after": 5}]}]"#,
        r#"an attempt needs the field "outcome""#,
    ),
    (
        r#""policy": {"generic": {}}, "calls": [{"at": @"5", "attempts": []}]"#,
        r#"at: expected a number of milliseconds, found a string"#,
    ),
    (
        r#""policy": {"generic": {}}, "calls": [{"at": @-5, "attempts": []}]"#,
        r#"at: expected a number of milliseconds that is not negative, found -5"#,
    ),
    (
        r#""policy": {"generic": {"hedge": {"delay": "5ms"}}}, "calls": [{"idempotent": @false, "attempts": []}]"#,
        r#"a call that is not idempotent cannot be hedged"#,
    ),
    (
        r#""policy": {"generic": {"hedge": @{"delay": "5ms"}, "limits": {}}}, "calls": [{"attempts": []}]"#,
        r#"hedge: limits count delays between retries"#,
    ),
    (
        r#""policy": {"generic": {}}, "calls": [{"attempts": [], "expect": {"end": {"why": @"late"}}}]"#,
        r#"why: unknown reason "late"; expected one of "succeeded", "fatal""#,
    ),
    (
        r#""policy": {"generic": {}}, "calls": [{"attempts": [], "expect": {"end": {"outcome": @"hang"}}}]"#,
        r#"outcome: no call of generic ends with "hang""#,
    ),
    (
        r#""policy": {"generic": {}}, "calls": [{"attempts": [], "expect": {@"log": []}}]"#,
        r#"unknown field "log" in what is expected of a call of generic; expected one of "#,
    ),
    (
        r#""policy": {"generic": {}}, "calls": [{"attempts": [], "expect": {"cancels": {@"02": 5}}}]"#,
        r#"cancels: expected an attempt like "2", found "02""#,
    ),
    (
        r#""policy": {"generic": {}}, "calls": [{"attempts": [], @"attempts": []}]"#,
        r#"field "attempts" of a call of generic is there twice"#,
    ),
    (
        r#""policy": {"smithy": {"bucket": @{"refill_per_second": 0}}}, "calls": [{"attempts": []}]"#,
        r#"bucket.empty: "wait" needs a refill to wait for"#,
    ),
    (
        r#""policy": {"milvus": {}}, "calls": [{@"deadline": 5, "attempts": []}]"#,
        r#"unknown field "deadline" in a call of milvus"#,
    ),
    (
        r#""policy": {"milvus": {}}, "calls": [{"attempts": [{"outcome": @"ok"}]}]"#,
        r#"outcome: unknown outcome "ok"; expected "invalid-message", "hang" or a status"#,
    ),
    (
        r#""policy": {"couchbase": {"strategy": @"best"}}, "calls": []"#,
        r#"strategy: unknown strategy "best""#,
    ),
    (
        r#""policy": {"couchbase": {"strategy": "best-effort"}}, "calls": [@{"attempts": []}]"#,
        r#"a couchbase call needs "idempotent" or "operation""#,
    ),
    (
        r#""policy": {"couchbase": {"strategy": "best-effort"}}, "calls": [{"operation": @"", "attempts": []}]"#,
        r#"operation: expected a name like "kv.get""#,
    ),
    (
        r#""policy": {"couchbase": {"strategy": "best-effort"}}, "calls": [{"idempotent": true, "attempts": [{"outcome": @{"service": "kv"}}]}]"#,
        r#"a response needs the field "status""#,
    ),
    (
        r#""policy": {"couchbase": {"strategy": "best-effort"}}, "calls": [{"idempotent": true, "attempts": [{"outcome": @"failed"}]}]"#,
        r#"outcome: unknown reason "failed""#,
    ),
    (
        r#""policy": {"grpc": {"config": {}}}, "calls": [{"method": "/a.B/C", "attempts": [{"seen": "unsent", "outcome": @"OK"}]}]"#,
        r#"what was "seen" is the outcome"#,
    ),
    (
        r#""policy": {"grpc": {"config": {}}}, "calls": [{"method": @"a", "attempts": []}]"#,
        r#"method: expected "/package.Service/Method""#,
    ),
    (
        r#""policy": {"grpc": {"config": {}}}, "calls": [{"method": "/a.B/C", "attempts": [{"outcome": "OK", "after": 5, "headers": @6}]}]"#,
        r#"headers: they come ahead of the outcome"#,
    ),
    (
        r#""policy": {"grpc": {"config": {}}}, "calls": [{"method": "/a.B/C", "messages": [{"bytes": @2.5}], "attempts": []}]"#,
        r#"bytes: expected a whole number from 0 to 18446744073709551615, found 2.5"#,
    ),
    (
        r#""policy": {"grpc": {"config": {}}}, "calls": [{"method": "/a.B/C", "attempts": [{"seen": "unprocessed", "after": 5, "headers": @6}]}]"#,
        r#"headers: they come ahead of the outcome"#,
    ),
    (
        r#""policy": {"grpc": {"config": {"methodConfig": [{"timeout": @"5ms"}]}}}, "calls": [{"method": "/a.B/C", "attempts": []}]"#,
        r#"methodConfig[0].timeout: expected a duration like "0.1s" that is not negative, found "5ms"; write "0.005s" [timeout]"#,
    ),
    (
        r#""policy": {"grpc": {"config": @[]}}, "calls": [{"method": "/a.B/C", "attempts": []}]"#,
        r#"config: expected an object, found a list [type]"#,
    ),
    (r#""policy": {"grpc": @{"client": {}}}, "calls": []"#, r#"grpc needs the field "config""#),
    (
        r#""policy": {"grpc": {"config": {}, "client": {@"cap": 5}}}, "calls": []"#,
        r#"unknown field "cap" in client; expected one of "attempts_cap", "jitter""#,
    ),
    (
        r#""policy": {"grpc": {"config": {}, "client": {"attempts_cap": @0}}}, "calls": [{"method": "/a.B/C", "attempts": []}]"#,
        r#"attempts: 0 would never try"#,
    ),
    (
        r#""policy": {"grpc": {"config": {}, "client": {"jitter": {"proportional": @1.5}}}}, "calls": [{"method": "/a.B/C", "attempts": []}]"#,
        r#"jitter.proportional: must be between 0 and 1"#,
    ),
    (
        r#""policy": {"grpc": {"config": {}, "client": {"jitter": @"half"}}}, "calls": []"#,
        r#"jitter: expected "full" or {"proportional": 0.2}"#,
    ),
    (
        r#""policy": {"grpc": {"config": {}, "client": {"retries": @"none"}}}, "calls": []"#,
        r#"retries: expected true, false or "transparent""#,
    ),
    (
        r#""policy": {"grpc": {"config": {}, "client": {"pushback_max": @"soon"}}}, "calls": []"#,
        r#"pushback_max: expected a span like "250ms", or a number of milliseconds"#,
    ),
    (
        r#""policy": {"grpc": {"config": {}}}, "calls": [@{"attempts": []}]"#,
        r#"a call of grpc needs the field "method""#,
    ),
    (
        r#""policy": {"grpc": {"config": {}}}, "calls": [{"method": "/a.B/C", "attempts": [{"outcome": "OK", "pushback": ["5", @6]}]}]"#,
        r#"pushback: expected a string, found a number"#,
    ),
    (
        r#""policy": {"grpc": {"config": {}}}, "calls": [{"method": "/a.B/C", "attempts": [{"outcome": "hang", "pushback": @"6"}]}]"#,
        r#"an attempt that hangs has no pushback"#,
    ),
    (
        r#""policy": {"grpc": {"config": {}}}, "calls": [{"method": "/a.B/C", "attempts": [], "expect": {"previous": [null, @1]}}]"#,
        r#"previous: expected a string, found a number"#,
    ),
    (
        r#""policy": {"grpc": {"config": {}}}, "calls": [{"method": "/a.B/C", "attempts": []}], "expect": {"stats": {"/a.B/C": {"histogram": {@">=6": 1}}}}"#,
        r#"histogram: unknown bucket ">=6"; expected one of ">=1", ">=2""#,
    ),
];

/// A config case with an `@` before the error, and the start of the message.
const CONFIG_MISTAKES: [(&str, &str); 7] = [
    (r#"@{"name": "a", "valid": true}"#, r#"a config needs the field "text""#),
    (r#"@{"name": "a", "text": "{}"}"#, r#"a config needs the field "valid""#),
    (
        r#"{"name": "a", "text": "{}", "valid": true, "problems": @[{"path": "", "rule": "json"}]}"#,
        r#"problems: a valid config has none"#,
    ),
    (
        r#"{"name": "a", "text": "{", "valid": false, "lookup": @{"/a.B/C": null}}"#,
        r#"lookup: only a valid config has methods"#,
    ),
    (
        r#"{"name": "a", "text": "{}", "valid": true, "lookup": {"/a.B/C": @{}}}"#,
        r#"what a method gets: "retry", "hedge" or null"#,
    ),
    (
        r#"{"name": "a", "text": "{}", "valid": true, "lookup": {"/a.B/C": {"hedge": {@"first": 5}}}}"#,
        r#"unknown field "first" in hedge; expected one of "attempts", "delay", "codes""#,
    ),
    (
        r#"{"name": "a", "text": "{}", "valid": true, "lookup": {"/a.B/C": {"retry": {"codes": [@"NO"]}}}}"#,
        r#"codes: unknown status "NO"; expected one of "OK""#,
    ),
];

#[test]
fn scenarios_config_case_errors_have_positions() {
    for (marked, expected) in CONFIG_MISTAKES {
        let column = marked.find('@').expect("the place is marked") + 1;
        let text = format!("{{ \"configs\": [\n{} ] }}", marked.replacen('@', "", 1));
        let file = Temporary::new(&text);
        let (code, out, err) = scenarios(&[file.path()]);
        assert_eq!((code, out.as_str()), (Some(2), ""), "{marked}");
        assert!(err.starts_with(&format!("{}:2:{column}: {expected}", file.path())), "{err}");
    }
}

#[test]
fn scenarios_config_problems_are_reported_in_their_file() {
    let fields = r#""policy": {"grpc": {"config": {"methodConfig": [
            {"name": [{}], "retryPolicy": {"maxAttempts": 1, "initialBackoff": "0s",
             "maxBackoff": "1s", "backoffMultiplier": 2, "retryableStatusCodes": ["X"]}}]}}},
        "calls": [{"method": "/a.B/C", "attempts": [{"outcome": "UNAVAILABLE"}]}]"#;
    let (code, _, err) = one(fields);
    let places: Vec<_> = err.lines().map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!((code, places), (Some(2), vec!["FILE:3:59:", "FILE:3:80:", "FILE:4:83:"]));
}

#[test]
fn scenarios_json_of_grpc_and_configs_is_complete() {
    let text = r#"{ "scenarios": [ { "name": "a", "policy": {"grpc": {"config": {"methodConfig": [
        {"name": [{}], "timeout": "1s", "hedgingPolicy": {"maxAttempts": 2, "hedgingDelay": "0.01s"}}],
        "retryThrottling": {"maxTokens": 10, "tokenRatio": 0.1}}}}, "calls": [
        {"method": "/a.B/C", "attempts": [{"seen": "unprocessed"}, {"outcome": "hang"}, {"outcome": "OK"}],
         "expect": {"cancels": {"2": 10}}} ] } ] }"#;
    let file = Temporary::new(text);
    let (code, out, err) = scenarios(&["--json", file.path()]);
    assert_eq!((code, err.as_str()), (Some(0), "1 passed, 0 failed\n"));
    let object: Value = serde_json::from_str(&out).expect("one object");
    let expected = serde_json::json!({
        "calls": [ { "starts": [0, 0, 10], "cancels": {"2": 10}, "previous": [null, null, "1"],
            "timeouts": [1000, 1000, 990], "sent": [1, 1, 1], "tokens": 10.0,
            "end": {"at": 10, "outcome": "OK", "why": "succeeded", "attempt": 3} } ],
        "tokens": 10.0,
        "stats": { "/a.B/C": {"retries": 1, "failed": 0, "histogram": {">=1": 1}, "transparent": 1} },
    });
    assert_eq!(object["actual"], expected);
    let text = r#"{ "configs": [
        { "name": "a", "text": "{\"methodConfig\": [{\"name\": [{}], \"tmeout\": 5}]}", "valid": true, "lookup": {"/a.B/C": null} },
        { "name": "b", "text": "{\n\"methodConfig\": 5}", "valid": true } ] }"#;
    let file = Temporary::new(text);
    let (code, out, err) = scenarios(&["--json", file.path()]);
    assert_eq!((code, err.as_str()), (Some(1), "1 passed, 1 failed\n"));
    let objects: Vec<Value> =
        out.lines().map(|line| serde_json::from_str(line).expect("one object")).collect();
    let warning = serde_json::json!({ "path": "methodConfig[0].tmeout", "rule": "unknown-field",
        "line": 1, "column": 34, "what": "is no field of an entry of methodConfig",
        "hint": "did you mean \"timeout\"?" });
    let expected = serde_json::json!({ "valid": true, "problems": [], "warnings": [warning],
        "lookup": {"/a.B/C": null} });
    assert_eq!(objects[0]["actual"], expected);
    let problem = &objects[1]["actual"]["problems"][0];
    assert_eq!((&problem["line"], &problem["rule"]), (&2.into(), &"type".into()));
    assert_eq!(objects[1]["differences"][0]["what"], "valid");
}

#[test]
fn scenarios_errors_have_position_and_expected_value() {
    for (marked, expected) in MISTAKES {
        let before = marked.find('@').expect("the place is marked");
        let column = "{ \"name\": \"one\", ".len() + before + 1;
        let (code, out, err) = one(&marked.replacen('@', "", 1));
        assert_eq!((code, out.as_str()), (Some(2), ""), "{marked}");
        let first = err.lines().next().unwrap_or_default();
        assert!(first.starts_with(&format!("FILE:2:{column}: {expected}")), "{marked}\n{err}");
    }
    let (_, _, err) = one(r#""policy": {"generic": {}}"#);
    assert_eq!(err, "FILE:2:1: a scenario needs \"calls\", or \"refused\": true\n");
}

#[test]
fn scenarios_errors_of_a_file_are_listed_in_order() {
    let (code, _, err) = one(r#""frm": "P1", "policy": {"generic": {}}, "calls": [
        { "attempts": [{"outcome": "oh"}], "expect": {"starts": 0} },
        { "attempt": [] } ]"#);
    assert_eq!(code, Some(2));
    let places: Vec<_> = err.lines().map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!(places, ["FILE:2:18:", "FILE:3:36:", "FILE:3:65:", "FILE:4:9:", "FILE:4:11:"]);
}

#[test]
fn scenarios_errors_of_an_attempt_are_all_listed() {
    let (code, _, err) = one(r#""policy": {"generic": {}}, "calls": [
{"attempts": [{"outcome": "UNAVAILABLE", "after": -1, "hint": "never", "stage": "sent"}]}]"#);
    let found: Vec<_> = err.lines().map(|line| line.split(' ').nth(1).unwrap()).collect();
    assert_eq!((code, found), (Some(2), vec!["outcome:", "after:", "hint:", "stage:"]));
}

#[test]
fn scenarios_field_error_is_reported_once() {
    let (code, _, err) = one(r#""policy": {"grpc": {"config": {}}}, "calls": [
{"method": "/a.B/C", "attempts": [{"outcome": "OK", "headers": "5"}]}]"#);
    let expected = "FILE:3:64: headers: expected a number of milliseconds, found a string\n";
    assert_eq!((code, err.as_str()), (Some(2), expected));
}

#[test]
fn scenarios_name_of_wrong_type_is_reported_once() {
    let file = Temporary::new(format!("{{ \"scenarios\": [\n{{ \"name\": 1, {HOLDS} }}] }}"));
    let (code, _, err) = scenarios(&[file.path()]);
    let expected = format!("{}:2:11: name: expected a string, found a number\n", file.path());
    assert_eq!((code, err), (Some(2), expected));
}

#[test]
fn scenarios_duplicate_name_is_an_error() {
    let text = format!(
        "{{ \"scenarios\": [{{ \"name\": \"one\", {HOLDS} }},\n{{ \"name\": \"one\", {HOLDS} }}] }}"
    );
    let file = Temporary::new(&text);
    let (code, _, err) = scenarios(&[file.path()]);
    assert_eq!(
        (code, err),
        (Some(2), format!("{}:4:11: name: \"one\" is there twice\n", file.path()))
    );
}

#[test]
fn scenarios_help_fits_a_narrow_terminal() {
    for command in ["scenarios", "faults", "demo"] {
        let mut help = Command::new(env!("CARGO_BIN_EXE_redial"));
        let output = help.args([command, "--help"]).env("COLUMNS", "60").output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let widest = text.lines().map(|line| line.chars().count()).max();
        assert!(widest.is_some_and(|width| width <= 60), "{text}");
    }
}
