//! What is legal and surely not meant, in a config as a whole (decision G38).

use std::collections::HashMap;
use std::time::Duration;

use jsonc_parser::ast::Value;
use redial_core::{Backoff, NEVER, Ns, ns};

use super::duration::written;
use super::entry::Entry;
use super::reader::{Path, Reader, range, shown};
use crate::{
    ClientOptions, Code, HedgingPolicy, MethodConfig, MethodName, MethodPolicy, RetryPolicy, Rule,
};

/// How many retries are looked at to see whether their delays fit the timeout.
const RETRIES_MAX: u32 = 1_000;

/// Warns about entries.
pub(super) fn advise(
    reader: &mut Reader<'_>,
    entries: &[Entry<'_>],
    path: &Path<'_>,
    throttled: bool,
    client: &ClientOptions,
) {
    let mut advised = throttled;
    for (index, entry) in entries.iter().enumerate() {
        let mut advice = Advice { reader, entry, path: path.index(index), client };
        advice.names();
        advice.timeout();
        if let Some(policy) = entry.config.policy {
            if !std::mem::replace(&mut advised, true) {
                advice.no_throttling(&policy);
            }
            advice.policy(&policy);
        }
    }
    shadowed(reader, entries, path);
}

/// Advice about one entry.
struct Advice<'a, 't> {
    reader: &'a mut Reader<'t>,
    entry: &'a Entry<'a>,
    path: Path<'a>,
    client: &'a ClientOptions,
}

impl Advice<'_, '_> {
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
            let what = "an entry without a name is for no method";
            self.warn(Rule::NoNames, "name", what, "write [{}] if it is for all methods");
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
            let what = "no call can end before it has begun";
            self.warn(Rule::ZeroTimeout, "timeout", what, "leave it out for no timeout");
        }
    }

    fn no_throttling(&mut self, policy: &MethodPolicy) {
        let what = "nothing holds retries back when the server is down";
        let hint =
            "add \"retryThrottling\": {\"maxTokens\": 10, \"tokenRatio\": 0.1} beside methodConfig";
        self.warn(Rule::NoThrottling, field(policy), what, hint);
    }

    fn policy(&mut self, policy: &MethodPolicy) {
        let attempts = self.client.max_attempts_for(policy);
        if policy.max_attempts() > attempts {
            let what = format!("{attempts} attempts are made at the most");
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
            let what = format!("is above maxBackoff, so every delay is {}", written(max_backoff));
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
        // What a delay is on average is what the middle of all draws makes of it.
        let average = |number| {
            let base = backoff.base(number);
            self.client.jitter.apply(base, 0.5, base, base)
        };
        let retries = retries.min(RETRIES_MAX);
        self.fits(retries, "retries", (1..=retries).map(average));
    }

    fn hedging(&mut self, policy: &HedgingPolicy, hedges: u32) {
        if !policy.non_fatal_status_codes.contains(Code::DeadlineExceeded) {
            let what = "without DEADLINE_EXCEEDED a server that gives up on slow calls never drains the tokens";
            let (rule, name) = (Rule::HangsUncounted, "nonFatalStatusCodes");
            self.warn_inside("hedgingPolicy", rule, name, what, "add \"DEADLINE_EXCEEDED\"");
        }
        let delay = ns(policy.hedging_delay);
        self.fits(hedges, "hedges", (1..=hedges).map(|_| delay));
    }

    /// Warns if not all retries or hedges can be expected to start within the timeout.
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
            let text =
                format!("on average {fit} of {all} {what} start before {}", written(timeout));
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

/// Warns about names that hide what an entry with a wider name says: nothing is merged (G37).
fn shadowed(reader: &mut Reader<'_>, entries: &[Entry<'_>], path: &Path<'_>) {
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
        for (name, (place, at)) in entry.config.names.iter().zip(&entry.names) {
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
            reader.problem::<()>(Rule::Shadowed, at.clone(), &path.index(*place), what, hint);
        }
    }
}

/// What the wider entry says and the narrower one does not; nothing if that one says nothing at all,
/// which is how a method is left alone on purpose.
fn hidden(wide: &MethodConfig, narrow: &MethodConfig) -> Vec<&'static str> {
    let says = |config: &MethodConfig| {
        [
            (config.policy.is_some(), "the policy"),
            (config.timeout.is_some(), "timeout"),
            (config.wait_for_ready.is_some(), "waitForReady"),
            (config.max_request_message_bytes.is_some(), "maxRequestMessageBytes"),
            (config.max_response_message_bytes.is_some(), "maxResponseMessageBytes"),
        ]
    };
    let (wide, narrow) = (says(wide), says(narrow));
    if narrow.iter().all(|(said, _)| !said) {
        return Vec::new();
    }
    let both = wide.into_iter().zip(narrow);
    both.filter(|((wide, _), (narrow, _))| *wide && !narrow).map(|((_, name), _)| name).collect()
}
