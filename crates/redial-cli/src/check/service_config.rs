//! Problems of gRPC service configs.

use jsonc_parser::ast::Value;
use redial_service_config::{Problem, Rule, ServiceConfig};

use super::json_file::{self, range};
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

/// A policy at the top of the config, or under a mistyped `methodConfig`: every client ignores it
/// without a message, so it is an error here.
fn lost_wrapper(root: &Value<'_>, findings: &mut Vec<Finding>) {
    let Value::Object(object) = root else { return };
    let mut lost = Vec::new();
    for property in &object.properties {
        let name = property.name.as_str();
        let (text, help) = if POLICIES.contains(&name) {
            let text = format!(
                "this policy is never used: {name} is at the top of the config, where every gRPC \
                 client ignores it without a message"
            );
            let help = format!(
                "wrap it in an entry of methodConfig: {{\"methodConfig\": [{{\"name\": \
                 [{{\"service\": \"package.Service\"}}], \"{name}\": {{...}}}}]}}"
            );
            (text, help)
        } else if name != "methodConfig"
            && super::policy::nearest(name, &["methodConfig"]).is_some()
        {
            let text = format!(
                "nothing in {name:?} is ever used: the field is called methodConfig, and every \
                 gRPC client ignores other names without a message"
            );
            (text, "write \"methodConfig\"".to_owned())
        } else {
            continue;
        };
        lost.push(
            Finding::error("lost-wrapper", range(&property.name), text).path(name).help(help),
        );
    }
    if lost.is_empty() {
        return;
    }
    // The warnings about the fields around it say the same.
    let repeated = [Rule::MisplacedField.name(), Rule::UnknownField.name()];
    findings.retain(|it| it.path.contains('.') || !repeated.contains(&it.rule.as_str()));
    findings.extend(lost);
}
