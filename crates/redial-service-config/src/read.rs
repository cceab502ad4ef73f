//! Parses a text into a service config, or into all of its problems (decisions G32 to G39).
//!
//! An invalid value is reported and skipped, and validation continues with the rest. Validation stops
//! early only if the text is not JSON or has duplicate keys.

mod choices;
mod did_you_mean;
mod duration;
mod entry;
mod fields;
mod policy;
mod reader;
mod warnings;

use jsonc_parser::ast::Value;

pub(crate) use self::choices::{records, select};
use self::did_you_mean::{did_you_mean, nearest};
use self::reader::{Path, ROOT, Reader, THROTTLING, range};
use crate::config::{Inner, LoadBalancing};
use crate::json::{self, Decimal};
use crate::{ClientOptions, Problems, RetryThrottling, Rule};

/// The maximum length of a config in bytes.
pub const TEXT_MAX: usize = 1 << 20;
/// The maximum number of entries in `methodConfig`.
pub const ENTRIES_MAX: usize = 10_000;
/// The maximum number of errors, and of warnings, that are reported for one text.
pub const PROBLEMS_MAX: usize = 1_000;

/// Parses and validates a config.
pub(crate) fn read(text: &str, client: &ClientOptions) -> Result<Inner, Problems> {
    let mut reader = Reader::new(text);
    let inner = root(&mut reader, text, client);
    match inner {
        Some(inner) if reader.is_valid() => Ok(Inner { warnings: reader.into_warnings(), ..inner }),
        _ => Err(reader.into_problems()),
    }
}

fn root(reader: &mut Reader<'_>, text: &str, client: &ClientOptions) -> Option<Inner> {
    if text.len() > TEXT_MAX {
        let what = format!("a config has at most {TEXT_MAX} bytes, this one has {}", text.len());
        return reader.problem(Rule::Limit, 0..0, &Path::Root, what, None);
    }
    let value = value(reader, text, "write {} for an empty config")?;
    config(reader, &value, &Path::Root, client)
}

/// Parses a text as JSON without duplicate keys.
fn value<'t>(reader: &mut Reader<'_>, text: &'t str, if_empty: &'static str) -> Option<Value<'t>> {
    let path = Path::Root;
    let value = match json::parse(text) {
        Ok(value) => value,
        Err(error) => {
            let rule = if error.too_deep { Rule::Limit } else { Rule::Json };
            let empty = text.trim().is_empty().then_some(if_empty);
            let hint = error.hint.or(empty).map(Into::into);
            return reader.problem(rule, error.range, &path, error.what, hint);
        }
    };
    reader.duplicate_keys(&value, &path);
    reader.is_valid().then_some(value)
}

/// Validates the config at this path of the text.
fn config(
    reader: &mut Reader<'_>,
    value: &Value<'_>,
    path: &Path<'_>,
    client: &ClientOptions,
) -> Option<Inner> {
    if !matches!(value, Value::Object(_)) {
        return reader.unexpected(Rule::Type, value, path, "an object", no_config(value));
    }
    let fields = reader.object(value, path, &ROOT)?;
    let throttling = fields.get("retryThrottling");
    let retry_throttling = throttling
        .and_then(|value| retry_throttling(reader, value, &path.field("retryThrottling")));
    let balancing = fields.get("loadBalancingPolicy");
    let load_balancing = balancing
        .and_then(|value| load_balancing(reader, value, &path.field("loadBalancingPolicy")))
        .unwrap_or_default();
    let entries = fields.get("methodConfig").and_then(|value| {
        let path = path.field("methodConfig");
        let list = fields::array(reader, value, &path)?;
        if list.len() > ENTRIES_MAX {
            let what = format!("a config has at most {ENTRIES_MAX} entries, found {}", list.len());
            return reader.problem(Rule::Limit, range(value), &path, what, None);
        }
        Some(entry::entries(reader, list, &path))
    });
    let entries = entries.unwrap_or_default();
    let path = path.field("methodConfig");
    warnings::warn_about_entries(reader, &entries, &path, throttling.is_some(), client);
    let (entries, index) = entry::index(entries);
    Some(Inner { entries, index, retry_throttling, load_balancing, warnings: Vec::new() })
}

/// What to write in place of a value that is no config.
fn no_config(value: &Value<'_>) -> Option<String> {
    let has = |element: &Value<'_>, name: &str| match element {
        Value::Object(object) => object.properties.iter().any(|it| it.name.as_str() == name),
        _ => false,
    };
    let hint = match value {
        Value::Array(list) if list.elements.iter().any(|it| has(it, "serviceConfig")) => {
            "this is a list of choices, as in a DNS record: write only what is in serviceConfig"
        }
        Value::Array(list) if list.elements.iter().any(|it| has(it, "name")) => {
            "write {\"methodConfig\": [...]} around the list"
        }
        Value::StringLit(text) if text.value.trim_start().starts_with('{') => {
            "write the config itself, without the quotes around it"
        }
        _ => return None,
    };
    Some(hint.to_owned())
}

fn retry_throttling(
    reader: &mut Reader<'_>,
    value: &Value<'_>,
    path: &Path<'_>,
) -> Option<RetryThrottling> {
    const MAX: &str = "a whole number from 1 to 1000";
    const RATIO: &str = "a number of at least 0.001";
    let fields = reader.object(value, path, &THROTTLING)?;
    let tokens = |value: &Value<'_>| match value {
        Value::NumberLit(number) => {
            let max = Decimal::new(number.value).whole().and_then(|max| u32::try_from(max).ok());
            max.filter(|max| (1..=RetryThrottling::MAX_TOKENS).contains(max))
        }
        _ => None,
    };
    let max = {
        let path = path.field("maxTokens");
        match fields.get("maxTokens") {
            None => reader.missing(Rule::MaxTokens, &fields, "maxTokens", &path, MAX),
            Some(value) => tokens(value).or_else(|| {
                let hint = fields::unquoted(value, |number| tokens(number).is_some());
                reader.unexpected(Rule::MaxTokens, value, &path, MAX, hint)
            }),
        }
    };
    let ratio = {
        let path = path.field("tokenRatio");
        match fields.get("tokenRatio") {
            None => reader.missing(Rule::TokenRatio, &fields, "tokenRatio", &path, RATIO),
            Some(value) => thousandths(value).or_else(|| {
                let hint = fields::unquoted(value, |number| thousandths(number).is_some());
                reader.unexpected(Rule::TokenRatio, value, &path, RATIO, hint)
            }),
        }
    };
    let throttling = RetryThrottling::new(max?, ratio?);
    let few = fields.get("maxTokens").filter(|_| max.is_some_and(|max| max <= 2));
    if let Some(value) = few {
        let what = "after one failure no more than half is left, so nothing is ever retried";
        let hint = Some("write 3 or more".to_owned());
        let path = path.field("maxTokens");
        reader.problem::<()>(Rule::NothingRetried, range(value), &path, what, hint);
    }
    throttling
}

/// A ratio in thousandths, truncated; `None` if the result is 0.
fn thousandths(value: &Value<'_>) -> Option<u32> {
    let Value::NumberLit(number) = value else { return None };
    let number = Decimal::new(number.value);
    let ratio = number.scaled(3).value;
    // A ratio above the capacity of every bucket can be clamped: it fills the bucket either way.
    (number.is_positive() && ratio > 0).then(|| u32::try_from(ratio).unwrap_or(u32::MAX))
}

fn load_balancing(
    reader: &mut Reader<'_>,
    value: &Value<'_>,
    path: &Path<'_>,
) -> Option<LoadBalancing> {
    let name = fields::string(reader, value, path)?;
    let known = LoadBalancing::ALL.into_iter().find(|it| it.name().eq_ignore_ascii_case(name));
    known.or_else(|| {
        let suggested = nearest(name, LoadBalancing::ALL.map(LoadBalancing::name));
        let what = format!("{:?} is not known; pick_first is used", reader::shown(name));
        reader.problem(
            Rule::UnknownBalancing,
            range(value),
            path,
            what,
            suggested
                .map(did_you_mean)
                .or_else(|| Some("write round_robin or pick_first".to_owned())),
        )
    })
}
