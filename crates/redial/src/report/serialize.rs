//! Reports in JSON and other formats.

use std::time::Duration;

use serde::ser::{Serialize, SerializeStruct, Serializer};

use super::{AttemptEnd, AttemptRecord, Report};
use crate::call_log::event_json::JsonFailure;
use crate::policy_name::PolicyName;

/// One division, so that the written value has no rounding digits.
fn milliseconds(span: Duration) -> f64 {
    span.as_nanos() as f64 / 1e6
}

impl Serialize for PolicyName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Serialize for Report {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Report {
            policy,
            attempts,
            attempts_max,
            elapsed,
            elapsed_exact,
            stop_reason,
            tokens,
            error,
            history,
        } = self;
        let gap = self.history_left_out();
        let left_out = [
            attempts_max.is_none(),
            tokens.is_none(),
            error.is_none(),
            history.is_empty(),
            gap == 0,
        ];
        let fields = 10 - left_out.into_iter().filter(|is_left_out| *is_left_out).count();
        let mut out = serializer.serialize_struct("Report", fields)?;
        out.serialize_field("policy", policy)?;
        out.serialize_field("attempts", attempts)?;
        optional(&mut out, "attempts_max", attempts_max.as_ref())?;
        out.serialize_field("elapsed_ms", &milliseconds(*elapsed))?;
        out.serialize_field("elapsed_exact", elapsed_exact)?;
        out.serialize_field("stop_reason", stop_reason.name())?;
        optional(&mut out, "tokens", tokens.as_ref())?;
        optional(&mut out, "error", error.as_ref())?;
        optional(&mut out, "history", (!history.is_empty()).then_some(history))?;
        optional(&mut out, "history_left_out", (gap > 0).then_some(&gap))?;
        out.end()
    }
}

impl Serialize for AttemptRecord {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let AttemptRecord { attempt, started, ended, end, error } = self;
        let (end, failure) = match end {
            AttemptEnd::Succeeded => ("succeeded", None),
            AttemptEnd::Fatal => ("fatal", None),
            AttemptEnd::Failed(failure) => ("failed", Some(JsonFailure::from(*failure))),
            AttemptEnd::TimedOut => ("timed-out", None),
            AttemptEnd::Cancelled => ("cancelled", None),
            AttemptEnd::Running => ("running", None),
        };
        let fields = 4 + usize::from(failure.is_some()) + usize::from(error.is_some());
        let mut out = serializer.serialize_struct("AttemptRecord", fields)?;
        out.serialize_field("attempt", attempt)?;
        out.serialize_field("started_ms", &milliseconds(*started))?;
        out.serialize_field("ended_ms", &milliseconds(*ended))?;
        out.serialize_field("end", end)?;
        optional(&mut out, "failure", failure.as_ref())?;
        optional(&mut out, "error", error.as_ref())?;
        out.end()
    }
}

/// Writes a field that has a value.
fn optional<S: SerializeStruct>(
    out: &mut S,
    name: &'static str,
    value: Option<&impl Serialize>,
) -> Result<(), S::Error> {
    match value {
        Some(value) => out.serialize_field(name, value),
        None => out.skip_field(name),
    }
}

#[cfg(test)]
mod tests {
    use redial_core::{Failure, StopReason, ms};

    use super::*;

    #[test]
    fn report_is_serialized_with_its_documented_fields() {
        let policy = PolicyName::new("fetch");
        let record = |attempt, end, error: Option<&str>| AttemptRecord {
            attempt,
            started: ms(1),
            ended: Duration::from_nanos(26_220_383),
            end,
            error: error.map(Box::from),
        };
        let mut report = Report {
            policy,
            attempts: 3,
            attempts_max: Some(5),
            elapsed: Duration::from_micros(1_500),
            elapsed_exact: true,
            stop_reason: StopReason::Throttled,
            tokens: Some(0.5),
            error: Some("no answer in time".into()),
            history: vec![
                record(
                    1,
                    AttemptEnd::Failed(Failure::throttling().retry_after(ms(7))),
                    Some("busy"),
                ),
                record(2, AttemptEnd::TimedOut, None),
                record(3, AttemptEnd::Fatal, None),
                record(4, AttemptEnd::Succeeded, None),
                record(5, AttemptEnd::Cancelled, None),
                record(6, AttemptEnd::Running, None),
            ],
        };
        let json = serde_json::to_value(&report).unwrap();
        let times = |attempt: u32, end: &str| {
            serde_json::json!({
                "attempt": attempt, "started_ms": 1.0, "ended_ms": 26.220383, "end": end
            })
        };
        let mut first = times(1, "failed");
        let hint = serde_json::json!({"after": {"secs": 0, "nanos": 7_000_000}});
        first["failure"] =
            serde_json::json!({"kind": "throttling", "stage": "answered", "hint": hint});
        first["error"] = "busy".into();
        let ends = ["timed-out", "fatal", "succeeded", "cancelled", "running"];
        let rest = (2..).zip(ends).map(|(attempt, end)| times(attempt, end));
        let expected = serde_json::json!({
            "policy": "fetch",
            "attempts": 3,
            "attempts_max": 5,
            "elapsed_ms": 1.5,
            "elapsed_exact": true,
            "stop_reason": "throttled",
            "tokens": 0.5,
            "error": "no answer in time",
            "history": std::iter::once(first).chain(rest).collect::<Vec<_>>(),
        });
        assert_eq!(json, expected);

        report.history.remove(2);
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["history_left_out"], 1, "attempt 3");

        (report.attempts_max, report.tokens) = (None, None);
        (report.error, report.history) = (None, Vec::new());
        assert_eq!(
            serde_json::to_string(&report).unwrap(),
            r#"{"policy":"fetch","attempts":3,"elapsed_ms":1.5,"elapsed_exact":true,"stop_reason":"throttled"}"#
        );
    }
}
