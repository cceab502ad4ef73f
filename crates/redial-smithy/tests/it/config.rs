//! Options as JSON: the fields of S9, each of which overrides only its own value.

use redial::{ms, s};
use redial_smithy::{BucketOptions, CostOptions, MaxAttempts};

use super::*;

fn read(text: &str) -> Result<StandardRetryStrategy, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}

#[test]
fn config_round_trips_every_field() {
    let text = r#"{
        "preset": "aws-2026", "attempts": 4, "time_max": "1.5s", "backoff_first": "20ms",
        "backoff_factor": 3, "backoff_cap": "10s", "jitter": {"proportional": 0.2},
        "throttling_first": "2s", "order": "backoff-first", "hint": "exact",
        "bucket": {"capacity": 100, "costs": {"server": 1, "client": 2, "throttling": 3, "timeout": 4},
                   "success": 0.5, "refill_per_second": 2.5, "empty": "wait"} }"#;
    let costs = CostOptions {
        server: Some(1.0),
        client: Some(2.0),
        throttling: Some(3.0),
        timeout: Some(4.0),
    };
    let expected = StandardRetryStrategy {
        preset: StandardPreset::Aws2026,
        attempts: Some(MaxAttempts::Limited(4)),
        time_max: Some(ms(1500)),
        backoff_first: Some(ms(20)),
        backoff_factor: Some(3.0),
        backoff_cap: Some(s(10)),
        jitter: Some(Jitter::Proportional(0.2)),
        throttling_first: Some(s(2)),
        order: Some(TokenOrder::BackoffFirst),
        hint: Some(RetryAfterRule::Exact),
        bucket: BucketOptions {
            capacity: Some(100.0),
            costs,
            success: Some(0.5),
            refill_per_second: Some(2.5),
            empty: Some(WhenEmpty::Wait),
        },
    };
    assert_eq!(read(text), Ok(expected));
    let written = serde_json::to_string(&expected).expect("serializable");
    assert_eq!(read(&written), Ok(expected), "{written}");
}

#[test]
fn config_missing_fields_come_from_preset() {
    assert_eq!(read("{}"), Ok(StandardRetryStrategy::standard()));
    for preset in StandardPreset::ALL {
        let text = format!(r#"{{"preset": "{}"}}"#, preset.name());
        assert_eq!(read(&text), Ok(StandardRetryStrategy::of(preset)));
    }
    let text = r#"{"preset": "aws-2026", "bucket": {"costs": {"server": 20}}}"#;
    assert_eq!(read(text), Ok(StandardRetryStrategy::aws_2026().cost(FailureKind::Server, 20.0)));
    let text = r#"{"attempts": "unlimited", "time_max": "1m", "hint": "within-5s"}"#;
    let expected = StandardRetryStrategy::standard()
        .unlimited()
        .time_max(s(60))
        .hint(RetryAfterRule::Within5s);
    assert_eq!(read(text), Ok(expected));
    let text = r#"{"order": "token-first", "jitter": "none", "bucket": {"empty": "fail"}}"#;
    assert_eq!(read(text), Ok(PLAIN.order(TokenOrder::TokenFirst).empty(WhenEmpty::Fail)));
}

#[test]
fn config_error_reports_position() {
    for (text, part) in [
        (r#"{"attempt": 3}"#, "unknown field `attempt`"),
        (r#"{"bucket": {"cost": 3}}"#, "unknown field `cost`"),
        (r#"{"bucket": {"costs": {"fatal": 3}}}"#, "unknown field `fatal`"),
        (r#"{"preset": "aws"}"#, "unknown variant `aws`"),
        (r#"{"order": "first"}"#, "unknown variant `first`"),
        (r#"{"hint": "within-6s"}"#, "unknown variant `within-6s`"),
        (r#"{"bucket": {"empty": "full"}}"#, "unknown variant `full`"),
        (r#"{"time_max": 5}"#, "a duration"),
        (r#"{"attempts": "many"}"#, "attempts as a number"),
    ] {
        let error = read(text).expect_err(text);
        assert!(error.contains(part) && error.contains("line 1 column"), "{text}: {error}");
    }
}

#[test]
fn config_with_invalid_policy_fails_to_build() {
    for (text, problem) in [
        (
            r#"{"bucket": {"refill_per_second": 0, "empty": "wait"}}"#,
            PolicyError::WaitWithoutRefill,
        ),
        (r#"{"bucket": {"refill_per_second": 0}}"#, PolicyError::WaitWithoutRefill),
        (r#"{"bucket": {"costs": {"server": 501}}}"#, PolicyError::CostAboveCapacity),
        (r#"{"attempts": 0}"#, PolicyError::NoAttempt),
        (r#"{"backoff_factor": 0}"#, PolicyError::Factor),
        (r#"{"attempts": "unlimited"}"#, PolicyError::Unlimited),
    ] {
        let refused = read(text).expect("readable").policy().map(|_| ());
        assert_eq!(refused, Err(problem), "{text}");
    }
}
