//! Reads the expectations of calls and scenarios (docs/scenarios.md, "What is expected of a call").

use jsonc_parser::ast::{ObjectProp, Value};
use jsonc_parser::common::Ranged;
use redial::{StopReason, time::Ns};
use redial_service_config::BUCKETS;

use super::designs::Plan;
use super::json::{Fields, Reader, quoted};
use super::model::{Expect, ExpectEnd, ExpectStats, ExpectWhole};

/// Reads the expectations of a call.
pub(super) fn call<'t>(reader: &Reader<'t>, plan: &Plan, value: &'t Value<'t>) -> Option<Expect> {
    let what = format!("what is expected of a call of {}", plan.name());
    let fields = reader.object(value, &what, plan.field_names().expect)?;
    let starts = optional(&fields, "starts", |value| times(reader, value, "starts"));
    let cancels = fields.get("cancels").map_or(Some(Vec::new()), |value| cancels(reader, value));
    let end = optional(&fields, "end", |value| end(reader, plan, value));
    let tokens = optional(&fields, "tokens", |value| reader.number(value, "tokens"));
    let text = optional(&fields, "text", |value| reader.string(value, "text").map(Into::into));
    let log = optional(&fields, "log", |value| strings(reader, value, "log"));
    let previous = optional(&fields, "previous", |value| {
        each(reader, value, "previous", |it| reader.string(it, "previous").map(Into::into))
    });
    let timeouts = optional(&fields, "timeouts", |value| {
        each(reader, value, "timeouts", |it| reader.time(it, "timeouts"))
    });
    let sent = optional(&fields, "sent", |value| {
        let list = reader.array(value, "sent")?;
        list.iter().map(|it| reader.whole(it, "sent", 0, u64::MAX)).collect()
    });
    Some(Expect {
        starts: starts?,
        cancels: Some(cancels?),
        end: end?,
        tokens: tokens?,
        text: text?,
        log: log?,
        previous: previous?,
        timeouts: timeouts?,
        sent: sent?,
    })
}

/// Reads the expectations of a scenario.
pub(super) fn whole<'t>(
    reader: &Reader<'t>,
    plan: &Plan,
    value: &'t Value<'t>,
) -> Option<ExpectWhole> {
    let what = format!("what is expected of a scenario of {}", plan.name());
    let fields = reader.object(value, &what, plan.field_names().whole)?;
    let tokens = optional(&fields, "tokens", |value| reader.number(value, "tokens"));
    let stats = fields.get("stats").map_or(Some(Vec::new()), |value| stats(reader, value));
    Some(ExpectWhole { tokens: tokens?, stats: stats? })
}

/// An optional field; the outer `None` is an error.
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
        // Only the canonical notation of a number, so that an attempt cannot be listed twice.
        let attempt = name.parse().ok().filter(|n: &u32| *n > 0 && n.to_string() == name);
        let Some(attempt) = attempt else {
            return reader.diagnostic(
                at,
                format!("cancels: expected an attempt like \"2\", found {name:?}"),
            );
        };
        if cancels.iter().any(|(known, _)| *known == attempt) {
            return reader.diagnostic(at, format!("cancels: attempt {attempt} is there twice"));
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
        if plan.is_outcome(name) {
            return Some(name.to_owned());
        }
        let text = format!("outcome: no call of {} ends with {name:?}", plan.name());
        reader.diagnostic(value.start(), text)
    });
    let attempt = optional(&fields, "attempt", |value| {
        // It fits by the bound.
        reader.whole(value, "attempt", 1, u64::from(u32::MAX)).map(|number| number as u32)
    });
    let stop_reason = optional(&fields, "why", |value| {
        let name = reader.string(value, "why")?;
        let stop_reason =
            StopReason::ALL.into_iter().find(|stop_reason| stop_reason.name() == name);
        stop_reason.or_else(|| {
            let expected = quoted(&StopReason::ALL.map(StopReason::name));
            let text = format!("why: unknown reason {name:?}; expected one of {expected}");
            reader.diagnostic(value.start(), text)
        })
    });
    let error = optional(&fields, "error", |value| reader.string(value, "error").map(Into::into));
    Some(ExpectEnd {
        at: at?,
        outcome: outcome?,
        attempt: attempt?,
        stop_reason: stop_reason?,
        error: error?,
    })
}

/// A list with an entry for each attempt, `null` for none.
fn each<'t, T>(
    reader: &Reader<'t>,
    value: &'t Value<'t>,
    what: &str,
    read: impl Fn(&'t Value<'t>) -> Option<T>,
) -> Option<Vec<Option<T>>> {
    let entry = |value: &'t Value<'t>| match value {
        Value::NullKeyword(_) => Some(None),
        value => read(value).map(Some),
    };
    reader.array(value, what)?.iter().map(entry).collect()
}

/// The expected statistics of methods.
fn stats<'t>(reader: &Reader<'t>, value: &'t Value<'t>) -> Option<Vec<(String, ExpectStats)>> {
    const STATS: [&str; 4] = ["retries", "failed", "histogram", "transparent"];
    let method = |method: &'t ObjectProp<'t>| {
        let fields = reader.object(&method.value, "stats of a method", &STATS)?;
        let count = |name: &str| optional(&fields, name, |it| reader.whole(it, name, 0, u64::MAX));
        let expected = ExpectStats {
            retries: count("retries")?,
            failed: count("failed")?,
            histogram: optional(&fields, "histogram", |it| histogram(reader, it))?,
            transparent: count("transparent")?,
        };
        Some((method.name.as_str().to_owned(), expected))
    };
    reader.any_object(value, "stats")?.properties.iter().map(method).collect()
}

/// `{">=1": 2}`: the buckets that are not empty.
fn histogram<'t>(reader: &Reader<'t>, value: &'t Value<'t>) -> Option<[u64; BUCKETS.len()]> {
    let names = BUCKETS.map(|least| format!(">={least}"));
    let mut counts = [0; BUCKETS.len()];
    for bucket in &reader.any_object(value, "histogram")?.properties {
        let (name, at) = (bucket.name.as_str(), bucket.name.start());
        let Some(index) = names.iter().position(|known| known == name) else {
            let expected = quoted(&names.each_ref().map(String::as_str));
            let text = format!("histogram: unknown bucket {name:?}; expected one of {expected}");
            return reader.diagnostic(at, text);
        };
        if counts[index] > 0 {
            return reader.diagnostic(at, format!("histogram: {name:?} is there twice"));
        }
        counts[index] = reader.whole(&bucket.value, "histogram", 1, u64::MAX)?;
    }
    Some(counts)
}
