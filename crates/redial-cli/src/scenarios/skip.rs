//! Scenarios that the live level skips, each with the reason.
//!
//! Whether a reason applies is computed from the scenario and its result in the core, never from
//! its name.

mod couchbase;
mod grpc;
pub(super) mod interop;
mod milvus;

use redial::{Event, time::Ns};

use super::designs::Plan;
use super::live::{HORIZON, TimeScale};
use super::model::Scenario;
use super::play::{Actual, ActualCall};

/// A property of scenarios that the live level cannot reproduce.
#[derive(Debug)]
pub(super) struct SkipReason {
    /// The property.
    pub(super) name: &'static str,
    /// Why it cannot be reproduced.
    pub(super) reason: &'static str,
    applies: fn(&Scenario, &Actual) -> bool,
}

/// All reasons of the live level. Scenarios without any of them run.
pub(super) static SKIP_REASONS: [SkipReason; 19] = [
    SkipReason {
        name: "couchbase: responses of different services, or to another command, in one call",
        reason: "a request goes to one service, with one command",
        applies: couchbase::mixes_services,
    },
    SkipReason {
        name: "couchbase: a reason that no response and no state of a connection raises",
        reason: "RFC 49 names SERVICE_RESPONSE_CODE_INDICATED, and lists no response for it",
        applies: couchbase::has_reason_without_source,
    },
    SkipReason {
        name: "couchbase: a request that cannot be sent fails later, or after other attempts",
        reason: "such a request fails at once, and the state behind it is there before the call",
        applies: couchbase::fails_unsent_later,
    },
    SkipReason {
        name: "couchbase: a response at the instant of the timeout",
        reason: "the response needs more steps through the connection than the timer",
        applies: couchbase::answer_at_deadline,
    },
    SkipReason {
        name: "couchbase: fractions of a millisecond",
        reason: "the client's delays are constants, and tokio's clock counts milliseconds",
        applies: couchbase::has_fractions,
    },
    SkipReason {
        name: "an event later than the player waits",
        reason: "the limit is ten days, or 27 years for gRPC in whole milliseconds",
        applies: longer_than_horizon,
    },
    SkipReason {
        name: "calls that share a throttle, random numbers or buffer space meet at one instant",
        reason: "tasks that wake at one instant have no order",
        applies: calls_coincide,
    },
    SkipReason {
        name: "hedges without a delay, and the first is answered at once",
        reason: "the driver takes the result of its first poll before it starts more attempts",
        applies: first_hedge_answered_at_once,
    },
    SkipReason {
        name: "times less than a microsecond apart",
        reason: "they are one instant on the paused clock",
        applies: events_too_close,
    },
    SkipReason {
        name: "milvus: an answer exactly at the timeout, or a timeout of zero",
        reason: "a tonic channel has its own timer for the deadline and does not poll the response first",
        applies: milvus::answer_at_timeout,
    },
    SkipReason {
        name: "grpc: values that no request, response or server can carry",
        reason: "an invalid path, a number too large for a header, over 64 MiB or over 100,000 attempts",
        applies: grpc::cannot_be_encoded,
    },
    SkipReason {
        name: "grpc: fractions of a millisecond together with the pauses before a transparent retry",
        reason: "the scenario is played slower, but these pauses are constants",
        applies: grpc::has_transparent_retry_pauses,
    },
    SkipReason {
        name: "grpc: a response exactly at the deadline",
        reason: "a tonic channel has its own timer for the deadline and does not poll the response first",
        applies: grpc::answer_at_deadline,
    },
    SkipReason {
        name: "grpc: among hedges, one is answered at once next to another response or a timer",
        reason: "the event that needs more network round trips comes later",
        applies: grpc::hedge_answered_at_once,
    },
    SkipReason {
        name: "grpc: a message at the instant of an outcome, a start or the deadline",
        reason: "a network has no order between them",
        applies: grpc::message_at_event_time,
    },
    SkipReason {
        name: "grpc: a message that cannot be buffered or is not allowed, and no attempt reads it",
        reason: "an application writes only as far as an attempt reads",
        applies: grpc::message_never_read,
    },
    SkipReason {
        name: "grpc: a call whose response has started is dropped while its request is stalled",
        reason: "hyper resets such a stream only when its request continues",
        applies: grpc::dropped_while_request_stalled,
    },
    SkipReason {
        name: "grpc: response headers of an attempt that was not sent, or found no connection",
        reason: "there is no server to send them",
        applies: grpc::has_headers_without_stream,
    },
    SkipReason {
        name: "grpc: of several messages written at one instant only some can be buffered, or are allowed",
        reason: "tonic passes them on in one piece",
        applies: grpc::messages_sent_together,
    },
];

impl std::fmt::Display for SkipReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.name, self.reason)
    }
}

/// Why the live level skips this scenario, if it does; `actual` is the result of the core level.
pub(super) fn skips(scenario: &Scenario, actual: &Actual) -> Option<&'static SkipReason> {
    // Refused policies are refused at every level.
    SKIP_REASONS.iter().find(|listed| !scenario.refused && (listed.applies)(scenario, actual))
}

fn longer_than_horizon(scenario: &Scenario, actual: &Actual) -> bool {
    let horizon = match scenario.plan {
        Plan::Grpc(_) => TimeScale::of(scenario, actual).horizon(),
        _ => HORIZON,
    };
    let begins = scenario.calls.iter().map(|call| call.at);
    let happens = actual.calls.iter().flat_map(ActualCall::moments);
    begins.chain(happens).any(|at| at >= horizon)
}

fn calls_coincide(scenario: &Scenario, actual: &Actual) -> bool {
    let shares = actual.calls.iter().any(|call| call.tokens.is_some())
        || (scenario.draws.len() > 1
            && events(actual).any(|(_, event)| matches!(event, Event::RandomDraw(_))))
        || grpc::shares_buffer(scenario);
    let mut seen: Vec<Ns> = Vec::new();
    for call in &actual.calls {
        let mut here: Vec<Ns> = call.moments().collect();
        here.sort_unstable();
        here.dedup();
        seen.extend(here);
    }
    seen.sort_unstable();
    shares && seen.windows(2).any(|pair| pair[1] - pair[0] < MICROSECOND)
}

fn first_hedge_answered_at_once(scenario: &Scenario, actual: &Actual) -> bool {
    if matches!(scenario.plan, Plan::Grpc(_)) {
        // Over a network no answer arrives in the first poll.
        return false;
    }
    // Whether the second attempt started before the first one's answer, both at the start of the
    // call.
    actual.calls.iter().any(|call| {
        let began = call.events().next().map(|(at, _)| *at);
        let mut then = call.events().filter(|(at, _)| Some(*at) == began);
        then.any(|(_, event)| matches!(event, Event::AttemptStarted { attempt: 2, .. }))
            && then.any(|(_, event)| matches!(event, Event::AttemptOutcome { attempt: 1, .. }))
    })
}

fn events_too_close(_scenario: &Scenario, actual: &Actual) -> bool {
    actual.calls.iter().any(|call| {
        let mut moments: Vec<Ns> = call.moments().collect();
        moments.sort_unstable();
        moments.dedup();
        moments.windows(2).any(|pair| pair[1] - pair[0] < MICROSECOND)
    })
}

const MICROSECOND: Ns = 1_000;

fn events(actual: &Actual) -> impl Iterator<Item = &(Ns, Event)> {
    actual.calls.iter().flat_map(ActualCall::events)
}
