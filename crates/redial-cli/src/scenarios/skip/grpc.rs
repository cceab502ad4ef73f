//! Properties of gRPC scenarios that a real client and server cannot reproduce.

use std::collections::BTreeMap;

use redial::{Event, StopReason, time::Ns};
use redial_service_config::Code;

use super::super::designs::Plan;
use super::super::live::{ATTEMPTS_MAX, Sizes, TimeScale, path};
use super::super::model::{Attempt, Call, GrpcCall, Outcome, Proof, Scenario};
use super::super::play::{Actual, ActualCall};

/// The calls of a gRPC scenario with their results; none for other designs.
fn calls<'a>(
    scenario: &'a Scenario,
    actual: &'a Actual,
) -> impl Iterator<Item = (&'a Call, &'a ActualCall)> {
    let is_grpc = matches!(scenario.plan, Plan::Grpc(_));
    scenario.calls.iter().zip(&actual.calls).filter(move |_| is_grpc)
}

const fn started(event: &Event) -> Option<u32> {
    match event {
        Event::AttemptStarted { attempt, .. } => Some(*attempt),
        _ => None,
    }
}

/// The attempt of a response or of its headers.
const fn answered(event: &Event) -> Option<u32> {
    match event {
        Event::AttemptOutcome { attempt, .. } | Event::Committed { attempt } => Some(*attempt),
        _ => None,
    }
}

/// Whether all calls together exceed the shared replay buffer.
pub(super) fn shares_buffer(scenario: &Scenario) -> bool {
    let Some(room) = scenario.plan.buffer_max() else { return false };
    let messages = scenario.calls.iter().filter_map(|call| call.grpc.as_ref());
    let bytes = messages.flat_map(|grpc| &grpc.messages).map(|(_, bytes)| *bytes);
    scenario.calls.len() > 1 && bytes.fold(0, u64::saturating_add) > room
}

pub(super) fn cannot_be_encoded(scenario: &Scenario, actual: &Actual) -> bool {
    let Plan::Grpc(plan) = &scenario.plan else { return false };
    let time_scale = TimeScale::of(scenario, actual);
    let mut grpc = scenario.calls.iter().filter_map(|call| call.grpc.as_ref());
    let attempts = scenario.calls.iter().flat_map(|call| &call.attempts);
    let mut pushbacks = attempts.filter_map(|attempt| attempt.grpc.as_ref());
    let listed: usize = scenario.calls.iter().map(|call| call.attempts.len()).sum();
    let sizes = Sizes::of(scenario, &plan.client());
    // An impossible size may be rounded across the message size limit.
    let passes = |call: &GrpcCall, bytes: u64| bytes > call.message_max;
    let differs = |call: &GrpcCall| {
        let counted = |bytes| sizes.map_or(bytes, |sizes| sizes.counted(bytes));
        let mut messages = call.messages.iter().map(|(_, bytes)| *bytes);
        messages.any(|bytes| passes(call, bytes) != passes(call, counted(bytes)))
    };
    listed > ATTEMPTS_MAX
        || time_scale.config(plan.text()).is_none()
        || sizes.is_none()
        || grpc.any(|call| path(call).is_none() || differs(call))
        || pushbacks.any(|attempt| time_scale.pushback(&attempt.pushback).is_none())
        || !time_scale.carries_deadlines(scenario)
}

pub(super) fn has_transparent_retry_pauses(scenario: &Scenario, actual: &Actual) -> bool {
    matches!(scenario.plan, Plan::Grpc(_)) && TimeScale::of(scenario, actual).meets_pauses(actual)
}

pub(super) fn answer_at_deadline(scenario: &Scenario, actual: &Actual) -> bool {
    calls(scenario, actual).any(|(_, call)| {
        let deadline = call.events().find_map(|(_, event)| match event {
            Event::CallStarted { deadline, .. } => *deadline,
            _ => None,
        });
        // After response headers only the layer enforces the deadline.
        let before = || call.events().filter(|(at, _)| Some(*at) < deadline);
        let begun = before().any(|(_, event)| matches!(event, Event::Committed { .. }))
            && !before().any(|(_, event)| matches!(event, Event::NotReplayable));
        let mut then = call.events().filter(|(at, _)| Some(*at) == deadline);
        !begun && then.any(|(_, event)| answered(event).is_some())
    })
}

pub(super) fn hedge_answered_at_once(scenario: &Scenario, actual: &Actual) -> bool {
    calls(scenario, actual).any(|(call, played)| {
        let hedged = call.grpc.as_ref().is_some_and(|grpc| grpc.plan.is_hedged());
        let starts = || {
            played.events().filter_map(|(at, event)| match event {
                Event::AttemptStarted { attempt, number } => Some((*at, *attempt, *number)),
                _ => None,
            })
        };
        // The times of its answers, including those prevented by cancellation.
        let listed = |attempt: u32| call.attempts.get(attempt as usize - 1);
        let answers = |start: Ns, attempt: u32| {
            let listed = listed(attempt);
            let after = listed.filter(|it| it.outcome != Outcome::Hang).map(|it| it.after);
            let spans = after.into_iter().chain(listed.and_then(|it| it.headers));
            spans.map(move |span| start.saturating_add(span))
        };
        let is_answered_then = |then: Ns, (start, attempt, _): (Ns, u32, u32)| {
            answers(start, attempt).any(|at| at == then)
        };
        hedged
            && starts().any(|one| {
                let (start, attempt, number) = one;
                let mut others = starts().filter(|(_, other, _)| *other != attempt);
                // A transparent retry may start at the time of another event.
                is_answered_then(start, one)
                    && (attempt != number || others.any(|other| is_answered_then(start, other)))
            })
    })
}

pub(super) fn message_at_event_time(scenario: &Scenario, actual: &Actual) -> bool {
    calls(scenario, actual).any(|(call, played)| {
        let messages = call.grpc.iter().flat_map(|grpc| &grpc.messages);
        // Messages at the start are available before the first attempt.
        let mut later =
            messages.filter(|(at, _)| *at > 0).map(|(at, _)| call.at.saturating_add(*at));
        later.any(|written| {
            let then = || played.events().filter(|(at, _)| *at == written);
            // A message over the buffer limit commits the call itself.
            let not_replayable = then().any(|(_, event)| matches!(event, Event::NotReplayable));
            // A message over the size limit fails the attempt itself.
            let failed = played.end.as_ref().filter(|_| played.too_large).and_then(|it| it.attempt);
            then().any(|(_, event)| match event {
                Event::AttemptStarted { .. } => true,
                Event::AttemptOutcome { attempt, .. } => Some(*attempt) != failed,
                Event::CallEnded { stop_reason, .. } => *stop_reason == StopReason::Deadline,
                Event::Committed { .. } => !not_replayable,
                _ => false,
            })
        })
    })
}

/// Whether an attempt gets a stream.
fn has_stream(attempt: &Attempt) -> bool {
    let seen = attempt.grpc.as_ref().and_then(|grpc| grpc.seen);
    !matches!(seen, Some(Proof::Unsent | Proof::Unconnected))
}

pub(super) fn has_headers_without_stream(scenario: &Scenario, _actual: &Actual) -> bool {
    let mut attempts = scenario.calls.iter().flat_map(|call| &call.attempts);
    attempts.any(|attempt| attempt.headers.is_some() && !has_stream(attempt))
}

/// Whether an attempt reads the message after the first `read`.
fn reads(attempt: &Attempt, read: u64) -> bool {
    has_stream(attempt) && attempt.accepts.is_none_or(|accepts| accepts > read)
}

/// Each event with its time and the running attempts.
fn running(call: &ActualCall) -> impl Iterator<Item = (Ns, &Event, Vec<u32>)> {
    let mut running = Vec::new();
    call.events().map(move |(at, event)| {
        match event {
            Event::AttemptStarted { attempt, .. } => running.push(*attempt),
            Event::AttemptOutcome { attempt, .. } | Event::AttemptCancelled { attempt } => {
                running.retain(|other| other != attempt);
            }
            _ => {}
        }
        (*at, event, running.clone())
    })
}

/// When the call became not replayable after the first start, and the attempts running then.
fn not_replayable(call: &ActualCall) -> Option<(Ns, Vec<u32>)> {
    running(call)
        .skip_while(|(_, event, _)| started(event).is_none())
        .find(|(_, event, _)| matches!(event, Event::NotReplayable))
        .map(|(at, _, running)| (at, running))
}

/// When a message over the size limit was written after the first start, and the attempts running
/// then.
fn refused(call: &Call, played: &ActualCall) -> Option<(Ns, Vec<u32>)> {
    let end = played.end.as_ref().filter(|_| played.too_large && !played.starts.is_empty())?;
    let fails = |event: &Event| matches!(event, Event::AttemptOutcome { attempt, .. } if Some(*attempt) == end.attempt);
    let before = running(played).take_while(|(_, event, _)| !fails(event)).last();
    let running = before.map_or_else(Vec::new, |(_, _, running)| running);
    Some((call.at.saturating_add(end.at), running))
}

pub(super) fn message_never_read(scenario: &Scenario, actual: &Actual) -> bool {
    let unread = |(call, played): (&Call, &ActualCall)| {
        let messages = call.grpc.iter().flat_map(|grpc| &grpc.messages);
        let before =
            |at| messages.clone().filter(|it| call.at.saturating_add(it.0) < at).count() as u64;
        let listed = |attempt: u32| call.attempts.get(attempt as usize - 1);
        if let Some((at, running)) = refused(call, played) {
            let reads = |it: &u32| listed(*it).is_some_and(|it| reads(it, before(at)));
            return running.is_empty() || !running.iter().all(reads);
        }
        let Some((at, running)) = not_replayable(played) else { return false };
        let reads = |attempt: u32| listed(attempt).is_some_and(|it| reads(it, before(at)));
        if !running.is_empty() {
            // In the core an attempt without a stream counts as having read everything.
            let has_stream = |attempt: &u32| listed(*attempt).is_some_and(has_stream);
            return !running.iter().all(has_stream) || !running.into_iter().any(reads);
        }
        let mut later = played.events().filter(|(then, _)| *then > at);
        let next = later.find_map(|(_, event)| started(event));
        !next.is_none_or(reads)
    };
    calls(scenario, actual).any(unread) || buffer_held_by_unread_message(scenario, actual)
}

pub(super) fn messages_sent_together(scenario: &Scenario, actual: &Actual) -> bool {
    calls(scenario, actual).any(|(call, played)| {
        let messages = call.grpc.iter().flat_map(|grpc| &grpc.messages);
        let written = messages.map(|(at, _)| call.at.saturating_add(*at));
        let found = refused(call, played).or_else(|| not_replayable(played));
        found.is_some_and(|(at, _)| written.filter(|then| *then == at).count() > 1)
    })
}

pub(super) fn dropped_while_request_stalled(scenario: &Scenario, actual: &Actual) -> bool {
    calls(scenario, actual).any(|(call, played)| {
        let Some(grpc) = &call.grpc else { return false };
        let messages = grpc.messages.len() as u64;
        let last = grpc.messages.iter().map(|(at, _)| call.at.saturating_add(*at)).max();
        // With retries off the layer passes the request through and cannot end it.
        let off = grpc.buffer_max.is_none();
        let begins = |attempt: &Attempt| match &attempt.outcome {
            Outcome::Comes { name, .. } if *name == Code::Ok.name() => {
                Some(attempt.headers.unwrap_or(attempt.after))
            }
            _ => attempt.headers,
        };
        let stalled = |start: Ns, end: Ns, attempt: &Attempt| {
            let unread = attempt.accepts.is_some_and(|accepts| accepts < messages);
            let begun = begins(attempt).is_some_and(|span| start.saturating_add(span) <= end);
            begun && (unread || (off && last > Some(end)))
        };
        let mut starts = BTreeMap::new();
        played.events().any(|(at, event)| match event {
            Event::AttemptStarted { attempt, .. } => {
                starts.insert(*attempt, *at);
                false
            }
            Event::AttemptCancelled { attempt } => {
                let listed = call.attempts.get(*attempt as usize - 1);
                let start = starts.get(attempt).copied().unwrap_or(*at);
                listed.is_some_and(|listed| stalled(start, *at, listed))
            }
            _ => false,
        })
    })
}

/// Whether in the core a message that no attempt reads occupies the shared buffer.
fn buffer_held_by_unread_message(scenario: &Scenario, actual: &Actual) -> bool {
    shares_buffer(scenario)
        && calls(scenario, actual).any(|(call, played)| {
            let attempts = &call.attempts;
            let messages = call.grpc.as_ref().map_or(0, |grpc| grpc.messages.len()) as u64;
            let starts = played.starts.len();
            messages > 1
                && attempts.iter().take(starts).any(|attempt| !reads(attempt, messages - 1))
        })
}
