//! What is expected of a call and of a scenario (docs/scenarios.md, "What is expected of a call").

use jsonc_parser::ast::Value;
use jsonc_parser::common::Ranged;
use redial::{Ns, Why};

use super::designs::Plan;
use super::json::{Fields, Reader, quoted};
use super::model::{Expect, ExpectEnd};

/// What is expected of a call.
pub(super) fn call<'t>(reader: &Reader<'t>, plan: &Plan, value: &'t Value<'t>) -> Option<Expect> {
    let what = format!("what is expected of a call of {}", plan.name());
    let fields = reader.object(value, &what, plan.words().expect)?;
    let starts = optional(&fields, "starts", |value| times(reader, value, "starts"));
    let cancels = fields.get("cancels").map_or(Some(Vec::new()), |value| cancels(reader, value));
    let end = optional(&fields, "end", |value| end(reader, plan, value));
    let tokens = optional(&fields, "tokens", |value| reader.number(value, "tokens"));
    let text = optional(&fields, "text", |value| reader.string(value, "text").map(Into::into));
    let log = optional(&fields, "log", |value| strings(reader, value, "log"));
    grpc_lists(reader, &fields);
    Some(Expect {
        starts: starts?,
        cancels: cancels?,
        end: end?,
        tokens: tokens?,
        text: text?,
        log: log?,
    })
}

/// What is expected of a scenario: what is left in the throttle.
pub(super) fn whole<'t>(
    reader: &Reader<'t>,
    plan: &Plan,
    value: &'t Value<'t>,
) -> Option<Option<f64>> {
    let what = format!("what is expected of a scenario of {}", plan.name());
    let fields = reader.object(value, &what, plan.words().whole)?;
    if let Some(stats) = fields.get("stats") {
        grpc_stats(reader, stats)?;
    }
    optional(&fields, "tokens", |value| reader.number(value, "tokens"))
}

/// A field that may be absent; the outer `None` is a mistake.
fn optional<'t, T>(
    fields: &Fields<'t>,
    name: &str,
    read: impl FnOnce(&'t Value<'t>) -> Option<T>,
) -> Option<Option<T>> {
    fields.get(name).map_or(Some(None), |value| read(value).map(Some))
}

fn times<'t>(reader: &Reader<'t>, value: &'t Value<'t>, what: &str) -> Option<Vec<Ns>> {
    reader.array(value, what)?.iter().map(|value| reader.time(value, what)).collect()
}

fn strings<'t>(reader: &Reader<'t>, value: &'t Value<'t>, what: &str) -> Option<Vec<String>> {
    let list = reader.array(value, what)?;
    list.iter().map(|value| reader.string(value, what).map(Into::into)).collect()
}

/// `{"2": 75}`: attempts, and when they were cancelled.
fn cancels<'t>(reader: &Reader<'t>, value: &'t Value<'t>) -> Option<Vec<(u32, Ns)>> {
    let object = reader.any_object(value, "cancels")?;
    let mut cancels: Vec<(u32, Ns)> = Vec::new();
    for property in &object.properties {
        let name = property.name.as_str();
        let at = property.name.start();
        // Only the shortest writing of a number, so that none is there twice in two writings.
        let attempt = name.parse().ok().filter(|n: &u32| *n > 0 && n.to_string() == name);
        let Some(attempt) = attempt else {
            return reader
                .mistake(at, format!("cancels: expected an attempt like \"2\", found {name:?}"));
        };
        if cancels.iter().any(|(known, _)| *known == attempt) {
            return reader.mistake(at, format!("cancels: attempt {attempt} is there twice"));
        }
        cancels.push((attempt, reader.time(&property.value, "cancels")?));
    }
    cancels.sort_unstable();
    Some(cancels)
}

fn end<'t>(reader: &Reader<'t>, plan: &Plan, value: &'t Value<'t>) -> Option<ExpectEnd> {
    let known: &[&str] = match plan {
        Plan::Couchbase(_) => &["at", "outcome", "attempt", "why", "error"],
        _ => &["at", "outcome", "attempt", "why"],
    };
    let fields = reader.object(value, "end", known)?;
    let at = optional(&fields, "at", |value| reader.time(value, "at"));
    let outcome = optional(&fields, "outcome", |value| {
        let name = reader.string(value, "outcome")?;
        if plan.knows(name) {
            return Some(name.to_owned());
        }
        let text = format!("outcome: no call of {} ends with {name:?}", plan.name());
        reader.mistake(value.start(), text)
    });
    let attempt = optional(&fields, "attempt", |value| {
        // It fits by the bound.
        reader.whole(value, "attempt", 1, u64::from(u32::MAX)).map(|number| number as u32)
    });
    let why = optional(&fields, "why", |value| {
        let name = reader.string(value, "why")?;
        let why = Why::ALL.into_iter().find(|why| why.name() == name);
        why.or_else(|| {
            let expected = quoted(&Why::ALL.map(Why::name));
            let text = format!("why: unknown reason {name:?}; expected one of {expected}");
            reader.mistake(value.start(), text)
        })
    });
    let error = optional(&fields, "error", |value| reader.string(value, "error").map(Into::into));
    Some(ExpectEnd { at: at?, outcome: outcome?, attempt: attempt?, why: why?, error: error? })
}

/// What only a call of gRPC says: its method, and the messages that the application writes.
pub(super) fn grpc_call<'t>(reader: &Reader<'t>, call: &Fields<'t>) -> Option<()> {
    let value = reader.needs(call, "method", "a call of grpc")?;
    let method = reader.string(value, "method")?;
    let parts: Vec<_> = method.split('/').collect();
    if !matches!(parts.as_slice(), ["", service, name] if !service.is_empty() && !name.is_empty()) {
        return reader.mistake(value.start(), "method: expected \"/package.Service/Method\"");
    }
    let Some(value) = call.get("messages") else { return Some(()) };
    for message in reader.array(value, "messages")? {
        let message = reader.object(message, "a message", &["at", "bytes"])?;
        if let Some(at) = message.get("at") {
            reader.time(at, "at")?;
        }
        reader.whole(reader.needs(&message, "bytes", "a message")?, "bytes", 0, u64::MAX)?;
    }
    Some(())
}

/// The lists with one entry for each attempt.
fn grpc_lists<'t>(reader: &Reader<'t>, fields: &Fields<'t>) {
    let list = |name: &str, check: &dyn Fn(&'t Value<'t>) -> bool| {
        let list = fields.get(name).and_then(|value| reader.array(value, name));
        for value in list.unwrap_or(&[]) {
            check(value);
        }
    };
    let is_null = |value: &Value<'_>| matches!(value, Value::NullKeyword(_));
    list("previous", &|value| is_null(value) || reader.string(value, "previous").is_some());
    list("timeouts", &|value| is_null(value) || reader.time(value, "timeouts").is_some());
    list("sent", &|value| reader.whole(value, "sent", 0, u64::MAX).is_some());
}

fn grpc_stats<'t>(reader: &Reader<'t>, value: &'t Value<'t>) -> Option<()> {
    const STATS: [&str; 4] = ["retries", "failed", "histogram", "transparent"];
    for method in &reader.any_object(value, "stats")?.properties {
        let stats = reader.object(&method.value, "stats of a method", &STATS)?;
        for name in ["retries", "failed", "transparent"] {
            if let Some(value) = stats.get(name) {
                reader.whole(value, name, 0, u64::MAX)?;
            }
        }
        let Some(histogram) = stats.get("histogram") else { continue };
        for bucket in &reader.any_object(histogram, "histogram")?.properties {
            reader.whole(&bucket.value, "histogram", 1, u64::MAX)?;
        }
    }
    Some(())
}
