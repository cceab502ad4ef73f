//! What servers, application and diaries saw, as what happened.

use std::collections::BTreeMap;
use std::time::Duration;

use http::HeaderMap;
use redial::{CallLog, Event, StopReason, time::Ns};
use redial_echo::EchoResponse;
use redial_faults::grpc::{Reason, Record, Stream, timeout};
use redial_service_config::Code;
use redial_service_config::Statistics;
use tonic::metadata::MetadataMap;
use tonic::{Response, Status};

use super::super::Live;
use super::network::{Asked, AttemptId};
use super::pace::LatencyEstimator;
use super::{Setup, network, script, story};
use crate::scenarios::compare::Difference;
use crate::scenarios::model::{Call, Outcome};
use crate::scenarios::play::{Actual, ActualCall, ActualEnd};

const PREVIOUS: &str = "grpc-previous-rpc-attempts";

/// Everything that was seen of a scenario. Times count from the start of each call.
#[derive(Debug)]
pub(super) struct Witness {
    calls: Vec<SeenCall>,
    call_logs: Vec<CallLog>,
    tokens: Option<f64>,
    stats: BTreeMap<String, Statistics>,
}

#[derive(Debug, PartialEq)]
struct SeenCall {
    attempts: Vec<SeenAttempt>,
    end: Option<Ended>,
}

#[derive(Clone, Debug, PartialEq)]
struct SeenAttempt {
    at: Ns,
    cancelled: Option<Ns>,
    previous: Option<String>,
    timeout: Option<Ns>,
    /// How many messages its stream brought; `None` if it had none.
    sent: Option<u64>,
}

/// The end of a call, as the application saw it.
#[derive(Debug, PartialEq)]
pub(super) struct Ended {
    at: Ns,
    /// `None`: it was dropped.
    status: Option<Told>,
    tokens: Option<f64>,
}

/// What the application was told.
#[derive(Debug, PartialEq)]
struct Told {
    outcome: &'static str,
    text: String,
    /// The attempt that the server says this is the answer to.
    attempt: Option<u32>,
    /// How many attempts came before.
    previous: Option<String>,
}

impl Ended {
    pub(super) fn new(
        at: Ns,
        result: Option<Result<Response<EchoResponse>, Status>>,
        tokens: Option<f64>,
    ) -> Self {
        let status = result.map(|result| match result {
            Ok(response) => told(tonic::Code::Ok, "", response.metadata()),
            Err(status) => told(status.code(), status.message(), status.metadata()),
        });
        Ended { at, status, tokens }
    }
}

fn told(code: tonic::Code, text: &str, metadata: &MetadataMap) -> Told {
    let only = |name: &str| metadata.get(name).and_then(|value| value.to_str().ok());
    let code = Code::from_number(i64::from(i32::from(code))).unwrap_or(Code::Unknown);
    Told {
        outcome: code.name(),
        text: text.to_owned(),
        attempt: only(script::ATTEMPT).and_then(|text| text.parse().ok()),
        previous: only(PREVIOUS).map(str::to_owned),
    }
}

impl Witness {
    pub(super) fn new(
        setup: Setup<'_>,
        ends: Vec<Option<Ended>>,
        asked: &BTreeMap<AttemptId, Asked>,
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
            let attempts = asked.range((index, 0)..=(index, u32::MAX)).map(|(id, asked)| {
                match streams.get(network::name(*id).as_str()) {
                    Some(stream) => of_stream(stream, asked, call, setup.estimator),
                    None => of_asked(asked, call, setup.estimator),
                }
            });
            SeenCall { attempts: attempts.collect(), end }
        });
        Witness { calls: calls.collect(), call_logs, tokens, stats }
    }
}

/// An attempt, as the server saw it.
fn of_stream(
    stream: &Stream,
    asked: &Asked,
    call: &Call,
    estimator: LatencyEstimator,
) -> SeenAttempt {
    let since = |at: Duration| estimator.scenario(at).saturating_sub(call.at);
    let reset = stream.reset.filter(|reset| reset.reason == Reason::CANCEL);
    // What was given up in the moment of its end cannot be reset any more.
    let ended = stream.end.map(|end| since(end.at));
    let crossed =
        asked.dropped.map(|at| at.saturating_sub(call.at)).filter(|at| ended == Some(*at));
    SeenAttempt {
        at: since(stream.arrived),
        cancelled: reset.map(|reset| since(reset.at)).or(crossed),
        sent: Some(stream.messages),
        ..of_headers(&stream.headers, estimator)
    }
}

/// An attempt of which no server saw a stream.
fn of_asked(asked: &Asked, call: &Call, estimator: LatencyEstimator) -> SeenAttempt {
    SeenAttempt {
        at: asked.at.saturating_sub(call.at),
        cancelled: asked.dropped.map(|at| at.saturating_sub(call.at)),
        ..of_headers(&asked.headers, estimator)
    }
}

fn of_headers(headers: &HeaderMap, estimator: LatencyEstimator) -> SeenAttempt {
    let previous = headers.get(PREVIOUS).and_then(|value| value.to_str().ok());
    SeenAttempt {
        at: 0,
        cancelled: None,
        previous: previous.map(str::to_owned),
        timeout: timeout(headers).map(|span| estimator.scenario(span)),
        sent: None,
    }
}

/// What happened, and what about it cannot be right, `core` being what happens at the first level.
pub(super) fn read(setup: Setup<'_>, witness: &Witness, core: &Actual, tolerance: Ns) -> Live {
    let mut live = Live::default();
    let calls = setup.scenario.calls.iter().zip(&witness.calls).zip(&witness.call_logs);
    for (index, (((call, seen), call_log), core)) in calls.zip(&core.calls).enumerate() {
        let call_log = at_pace(call_log, setup.estimator);
        let mut add = |what, expected: String, actual: String| {
            let call = Some(index + 1);
            live.differences.push(Difference { call, what, expected, actual });
        };
        if let Some((expected, actual)) = unlike_core(call, &call_log, core, tolerance) {
            add("diary", expected, actual);
        }
        let ended = ended(&call_log);
        if let Some(told) = seen.end.as_ref().and_then(|end| end.status.as_ref()) {
            // What ended here is no server's answer.
            let ended = ended.filter(|_| !core.too_large);
            let expected = text(call, ended.and_then(|(_, attempt)| attempt));
            if expected.as_ref().is_some_and(|expected| *expected != told.text) {
                add("end.text", expected.unwrap_or_default(), told.text.clone());
            }
            let response = ended.and_then(|(_, attempt)| attempt).or(told.attempt);
            let expected = previous(&call_log, response);
            if expected != told.previous {
                add("end.previous", format!("{expected:?}"), format!("{:?}", told.previous));
            }
        }
        live.actual.calls.push(actual(call, seen, call_log, core));
    }
    live.actual.tokens = witness.tokens;
    live.actual.stats.clone_from(&witness.stats);
    live
}

/// The notes with the moments and spans of the scenario.
fn at_pace(call_log: &CallLog, estimator: LatencyEstimator) -> CallLog {
    let slower = estimator.slower();
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

/// The text that the server sent with the answer to this attempt, if it sent one.
fn text(call: &Call, attempt: Option<u32>) -> Option<String> {
    let number = attempt?;
    let attempt = call.attempts.get(number as usize - 1)?;
    let failed = matches!(attempt.outcome, Outcome::Comes { name, .. } if name != Code::Ok.name());
    let answered = attempt.grpc.as_ref().is_some_and(|grpc| grpc.seen.is_none());
    (failed && answered).then(|| script::text(number))
}

/// What the application is told of attempts before the one whose response it gets, or before the last
/// one if it gets none (decision G30).
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

/// Where the layer's diary differs from that of the first level.
fn unlike_core(
    call: &Call,
    call_log: &CallLog,
    core: &ActualCall,
    tolerance: Ns,
) -> Option<(String, String)> {
    let (began, expected) = core.call_log.as_ref()?;
    let expected = story::story(*began, expected);
    let actual = story::story(call.at, call_log);
    story::differs(&expected, &actual, tolerance)
}

fn actual(call: &Call, seen: &SeenCall, call_log: CallLog, core: &ActualCall) -> ActualCall {
    let noted = ended(&call_log);
    let end = seen.end.as_ref().map(|ended| {
        let told = ended.status.as_ref();
        let handed_on = noted.and_then(|(_, attempt)| attempt);
        let outcome = told.map_or("cancelled", |told| told.outcome);
        if handed_on.is_none() && outcome == Code::ResourceExhausted.name() {
            return ActualEnd::too_large(ended.at);
        }
        ActualEnd {
            at: ended.at,
            outcome: outcome.to_owned(),
            // What the server says beats what the diary says; tonic says it of a response that began,
            // too, whatever ended it.
            attempt: handed_on.map(|noted| told.and_then(|told| told.attempt).unwrap_or(noted)),
            stop_reason: noted.map_or(StopReason::Cancelled, |(stop_reason, _)| stop_reason),
            error: None,
        }
    });
    let mut attempts = seen.attempts.clone();
    attempts.extend(stillborn(&call_log, call, attempts.len()));
    let each = || attempts.iter().enumerate();
    let cancels = (1..).zip(&attempts).filter_map(|(number, it)| Some((number, it.cancelled?)));
    // What was written to an attempt without a stream nobody can see.
    let unseen = |place: usize| core.sent.as_ref().and_then(|sent| sent.get(place)).copied();
    let listed = call.attempts.len();
    ActualCall {
        starts: each().map(|(_, attempt)| attempt.at).collect(),
        cancels: cancels.collect(),
        end,
        tokens: seen.end.as_ref().and_then(|end| end.tokens),
        previous: Some(each().map(|(_, attempt)| attempt.previous.clone()).collect()),
        timeouts: Some(each().map(|(_, attempt)| attempt.timeout).collect()),
        sent: Some(
            each().map(|(place, it)| it.sent.or(unseen(place)).unwrap_or_default()).collect(),
        ),
        unscripted: (attempts.len() > listed).then(|| listed as u32 + 1),
        call_log: Some((call.at, call_log)),
        ..ActualCall::default()
    }
}

/// The attempts beyond those that reached the network, which were cancelled in the moment in which
/// they started: only the diary knows of them.
fn stillborn(call_log: &CallLog, call: &Call, seen: usize) -> Vec<SeenAttempt> {
    let deadline = call_log.events().iter().find_map(|(_, event)| match event {
        Event::CallStarted { deadline, .. } => Some(*deadline),
        _ => None,
    });
    let started = call_log.events().iter().filter_map(|(at, event)| match event {
        Event::AttemptStarted { attempt, number } if *attempt as usize > seen => {
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
        .map(|(at, _, number)| SeenAttempt {
            at: at.saturating_sub(call.at),
            cancelled: Some(at.saturating_sub(call.at)),
            previous: (number > 1).then(|| (number - 1).to_string()),
            timeout: deadline.flatten().map(|deadline| deadline.saturating_sub(at)),
            sent: None,
        })
        .collect()
}

/// Where a play without diaries looks different.
pub(super) fn unlike(told: &Witness, untold: &Witness) -> Vec<Difference> {
    let mut differences = Vec::new();
    let mut add = |call, expected: String, actual: String| {
        if expected != actual {
            differences.push(Difference { call, what: "untold", expected, actual });
        }
    };
    for (index, (told, untold)) in told.calls.iter().zip(&untold.calls).enumerate() {
        add(Some(index + 1), format!("{told:?}"), format!("{untold:?}"));
    }
    add(None, format!("{:?}", told.tokens), format!("{:?}", untold.tokens));
    // A call that nobody looks at and nothing can happen to is not even counted as one of none.
    let counted = |witness: &Witness| {
        let stats = witness.stats.iter().filter(|(_, stats)| **stats != Statistics::default());
        format!("{:?}", stats.collect::<Vec<_>>())
    };
    add(None, counted(told), counted(untold));
    differences
}
