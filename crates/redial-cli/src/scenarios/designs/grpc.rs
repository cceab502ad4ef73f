//! `grpc`: a service config, client options, and statuses with transport details.

use std::sync::Arc;
use std::time::Duration;

use jsonc_parser::ast::Value;
use jsonc_parser::common::Ranged;
use redial::config::{AnyPolicy, HedgeConfig};
use redial::{Jitter, classify::Classification, rules::DeadlineAction, time::Ns};
use redial_service_config::Code;
use redial_service_config::{
    ClientOptions, ClientOptionsBuilder, Problems, Pushback, Retries, ServiceConfig,
};

use super::super::json::{Fields, Reader, quoted};
use super::super::live::PREFIX_BYTES;
use super::super::model::{Call, GrpcAttempt, GrpcCall, Outcome, Proof};
use super::{FieldNames, Refusal};

/// The field names of `grpc` scenarios.
pub(super) static FIELD_NAMES: FieldNames = FieldNames {
    call: &["at", "deadline", "cancel", "method", "messages", "attempts", "expect"],
    attempt: &["after", "outcome", "pushback", "headers", "seen", "accepts"],
    expect: &["starts", "cancels", "end", "previous", "timeouts", "sent", "tokens"],
    whole: &["tokens", "stats"],
};

const CLIENT: [&str; 7] = [
    "attempts_cap",
    "jitter",
    "late",
    "per_rpc_buffer_limit_in_bytes",
    "retry_buffer_size_in_bytes",
    "retries",
    "pushback_max",
];

const SEEN: [(&str, Proof); 3] = [
    ("unsent", Proof::Unsent),
    ("unprocessed", Proof::Unprocessed),
    ("unconnected", Proof::Unconnected),
];

/// A service config and the client options.
#[derive(Debug)]
pub(in super::super) struct Plan {
    config: Result<ServiceConfig, Problems>,
    /// The text of the config.
    text: String,
    /// The offset of the config in the file.
    at: usize,
    client: ClientOptionsBuilder,
}

impl Plan {
    pub(super) fn read<'t>(reader: &Reader<'t>, value: &'t Value<'t>) -> Option<Self> {
        let fields = reader.object(value, "grpc", &["config", "client"])?;
        let config = reader.needs(&fields, "config", "grpc")?;
        let client =
            fields.get("client").map_or(Some(ClientOptions::builder()), |it| client(reader, it));
        let at = config.start();
        let text = &reader.source().text()[at..config.end()];
        let config = ServiceConfig::parse(text);
        Some(Plan { config, text: text.to_owned(), at, client: client? })
    }

    /// A policy for each call; all share one throttle.
    pub(super) fn build(&self, calls: &[Call]) -> Result<Vec<AnyPolicy>, Vec<Refusal>> {
        let mut refusals: Vec<_> = match &self.config {
            Ok(_) => Vec::new(),
            Err(problems) => problems.iter().map(|problem| self.refusal(problem)).collect(),
        };
        if let Err(problem) = self.client.try_build() {
            let field = match problem {
                redial::PolicyError::Proportion => "client.jitter.proportional",
                _ => "client.attempts_cap",
            };
            refusals.push(Refusal::of(field, problem.to_string()));
        }
        let (Ok(config), []) = (&self.config, refusals.as_slice()) else { return Err(refusals) };
        let throttle = config.retry_throttling().map(|throttling| Arc::new(throttling.tokens()));
        let plans = calls.iter().filter_map(|call| call.grpc.as_ref()).map(|call| &call.plan);
        Ok(plans.map(|plan| plan.to_policy(throttle.clone())).collect())
    }

    fn refusal(&self, problem: &redial_service_config::Problem) -> Refusal {
        let path = if problem.path.is_empty() { "config" } else { &problem.path };
        let hint = problem.hint.as_ref().map_or(String::new(), |hint| format!("; {hint}"));
        let text = format!("{path}: {}{hint} [{}]", problem.what, problem.rule);
        Refusal { at: Some(self.at + problem.range.start), ..Refusal::of(path, text) }
    }

    /// The text of the service config.
    pub(in super::super) fn text(&self) -> &str {
        &self.text
    }

    /// The client options; invalid ones are reported when the policies are built.
    pub(in super::super) fn client(&self) -> ClientOptions {
        self.client.try_build().unwrap_or_default()
    }

    /// Replaces the jitter of the scenario.
    pub(in super::super) fn jitter(&mut self, jitter: Jitter, calls: &mut [Call]) {
        self.client = self.client.jitter(jitter);
        let client = self.client();
        let config = self.config.as_ref().ok();
        for call in calls.iter_mut().filter_map(|call| call.grpc.as_mut()) {
            call.plan = client.plan(config.and_then(|config| config.method(&call.method)));
        }
    }

    /// The replay buffer limit of all calls together.
    pub(super) fn buffer_max(&self) -> Option<u64> {
        let client = self.client();
        (client.retries != Retries::Off).then_some(client.retry_buffer_size_in_bytes)
    }

    /// The gRPC fields of a call: its method and its request messages.
    pub(super) fn call<'t>(&self, reader: &Reader<'t>, call: &Fields<'t>) -> Option<GrpcCall> {
        let value = reader.needs(call, "method", "a call of grpc")?;
        let method = reader.string(value, "method")?;
        let parts: Vec<_> = method.split('/').collect();
        if !matches!(parts.as_slice(), ["", service, name] if !service.is_empty() && !name.is_empty())
        {
            return reader
                .diagnostic(value.start(), "method: expected \"/package.Service/Method\"");
        }
        let messages = match call.get("messages") {
            None => vec![(0, 0)],
            Some(value) => messages(reader, value)?,
        };
        let client = self.client();
        let config = self.config.as_ref().ok();
        let entry = config.and_then(|config| config.method(method));
        let message_max = entry.and_then(|entry| entry.max_request_message_bytes);
        let message_max = message_max.map_or(u64::MAX, |bytes| u64::from(bytes) + PREFIX_BYTES);
        let plan = client.plan(entry);
        let keeps = client.retries != Retries::Off;
        let buffer_max = keeps.then_some(client.per_rpc_buffer_limit_in_bytes);
        Some(GrpcCall { method: method.to_owned(), plan, messages, buffer_max, message_max })
    }
}

fn messages<'t>(reader: &Reader<'t>, value: &'t Value<'t>) -> Option<Vec<(Ns, u64)>> {
    let message = |value: &'t Value<'t>| {
        let message = reader.object(value, "a message", &["at", "bytes"])?;
        let at = message.get("at").map_or(Some(0), |value| reader.time(value, "at"))?;
        let bytes = reader.needs(&message, "bytes", "a message")?;
        Some((at, reader.whole(bytes, "bytes", 0, u64::MAX)?))
    };
    reader.array(value, "messages")?.iter().map(message).collect()
}

fn client<'t>(reader: &Reader<'t>, value: &'t Value<'t>) -> Option<ClientOptionsBuilder> {
    let fields = reader.object(value, "client", &CLIENT)?;
    let mut client = ClientOptions::builder();
    if let Some(value) = fields.get("attempts_cap") {
        // It fits by the bound.
        let cap = reader.whole(value, "attempts_cap", 0, u64::from(u32::MAX))? as u32;
        client = client.attempts_cap(cap);
    }
    if let Some(value) = fields.get("jitter") {
        client = client.jitter(jitter(reader, value)?);
    }
    if let Some(value) = fields.get("late") {
        let late = one_of(reader, value, "late", &["early", "wait"])?;
        client = client.deadline_action(if late == "early" {
            DeadlineAction::FailFast
        } else {
            DeadlineAction::WaitForDeadline
        });
    }
    if let Some(value) = fields.get("per_rpc_buffer_limit_in_bytes") {
        let bytes = reader.whole(value, "per_rpc_buffer_limit_in_bytes", 0, u64::MAX)?;
        client = client.per_rpc_buffer_limit_in_bytes(bytes);
    }
    if let Some(value) = fields.get("retry_buffer_size_in_bytes") {
        let bytes = reader.whole(value, "retry_buffer_size_in_bytes", 0, u64::MAX)?;
        client = client.retry_buffer_size_in_bytes(bytes);
    }
    if let Some(value) = fields.get("retries") {
        client = client.retries(match value {
            Value::BooleanLit(all) if all.value => Retries::All,
            Value::BooleanLit(_) => Retries::Off,
            Value::StringLit(text) if text.value == "transparent" => Retries::Transparent,
            value => {
                let text = "retries: expected true, false or \"transparent\"";
                return reader.diagnostic(value.start(), text);
            }
        });
    }
    if let Some(value) = fields.get("pushback_max") {
        client = client.pushback_max(span(reader, value, "pushback_max")?);
    }
    Some(client)
}

fn jitter<'t>(reader: &Reader<'t>, value: &'t Value<'t>) -> Option<Jitter> {
    match value {
        Value::Object(_) => {}
        Value::StringLit(text) if text.value == "full" => return Some(Jitter::Full),
        value => {
            let text = "jitter: expected \"full\" or {\"proportional\": 0.2}";
            return reader.diagnostic(value.start(), text);
        }
    }
    let fields = reader.object(value, "jitter", &["proportional"])?;
    let share = reader.needs(&fields, "proportional", "jitter")?;
    reader.number(share, "proportional").map(Jitter::Proportional)
}

/// A duration in policy notation, or a number of milliseconds.
fn span<'t>(reader: &Reader<'t>, value: &'t Value<'t>, what: &str) -> Option<Duration> {
    if let Value::NumberLit(_) = value {
        return reader.time(value, what).map(Duration::from_nanos);
    }
    let text = &reader.source().text()[value.start()..value.end()];
    match serde_json::from_str::<HedgeConfig>(&format!("{{\"delay\": {text}}}")) {
        Ok(span) => Some(span.delay),
        Err(_) => {
            let expected = "a span like \"250ms\", or a number of milliseconds";
            reader.diagnostic(value.start(), format!("{what}: expected {expected}"))
        }
    }
}

pub(super) fn outcome<'t>(
    reader: &Reader<'t>,
    attempt: &Fields<'t>,
    call: &GrpcCall,
) -> Option<(Outcome, GrpcAttempt)> {
    let texts = attempt.get("pushback").map_or(Some(Vec::new()), |it| pushback(reader, it));
    let plan = &call.plan;
    let headers = attempt.get("headers").map_or(Some(0), |it| reader.time(it, "headers"))?;
    let after = attempt.get("after").map_or(Some(0), |it| reader.time(it, "after"))?;
    let hangs = |value: &Value<'_>| matches!(value, Value::StringLit(text) if text.value == "hang");
    if headers > after && !attempt.get("outcome").is_some_and(hangs) {
        let at = attempt.get("headers").map_or(attempt.at, Ranged::start);
        return reader.diagnostic(at, "headers: they come ahead of the outcome, not after it");
    }
    if let Some(value) = attempt.get("seen") {
        let foreign = ["outcome", "pushback"].iter().find_map(|name| attempt.get(name));
        if let Some(value) = foreign {
            let text = "what was \"seen\" is the outcome: no \"outcome\" or \"pushback\" with it";
            return reader.diagnostic(value.start(), text);
        }
        let name = one_of(reader, value, "seen", &SEEN.map(|(name, _)| name))?;
        let (_, seen) = SEEN.into_iter().find(|(known, _)| *known == name)?;
        let classification = match seen {
            // Response headers arrived: the proof no longer applies.
            _ if attempt.get("headers").is_some() => {
                plan.classify(Code::Unavailable, Pushback::None)
            }
            Proof::Unsent => plan.unsent(),
            Proof::Unprocessed => plan.unprocessed(),
            Proof::Unconnected if plan.waits_for_ready() => plan.unsent(),
            Proof::Unconnected => plan.unconnected(),
        };
        let grpc = GrpcAttempt { seen: Some(seen), ..GrpcAttempt::default() };
        return Some((status(Code::Unavailable, classification), grpc));
    }
    let value = reader.needs(attempt, "outcome", "an attempt without \"seen\"")?;
    let name = reader.string(value, "outcome")?;
    if name == "hang" {
        return match attempt.get("pushback") {
            Some(value) => {
                reader.diagnostic(value.start(), "an attempt that hangs has no pushback")
            }
            None => Some((Outcome::Hang, GrpcAttempt::default())),
        };
    }
    match Code::from_name(name).filter(|code| code.name() == name) {
        Some(code) => {
            let texts = texts?;
            let classification =
                plan.classify(code, Pushback::parse(texts.iter().map(String::as_bytes)));
            Some((status(code, classification), GrpcAttempt { pushback: texts, seen: None }))
        }
        None => {
            let names: Vec<_> = Code::ALL.into_iter().map(Code::name).collect();
            let expected = quoted(&names);
            let text =
                format!("outcome: unknown status {name:?}; expected \"hang\" or one of {expected}");
            reader.diagnostic(value.start(), text)
        }
    }
}

/// The raw value of the header, or several values.
fn pushback<'t>(reader: &Reader<'t>, value: &'t Value<'t>) -> Option<Vec<String>> {
    let list = match value {
        Value::Array(list) => &list.elements,
        value => std::slice::from_ref(value),
    };
    list.iter().map(|it| reader.string(it, "pushback").map(str::to_owned)).collect()
}

fn status(code: Code, classification: Classification) -> Outcome {
    Outcome::Comes { name: code.name(), classification }
}

fn one_of<'t>(
    reader: &Reader<'t>,
    value: &'t Value<'t>,
    what: &str,
    names: &[&str],
) -> Option<&'t str> {
    let name = reader.string(value, what)?;
    if names.contains(&name) {
        return Some(name);
    }
    let expected = quoted(names);
    reader
        .diagnostic(value.start(), format!("{what}: unknown {name:?}; expected one of {expected}"))
}

/// The outcomes of calls.
pub(super) fn is_outcome(outcome: &str) -> bool {
    outcome == "cancelled" || Code::from_name(outcome).is_some_and(|code| code.name() == outcome)
}
