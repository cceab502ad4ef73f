//! Problems of policy files.

use std::collections::HashSet;
use std::ops::Range;

use jsonc_parser::ast::{ObjectProp, Value};
use jsonc_parser::common::Ranged;
use redial::PolicyError;
use redial::config::{LoadError, PolicyConfig, PolicyWarning, ThrottleConfig};
use redial_sim::file::Format;

use super::json_file::{self, range};
use super::{Finding, simulation};
use crate::policy_file::Notation;
use crate::presets;
use crate::scenarios::source::Source;

pub(super) fn check(source: &Source) -> Vec<Finding> {
    match Notation::of(source.name(), source.text()) {
        Notation::Json => json(source.text()),
        Notation::Toml => toml_policy(source.text()),
    }
}

fn json(text: &str) -> Vec<Finding> {
    let root = match json_file::parse(text) {
        Ok(root) => root,
        Err(error) => return vec![not_json(error)],
    };
    let Value::Object(object) = &root else {
        return vec![Finding::error("type", range(&root), "a policy is an object")];
    };
    // Each key is read by itself, so that one run shows all problems.
    let mut findings: Vec<_> =
        object.properties.iter().filter_map(|property| key(text, property)).collect();
    let mut names = HashSet::new();
    for property in &object.properties {
        let name = property.name.as_str();
        if !names.insert(name) {
            let text = format!("the key {name:?} is there twice");
            findings.push(
                Finding::error("duplicate-key", range(&property.name), text)
                    .path(name)
                    .help("remove one of them"),
            );
        }
    }
    if !findings.is_empty() {
        return findings;
    }
    match serde_json::from_str::<PolicyConfig>(text) {
        Ok(config) => whole(&config, |path| {
            let found = json_file::find(&root, path);
            if std::ptr::eq(found, &root) {
                object.start()..object.start() + 1
            } else {
                range(found)
            }
        }),
        Err(error) => vec![Finding::error("type", range(&root), plain(&error))],
    }
}

pub(super) fn not_json(error: json_file::JsonError) -> Finding {
    let rule = if error.too_deep { "limit" } else { "json" };
    let finding = Finding::error(rule, error.range, error.what);
    match error.hint {
        Some(hint) => finding.help(hint),
        None => finding,
    }
}

/// The problem of one key, read by itself.
fn key(text: &str, property: &ObjectProp<'_>) -> Option<Finding> {
    let own = format!("{{{}}}", &text[property.start()..property.end()]);
    let name = property.name.as_str();
    if !KEYS.contains(&name) {
        let text = format!("{name:?} is no key of a policy");
        let finding = Finding::error("unknown-field", range(&property.name), text).path(name);
        return Some(match nearest(name, &KEYS) {
            Some(known) => finding.help(format!("did you mean {known:?}?")),
            None => finding.help(format!("the keys are {}", KEYS.join(", "))),
        });
    }
    let error = match serde_json::from_str::<PolicyConfig>(&own) {
        Ok(config) => return contradiction(&config, property),
        Err(error) => error,
    };
    // The error is at the end of the value that is wrong.
    let line = own.lines().take(error.line().saturating_sub(1)).map(|line| line.len() + 1);
    let offset = (line.sum::<usize>() + error.column()).saturating_sub(1).min(own.len());
    let offset = property.start() + offset.saturating_sub(1);
    let value = json_file::at(&property.value, offset);
    let message = plain(&error).replace("expected f64", "expected a number, without quotes");
    let finding = Finding::error("value", first_line(text, range(value)), message).path(name);
    Some(match vendor_preset(property) {
        Some(help) => finding.help(help),
        None => finding,
    })
}

/// What to do with the preset of a vendor's design, whose rules have no written form.
fn vendor_preset(property: &ObjectProp<'_>) -> Option<String> {
    let name = property.value.as_string_lit().filter(|_| property.name.as_str() == "preset")?;
    let preset = presets::by_name(&name.value)?;
    Some(format!(
        "the rules of this preset have no written form: `redial plan {0}` shows it, and redial_cli::presets \
         names the function of its crate",
        preset.name()
    ))
}

/// A value that no policy can have, such as no attempt at all.
fn contradiction(config: &PolicyConfig, property: &ObjectProp<'_>) -> Option<Finding> {
    let error = config.load().err()?;
    let field = error.field();
    let path = field.strip_prefix(property.name.as_str())?;
    let value = json_file::find(&property.value, path.trim_start_matches('.'));
    // Without the other keys, it may lack what it needs.
    let alone = matches!(error, LoadError::PolicyError(PolicyError::Unlimited));
    (!alone).then(|| Finding::error("policy", range(value), error.to_string()).path(field))
}

/// The keys of a policy.
const KEYS: [&str; 15] = [
    "preset",
    "name",
    "attempts",
    "backoff",
    "jitter",
    "limits",
    "deadline",
    "attempt_timeout",
    "retry_timeouts",
    "late",
    "hint_max",
    "hint_jitter",
    "reset_after",
    "throttle",
    "hedge",
];

/// The known name that is nearest to this one.
pub(crate) fn nearest<'k>(name: &str, known: &[&'k str]) -> Option<&'k str> {
    let plain = |text: &str| text.to_lowercase().replace(['_', '-'], "");
    let distance = |known: &str| strsim::osa_distance(&plain(name), &plain(known));
    let near = known.iter().copied().filter(|known| distance(known) * 3 <= known.len().max(3));
    near.min_by_key(|known| distance(known))
}

/// The message without the position, which is shown by the snippet.
fn plain(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rfind(" at line ") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}

fn toml_policy(text: &str) -> Vec<Finding> {
    match toml::from_str::<PolicyConfig>(text) {
        Ok(config) => whole(&config, |path| toml_key(text, path)),
        Err(error) => {
            // Here each key is read by itself, so that one run shows all problems.
            if let Err(problems) = redial_sim::file::parse_policy(text, Format::Toml) {
                let mut findings: Vec<_> = problems
                    .as_slice()
                    .iter()
                    .map(|it| simulation::finding(it, Format::Toml))
                    .collect();
                narrow(&mut findings, error.span());
                return findings;
            }
            let range = error.span().unwrap_or(0..0);
            let rule = if toml::from_str::<toml::Table>(text).is_ok() { "value" } else { "toml" };
            vec![Finding::error(rule, first_line(text, range), error.message())]
        }
    }
}

/// Underlines the value that is wrong inside of a larger one, where its place is known.
fn narrow(findings: &mut [Finding], place: Option<Range<usize>>) {
    let Some(place) = place.filter(|place| !place.is_empty()) else { return };
    let inside = |outer: &Range<usize>| outer.start <= place.start && place.end <= outer.end;
    if let Some(finding) = findings.iter_mut().find(|it| inside(&it.range)) {
        finding.range = place;
    }
}

/// The line of a key in a TOML text: of the whole path, or of its beginning.
fn toml_key(text: &str, path: &str) -> Range<usize> {
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        let key = line.split('=').next().unwrap_or("").trim().trim_matches(['[', ']']);
        let is_part = |long: &str, short: &str| {
            long == short || long.strip_prefix(short).is_some_and(|rest| rest.starts_with('.'))
        };
        if !key.is_empty() && (is_part(key, path) || is_part(path, key)) {
            return start..start + line.trim_end().len();
        }
        start += line.len();
    }
    0..0
}

/// Problems of the policy as a whole, and likely mistakes.
fn whole(config: &PolicyConfig, range_of: impl Fn(&str) -> Range<usize>) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Err(error) = config.load() {
        let (field, text) = (error.field(), error.to_string());
        findings.push(Finding::error("policy", range_of(&field), text).path(field));
        return findings;
    }
    let mut warn = |rule: &str, path: &str, text: String, help: &str| {
        findings.push(Finding::warning(rule, range_of(path), text).path(path).help(help));
    };
    if config.attempts == Some(1) {
        let text = "one attempt: nothing is ever retried".to_owned();
        warn(
            "nothing-retried",
            "attempts",
            text,
            "the number includes the first attempt; write 2 or more",
        );
    }
    if config.throttle == Some(ThrottleConfig::None) {
        let text =
            "without a retry budget, every call of an outage is retried in full: a retry storm"
                .to_owned();
        warn(
            "no-throttling",
            "throttle",
            text,
            "remove the key for the default budget, or write {\"budget\": {\"reserve\": 10}}",
        );
    }
    for warning in config.warnings() {
        let rule = match warning {
            PolicyWarning::FirstDelayAboveCap { .. } => "backoff-clamped",
            PolicyWarning::AttemptsAboveReserve { .. }
            | PolicyWarning::ForeverWithoutRefill { .. } => "attempts-above-reserve",
            PolicyWarning::AttemptTimeoutZero => "zero-timeout",
            _ => "likely-mistake",
        };
        warn(rule, warning.field(), warning.to_string(), warning.help());
    }
    findings
}

/// The part of a range on its first line.
pub(super) fn first_line(text: &str, range: Range<usize>) -> Range<usize> {
    let end = range.end.min(text.len());
    let start = range.start.min(end);
    let line = text[start..end].find('\n').map_or(end, |at| start + at);
    start..line
}
