//! Names of a service config compared with the methods of a descriptor set.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::path::Path;

use jsonc_parser::ast::Value;
use prost::Message;
use prost_types::method_options::IdempotencyLevel;
use prost_types::{FileDescriptorSet, MethodOptions};
use redial_service_config::{MethodPolicy, ServiceConfig};

use super::Finding;
use super::json_file::{elements, field, range, string};
use super::policy::nearest;

/// The largest descriptor set.
pub(super) const PROTO_BYTES_MAX: u64 = 1 << 28;
/// How many methods a message lists.
const LISTED_MAX: usize = 5;

/// The services of a descriptor set.
#[derive(Clone, Debug, Default)]
pub struct Services {
    file: String,
    services: BTreeMap<String, BTreeMap<String, Idempotency>>,
}

/// What a method says about repeated calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Idempotency {
    Unknown,
    Idempotent,
    NoSideEffects,
}

impl Services {
    /// Reads a descriptor set.
    ///
    /// # Errors
    /// It cannot be read, or is not a descriptor set.
    pub fn open(path: &Path) -> Result<Self, String> {
        let name = path.display();
        let mut bytes = Vec::new();
        File::open(path)
            .and_then(|file| file.take(PROTO_BYTES_MAX + 1).read_to_end(&mut bytes))
            .map_err(|error| format!("{name}: cannot be read: {error}"))?;
        if bytes.len() as u64 > PROTO_BYTES_MAX {
            return Err(format!("{name}: it is larger than {PROTO_BYTES_MAX} bytes"));
        }
        let set = FileDescriptorSet::decode(bytes.as_slice()).map_err(|error| {
            format!(
                "{name}: not a descriptor set ({error}); write one with `protoc \
                 --include_imports -o FILE` or `buf build -o FILE`"
            )
        })?;
        let services = Services::new(&name.to_string(), &set);
        if services.services.is_empty() {
            return Err(format!(
                "{name}: it has no services; write it from the files that define them, with \
                 `protoc --include_imports -o FILE` or `buf build -o FILE`"
            ));
        }
        Ok(services)
    }

    fn new(file: &str, set: &FileDescriptorSet) -> Self {
        let mut services = BTreeMap::new();
        for proto in &set.file {
            for service in &proto.service {
                let package = proto.package();
                let dot = if package.is_empty() { "" } else { "." };
                let methods = service.method.iter().map(|method| {
                    let level = method.options.as_ref().map(MethodOptions::idempotency_level);
                    let idempotency = match level {
                        Some(IdempotencyLevel::Idempotent) => Idempotency::Idempotent,
                        Some(IdempotencyLevel::NoSideEffects) => Idempotency::NoSideEffects,
                        Some(IdempotencyLevel::IdempotencyUnknown) | None => Idempotency::Unknown,
                    };
                    (method.name().to_owned(), idempotency)
                });
                services.insert(format!("{package}{dot}{}", service.name()), methods.collect());
            }
        }
        Services { file: file.to_owned(), services }
    }
}

pub(super) fn check(
    root: &Value<'_>,
    config: Option<&ServiceConfig>,
    services: &Services,
    findings: &mut Vec<Finding>,
) {
    for entry in elements(field(root, "methodConfig").map(|it| &it.value)) {
        for name in elements(field(entry, "name").map(|it| &it.value)) {
            findings.extend(unknown_name(name, services));
        }
    }
    if let Some(config) = config {
        idempotency(root, config, services, findings);
    }
}

/// A name that no call has.
fn unknown_name(name: &Value<'_>, services: &Services) -> Option<Finding> {
    let service = &field(name, "service")?.value;
    let called = string(service).filter(|name| !name.is_empty())?;
    let Services { file, services: known } = services;
    let Some(methods) = known.get(called) else {
        let text = format!(
            "no service is called {called:?} in {file}: this entry applies to no call, and no \
             client says so"
        );
        let finding = Finding::error("unknown-service", range(service), text).path(called);
        return Some(
            finding
                .help(service_help(called, &known.keys().map(String::as_str).collect::<Vec<_>>())),
        );
    };
    let method = &field(name, "method")?.value;
    let method_called = string(method).filter(|name| !name.is_empty())?;
    if methods.contains_key(method_called) {
        return None;
    }
    let text = format!(
        "{called} has no method {method_called:?} in {file}: this entry applies to no call, and no \
         client says so"
    );
    let names: Vec<_> = methods.keys().map(String::as_str).collect();
    let finding = Finding::error("unknown-method", range(method), text)
        .path(format!("{called}/{method_called}"));
    Some(match nearest(method_called, &names) {
        Some(near) => finding.help(format!("did you mean {near:?}?")),
        None => finding.help(format!("its methods are {}", listed(&names))),
    })
}

fn service_help(called: &str, names: &[&str]) -> String {
    // The package is often forgotten.
    let last = |name: &str| name.rsplit('.').next().unwrap_or("").to_owned();
    let same = names.iter().find(|name| last(name).eq_ignore_ascii_case(&last(called)));
    match same.copied().or_else(|| nearest(called, names)) {
        Some(near) => format!("did you mean {near:?}?"),
        None => format!("its services are {}", listed(names)),
    }
}

fn listed(names: &[&str]) -> String {
    let shown: Vec<_> = names.iter().take(LISTED_MAX).copied().collect();
    match names.len().checked_sub(shown.len()) {
        None | Some(0) => shown.join(", "),
        Some(more) => format!("{} and {more} more", shown.join(", ")),
    }
}

/// Methods that could be retried and are not, and methods that are retried and may not.
fn idempotency(
    root: &Value<'_>,
    config: &ServiceConfig,
    services: &Services,
    findings: &mut Vec<Finding>,
) {
    let mut unmarked: BTreeMap<usize, Vec<String>> = BTreeMap::new();
    let mut unused: Vec<(Option<usize>, String, Idempotency)> = Vec::new();
    for (service, methods) in &services.services {
        for (method, idempotency) in methods {
            let path = format!("{service}/{method}");
            let entry = config.lookup(&path);
            let policy = entry.and_then(|index| config.entries()[index].policy);
            match (policy, idempotency, entry) {
                (Some(_), Idempotency::Unknown, Some(entry)) => {
                    unmarked.entry(entry).or_default().push(path);
                }
                (None, Idempotency::Idempotent | Idempotency::NoSideEffects, entry) => {
                    unused.push((entry, path, *idempotency));
                }
                _ => {}
            }
        }
    }
    for (index, paths) in unmarked {
        let hedged = matches!(config.entries()[index].policy, Some(MethodPolicy::Hedging(_)));
        findings.push(unmarked_finding(root, index, &paths, hedged));
    }
    for (entry, path, idempotency) in unused {
        let marked = match idempotency {
            Idempotency::NoSideEffects => "has no side effects",
            Idempotency::Idempotent | Idempotency::Unknown => "is idempotent",
        };
        let text = format!("{path} {marked}, as its proto says, and is not retried");
        let help = "add a retryPolicy for it, or for its service";
        let range = entry.map_or_else(|| start(root), |index| entry_range(root, index));
        findings.push(Finding::warning("not-retried", range, text).path(path).help(help));
    }
}

fn unmarked_finding(root: &Value<'_>, index: usize, paths: &[String], hedged: bool) -> Finding {
    let names: Vec<_> = paths.iter().map(String::as_str).collect();
    let (verb, does) = match (paths.len(), hedged) {
        (1, false) => ("is", "retried"),
        (1, true) => ("is", "hedged"),
        (_, false) => ("are", "retried"),
        (_, true) => ("are", "hedged"),
    };
    let text = format!(
        "{} {verb} {does}, and the proto does not say that repeating a call is safe",
        listed(&names)
    );
    let help = "if it is safe, add `option idempotency_level = IDEMPOTENT;` to the method; if not, \
                name the safe methods one by one";
    let range = entry_range(root, index);
    Finding::warning("not-idempotent", range, text)
        .path(format!("methodConfig[{index}]"))
        .help(help)
}

/// The policy or the names of an entry, for the place of a finding.
fn entry_range(root: &Value<'_>, index: usize) -> Range<usize> {
    let entries = elements(field(root, "methodConfig").map(|it| &it.value));
    let Some(entry) = entries.get(index) else { return start(root) };
    let names = ["retryPolicy", "hedgingPolicy", "name"];
    let found = names.iter().find_map(|name| field(entry, name));
    found.map_or_else(|| start(entry), |property| range(&property.name))
}

/// The first character of a value.
fn start(value: &Value<'_>) -> Range<usize> {
    let start = range(value).start;
    start..start + 1
}
