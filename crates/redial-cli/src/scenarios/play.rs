//! The core level: runs scenarios through the decision core on virtual time.
//!
//! Policies and state machine are those of the public API, run by [`redial::testing`], which users
//! also use for their own policies. This module passes it a script and reads the call log.

use std::collections::BTreeMap;
use std::time::Duration;

use redial::config::AnyPolicy;
use redial::testing::{AttemptOutcome, Play, Played, Script, classified_as, hangs};
use redial::{CallLog, Event, StopReason, time::Ns};
use redial_service_config::Code;

use redial_service_config::{Statistics, StatisticsCounters, StatisticsRecorder};

use super::designs::{Extras, Refusal};
use super::model::{Attempt, Call, GrpcCall, Outcome, Scenario};

/// The result of a scenario.
#[derive(Debug, Default)]
pub(super) struct Actual {
    /// Why the policy was refused, if it was.
    pub(super) refused: Option<String>,
    pub(super) calls: Vec<ActualCall>,
    /// The tokens in the throttle after the last call.
    pub(super) tokens: Option<f64>,
    /// The statistics of each method that was called; only gRPC has them.
    pub(super) stats: BTreeMap<String, Statistics>,
}

/// The result of a call. Times count from its start.
#[derive(Debug, Default)]
pub(super) struct ActualCall {
    pub(super) starts: Vec<Ns>,
    pub(super) cancels: Vec<(u32, Ns)>,
    pub(super) end: Option<ActualEnd>,
    pub(super) tokens: Option<f64>,
    pub(super) text: Option<String>,
    pub(super) log: Option<Vec<String>>,
    /// For each attempt its `grpc-previous-rpc-attempts`, remaining timeout and number of sent
    /// messages; gRPC only.
    pub(super) previous: Option<Vec<Option<String>>>,
    pub(super) timeouts: Option<Vec<Option<Ns>>>,
    pub(super) sent: Option<Vec<u64>>,
    /// Whether a message over the size limit ended the call (decision G41).
    pub(super) too_large: bool,
    /// The first attempt that is not in the script.
    pub(super) unscripted: Option<u32>,
    /// Its call log, if any, and the start of the call.
    pub(super) call_log: Option<(Ns, CallLog)>,
}

impl ActualCall {
    /// The events of its call log, if any.
    pub(super) fn events(&self) -> impl Iterator<Item = &(Ns, Event)> {
        self.call_log.iter().flat_map(|(_, call_log)| call_log.events())
    }

    /// The times of all its events, including its deadline.
    pub(super) fn moments(&self) -> impl Iterator<Item = Ns> {
        self.events().flat_map(|(at, event)| {
            let deadline = match event {
                Event::CallStarted { deadline, .. } => *deadline,
                _ => None,
            };
            std::iter::once(*at).chain(deadline)
        })
    }
}

/// How a call ended.
#[derive(Debug)]
pub(super) struct ActualEnd {
    pub(super) at: Ns,
    pub(super) outcome: String,
    pub(super) attempt: Option<u32>,
    pub(super) stop_reason: StopReason,
    pub(super) error: Option<String>,
}

impl ActualEnd {
    /// The end of a call by a message over the size limit (decision G41).
    pub(super) fn too_large(at: Ns) -> Self {
        let outcome = Code::ResourceExhausted.name().to_owned();
        ActualEnd { at, outcome, attempt: None, stop_reason: StopReason::NotRetryable, error: None }
    }
}

/// Runs a scenario.
pub(super) fn play(scenario: &Scenario) -> Actual {
    let policies = match scenario.plan.build(&scenario.calls) {
        Ok(policies) => policies,
        Err(refusals) => {
            return Actual { refused: Some(Refusal::join(&refusals)), ..Actual::default() };
        }
    };
    let mut play = Play::new().draws(scenario.draws.iter().copied());
    if let Some(bytes) = scenario.plan.buffer_max() {
        play = play.buffer_max(bytes);
    }
    for (index, call) in scenario.calls.iter().enumerate() {
        play = play.call(script(policy(&policies, index), call));
    }
    let played = play.run();
    let last = played.iter().max_by_key(|played| played.ended_nth());
    let tokens = last.and_then(Played::tokens);
    let calls = || scenario.calls.iter().zip(&played);
    let stats = statistics(calls());
    let calls = calls().map(|(call, played)| read(scenario, call, played)).collect();
    Actual { refused: None, calls, tokens, stats }
}

/// The statistics of each method that was called.
fn statistics<'c>(
    calls: impl Iterator<Item = (&'c Call, &'c Played)>,
) -> BTreeMap<String, Statistics> {
    let mut methods: BTreeMap<String, StatisticsCounters> = BTreeMap::new();
    for (call, played) in calls {
        let Some(GrpcCall { method, .. }) = &call.grpc else { continue };
        let counters = methods.entry(method.clone()).or_default();
        let mut recorder = StatisticsRecorder::default();
        for (_, event) in played.call_log().events() {
            recorder.record(event, |counted| counters.add(counted));
        }
    }
    methods.into_iter().map(|(method, counters)| (method, counters.read())).collect()
}

/// The policy of a call, which may be shared by all calls.
pub(super) fn policy(policies: &[AnyPolicy], call: usize) -> &AnyPolicy {
    policies.get(call).unwrap_or(&policies[0])
}

fn script<'p>(policy: &'p AnyPolicy, call: &Call) -> Script<'p> {
    let mut script =
        Script::new(policy, call.attempts.iter().map(attempt)).at(Duration::from_nanos(call.at));
    if let Some(deadline) = call.deadline {
        script = script.deadline(Duration::from_nanos(deadline));
    }
    if let Some(cancel) = call.cancel {
        script = script.cancel(Duration::from_nanos(cancel));
    }
    if let Some(GrpcCall { messages, buffer_max, message_max, .. }) = &call.grpc {
        script = script.message_max(*message_max);
        script = messages
            .iter()
            .fold(script, |script, (at, bytes)| script.message(Duration::from_nanos(*at), *bytes));
        if let Some(bytes) = buffer_max {
            script = script.buffer_max(*bytes);
        }
    }
    if call.idempotent { script } else { script.not_idempotent() }
}

fn attempt(attempt: &Attempt) -> AttemptOutcome {
    let mut outcome = match attempt.outcome {
        Outcome::Hang => hangs(),
        Outcome::Comes { classification, .. } => classified_as(classification),
    }
    .after(Duration::from_nanos(attempt.after));
    if let Some(headers) = attempt.headers {
        outcome = outcome.headers(Duration::from_nanos(headers));
    }
    match attempt.accepts {
        Some(messages) => outcome.accepts(messages),
        None => outcome,
    }
}

/// Reads the result of a call from its log.
fn read(scenario: &Scenario, call: &Call, played: &Played) -> ActualCall {
    let ended = played.end();
    let outcome = ended.map(|end| match (end.stop_reason, end.attempt) {
        (StopReason::Cancelled, _) => "cancelled",
        (_, Some(attempt)) => outcome(scenario, call, attempt, played.call_log()),
        (_, None) => scenario.plan.too_late(),
    });
    let returned = outcome.filter(|_| ended.is_some_and(|end| end.attempt.is_some()));
    let Extras { error, text, log } = scenario.plan.extras(played, returned);
    let end = match played.too_large() {
        Some(at) => {
            let attempt = ended.and_then(|end| end.attempt);
            Some(ActualEnd { attempt, ..ActualEnd::too_large(ns(at)) })
        }
        None => ended.zip(outcome).map(|(end, outcome)| ActualEnd {
            at: ns(end.at),
            outcome: outcome.to_owned(),
            attempt: end.attempt,
            stop_reason: end.stop_reason,
            error,
        }),
    };
    let mut cancels: Vec<_> =
        played.cancels().into_iter().map(|(attempt, at)| (attempt, ns(at))).collect();
    cancels.sort_unstable();
    let grpc = call.grpc.is_some();
    let numbers = played.numbers();
    let remaining = || match played.remaining() {
        Some(spans) => spans.into_iter().map(|span| Some(ns(span))).collect(),
        None => vec![None; numbers.len()],
    };
    let sent = || {
        // An attempt that was cancelled before it started sent nothing.
        let mut sent = played.sent().to_vec();
        sent.resize(numbers.len(), 0);
        sent
    };
    ActualCall {
        too_large: played.too_large().is_some(),
        starts: played.starts().into_iter().map(ns).collect(),
        previous: grpc.then(|| numbers.iter().map(|number| previous(*number)).collect()),
        timeouts: grpc.then(remaining),
        sent: grpc.then(sent),
        cancels,
        end,
        tokens: played.tokens(),
        text,
        log,
        unscripted: played.unscripted(),
        call_log: Some((played.began(), played.call_log().clone())),
    }
}

/// The header `grpc-previous-rpc-attempts` of an attempt (decision G30).
fn previous(number: u32) -> Option<String> {
    (number > 1).then(|| (number - 1).to_string())
}

/// The name of the returned outcome: from the script, unless the attempt timeout came first.
fn outcome(scenario: &Scenario, call: &Call, attempt: u32, call_log: &CallLog) -> &'static str {
    let timed_out = |event: &Event| matches!(event, Event::AttemptTimedOut { attempt: late } if *late == attempt);
    if call_log.events().iter().any(|(_, event)| timed_out(event)) {
        return scenario.plan.too_late();
    }
    match call.attempts.get(attempt as usize - 1).map(|attempt| &attempt.outcome) {
        Some(Outcome::Comes { name, .. }) => name,
        Some(Outcome::Hang) | None => "nothing",
    }
}

fn ns(span: Duration) -> Ns {
    redial::testing::nanoseconds(span)
}
