//! What the live level cannot show: each trait of a scenario with the reason.
//!
//! A trait is found in what the scenario says and in what happens when it is played through the
//! core, never by its name.

pub(super) mod foreign;
mod grpc;

use redial::{Event, time::Ns};

use super::designs::Plan;
use super::live::{HORIZON, LatencyEstimator};
use super::model::Scenario;
use super::play::{Actual, ActualCall};

/// Something that a scenario can have, and why the live level cannot show it.
#[derive(Debug)]
pub(super) struct Trait {
    /// What the scenario has.
    pub(super) name: &'static str,
    /// Why that cannot be shown.
    pub(super) reason: &'static str,
    has: fn(&Scenario, &Actual) -> bool,
}

/// The list. A scenario that has none of these is played.
pub(super) static TRAITS: [Trait; 14] = [
    Trait {
        name: "couchbase or milvus",
        reason: "their clients and servers are not there yet",
        has: is_without_client,
    },
    Trait {
        name: "something after longer than the player waits",
        reason: "that is ten days, or 27 years for gRPC in whole milliseconds",
        has: is_too_long,
    },
    Trait {
        name: "calls that share a throttle, draws or room meet at one moment",
        reason: "tasks that wake at one moment have no order",
        has: is_meeting,
    },
    Trait {
        name: "hedges without a delay, and the first is answered at once",
        reason: "the driver takes an answer of its first poll before it sends more",
        has: is_answered_at_once,
    },
    Trait {
        name: "moments less than a microsecond apart",
        reason: "they are one moment on the paused clock",
        has: is_crowded,
    },
    Trait {
        name: "grpc: what no request, response or server can carry",
        reason: "a path, a number in a header, 64 MiB or 100,000 attempts are not enough for it",
        has: grpc::is_unspeakable,
    },
    Trait {
        name: "grpc: fractions of a millisecond beside the pauses before a replacement",
        reason: "a clock of whole milliseconds runs slower for them, which the pauses do not",
        has: grpc::is_paused,
    },
    Trait {
        name: "grpc: an answer in the very moment of the deadline",
        reason: "a channel of tonic has a timer of its own for it, which gives no answer a turn",
        has: grpc::is_answered_too_late,
    },
    Trait {
        name: "grpc: among hedges, one is answered at once beside another answer or a timer",
        reason: "what takes more turns of the network comes later",
        has: grpc::is_hurried,
    },
    Trait {
        name: "grpc: a message in the moment of an outcome, a start or the deadline",
        reason: "a network knows no order between them",
        has: grpc::is_written_meanwhile,
    },
    Trait {
        name: "grpc: a message that cannot be kept or is not allowed, and nobody reads it",
        reason: "an application writes what an attempt reads, and nothing ahead of it",
        has: grpc::is_unread,
    },
    Trait {
        name: "grpc: a call whose response has begun is dropped while its request is stalled",
        reason: "hyper resets such a stream only when its request goes on",
        has: grpc::is_stalled,
    },
    Trait {
        name: "grpc: response headers of an attempt that was not sent, or found no connection",
        reason: "nobody is there to send them",
        has: grpc::has_headers_without_stream,
    },
    Trait {
        name: "grpc: of messages written at one moment only some can be kept, or are allowed",
        reason: "tonic hands them over in one piece",
        has: grpc::is_in_one_piece,
    },
];

impl std::fmt::Display for Trait {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.name, self.reason)
    }
}

/// The trait that keeps the live level from showing this scenario, of which `actual` is what happens
/// at the first level.
pub(super) fn skips(scenario: &Scenario, actual: &Actual) -> Option<&'static Trait> {
    // A policy that is refused is refused at every level.
    TRAITS.iter().find(|listed| !scenario.refused && (listed.has)(scenario, actual))
}

fn is_without_client(scenario: &Scenario, _actual: &Actual) -> bool {
    matches!(scenario.plan, Plan::Couchbase(_) | Plan::Milvus(_))
}

fn is_too_long(scenario: &Scenario, actual: &Actual) -> bool {
    let horizon = match scenario.plan {
        Plan::Grpc(_) => LatencyEstimator::of(scenario, actual).horizon(),
        _ => HORIZON,
    };
    let begins = scenario.calls.iter().map(|call| call.at);
    let happens = actual.calls.iter().flat_map(ActualCall::moments);
    begins.chain(happens).any(|at| at >= horizon)
}

fn is_meeting(scenario: &Scenario, actual: &Actual) -> bool {
    let shares = actual.calls.iter().any(|call| call.tokens.is_some())
        || (scenario.draws.len() > 1
            && events(actual).any(|(_, event)| matches!(event, Event::RandomDraw(_))))
        || grpc::shares_room(scenario);
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

fn is_answered_at_once(scenario: &Scenario, actual: &Actual) -> bool {
    if matches!(scenario.plan, Plan::Grpc(_)) {
        // An answer comes over a network.
        return false;
    }
    // Whether the second attempt started before the first one's answer, all at the call's start.
    actual.calls.iter().any(|call| {
        let began = call.events().next().map(|(at, _)| *at);
        let mut then = call.events().filter(|(at, _)| Some(*at) == began);
        then.any(|(_, event)| matches!(event, Event::AttemptStarted { attempt: 2, .. }))
            && then.any(|(_, event)| matches!(event, Event::AttemptOutcome { attempt: 1, .. }))
    })
}

fn is_crowded(_scenario: &Scenario, actual: &Actual) -> bool {
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
