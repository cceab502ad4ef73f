//! Reads scenario files, and reports all errors in them (docs/scenarios.md, "The file").
//!
//! Invariant: a loaded scenario can run. Unknown fields, wrong types, impossible scripts and
//! policies that do not build are errors with a position.

use std::collections::HashSet;

use jsonc_parser::ast::Value;
use jsonc_parser::common::Ranged;

use super::configs::{self, Case};
use super::designs::Plan;
use super::expect;
use super::json::{self, Fields, Reader};
use super::model::{Attempt, Call, ExpectWhole, File, GrpcCall, Scenario};
use super::source::{Diagnostic, Source};

/// The largest allowed file.
pub const FILE_BYTES_MAX: u64 = 1 << 28;

const SCENARIO: [&str; 7] = ["name", "from", "policy", "draws", "calls", "expect", "refused"];

/// Reads the file at this path.
///
/// # Errors
/// All errors in the file.
pub fn open(path: &str) -> Result<File, Vec<Diagnostic>> {
    load(&Source::open(path, FILE_BYTES_MAX).map_err(|diagnostic| vec![diagnostic])?)
}

/// Reads the scenarios of a text.
///
/// # Errors
/// All errors in the text.
pub fn load(source: &Source) -> Result<File, Vec<Diagnostic>> {
    let value = json::parse(source).map_err(|diagnostic| vec![diagnostic])?;
    let reader = Reader::new(source);
    let read = file(&reader, &value);
    let diagnostics = reader.into_diagnostics();
    match read {
        Some((scenarios, configs)) if diagnostics.is_empty() => {
            Ok(File { name: source.name().to_owned(), scenarios, configs })
        }
        _ => Err(diagnostics),
    }
}

fn file<'t>(reader: &Reader<'t>, value: &'t Value<'t>) -> Option<(Vec<Scenario>, Vec<Case>)> {
    let fields = reader.object(value, "a scenario file", &["about", "scenarios", "configs"])?;
    if let Some(about) = fields.get("about") {
        reader.string(about, "about")?;
    }
    match (fields.get("scenarios"), fields.get("configs")) {
        (Some(list), None) => scenarios(reader, list).map(|list| (list, Vec::new())),
        (None, Some(list)) => configs::read(reader, list).map(|list| (Vec::new(), list)),
        _ => reader.diagnostic(
            fields.at,
            "a file has either \"scenarios\", or \"configs\" for the validator",
        ),
    }
}

fn scenarios<'t>(reader: &Reader<'t>, list: &'t Value<'t>) -> Option<Vec<Scenario>> {
    let mut names = HashSet::new();
    let mut loaded = Vec::new();
    for value in not_empty(reader, list, "scenarios")? {
        let Some(fields) = reader.object(value, "a scenario", &SCENARIO) else { continue };
        let name = unique_name(reader, &fields, "a scenario", &mut names);
        loaded.extend(scenario(reader, &fields, name));
    }
    Some(loaded)
}

/// The list of a file, which must not be empty.
pub(super) fn not_empty<'t>(
    reader: &Reader<'t>,
    value: &'t Value<'t>,
    name: &str,
) -> Option<&'t [Value<'t>]> {
    let list = reader.array(value, name)?;
    if list.is_empty() {
        let text = "the list is empty, so that this file checks nothing; at least one is needed";
        return reader.diagnostic(value.start(), format!("{name}: {text}"));
    }
    Some(list)
}

/// The name, which is required and unique in its file.
pub(super) fn unique_name<'t>(
    reader: &Reader<'t>,
    fields: &Fields<'t>,
    what: &str,
    names: &mut HashSet<&'t str>,
) -> Option<&'t str> {
    if let Some(from) = fields.get("from") {
        reader.string(from, "from");
    }
    let value = reader.needs(fields, "name", what)?;
    let name = reader.string(value, "name")?;
    if !names.insert(name) {
        return reader.diagnostic(value.start(), format!("name: {name:?} is there twice"));
    }
    Some(name)
}

fn scenario<'t>(reader: &Reader<'t>, fields: &Fields<'t>, name: Option<&str>) -> Option<Scenario> {
    let policy = reader.needs(fields, "policy", "a scenario")?;
    let plan = Plan::read(reader, policy);
    let refused = match fields.get("refused") {
        None => false,
        Some(value) => reader.boolean(value, "refused")?,
    };
    let draws = fields.get("draws").map_or(Some(vec![0.5]), |value| draws(reader, value));
    let plan = plan?;
    let none = |value: &Value<'t>| matches!(value, Value::Array(list) if list.elements.is_empty());
    let some_calls = fields.get("calls").filter(|value| !(refused && none(value)));
    if refused && let Some(value) = fields.get("draws").or(some_calls).or(fields.get("expect")) {
        return reader.diagnostic(value.start(), "a policy that is refused has no calls");
    }
    let calls = match some_calls {
        Some(value) => calls(reader, &plan, value),
        None if refused => Some(Vec::new()),
        None => reader.diagnostic(fields.at, "a scenario needs \"calls\", or \"refused\": true"),
    };
    let expect = match fields.get("expect") {
        None => Some(ExpectWhole::default()),
        Some(value) => expect::whole(reader, &plan, value),
    };
    let (name, calls, expect, draws) = (name?.to_owned(), calls?, expect?, draws?);
    if !refused && let Err(refusals) = plan.build(&calls) {
        for refusal in refusals {
            let path = format!("{}.{}", plan.name(), refusal.field);
            let at = refusal.at.unwrap_or_else(|| json::find(policy, &path));
            reader.diagnostic::<()>(at, refusal.text);
        }
        return None;
    }
    let line = reader.source().line(fields.at);
    Some(Scenario { name, line, plan, draws, refused, calls, expect })
}

fn draws<'t>(reader: &Reader<'t>, value: &'t Value<'t>) -> Option<Vec<f64>> {
    let list = reader.array(value, "draws")?;
    if list.is_empty() {
        return reader.diagnostic(value.start(), "draws: at least one is needed");
    }
    let draw = |value: &'t Value<'t>| {
        let draw = reader.number(value, "a draw")?;
        let inside = (0.0..1.0).contains(&draw);
        if inside { Some(draw) } else { reader.diagnostic(value.start(), "a draw is in [0, 1)") }
    };
    list.iter().map(draw).collect()
}

fn calls<'t>(reader: &Reader<'t>, plan: &Plan, value: &'t Value<'t>) -> Option<Vec<Call>> {
    let list = reader.array(value, "calls")?;
    if list.is_empty() {
        return reader.diagnostic(value.start(), "calls: at least one is needed");
    }
    // All are read before the first error returns, so that every error is reported.
    let calls: Vec<_> = list.iter().map(|value| call(reader, plan, value)).collect();
    calls.into_iter().collect()
}

fn call<'t>(reader: &Reader<'t>, plan: &Plan, value: &'t Value<'t>) -> Option<Call> {
    let what = format!("a call of {}", plan.name());
    let fields = reader.object(value, &what, plan.field_names().call)?;
    let time = |name: &str| {
        fields.get(name).map_or(Some(None), |value| reader.time(value, name).map(Some))
    };
    let (at, deadline, cancel) = (time("at"), time("deadline"), time("cancel"));
    let idempotent = plan.idempotent(reader, &fields);
    let grpc = plan.grpc_call(reader, &fields);
    let attempts = reader.needs(&fields, "attempts", &what).and_then(|value| {
        let list = reader.array(value, "attempts")?;
        let grpc = grpc.as_ref().and_then(Option::as_ref);
        let attempts: Vec<_> =
            list.iter().map(|value| attempt(reader, plan, &fields, grpc, value)).collect();
        attempts.into_iter().collect()
    });
    let expect = match fields.get("expect") {
        None => Some(Default::default()),
        Some(value) => expect::call(reader, plan, value),
    };
    Some(Call {
        at: at?.unwrap_or(0),
        deadline: deadline?,
        cancel: cancel?,
        idempotent: idempotent?,
        grpc: grpc?,
        operation: plan.operation(&fields),
        attempts: attempts?,
        expect: expect?,
    })
}

fn attempt<'t>(
    reader: &Reader<'t>,
    plan: &Plan,
    call: &Fields<'t>,
    grpc: Option<&GrpcCall>,
    value: &'t Value<'t>,
) -> Option<Attempt> {
    let what = format!("an attempt of {}", plan.name());
    let fields = reader.object(value, &what, plan.field_names().attempt)?;
    let after = fields.get("after").map_or(Some(0), |value| reader.time(value, "after"));
    let headers =
        fields.get("headers").map_or(Some(None), |value| reader.time(value, "headers").map(Some));
    let accepts = fields
        .get("accepts")
        .map_or(Some(None), |value| reader.whole(value, "accepts", 0, u64::MAX).map(Some));
    let (outcome, grpc) = plan.outcome(reader, &fields, call, grpc)?;
    let response = plan.response(reader, &fields);
    Some(Attempt { after: after?, headers: headers?, accepts: accepts?, outcome, grpc, response })
}
