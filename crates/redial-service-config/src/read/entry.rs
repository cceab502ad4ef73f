//! Parses the entries of `methodConfig` and indexes them by name (decisions G35 and G37).

use std::collections::HashMap;
use std::ops::Range;

use jsonc_parser::ast::Value;

use super::fields::{self, LowerBound};
use super::policy;
use super::reader::{ENTRY, Fields, NAME, Path, Reader, range, shown};
use crate::config::Index;
use crate::{MethodConfig, MethodName, MethodPolicy, Rule};

/// A parsed entry with the positions of its parts.
pub(super) struct Entry<'v> {
    pub(super) config: MethodConfig,
    /// The index in the `name` list and the byte range of each valid name.
    pub(super) names: Vec<(usize, Range<usize>)>,
    pub(super) fields: Option<Fields<'v>>,
    pub(super) range: Range<usize>,
}

pub(super) fn entries<'v>(
    reader: &mut Reader<'_>,
    list: &'v [Value<'v>],
    path: &Path<'_>,
) -> Vec<Entry<'v>> {
    // The names so far and their paths, to reject duplicates across the whole config.
    let mut known = HashMap::new();
    let mut entries = Vec::with_capacity(list.len());
    for (index, value) in list.iter().enumerate() {
        let path = path.index(index);
        let range = range(value);
        let mut entry =
            Entry { config: MethodConfig::default(), names: Vec::new(), fields: None, range };
        if let Some(fields) = reader.object(value, &path, &ENTRY) {
            entry.fields = Some(fields);
            names(reader, &fields, &path, &mut known, &mut entry);
            settings(reader, &fields, &path, &mut entry.config);
        }
        entries.push(entry);
    }
    entries
}

/// Parses all fields but `name`.
fn settings(
    reader: &mut Reader<'_>,
    fields: &Fields<'_>,
    path: &Path<'_>,
    config: &mut MethodConfig,
) {
    config.timeout = fields.get("timeout").and_then(|value| {
        fields::duration(reader, Rule::Timeout, value, &path.field("timeout"), LowerBound::Zero)
    });
    config.wait_for_ready = fields
        .get("waitForReady")
        .and_then(|value| fields::boolean(reader, value, &path.field("waitForReady")));
    let mut size = |name: &'static str| {
        fields.get(name).and_then(|value| fields::size(reader, value, &path.field(name)))
    };
    config.max_request_message_bytes = size("maxRequestMessageBytes");
    config.max_response_message_bytes = size("maxResponseMessageBytes");
    let (retry, hedging) = (fields.get("retryPolicy"), fields.get("hedgingPolicy"));
    if retry.is_some() && hedging.is_some() {
        let what = "an entry has a retryPolicy or a hedgingPolicy, not both";
        let hint = Some("remove one of them".to_owned());
        reader.problem::<()>(Rule::BothPolicies, range(fields.object), path, what, hint);
    }
    let retry = retry.and_then(|value| policy::retry(reader, value, &path.field("retryPolicy")));
    let hedging =
        hedging.and_then(|value| policy::hedging(reader, value, &path.field("hedgingPolicy")));
    config.policy = retry.map(MethodPolicy::Retry).or(hedging.map(MethodPolicy::Hedging));
}

fn names(
    reader: &mut Reader<'_>,
    fields: &Fields<'_>,
    path: &Path<'_>,
    known: &mut HashMap<MethodName, String>,
    entry: &mut Entry<'_>,
) {
    let path = path.field("name");
    let list = fields.get("name").and_then(|value| fields::array(reader, value, &path));
    for (index, value) in list.unwrap_or(&[]).iter().enumerate() {
        let path = path.index(index);
        let Some(name) = name(reader, value, &path) else { continue };
        if let Some(first) = known.get(&name) {
            let what = format!("{} is named already, at {first}", shown(&name.to_string()));
            let hint = Some("a name is there once; join the entries or remove one".to_owned());
            reader.problem::<()>(Rule::DuplicateName, range(value), &path, what, hint);
            continue;
        }
        known.insert(name.clone(), path.to_string());
        entry.names.push((index, range(value)));
        entry.config.names.push(name);
    }
}

fn name(reader: &mut Reader<'_>, value: &Value<'_>, path: &Path<'_>) -> Option<MethodName> {
    let fields = reader.object(value, path, &NAME)?;
    let mut part = |part: &'static str| match fields.get(part) {
        None => Some(None),
        Some(value) => {
            let text = fields::string(reader, value, &path.field(part))?;
            // An empty string counts as absent.
            Some((!text.is_empty()).then(|| Box::from(text)))
        }
    };
    let (service, method) = (part("service"), part("method"));
    let name = MethodName { service: service?, method: method? };
    if name.service.is_none() && name.method.is_some() {
        let hint = Some("add the \"service\" that it belongs to".to_owned());
        return reader.problem(Rule::Name, range(value), path, "a method without a service", hint);
    }
    Some(name)
}

/// The entries without their positions, and the index from names to entries.
pub(super) fn index(entries: Vec<Entry<'_>>) -> (Vec<MethodConfig>, Index) {
    let mut index = Index::default();
    let mut configs = Vec::with_capacity(entries.len());
    for (number, entry) in entries.into_iter().enumerate() {
        for MethodName { service, method } in &entry.config.names {
            match (service, method) {
                // A path is split at its last slash, so a method name with a slash never matches.
                (Some(_), Some(method)) if method.contains('/') => {}
                (Some(service), Some(method)) => {
                    index.methods.insert(format!("{service}/{method}").into(), number);
                }
                (Some(service), None) => {
                    index.services.insert(service.clone(), number);
                }
                (None, _) => index.default = Some(number),
            }
        }
        configs.push(entry.config);
    }
    (configs, index)
}
