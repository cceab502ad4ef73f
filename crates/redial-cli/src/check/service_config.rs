//! Problems of gRPC service configs.

use jsonc_parser::ast::{Object, ObjectProp, Value};
use redial_service_config::{Problem, Rule, ServiceConfig};

use super::json_file::{self, elements, field, range};
use super::{Finding, Runtime, Services, Severity, proto, runtimes};
use crate::scenarios::source::Source;

pub(super) fn check(
    source: &Source,
    languages: &[Runtime],
    services: Option<&Services>,
) -> Vec<Finding> {
    let text = source.text();
    let parsed = ServiceConfig::parse(text);
    let mut findings: Vec<_> = match &parsed {
        Ok(config) => config.warnings().iter().map(finding).collect(),
        Err(problems) => problems.iter().chain(problems.warnings()).map(finding).collect(),
    };
    if let Err(problems) = &parsed
        && problems.omitted() > 0
    {
        let text = format!("and {} more errors", problems.omitted());
        findings.push(Finding::error("limit", text_end(source), text));
    }
    let Ok(root) = json_file::parse(text) else { return findings };
    lost_wrapper(&root, &mut findings);
    runtimes::check(&root, languages, &mut findings);
    if let Some(services) = services {
        proto::check(&root, parsed.as_ref().ok(), services, &mut findings);
    }
    findings
}

fn text_end(source: &Source) -> std::ops::Range<usize> {
    source.text().len()..source.text().len()
}

fn finding(problem: &Problem) -> Finding {
    let severity = match problem.severity() {
        redial_service_config::Severity::Error => Severity::Error,
        redial_service_config::Severity::Warning => Severity::Warning,
    };
    let text = match problem.path.as_str() {
        "" => problem.what.clone(),
        path => format!("{path}: {}", problem.what),
    };
    Finding {
        rule: problem.rule.name().to_owned(),
        severity,
        range: problem.range.clone(),
        path: problem.path.clone(),
        text,
        help: problem.hint.clone(),
    }
}

/// The policies of an entry.
const POLICIES: [&str; 2] = ["retryPolicy", "hedgingPolicy"];
/// The fields of a policy, with the policy that has them.
const FIELDS: [(&str, &str); 7] = [
    ("maxAttempts", "retryPolicy"),
    ("initialBackoff", "retryPolicy"),
    ("maxBackoff", "retryPolicy"),
    ("backoffMultiplier", "retryPolicy"),
    ("retryableStatusCodes", "retryPolicy"),
    ("hedgingDelay", "hedgingPolicy"),
    ("nonFatalStatusCodes", "hedgingPolicy"),
];
/// Names under which a whole config is written in other places.
const CONFIGS: [&str; 2] = ["serviceConfig", "service_config"];

/// A policy in a place, or under a name, where clients ignore it without a message: it is an error here.
fn lost_wrapper(root: &Value<'_>, findings: &mut Vec<Finding>) {
    let Value::Object(object) = root else { return };
    let mut lost = Vec::new();
    for property in &object.properties {
        let name = property.name.as_str();
        let (text, help) = if POLICIES.contains(&name) {
            (at_the_top(name), wrapped_in_entry(name))
        } else if CONFIGS.contains(&name) {
            let text = format!(
                "nothing in {name:?} is ever used: every gRPC client looks for methodConfig at the \
                 top, and ignores this without a message"
            );
            (text, format!("write only what is in {name:?}"))
        } else if name != "methodConfig"
            && super::policy::nearest(name, &["methodConfig"]).is_some()
        {
            (misspelt(name, "methodConfig"), "write \"methodConfig\"".to_owned())
        } else {
            continue;
        };
        lost.push(
            Finding::error("lost-wrapper", range(&property.name), text).path(name).help(help),
        );
    }
    if lost.is_empty()
        && let Some((property, policy)) = policy_of_fields(object)
    {
        let name = property.name.as_str();
        lost.push(
            Finding::error("lost-wrapper", range(&property.name), at_the_top(name))
                .path(name)
                .help(wrapped_in_entry(policy)),
        );
    }
    // The warnings about the fields around it say the same.
    let repeated = [Rule::MisplacedField.name(), Rule::UnknownField.name()];
    if !lost.is_empty() {
        findings.retain(|it| it.path.contains('.') || !repeated.contains(&it.rule.as_str()));
    }
    for (index, entry) in
        elements(field(root, "methodConfig").map(|it| &it.value)).iter().enumerate()
    {
        let Value::Object(entry) = entry else { continue };
        let Some((name, place, text, help)) = lost_in_entry(entry) else { continue };
        let path = format!("methodConfig[{index}].{name}");
        let is_repeated = |it: &Finding| {
            let own = it.path.strip_prefix(&format!("methodConfig[{index}].")).unwrap_or("");
            it.path == path || FIELDS.iter().any(|(field, _)| *field == own)
        };
        findings.retain(|it| !(repeated.contains(&it.rule.as_str()) && is_repeated(it)));
        lost.push(Finding::error("lost-wrapper", place, text).path(path).help(help));
    }
    findings.extend(lost);
}

fn at_the_top(name: &str) -> String {
    format!(
        "this policy is never used: {name} is at the top of the config, where every gRPC client \
         ignores it without a message"
    )
}

fn wrapped_in_entry(policy: &str) -> String {
    format!(
        "wrap it in an entry of methodConfig: {{\"methodConfig\": [{{\"name\": [{{\"service\": \
         \"package.Service\"}}], \"{policy}\": {{...}}}}]}}"
    )
}

/// What is wrong with a name that is nearly this one. Clients in Go read it in any case.
fn misspelt(name: &str, known: &str) -> String {
    let who = match name.eq_ignore_ascii_case(known) {
        true => "gRPC clients in other languages than Go ignore",
        false => "every gRPC client ignores",
    };
    format!(
        "nothing in {name:?} is ever used: the field is called {known}, and {who} other names \
         without a message"
    )
}

/// A policy of an entry that is not read: its name, its place, what is wrong and what to write.
fn lost_in_entry(entry: &Object<'_>) -> Option<(String, std::ops::Range<usize>, String, String)> {
    if POLICIES.iter().any(|policy| json_file::property(entry, policy).is_some()) {
        return None;
    }
    for property in &entry.properties {
        let name = property.name.as_str();
        if let Some(policy) = super::policy::nearest(name, &POLICIES) {
            let help = format!("write {policy:?}");
            return Some((name.to_owned(), range(&property.name), misspelt(name, policy), help));
        }
    }
    let (property, policy) = policy_of_fields(entry)?;
    let name = property.name.as_str();
    let text = format!(
        "this policy is never used: {name} is beside the names of its methods, where every gRPC \
         client ignores it without a message"
    );
    let help = format!("wrap the fields of the policy: \"{policy}\": {{...}}");
    Some((name.to_owned(), range(&property.name), text, help))
}

/// The first field of a policy in another object, and the policy that has these fields.
fn policy_of_fields<'v>(object: &'v Object<'v>) -> Option<(&'v ObjectProp<'v>, &'static str)> {
    let policy_of = |property: &ObjectProp<'_>| {
        let name = property.name.as_str();
        FIELDS.iter().find(|(field, _)| *field == name).map(|(_, policy)| *policy)
    };
    let first = object.properties.iter().find(|property| policy_of(property).is_some())?;
    // Both policies have maxAttempts.
    let mut policies = object.properties.iter().filter_map(policy_of);
    let hedges = policies.any(|policy| policy == "hedgingPolicy");
    Some((first, if hedges { "hedgingPolicy" } else { "retryPolicy" }))
}
