//! The error map: parsed as `kv_engine` and SDK RFC 13 describe it; an invalid map is rejected as a whole.

use redial::ms;
use redial_couchbase::{
    ERROR_MAP_BYTES_MAX, ErrorMap, ErrorMapEntry, ErrorMapError, Response, ResponseOutcome,
    RetrySpec, RetrySpecStrategy, reason,
};

const FIRST: &str = r#"{ "version": 1, "revision": 4, "errors": {
    "0": { "name": "SUCCESS", "desc": "Success", "attrs": ["success"] },
    "20": { "name": "AUTH_ERROR", "desc": "Authentication failed",
            "attrs": ["conn-state-invalidated", "auth"] },
    "7ff0": { "name": "DUMMY_RETRY_CONSTANT", "desc": "constant", "attrs": ["auto-retry", "temp"],
              "retry": { "strategy": "constant", "interval": 10, "after": 50, "max-duration": 500 } },
    "7ff1": { "name": "DUMMY_RETRY_LINEAR", "desc": "linear", "attrs": ["auto-retry", "temp"],
              "retry": { "strategy": "linear", "interval": 100, "after": 500, "ceil": 250,
                         "max-duration": 2000 } },
    "7FF2": { "name": "DUMMY_RETRY_EXPONENTIAL", "desc": "exponential",
              "attrs": ["auto-retry", "temp"],
              "retry": { "strategy": "exponential", "interval": 2, "after": 10, "ceil": 500,
                         "max-duration": 0 } } } }"#;

const SECOND: &str = r#"{ "version": 2, "revision": 9, "errors": {
    "32": { "name": "RATE_LIMITED", "desc": "Rate limit", "attrs": ["rate-limit", "retry-later"] },
    "1234": { "name": "NEW", "desc": "", "attrs": ["something-new"], "hint": {"more": 1},
              "retry": { "strategy": "fibonacci", "interval": 1 } } } }"#;

#[test]
fn error_map_version_1_is_parsed_with_intervals() {
    let map = ErrorMap::from_json(FIRST).expect("a map");
    assert_eq!((map.version(), map.revision(), map.entries().count()), (1, 4, 5));
    let entry = map.entry(0x7ff0).expect("an entry");
    assert_eq!((entry.name(), entry.description()), ("DUMMY_RETRY_CONSTANT", "constant"));
    assert_eq!(entry.attributes(), ["auto-retry", "temp"]);
    let spec = entry.retry().expect("intervals");
    let mut expected = RetrySpec::new(RetrySpecStrategy::Constant, ms(10));
    expected.after = ms(50);
    expected.duration_max = Some(ms(500));
    assert_eq!(*spec, expected);
    // Keys are hexadecimal in any case; a maximum duration of 0 leaves it to the client.
    let spec = map.entry(0x7ff2).and_then(|entry| entry.retry().copied()).expect("intervals");
    assert_eq!((spec.strategy, spec.duration_max), (RetrySpecStrategy::Exponential, None));
}

#[test]
fn error_map_version_2_ignores_unknown_fields() {
    let map = ErrorMap::from_json(SECOND).expect("a map");
    assert_eq!((map.version(), map.revision()), (2, 9));
    let outcome = |status| Response::kv(status).with_error_map(&map).classify();
    assert_eq!(outcome(0x32), ResponseOutcome::Retry(reason::KV_ERROR_MAP_RETRY_INDICATED));
    assert_eq!(outcome(0x1234), ResponseOutcome::Failed);
    let entry = map.entry(0x1234).expect("an entry");
    assert_eq!((entry.attributes(), entry.retry()), (&["something-new".to_owned()][..], None));
}

#[test]
fn error_map_intervals_follow_strategy_without_overflow() {
    let map = ErrorMap::from_json(FIRST).expect("a map");
    let delays = |status: u16| {
        let spec = *map.entry(status).and_then(|entry| entry.retry()).expect("intervals");
        [0, 1, 2, 3, u32::MAX].map(|retries| spec.delay(retries).as_millis())
    };
    assert_eq!(delays(0x7ff0), [50, 10, 10, 10, 10]);
    assert_eq!(delays(0x7ff1), [500, 100, 200, 250, 250]);
    assert_eq!(delays(0x7ff2), [10, 2, 4, 8, 500]);
    let unbounded = RetrySpec::new(RetrySpecStrategy::Exponential, std::time::Duration::MAX);
    assert!(unbounded.delay(u32::MAX) > ms(1));
}

#[test]
fn error_map_with_invalid_json_is_rejected() {
    let broken = [
        ("", "json"),
        ("[]", "json"),
        ("{}", "json"),
        (r#"{"version": 1, "revision": 1}"#, "json"),
        (r#"{"version": -1, "revision": 1, "errors": {}}"#, "json"),
        (r#"{"version": 1, "revision": 1, "errors": {"1": {"attrs": "temp"}}}"#, "json"),
        (r#"{"version": 0, "revision": 1, "errors": {}}"#, "version"),
        (r#"{"version": 1, "revision": 1, "errors": {"zz": {}}}"#, "status"),
        (r#"{"version": 1, "revision": 1, "errors": {"+1": {}}}"#, "status"),
        (r#"{"version": 1, "revision": 1, "errors": {"": {}}}"#, "status"),
        (r#"{"version": 1, "revision": 1, "errors": {"10000": {}}}"#, "status"),
    ];
    for (text, expected) in broken {
        let error = ErrorMap::from_json(text).expect_err(text);
        let kind = match &error {
            ErrorMapError::Json(_) => "json",
            ErrorMapError::Version(_) => "version",
            ErrorMapError::Status(_) => "status",
            _ => "other",
        };
        assert_eq!(kind, expected, "{text}: {error}");
        assert!(error.to_string().starts_with("error map: "), "{error}");
    }
}

#[test]
fn error_map_length_is_limited() {
    let text = |length: usize| {
        let map = r#"{"version": 1, "revision": 1, "errors": {}}"#;
        format!("{map}{}", " ".repeat(length - map.len()))
    };
    let at_the_limit = ErrorMap::from_json(&text(ERROR_MAP_BYTES_MAX)).expect("a map");
    assert_eq!(at_the_limit.entries().count(), 0);
    let past_it = ErrorMap::from_json(&text(ERROR_MAP_BYTES_MAX + 1));
    assert!(matches!(past_it, Err(ErrorMapError::TooLong)));
}

#[test]
fn error_map_can_be_built_in_code() {
    let map = ErrorMap::new().with(0x42, ErrorMapEntry::of(["retry-now"]));
    assert_eq!(map.entry(0x42).map(|entry| entry.indicates_retry()), Some(true));
    assert_eq!(map.entry(0x43), None);
}
