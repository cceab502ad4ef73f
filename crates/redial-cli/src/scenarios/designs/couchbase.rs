//! `couchbase`: strategies, reasons, responses and the log.

use std::time::Duration;

use jsonc_parser::ast::Value;
use jsonc_parser::common::Ranged;
use redial::config::{AnyPolicy, BackoffConfig};
use redial::testing::Played;
use redial_couchbase::{
    BackoffCalculator, ErrorMapEntry, RequestOperation, Response, ResponseOutcome, StrategyName,
    TerminalError, UnknownName, orchestrator, reason, retry_log_lines,
};
use serde::Deserialize;

use super::super::json::{Fields, Reader, find, quoted};
use super::super::model::{Call, Outcome};
use super::{Extras, FieldNames, Refusal, comes};

/// The field names of `couchbase` scenarios.
pub(super) static FIELD_NAMES: FieldNames = FieldNames {
    call: &["at", "deadline", "cancel", "idempotent", "operation", "attempts", "expect"],
    attempt: &["after", "outcome"],
    expect: &["starts", "cancels", "end", "log"],
    whole: &[],
};

/// The field names of a response.
const RESPONSE: [&str; 7] = ["service", "status", "command", "error_map", "code", "text", "http"];

/// A strategy, and the delays of best effort.
#[derive(Debug)]
pub(in super::super) struct Plan {
    strategy: StrategyName,
    backoff: Option<BackoffConfig>,
}

impl Plan {
    pub(super) fn read<'t>(reader: &Reader<'t>, value: &'t Value<'t>) -> Option<Self> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Form {
            strategy: Option<String>,
            backoff: Option<BackoffConfig>,
        }
        let Form { strategy, backoff } = reader.deserialize(value, "couchbase")?;
        // Absent fields are those of a new client (decision C14).
        let Some(strategy) = strategy else {
            return Some(Plan { strategy: StrategyName::FastFailOnTerminalError, backoff });
        };
        match StrategyName::parse(&strategy) {
            Ok(strategy) => Some(Plan { strategy, backoff }),
            Err(unknown) => {
                let names = quoted(&StrategyName::ALL.each_ref().map(StrategyName::name));
                let text = mistaken("strategy", &unknown, &format!("one of {names}"));
                reader.diagnostic(find(value, "strategy"), text)
            }
        }
    }

    /// A policy for each call: its deadline is the request's timeout.
    pub(super) fn build(&self, calls: &[Call]) -> Result<Vec<AnyPolicy>, Refusal> {
        let refusal =
            |problem: redial::PolicyError| Refusal::of(problem.field(), problem.to_string());
        let delays = self.delays().map_err(refusal)?;
        let strategy = self.strategy.strategy(delays);
        let timeouts =
            calls.iter().map(|call| call.deadline.map_or(Duration::MAX, Duration::from_nanos));
        timeouts
            .map(|timeout| {
                let policy = orchestrator::policy(timeout);
                policy.with_strategy(strategy.clone()).map(AnyPolicy::Policy).map_err(refusal)
            })
            .collect()
    }

    /// The strategy of all calls.
    pub(in super::super) fn strategy(
        &self,
    ) -> Result<impl redial::strategy::Strategy + Clone + use<>, redial::PolicyError> {
        Ok(self.strategy.strategy(self.delays()?))
    }

    fn delays(&self) -> Result<BackoffCalculator, redial::PolicyError> {
        use redial::rules::Backoff as Series;
        let series = match self.backoff.as_ref() {
            None => return Ok(BackoffCalculator::BEST_EFFORT),
            Some(BackoffConfig::Table(table)) => {
                return BackoffCalculator::from_table(table.as_slice());
            }
            Some(BackoffConfig::Constant(delay)) => Series::Constant(*delay),
            Some(&BackoffConfig::Arithmetic { first, step, cap }) => {
                Series::Arithmetic { first, step, cap }
            }
            Some(&BackoffConfig::Exponential { first, factor, cap }) => {
                Series::Exponential { first, factor, cap }
            }
            Some(&BackoffConfig::Fibonacci { first, cap }) => Series::Fibonacci { first, cap },
        };
        BackoffCalculator::from_backoff(series)
    }
}

/// Whether the request is idempotent: from `idempotent` or from its `operation` (decision C16).
pub(super) fn idempotent<'t>(reader: &Reader<'t>, call: &Fields<'t>) -> Option<bool> {
    match (call.get("idempotent"), call.get("operation")) {
        (Some(value), None) => reader.boolean(value, "idempotent"),
        (None, Some(value)) => {
            let name = reader.string(value, "operation")?;
            if name.is_empty() {
                return reader
                    .diagnostic(value.start(), "operation: expected a name like \"kv.get\"");
            }
            // Operations that the document does not list are not idempotent.
            Some(RequestOperation::parse(name).is_ok_and(|operation| operation.is_idempotent()))
        }
        (Some(_), Some(value)) => {
            reader.diagnostic(value.start(), "a call has \"idempotent\" or \"operation\", not both")
        }
        (None, None) => {
            reader.diagnostic(call.at, "a couchbase call needs \"idempotent\" or \"operation\"")
        }
    }
}

pub(super) fn outcome<'t>(
    reader: &Reader<'t>,
    attempt: &Fields<'t>,
    call: &Fields<'t>,
) -> Option<Outcome> {
    let value = reader.needs(attempt, "outcome", "an attempt")?;
    let result = match value {
        Value::Object(_) => response(reader, value)?.for_operation(operation(call)).classify(),
        value => match reader.string(value, "outcome (a reason, or an object for a response)")? {
            "ok" => ResponseOutcome::Ok,
            "hang" => return Some(Outcome::Hang),
            name => match reason::parse(name) {
                Ok(reason) => ResponseOutcome::Retry(reason),
                Err(unknown) => {
                    let expected = "\"ok\", \"hang\", one like \"KV_LOCKED\", or a response";
                    return reader
                        .diagnostic(value.start(), mistaken("outcome", &unknown, expected));
                }
            },
        },
    };
    let name = match result {
        ResponseOutcome::Ok => "ok",
        ResponseOutcome::Failed => "failed",
        ResponseOutcome::Retry(reason) => reason.name(),
    };
    Some(comes(name, result.directive()))
}

/// The operation that a call names.
pub(super) fn operation_name(call: &Fields<'_>) -> Option<String> {
    Some(operation(call)).filter(|name| !name.is_empty()).map(str::to_owned)
}

/// The response of an attempt, if its outcome is one.
pub(super) fn written_response<'t>(reader: &Reader<'t>, attempt: &Fields<'t>) -> Option<Response> {
    match attempt.get("outcome")? {
        value @ Value::Object(_) => response(reader, value),
        _ => None,
    }
}

/// The error for an unknown name: a suggestion, or the expected names.
fn mistaken(field: &str, unknown: &UnknownName, expected: &str) -> String {
    match unknown.nearest() {
        Some(_) => format!("{field}: {unknown}"),
        None => format!("{field}: {unknown}; expected {expected}"),
    }
}

/// The name of the call's operation; empty if the call only has `idempotent`.
fn operation<'t>(call: &Fields<'t>) -> &'t str {
    match call.get("operation") {
        Some(Value::StringLit(operation)) => &operation.value,
        _ => "",
    }
}

fn response<'t>(reader: &Reader<'t>, value: &'t Value<'t>) -> Option<Response> {
    let fields = reader.object(value, "a response", &RESPONSE)?;
    let service = reader.needs(&fields, "service", "a response")?;
    let name = reader.string(service, "service")?;
    let (says, known): (&[&str], _) = match name {
        "kv" => (&["status", "command", "error_map"], "status"),
        "query" => (&["code", "text"], "code"),
        "analytics" => (&["code", "text"], "code"),
        "search" => (&["http", "text"], "http"),
        "views" => (&["http", "text"], "http"),
        other => {
            let expected = quoted(&["kv", "query", "analytics", "search", "views"]);
            let text = format!("service: unknown service {other:?}; expected one of {expected}");
            return reader.diagnostic(service.start(), text);
        }
    };
    let foreign = RESPONSE[1..].iter().filter(|field| !says.contains(*field));
    if let Some((field, value)) = foreign.filter_map(|f| Some((f, fields.get(f)?))).next() {
        let expected = quoted(says);
        let text = format!("a response of {name} has no {field:?}; expected one of {expected}");
        return reader.diagnostic(value.start(), text);
    }
    let most = if known == "code" { u64::from(u32::MAX) } else { u64::from(u16::MAX) };
    let number = reader.whole(reader.needs(&fields, known, "a response")?, known, 0, most)?;
    // It fits by the bound above.
    let (code, small) = (number as u32, number as u16);
    let text = |field: &str| {
        fields.get(field).map_or(Some(String::new()), |it| reader.string(it, field).map(Into::into))
    };
    Some(match name {
        "kv" => {
            let response = Response::kv(small).to_command(text("command")?);
            match fields.get("error_map") {
                None => response,
                Some(value) => {
                    response.with_error_map_entry(ErrorMapEntry::of(attributes(reader, value)?))
                }
            }
        }
        "query" => Response::query(code, text("text")?),
        "analytics" => Response::analytics(code),
        "search" => Response::search(small),
        _ => Response::views(small, text("text")?),
    })
}

fn attributes<'t>(reader: &Reader<'t>, value: &'t Value<'t>) -> Option<Vec<String>> {
    let list = reader.array(value, "error_map")?;
    list.iter().map(|value| reader.string(value, "error_map").map(Into::into)).collect()
}

/// The outcomes of calls.
pub(super) fn is_outcome(outcome: &str) -> bool {
    ["ok", "failed", "timeout", "cancelled"].contains(&outcome) || reason::parse(outcome).is_ok()
}

pub(super) fn extras(played: &Played) -> Extras {
    let error = played.strategy_error().and_then(|error| error.downcast_ref::<TerminalError>());
    let log = retry_log_lines(played.call_log().events()).iter().map(ToString::to_string).collect();
    Extras { error: error.map(|error| error.name().to_owned()), text: None, log: Some(log) }
}
