//! Parses `retryPolicy` and `hedgingPolicy` (decision G33).

use std::time::Duration;

use crate::code::Code;
use jsonc_parser::ast::Value;

use super::did_you_mean::{did_you_mean, nearest};
use super::fields::{self, LowerBound};
use super::reader::{Fields, HEDGING, Path, RETRY, Reader, range, shown};
use crate::json::Decimal;
use crate::{Codes, HedgingPolicy, RetryPolicy, Rule, Severity};

pub(super) fn retry(
    reader: &mut Reader<'_>,
    value: &Value<'_>,
    path: &Path<'_>,
) -> Option<RetryPolicy> {
    let fields = reader.object(value, path, &RETRY)?;
    let max_attempts = attempts(reader, &fields, path);
    let initial_backoff = backoff(reader, &fields, path, "initialBackoff");
    let max_backoff = backoff(reader, &fields, path, "maxBackoff");
    let backoff_multiplier = multiplier(reader, &fields, path);
    let retryable_status_codes = retryable(reader, &fields, path);
    Some(RetryPolicy {
        max_attempts: max_attempts?,
        initial_backoff: initial_backoff?,
        max_backoff: max_backoff?,
        backoff_multiplier: backoff_multiplier?,
        retryable_status_codes: retryable_status_codes?,
    })
}

pub(super) fn hedging(
    reader: &mut Reader<'_>,
    value: &Value<'_>,
    path: &Path<'_>,
) -> Option<HedgingPolicy> {
    let fields = reader.object(value, path, &HEDGING)?;
    let max_attempts = attempts(reader, &fields, path);
    let hedging_delay = match fields.get("hedgingDelay") {
        None => Some(Duration::ZERO),
        Some(value) => {
            let path = path.field("hedgingDelay");
            fields::duration(reader, Rule::HedgingDelay, value, &path, LowerBound::Zero)
        }
    };
    let non_fatal_status_codes = match fields.get("nonFatalStatusCodes") {
        None => Some(Codes::NONE),
        Some(value) => codes(reader, value, &path.field("nonFatalStatusCodes")),
    };
    Some(HedgingPolicy {
        max_attempts: max_attempts?,
        hedging_delay: hedging_delay?,
        non_fatal_status_codes: non_fatal_status_codes?,
    })
}

fn attempts(reader: &mut Reader<'_>, fields: &Fields<'_>, path: &Path<'_>) -> Option<u32> {
    const EXPECTED: &str = "a whole number above 1";
    let path = path.field("maxAttempts");
    let Some(value) = fields.get("maxAttempts") else {
        return reader.missing(Rule::MaxAttempts, fields, "maxAttempts", &path, EXPECTED);
    };
    let whole = |value: &Value<'_>| match value {
        Value::NumberLit(number) => Decimal::new(number.value).whole(),
        _ => None,
    };
    match whole(value) {
        Some(number @ 2..) => Some(u32::try_from(number).unwrap_or(u32::MAX)),
        one => {
            let hint = match one {
                Some(1) => Some("leave the policy out for one attempt".to_owned()),
                _ => fields::unquoted(value, |number| whole(number).is_some_and(|it| it > 1)),
            };
            reader.unexpected(Rule::MaxAttempts, value, &path, EXPECTED, hint)
        }
    }
}

fn backoff(
    reader: &mut Reader<'_>,
    fields: &Fields<'_>,
    path: &Path<'_>,
    name: &'static str,
) -> Option<Duration> {
    let (path, lower_bound) = (path.field(name), LowerBound::AboveZero);
    match fields.get(name) {
        None => reader.missing(Rule::Backoff, fields, name, &path, lower_bound.expected()),
        Some(value) => fields::duration(reader, Rule::Backoff, value, &path, lower_bound),
    }
}

fn multiplier(reader: &mut Reader<'_>, fields: &Fields<'_>, path: &Path<'_>) -> Option<f64> {
    const EXPECTED: &str = "a number above 0";
    let (rule, name) = (Rule::Multiplier, "backoffMultiplier");
    let path = path.field(name);
    let positive = |value: &Value<'_>| match value {
        Value::NumberLit(number) if Decimal::new(number.value).is_positive() => {
            // A number outside of the range of f64 is clamped.
            let number: f64 = number.value.parse().unwrap_or(f64::MAX);
            Some(number.clamp(f64::MIN_POSITIVE, f64::MAX))
        }
        _ => None,
    };
    let Some(value) = fields.get(name) else {
        return reader.missing(rule, fields, name, &path, EXPECTED);
    };
    positive(value).or_else(|| {
        let hint = fields::unquoted(value, |number| positive(number).is_some());
        reader.unexpected(rule, value, &path, EXPECTED, hint)
    })
}

fn retryable(reader: &mut Reader<'_>, fields: &Fields<'_>, path: &Path<'_>) -> Option<Codes> {
    const EXPECTED: &str = "a list of status codes like [\"UNAVAILABLE\"]";
    let name = "retryableStatusCodes";
    let path = path.field(name);
    let Some(value) = fields.get(name) else {
        return reader.missing(Rule::Codes, fields, name, &path, EXPECTED);
    };
    if let Value::Array(list) = value
        && list.elements.is_empty()
    {
        let hint = Some("list at least one code".to_owned());
        let what = format!("expected {EXPECTED}, found an empty one");
        return reader.problem(Rule::Codes, range(value), &path, what, hint);
    }
    codes(reader, value, &path)
}

fn codes(reader: &mut Reader<'_>, value: &Value<'_>, path: &Path<'_>) -> Option<Codes> {
    let Value::Array(list) = value else {
        let hint = match value {
            Value::StringLit(text) => Some(format!("write [{:?}]", shown(&text.value))),
            _ => None,
        };
        return reader.unexpected(Rule::Codes, value, path, "a list of status codes", hint);
    };
    let mut codes = Codes::NONE;
    let mut valid = true;
    for (index, value) in list.elements.iter().enumerate() {
        let path = path.index(index);
        let Some(code) = code(reader, value, &path) else {
            valid = false;
            continue;
        };
        if codes.contains(code) {
            let what = format!("{code} is in the list already");
            reader.problem::<()>(Rule::ListedTwice, range(value), &path, what, None);
        } else if code == Code::Ok {
            let what = "OK is no failure, and has no effect here";
            let hint = Some("remove it".to_owned());
            reader.problem::<()>(Rule::OkListed, range(value), &path, what, hint);
        }
        codes = codes.with(code);
    }
    valid.then_some(codes)
}

fn code(reader: &mut Reader<'_>, value: &Value<'_>, path: &Path<'_>) -> Option<Code> {
    let numbered = |value: &Value<'_>| match value {
        Value::NumberLit(number) => {
            let number = Decimal::new(number.value).whole();
            number.and_then(|number| i64::try_from(number).ok()).and_then(Code::from_number)
        }
        _ => None,
    };
    let (code, hint) = match value {
        Value::StringLit(text) => {
            let code = Code::from_name(&text.value);
            let wanted = code.is_none() && reader.has_room(Severity::Error);
            let suggested = || nearest(&text.value, Code::ALL.map(Code::name)).map(did_you_mean);
            let number = || fields::unquoted(value, |number| numbered(number).is_some());
            let other = || http_status(&text.value).or_else(|| part_of_name(&text.value));
            (code, wanted.then(|| suggested().or_else(number).or_else(other)).flatten())
        }
        Value::NumberLit(number) => (numbered(value), http_status(number.value)),
        value => (numbered(value), None),
    };
    code.or_else(|| {
        let expected = "the name of a status code, or a number from 0 to 16";
        reader.unexpected(Rule::Code, value, path, expected, hint)
    })
}

/// The hint for an HTTP status: the code that gRPC clients see in its place.
fn http_status(text: &str) -> Option<String> {
    let code = match text.trim().parse::<u16>().ok()? {
        400 => Code::Internal,
        401 => Code::Unauthenticated,
        403 => Code::PermissionDenied,
        404 => Code::Unimplemented,
        429 | 502..=504 => Code::Unavailable,
        status if (400..600).contains(&status) => Code::Unknown,
        _ => return None,
    };
    Some(format!("{} is an HTTP status, which gRPC clients see as {:?}", text.trim(), code.name()))
}

/// The hint for a name with a code in it, such as `StatusCode.UNAVAILABLE`, or for any other name.
fn part_of_name(text: &str) -> Option<String> {
    let upper = text.to_ascii_uppercase();
    let codes = Code::ALL.into_iter().filter(|code| *code != Code::Ok).map(Code::name);
    let found = codes.clone().find(|name| upper.contains(name));
    found.map(did_you_mean).or_else(|| {
        let names: Vec<_> = codes.collect();
        Some(format!("the names are {}", names.join(", ")))
    })
}
