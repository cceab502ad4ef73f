//! Warnings about likely mistakes in a valid config (decision G38).

use std::collections::HashMap;
use std::time::Duration;

use jsonc_parser::ast::Value;
use redial_core::{Backoff, NEVER, Ns, ns};

use super::duration::format_duration;
use super::entry::Entry;
use super::reader::{Path, Reader, range, shown};
use crate::{
    ClientOptions, Code, HedgingPolicy, MethodConfig, MethodName, MethodPolicy, RetryPolicy, Rule,
};

/// The maximum number of retries whose delays are compared with the timeout.
const RETRIES_MAX: u32 = 1_000;

/// Warns about likely mistakes in all entries.
pub(super) fn warn_about_entries(
    reader: &mut Reader<'_>,
    entries: &[Entry<'_>],
    path: &Path<'_>,
    throttled: bool,
    client: &ClientOptions,
) {
    let mut throttling_checked = throttled;
    for (index, entry) in entries.iter().enumerate() {
        let mut warnings = EntryWarnings { reader, entry, path: path.index(index), client };
        warnings.names();
        warnings.timeout();
        if let Some(policy) = entry.config.policy {
            if !std::mem::replace(&mut throttling_checked, true) {
                warnings.no_throttling(&policy);
            }
            warnings.policy(&policy);
        }
    }
    warn_about_shadowed_names(reader, entries, path);
}

/// Collects the warnings of one entry.
struct EntryWarnings<'a, 't> {
    reader: &'a mut Reader<'t>,
    entry: &'a Entry<'a>,
    path: Path<'a>,
    client: &'a ClientOptions,
}

impl EntryWarnings<'_, '_> {
    /// Warns about a field of the entry.
    fn warn(&mut self, rule: Rule, name: &str, what: impl Into<String>, hint: &str) {
        let found = self.entry.fields.and_then(|fields| fields.get(name));
        let at = found.map_or(self.entry.range.clone(), range);
        self.reader.problem::<()>(rule, at, &self.path.field(name), what, Some(hint.into()));
    }

    /// Warns about a field of the entry's policy.
    fn warn_inside(
        &mut self,
        policy: &str,
        rule: Rule,
        name: &str,
        what: impl Into<String>,
        hint: &str,
    ) {
        let found = self.entry.fields.and_then(|fields| fields.get(policy));
        let inside = found.and_then(|value| match value {
            Value::Object(object) => {
                object.properties.iter().find(|property| property.name.as_str() == name)
            }
            _ => None,
        });
        let at = match (inside, found) {
            (Some(property), _) => range(&property.value),
            (None, Some(policy)) => range(policy),
            (None, None) => self.entry.range.clone(),
        };
        let path = self.path.field(policy);
        self.reader.problem::<()>(rule, at, &path.field(name), what, Some(hint.into()));
    }

    fn names(&mut self) {
        let Some(fields) = self.entry.fields else { return };
        let none = match fields.get("name") {
            None => true,
            Some(Value::Array(list)) => list.elements.is_empty(),
            Some(_) => false,
        };
        if none {
            let what = "an entry without a name applies to no method";
            self.warn(Rule::NoNames, "name", what, "write [{}] to apply it to all methods");
        }
        let path = self.path.field("name");
        for (name, (index, at)) in self.entry.config.names.iter().zip(&self.entry.names) {
            let slash = |part: &Option<Box<str>>| part.as_ref().is_some_and(|it| it.contains('/'));
            if slash(&name.service) || slash(&name.method) {
                let what = "no service and no method has a slash in its name";
                let hint = "write {\"service\": \"package.Service\", \"method\": \"Method\"}";
                let (rule, path) = (Rule::UnmatchableName, path.index(*index));
                self.reader.problem::<()>(rule, at.clone(), &path, what, Some(hint.into()));
            }
        }
    }

    fn timeout(&mut self) {
        if self.entry.config.timeout == Some(Duration::ZERO) {
            let what = "no call can complete within zero time";
            self.warn(Rule::ZeroTimeout, "timeout", what, "leave it out for no timeout");
        }
    }

    fn no_throttling(&mut self, policy: &MethodPolicy) {
        let what = "nothing limits retries when the server is down";
        let hint =
            "add \"retryThrottling\": {\"maxTokens\": 10, \"tokenRatio\": 0.1} beside methodConfig";
        self.warn(Rule::NoThrottling, field(policy), what, hint);
    }

    fn policy(&mut self, policy: &MethodPolicy) {
        let attempts = self.client.max_attempts_for(policy);
        if policy.max_attempts() > attempts {
            let what = format!("{attempts} attempts are made at most");
            let hint = "lower it, or raise the client's attempts cap";
            self.warn_inside(field(policy), Rule::AttemptsAboveCap, "maxAttempts", what, hint);
        }
        match policy {
            MethodPolicy::Retry(policy) => self.retry(policy, attempts - 1),
            MethodPolicy::Hedging(policy) => self.hedging(policy, attempts - 1),
        }
    }

    fn retry(&mut self, policy: &RetryPolicy, retries: u32) {
        let RetryPolicy { initial_backoff, max_backoff, backoff_multiplier, .. } = *policy;
        if initial_backoff > max_backoff {
            let what =
                format!("is above maxBackoff, so every delay is {}", format_duration(max_backoff));
            let hint = "swap them, or raise maxBackoff";
            self.warn_inside("retryPolicy", Rule::BackoffClamped, "initialBackoff", what, hint);
        }
        if backoff_multiplier < 1.0 {
            let what = "below 1 the delays get shorter with each retry";
            let hint = "write 2 to double them, 1 to keep them";
            self.warn_inside("retryPolicy", Rule::BackoffShrinks, "backoffMultiplier", what, hint);
        }
        let backoff = Backoff::Exponential {
            first: initial_backoff,
            factor: backoff_multiplier,
            cap: Some(max_backoff),
        };
        // The average delay is the delay of the median random draw.
        let average = |number| {
            let base = backoff.base(number);
            self.client.jitter.apply(base, 0.5, base, base)
        };
        let retries = retries.min(RETRIES_MAX);
        self.fits(retries, "retries", (1..=retries).map(average));
    }

    fn hedging(&mut self, policy: &HedgingPolicy, hedges: u32) {
        if !policy.non_fatal_status_codes.contains(Code::DeadlineExceeded) {
            let what = "without DEADLINE_EXCEEDED, attempts that time out never drain the tokens";
            let (rule, name) = (Rule::HangsUncounted, "nonFatalStatusCodes");
            self.warn_inside("hedgingPolicy", rule, name, what, "add \"DEADLINE_EXCEEDED\"");
        }
        let delay = ns(policy.hedging_delay);
        self.fits(hedges, "hedges", (1..=hedges).map(|_| delay));
    }

    /// Warns if on average not all retries or hedges start within the timeout.
    fn fits(&mut self, all: u32, what: &str, delays: impl Iterator<Item = Ns>) {
        let Some(timeout) = self.entry.config.timeout.filter(|timeout| !timeout.is_zero()) else {
            return;
        };
        let starts = delays.scan(0, |start: &mut Ns, delay| {
            *start = start.saturating_add(delay);
            Some(*start)
        });
        let fit = starts.take_while(|start| *start < ns(timeout) && *start < NEVER).count();
        if fit < all as usize {
            let text = format!(
                "on average {fit} of {all} {what} start before {}",
                format_duration(timeout)
            );
            let hint = "raise it, or lower the delays or maxAttempts";
            self.warn(Rule::BackoffBeyondTimeout, "timeout", text, hint);
        }
    }
}

const fn field(policy: &MethodPolicy) -> &'static str {
    match policy {
        MethodPolicy::Retry(_) => "retryPolicy",
        MethodPolicy::Hedging(_) => "hedgingPolicy",
    }
}

/// Warns about names that hide settings of an entry with a wider name: entries are not merged (G37).
fn warn_about_shadowed_names(reader: &mut Reader<'_>, entries: &[Entry<'_>], path: &Path<'_>) {
    let all = || entries.iter().enumerate();
    let mut widest = None;
    let mut services: HashMap<&str, usize> = HashMap::new();
    for (index, entry) in all() {
        for name in &entry.config.names {
            match (&name.service, &name.method) {
                (None, _) => widest = Some(index),
                (Some(service), None) => drop(services.insert(service, index)),
                (Some(_), Some(_)) => {}
            }
        }
    }
    let wider = |name: &MethodName| match (name.service.as_deref(), &name.method) {
        (None, _) => None,
        (Some(service), Some(_)) => services.get(service).copied().or(widest),
        (Some(_), None) => widest,
    };
    for (index, entry) in all() {
        let entry_path = path.index(index);
        let path = entry_path.field("name");
        for (name, (position, at)) in entry.config.names.iter().zip(&entry.names) {
            let Some(wide) = wider(name) else { continue };
            let name = shown(&name.to_string());
            let (what, hint) = if wide == index {
                (format!("a wider name of this entry covers {name} already"), "remove it")
            } else {
                let hidden = hidden(&entries[wide].config, &entry.config);
                if hidden.is_empty() {
                    continue;
                }
                let hidden = hidden.join(", ");
                let what = format!(
                    "{name} gets this entry alone: not {hidden} of methodConfig[{wide}], whose name is wider"
                );
                (what, "repeat here what should apply")
            };
            let hint = Some(hint.to_owned());
            reader.problem::<()>(Rule::Shadowed, at.clone(), &path.index(*position), what, hint);
        }
    }
}

/// The settings of the wider entry that the narrower entry lacks. Empty if the narrower entry has no
/// settings at all: that is the way to exclude a method on purpose.
fn hidden(wide: &MethodConfig, narrow: &MethodConfig) -> Vec<&'static str> {
    let settings = |config: &MethodConfig| {
        [
            (config.policy.is_some(), "the policy"),
            (config.timeout.is_some(), "timeout"),
            (config.wait_for_ready.is_some(), "waitForReady"),
            (config.max_request_message_bytes.is_some(), "maxRequestMessageBytes"),
            (config.max_response_message_bytes.is_some(), "maxResponseMessageBytes"),
        ]
    };
    let (wide, narrow) = (settings(wide), settings(narrow));
    if narrow.iter().all(|(is_set, _)| !is_set) {
        return Vec::new();
    }
    let both = wide.into_iter().zip(narrow);
    both.filter(|((wide, _), (narrow, _))| *wide && !narrow).map(|((_, name), _)| name).collect()
}
