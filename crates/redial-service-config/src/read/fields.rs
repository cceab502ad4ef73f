//! Readers for values whose types occur in several objects.

use std::time::Duration;

use jsonc_parser::ast::Value;

use super::duration::{self, ParsedDuration};
use super::reader::{Path, Reader, shown};
use crate::Rule;
use crate::json::{self, Decimal};

pub(super) fn array<'v>(
    reader: &mut Reader<'_>,
    value: &'v Value<'v>,
    path: &Path<'_>,
) -> Option<&'v [Value<'v>]> {
    match value {
        Value::Array(array) => Some(&array.elements),
        other => {
            let is_object = matches!(other, Value::Object(_));
            let hint = is_object.then(|| "write it in brackets: [{...}]".to_owned());
            reader.unexpected(Rule::Type, other, path, "a list", hint)
        }
    }
}

pub(super) fn string<'v>(
    reader: &mut Reader<'_>,
    value: &'v Value<'v>,
    path: &Path<'_>,
) -> Option<&'v str> {
    match value {
        Value::StringLit(text) => Some(&text.value),
        other => reader.unexpected(Rule::Type, other, path, "a string", None),
    }
}

pub(super) fn boolean(reader: &mut Reader<'_>, value: &Value<'_>, path: &Path<'_>) -> Option<bool> {
    match value {
        Value::BooleanLit(boolean) => Some(boolean.value),
        other => {
            let text = match other {
                Value::StringLit(text) => Some(&*text.value),
                _ => None,
            };
            let hint = text.filter(|text| matches!(*text, "true" | "false")).map(without_quotes);
            reader.unexpected(Rule::Type, other, path, "true or false", hint)
        }
    }
}

/// The hint for a number in quotes, if the number without quotes would be valid.
pub(super) fn unquoted(
    value: &Value<'_>,
    accepts: impl FnOnce(&Value<'_>) -> bool,
) -> Option<String> {
    let Value::StringLit(text) = value else { return None };
    let number = json::parse(text.value.trim()).ok()?;
    let is_number = matches!(number, Value::NumberLit(_));
    (is_number && accepts(&number)).then(|| without_quotes(text.value.trim()))
}

fn without_quotes(text: &str) -> String {
    format!("write {} without quotes", shown(text))
}

/// A message size: a whole number, or a string with one as proto3 JSON allows.
pub(super) fn size(reader: &mut Reader<'_>, value: &Value<'_>, path: &Path<'_>) -> Option<u32> {
    let size = match value {
        Value::NumberLit(number) => Decimal::new(number.value).whole(),
        Value::StringLit(text) => whole(&text.value),
        _ => None,
    };
    size.and_then(|size| u32::try_from(size).ok()).or_else(|| {
        let expected = "a whole number from 0 to 4294967295";
        reader.unexpected(Rule::Type, value, path, expected, None)
    })
}

/// Parses a whole number without sign and leading zeros.
fn whole(text: &str) -> Option<u64> {
    let plain = text == "0" || !text.starts_with('0');
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| plain && digits)
}

/// Reads a duration field.
pub(super) fn duration(
    reader: &mut Reader<'_>,
    rule: Rule,
    value: &Value<'_>,
    path: &Path<'_>,
    lower_bound: LowerBound,
) -> Option<Duration> {
    let (span, suggested) = match value {
        Value::StringLit(text) => (duration::parse(&text.value), duration::suggestion(&text.value)),
        Value::NumberLit(number) => (None, duration::suggestion(number.value)),
        _ => (None, None),
    };
    match (span, lower_bound) {
        (Some(ParsedDuration::Positive(span)), _) => return Some(span),
        (Some(ParsedDuration::Zero), LowerBound::Zero) => return Some(Duration::ZERO),
        (Some(ParsedDuration::TooLong), _) => {
            let expected = format!("a duration of at most \"{}s\"", duration::SECONDS_MAX);
            return reader.unexpected(rule, value, path, &expected, None);
        }
        _ => {}
    }
    let hint = suggested.filter(|_| span.is_none()).map(|suggested| format!("write {suggested:?}"));
    reader.unexpected(rule, value, path, lower_bound.expected(), hint)
}

/// The lower bound of a duration.
#[derive(Clone, Copy)]
pub(super) enum LowerBound {
    AboveZero,
    Zero,
}

impl LowerBound {
    pub(super) const fn expected(self) -> &'static str {
        match self {
            LowerBound::AboveZero => "a duration above 0 like \"0.1s\"",
            LowerBound::Zero => "a duration like \"0.1s\" that is not negative",
        }
    }
}
