//! The JSON format of scripts: every field, and what is wrong with the rest.

use redial_faults::grpc::StatusNumber;
use redial_faults::proxy::{BODY_BYTES_MAX, ConnectionFault, Fault, ProxyRule, Script};

use super::support::ms;

fn fault(text: &str) -> Result<Fault, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}

#[test]
fn json_faults_mean_the_same_as_the_builders() {
    let cases = [
        ("{}", Fault::pass()),
        (
            r#"{"delay": 1.5, "delay_response": 2}"#,
            Fault::pass().delay(ms(3) / 2).delay_response(ms(2)),
        ),
        (
            r#"{"status": 429, "headers": {"retry-after": "1", "x": ["a", "b"]}, "body": "no"}"#,
            Fault::status(429)
                .header("retry-after", "1")
                .header("x", "a")
                .header("x", "b")
                .body("no"),
        ),
        (
            r#"{"grpc_status": "ABORTED", "message": "a\nb", "after_upstream": true}"#,
            Fault::grpc_status(StatusNumber::ABORTED).message("a\nb").after_upstream(),
        ),
        (r#"{"grpc_status": 99}"#, Fault::grpc_status(StatusNumber(99))),
        (r#"{"reset": {}}"#, Fault::reset()),
        (r#"{"close": {"response_bytes": 7}}"#, Fault::close().at_response_bytes(7)),
        (r#"{"stall": {"request_bytes": 7}}"#, Fault::stall().at_request_bytes(7)),
    ];
    for (text, expected) in cases {
        assert_eq!(fault(text), Ok(expected), "{text}");
    }
    let rule: ProxyRule = serde_json::from_str(
        r#"{"fault": {"status": 500}, "method": "GET", "path": "/a*", "headers": {"x": "*"}, "skip": 1, "times": 2, "rate": 0.5}"#,
    )
    .unwrap();
    let expected = ProxyRule::new(Fault::status(500)).method("GET").path("/a*").header("x", "*");
    assert_eq!(rule, expected.skip(1).times(2).rate(0.5));
    let fault: ConnectionFault =
        serde_json::from_str(r#"{"close": {"down_bytes": 3}, "delay": 1, "latency": 2}"#).unwrap();
    assert_eq!(fault, ConnectionFault::close().at_down_bytes(3).delay(ms(1)).latency(ms(2)));
}

#[test]
fn json_mistakes_say_what_to_write_instead() {
    let cases = [
        (r#"{"status": 99}"#, "99 is no final status of HTTP: 200 to 999"),
        (r#"{"status": 100}"#, "100 is no final status of HTTP: 200 to 999"),
        (r#"{"status": 503, "reset": {}}"#, "expected at most one of \"status\""),
        (r#"{"headers": {"a": "b"}}"#, "headers belong to a fault with a status"),
        (r#"{"status": 503, "headers": {"a b": "c"}}"#, "\"a b\" is no name of a header"),
        (r#"{"status": 503, "headers": {"a": "\n"}}"#, "cannot stand in a header"),
        (
            r#"{"status": 503, "headers": {"content-length": "1"}}"#,
            "the proxy sets content-length itself",
        ),
        (r#"{"body": "x"}"#, "a body belongs to a fault with a status"),
        (
            r#"{"status": 503, "message": "x"}"#,
            "\"message\" belongs to \"grpc_status\"; use \"body\"",
        ),
        (r#"{"grpc_status": "BUSY"}"#, "unknown status \"BUSY\"; expected a number or one of OK,"),
        (r#"{"reset": true}"#, "an object: {} or"),
        (
            r#"{"reset": {"request_bytes": 1, "response_bytes": 2}}"#,
            "expected one of \"request_bytes\"",
        ),
        (
            r#"{"reset": {"request_bytes": 1}, "after_upstream": true}"#,
            "cannot come after the upstream",
        ),
        (r#"{"after_upstream": true}"#, "without a status, reset, close or stall"),
        (r#"{"after_upstream": false}"#, "expected true, or no such field"),
        (r#"{"delay": -1}"#, "expected milliseconds that are not negative"),
        (r#"{"dealy": 1}"#, "unknown field `dealy`, expected one of `delay`"),
        ("[]", "a fault: an object like {\"status\": 503}"),
    ];
    for (text, expected) in cases {
        let error = fault(text).unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
    }
    let cases = [
        (
            r#"{"rules": [{"rate": 1.5, "fault": {"status": 503}}]}"#,
            "rate: expected a number from 0 to 1",
        ),
        (
            r#"{"rules": [{"path": "a", "fault": {}}]}"#,
            "path: expected \"/...\" or \"*\", found \"a\"",
        ),
        (r#"{"rules": [{"method": "A B", "fault": {}}]}"#, "\"A B\" is no method of HTTP"),
        (r#"{"rules": [{"rate": 1}]}"#, "missing field `fault`"),
        (r#"{"calls": {"a": [], "a": []}}"#, "\"a\" is there twice"),
        (r#"{"refuse": [{"from": 1}]}"#, "missing field `for`"),
        (r#"{"connections": [{"reset": {}, "close": {}}]}"#, "expected at most one of \"reset\""),
        (
            r#"{"connections": [{"reset": {"up_bytes": 1, "down_bytes": 1}}]}"#,
            "expected one of \"up_bytes\"",
        ),
        (r#"{"connection_rules": [{"rate": -0.1, "fault": {"reset": {}}}]}"#, "rate: expected"),
        (r#"{"request": []}"#, "unknown field `request`"),
    ];
    for (text, expected) in cases {
        let error = serde_json::from_str::<Script>(text).unwrap_err().to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn fault_body_has_a_limit() {
    let fault = |bytes: usize| Fault::status(503).body(vec![b'x'; bytes]);
    assert_eq!(fault(BODY_BYTES_MAX).check(), Ok(()));
    let error = fault(BODY_BYTES_MAX + 1).check().unwrap_err().to_string();
    assert_eq!(error, "a body has at most 1048576 bytes");
}
