//! Combines the observations of servers, application and call logs into a result.

use std::collections::BTreeMap;
use std::time::Duration;

use http::HeaderMap;
use redial::{CallLog, Event, StopReason, time::Ns};
use redial_echo::EchoResponse;
use redial_faults::grpc::{Reason, Record, StreamRecord, timeout};
use redial_service_config::Code;
use redial_service_config::Statistics;
use tonic::metadata::MetadataMap;
use tonic::{Response, Status};

use super::super::Live;
use super::network::{AttemptId, AttemptRequest};
use super::time_scale::TimeScale;
use super::{Setup, event_order, network, script};
use crate::scenarios::compare::Difference;
use crate::scenarios::model::{Call, Outcome};
use crate::scenarios::play::{Actual, ActualCall, ActualEnd};

const PREVIOUS: &str = "grpc-previous-rpc-attempts";

/// All observations of a scenario. Times count from the start of each call.
#[derive(Debug)]
pub(super) struct Observation {
    calls: Vec<ObservedCall>,
    call_logs: Vec<CallLog>,
    tokens: Option<f64>,
    stats: BTreeMap<String, Statistics>,
}

#[derive(Debug, PartialEq)]
struct ObservedCall {
    attempts: Vec<ObservedAttempt>,
    end: Option<Ended>,
}

#[derive(Clone, Debug, PartialEq)]
struct ObservedAttempt {
    at: Ns,
    cancelled: Option<Ns>,
    previous: Option<String>,
    timeout: Option<Ns>,
    /// How many messages its stream carried; `None` without a stream.
    sent: Option<u64>,
}

/// The end of a call, as observed by the application.
#[derive(Debug, PartialEq)]
pub(super) struct Ended {
    at: Ns,
    /// `None`: it was dropped.
    status: Option<CallStatus>,
    tokens: Option<f64>,
}

/// The status that the application received.
#[derive(Debug, PartialEq)]
struct CallStatus {
    outcome: &'static str,
    text: String,
    /// The number of the answered attempt, from the server's metadata.
    attempt: Option<u32>,
    /// The count of previous attempts, from the layer's metadata.
    previous: Option<String>,
}

impl Ended {
    pub(super) fn new(
        at: Ns,
        result: Option<Result<Response<EchoResponse>, Status>>,
        tokens: Option<f64>,
    ) -> Self {
        let status = result.map(|result| match result {
            Ok(response) => call_status(tonic::Code::Ok, "", response.metadata()),
            Err(status) => call_status(status.code(), status.message(), status.metadata()),
        });
        Ended { at, status, tokens }
    }
}

fn call_status(code: tonic::Code, text: &str, metadata: &MetadataMap) -> CallStatus {
    let only = |name: &str| metadata.get(name).and_then(|value| value.to_str().ok());
    let code = Code::from_number(i64::from(i32::from(code))).unwrap_or(Code::Unknown);
    CallStatus {
        outcome: code.name(),
        text: text.to_owned(),
        attempt: only(script::ATTEMPT).and_then(|text| text.parse().ok()),
        previous: only(PREVIOUS).map(str::to_owned),
    }
}

impl Observation {
    pub(super) fn new(
        setup: Setup<'_>,
        ends: Vec<Option<Ended>>,
        request: &BTreeMap<AttemptId, AttemptRequest>,
        record: &Record,
        call_logs: Vec<CallLog>,
        tokens: Option<f64>,
        stats: BTreeMap<String, Statistics>,
    ) -> Self {
        let named =
            record.streams.iter().filter_map(|it| it.call.as_deref().map(|name| (name, it)));
        let streams: BTreeMap<_, _> = named.collect();
        let calls = setup.scenario.calls.iter().zip(ends).enumerate();
        let calls = calls.map(|(index, (call, end))| {
            let attempts = request.range((index, 0)..=(index, u32::MAX)).map(|(id, request)| {
                match streams.get(network::name(*id).as_str()) {
                    Some(stream) => from_stream(stream, request, call, setup.time_scale),
                    None => from_request(request, call, setup.time_scale),
                }
            });
            ObservedCall { attempts: attempts.collect(), end }
        });
        Observation { calls: calls.collect(), call_logs, tokens, stats }
    }
}

/// An attempt, from the server's record.
fn from_stream(
    stream: &StreamRecord,
    request: &AttemptRequest,
    call: &Call,
    time_scale: TimeScale,
) -> ObservedAttempt {
    let since = |at: Duration| time_scale.scenario(at).saturating_sub(call.at);
    let reset = stream.reset.filter(|reset| reset.reason == Reason::CANCEL);
    // An attempt that is dropped at the instant of its end sends no reset.
    let ended = stream.end.map(|end| since(end.at));
    let crossed =
        request.dropped.map(|at| at.saturating_sub(call.at)).filter(|at| ended == Some(*at));
    ObservedAttempt {
        at: since(stream.arrived),
        cancelled: reset.map(|reset| since(reset.at)).or(crossed),
        sent: Some(stream.messages),
        ..from_headers(&stream.headers, time_scale)
    }
}

/// An attempt without a stream.
fn from_request(request: &AttemptRequest, call: &Call, time_scale: TimeScale) -> ObservedAttempt {
    ObservedAttempt {
        at: request.at.saturating_sub(call.at),
        cancelled: request.dropped.map(|at| at.saturating_sub(call.at)),
        ..from_headers(&request.headers, time_scale)
    }
}

fn from_headers(headers: &HeaderMap, time_scale: TimeScale) -> ObservedAttempt {
    let previous = headers.get(PREVIOUS).and_then(|value| value.to_str().ok());
    ObservedAttempt {
        at: 0,
        cancelled: None,
        previous: previous.map(str::to_owned),
        timeout: timeout(headers).map(|span| time_scale.scenario(span)),
        sent: None,
    }
}

/// The result, and inconsistencies in it; `core` is the result of the core level.
pub(super) fn read(
    setup: Setup<'_>,
    observation: &Observation,
    core: &Actual,
    tolerance: Ns,
) -> Live {
    let mut live = Live::default();
    let calls = setup.scenario.calls.iter().zip(&observation.calls).zip(&observation.call_logs);
    for (index, (((call, observed), call_log), core)) in calls.zip(&core.calls).enumerate() {
        let call_log = in_scenario_time(call_log, setup.time_scale);
        let mut add = |what, expected: String, actual: String| {
            let call = Some(index + 1);
            live.differences.push(Difference { call, what, expected, actual });
        };
        if let Some((expected, actual)) = compare_with_core(call, &call_log, core, tolerance) {
            add("call_log", expected, actual);
        }
        let ended = ended(&call_log);
        if let Some(logged) = observed.end.as_ref().and_then(|end| end.status.as_ref()) {
            // A call that ended on the client's side has no server status.
            let ended = ended.filter(|_| !core.too_large);
            let expected = text(call, ended.and_then(|(_, attempt)| attempt));
            if expected.as_ref().is_some_and(|expected| *expected != logged.text) {
                add("end.text", expected.unwrap_or_default(), logged.text.clone());
            }
            let response = ended.and_then(|(_, attempt)| attempt).or(logged.attempt);
            let expected = previous(&call_log, response);
            if expected != logged.previous {
                add("end.previous", format!("{expected:?}"), format!("{:?}", logged.previous));
            }
        }
        live.actual.calls.push(actual(call, observed, call_log, core));
    }
    live.actual.tokens = observation.tokens;
    live.actual.stats.clone_from(&observation.stats);
    live
}

/// The events in scenario time.
fn in_scenario_time(call_log: &CallLog, time_scale: TimeScale) -> CallLog {
    let slower = time_scale.slowdown();
    let events = call_log.events().iter().map(|(at, event)| {
        let mut event = *event;
        match &mut event {
            Event::CallStarted { deadline: Some(span), .. }
            | Event::RetryScheduled { after: span, .. }
            | Event::TransparentRetryScheduled { after: span, .. } => *span /= slower,
            _ => {}
        }
        (at / slower, event)
    });
    events.collect()
}

fn ended(call_log: &CallLog) -> Option<(StopReason, Option<u32>)> {
    call_log.events().iter().rev().find_map(|(_, event)| match event {
        Event::CallEnded { stop_reason, attempt } => Some((*stop_reason, *attempt)),
        _ => None,
    })
}

/// The status message of the answer to this attempt, if any.
fn text(call: &Call, attempt: Option<u32>) -> Option<String> {
    let number = attempt?;
    let attempt = call.attempts.get(number as usize - 1)?;
    let failed = matches!(attempt.outcome, Outcome::Comes { name, .. } if name != Code::Ok.name());
    let answered = attempt.grpc.as_ref().is_some_and(|grpc| grpc.seen.is_none());
    (failed && answered).then(|| script::text(number))
}

/// The expected count of previous attempts in the application's metadata: before the answered
/// attempt, or before the last one without an answer (decision G30).
fn previous(call_log: &CallLog, attempt: Option<u32>) -> Option<String> {
    let started = call_log.events().iter().filter_map(|(_, event)| match event {
        Event::AttemptStarted { attempt, number } => Some((*attempt, *number)),
        _ => None,
    });
    let number = match attempt {
        Some(attempt) => started.clone().find(|(it, _)| *it == attempt).map(|(_, number)| number),
        None => started.map(|(_, number)| number).max(),
    };
    number.filter(|number| *number > 1).map(|number| (number - 1).to_string())
}

/// The first difference between the call logs of the layer and of the core.
fn compare_with_core(
    call: &Call,
    call_log: &CallLog,
    core: &ActualCall,
    tolerance: Ns,
) -> Option<(String, String)> {
    let (began, expected) = core.call_log.as_ref()?;
    let expected = event_order::timed_events(*began, expected);
    let actual = event_order::timed_events(call.at, call_log);
    event_order::differs(&expected, &actual, tolerance)
}

fn actual(
    call: &Call,
    observed: &ObservedCall,
    call_log: CallLog,
    core: &ActualCall,
) -> ActualCall {
    let recorded = ended(&call_log);
    let end = observed.end.as_ref().map(|ended| {
        let logged = ended.status.as_ref();
        let returned = recorded.and_then(|(_, attempt)| attempt);
        let outcome = logged.map_or("cancelled", |logged| logged.outcome);
        if returned.is_none() && outcome == Code::ResourceExhausted.name() {
            return ActualEnd::too_large(ended.at);
        }
        ActualEnd {
            at: ended.at,
            outcome: outcome.to_owned(),
            // The server's number has precedence over the call log. It is also there for a response
            // that failed later.
            attempt: returned
                .map(|recorded| logged.and_then(|logged| logged.attempt).unwrap_or(recorded)),
            stop_reason: recorded.map_or(StopReason::Cancelled, |(stop_reason, _)| stop_reason),
            error: None,
        }
    });
    let mut attempts = observed.attempts.clone();
    attempts.extend(attempts_cancelled_at_start(&call_log, call, attempts.len()));
    let each = || attempts.iter().enumerate();
    let cancels = (1..).zip(&attempts).filter_map(|(number, it)| Some((number, it.cancelled?)));
    // Messages of an attempt without a stream are not observable.
    let unseen = |index: usize| core.sent.as_ref().and_then(|sent| sent.get(index)).copied();
    let listed = call.attempts.len();
    ActualCall {
        starts: each().map(|(_, attempt)| attempt.at).collect(),
        cancels: cancels.collect(),
        end,
        tokens: observed.end.as_ref().and_then(|end| end.tokens),
        previous: Some(each().map(|(_, attempt)| attempt.previous.clone()).collect()),
        timeouts: Some(each().map(|(_, attempt)| attempt.timeout).collect()),
        sent: Some(
            each().map(|(index, it)| it.sent.or(unseen(index)).unwrap_or_default()).collect(),
        ),
        unscripted: (attempts.len() > listed).then(|| listed as u32 + 1),
        call_log: Some((call.at, call_log)),
        ..ActualCall::default()
    }
}

/// Attempts that were cancelled at the instant of their start and never reached the network: only
/// the call log has them.
fn attempts_cancelled_at_start(
    call_log: &CallLog,
    call: &Call,
    observed: usize,
) -> Vec<ObservedAttempt> {
    let deadline = call_log.events().iter().find_map(|(_, event)| match event {
        Event::CallStarted { deadline, .. } => Some(*deadline),
        _ => None,
    });
    let started = call_log.events().iter().filter_map(|(at, event)| match event {
        Event::AttemptStarted { attempt, number } if *attempt as usize > observed => {
            Some((*at, *attempt, *number))
        }
        _ => None,
    });
    let cancelled = |at: Ns, attempt: u32| {
        let cancelled = (at, Event::AttemptCancelled { attempt });
        call_log.events().contains(&cancelled)
    };
    started
        .filter(|(at, attempt, _)| cancelled(*at, *attempt))
        .map(|(at, _, number)| ObservedAttempt {
            at: at.saturating_sub(call.at),
            cancelled: Some(at.saturating_sub(call.at)),
            previous: (number > 1).then(|| (number - 1).to_string()),
            timeout: deadline.flatten().map(|deadline| deadline.saturating_sub(at)),
            sent: None,
        })
        .collect()
}

/// The differences between runs with and without call logs.
pub(super) fn compare_observations(
    logged: &Observation,
    unlogged: &Observation,
) -> Vec<Difference> {
    let mut differences = Vec::new();
    let mut add = |call, expected: String, actual: String| {
        if expected != actual {
            differences.push(Difference { call, what: "without call log", expected, actual });
        }
    };
    for (index, (logged, unlogged)) in logged.calls.iter().zip(&unlogged.calls).enumerate() {
        add(Some(index + 1), format!("{logged:?}"), format!("{unlogged:?}"));
    }
    add(None, format!("{:?}", logged.tokens), format!("{:?}", unlogged.tokens));
    // Calls on the fast path are not counted, so empty statistics are equal to none.
    let counted = |observation: &Observation| {
        let stats = observation.stats.iter().filter(|(_, stats)| **stats != Statistics::default());
        format!("{:?}", stats.collect::<Vec<_>>())
    };
    add(None, counted(logged), counted(unlogged));
    differences
}
