//! `grpc`: its scenarios are read and checked; playing them comes with its layer.

use jsonc_parser::ast::Value;
use jsonc_parser::common::Ranged;
use redial::code::Code;
use redial::{Directive, Failure};

use super::super::json::{Fields, Reader, quoted};
use super::super::model::Outcome;
use super::{Words, comes};

/// What a scenario of `grpc` may say.
pub(super) static WORDS: Words = Words {
    call: &["at", "deadline", "cancel", "method", "messages", "attempts", "expect"],
    attempt: &["after", "outcome", "pushback", "headers", "seen", "accepts"],
    expect: &["starts", "cancels", "end", "previous", "timeouts", "sent", "tokens"],
    whole: &["tokens", "stats"],
};

const CLIENT: [&str; 7] = [
    "attempts_cap",
    "jitter",
    "late",
    "per_rpc_buffer_limit_in_bytes",
    "retry_buffer_size_in_bytes",
    "retries",
    "pushback_max",
];

const SEEN: [&str; 3] = ["unsent", "unprocessed", "unconnected"];

/// Checks the form of a policy; the config's own problems are its validator's to find.
pub(super) fn read<'t>(reader: &Reader<'t>, value: &'t Value<'t>) -> Option<()> {
    let fields = reader.object(value, "grpc", &["config", "client"])?;
    let config = reader.needs(&fields, "config", "grpc")?;
    reader.any_object(config, "config")?;
    let Some(client) = fields.get("client") else { return Some(()) };
    let client = reader.object(client, "client", &CLIENT)?;
    for name in &CLIENT[3..5] {
        if let Some(value) = client.get(name) {
            reader.whole(value, name, 0, u64::MAX)?;
        }
    }
    if let Some(value) = client.get("attempts_cap") {
        reader.whole(value, "attempts_cap", 0, u64::from(u32::MAX))?;
    }
    if let Some(value) = client.get("late") {
        one_of(reader, value, "late", &["early", "wait"])?;
    }
    match client.get("retries") {
        None | Some(Value::BooleanLit(_)) => {}
        Some(value) => drop(one_of(reader, value, "retries", &["transparent"])?),
    }
    Some(())
}

pub(super) fn outcome<'t>(reader: &Reader<'t>, attempt: &Fields<'t>) -> Option<Outcome> {
    if let Some(value) = attempt.get("accepts") {
        reader.whole(value, "accepts", 0, u64::MAX)?;
    }
    if let Some(value) = attempt.get("pushback") {
        match value {
            Value::Array(list) => {
                for value in &list.elements {
                    reader.string(value, "pushback")?;
                }
            }
            value => drop(reader.string(value, "pushback")?),
        }
    }
    if let Some(value) = attempt.get("seen") {
        let foreign = ["outcome", "pushback", "headers"].iter().find_map(|name| attempt.get(name));
        if let Some(value) = foreign {
            let text = "what was \"seen\" is the outcome: no \"outcome\", \"pushback\" or \"headers\" with it";
            return reader.mistake(value.start(), text);
        }
        one_of(reader, value, "seen", &SEEN)?;
        return Some(status(Code::Unavailable));
    }
    let value = reader.needs(attempt, "outcome", "an attempt without \"seen\"")?;
    let name = reader.string(value, "outcome")?;
    let headers = attempt.get("headers").map_or(Some(0), |it| reader.time(it, "headers"))?;
    let after = attempt.get("after").map_or(Some(0), |it| reader.time(it, "after"))?;
    if name == "hang" {
        return match attempt.get("pushback") {
            Some(value) => reader.mistake(value.start(), "an attempt that hangs has no pushback"),
            None => Some(Outcome::Hang),
        };
    }
    if headers > after {
        let at = attempt.get("headers").map_or(attempt.at, Ranged::start);
        return reader.mistake(at, "headers: they come ahead of the outcome, not after it");
    }
    match Code::from_name(name).filter(|code| code.name() == name) {
        Some(code) => Some(status(code)),
        None => {
            let names: Vec<_> = Code::ALL.into_iter().map(Code::name).collect();
            let expected = quoted(&names);
            let text =
                format!("outcome: unknown status {name:?}; expected \"hang\" or one of {expected}");
            reader.mistake(value.start(), text)
        }
    }
}

/// A status as an outcome. Which ones may be retried is the config's to say.
fn status(code: Code) -> Outcome {
    let directive = match code {
        Code::Ok => Directive::Succeed,
        _ => Directive::Retry(Failure::server()),
    };
    comes(code.name(), directive)
}

fn one_of<'t>(
    reader: &Reader<'t>,
    value: &'t Value<'t>,
    what: &str,
    names: &[&str],
) -> Option<&'t str> {
    let name = reader.string(value, what)?;
    if names.contains(&name) {
        return Some(name);
    }
    let expected = quoted(names);
    reader.mistake(value.start(), format!("{what}: unknown {name:?}; expected one of {expected}"))
}

/// What a call can end with.
pub(super) fn knows(outcome: &str) -> bool {
    outcome == "cancelled" || Code::from_name(outcome).is_some_and(|code| code.name() == outcome)
}
