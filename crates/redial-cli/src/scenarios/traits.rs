//! What the live level cannot show: each trait of a scenario with the reason.
//!
//! A trait is found in what the scenario says and in what happens when it is played through the
//! core, never by its name.

use redial::{Note, Ns};

use super::designs::Plan;
use super::live::HORIZON;
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
pub(super) static TRAITS: [Trait; 5] = [
    Trait {
        name: "couchbase, grpc or milvus",
        reason: "their clients and servers are not there yet",
        has: is_without_client,
    },
    Trait {
        name: "something after more than ten days",
        reason: "the player gives up on a call then",
        has: is_too_long,
    },
    Trait {
        name: "calls that share a throttle or draws meet at one moment",
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
    !matches!(scenario.plan, Plan::Generic(_) | Plan::Smithy(_))
}

fn is_too_long(scenario: &Scenario, actual: &Actual) -> bool {
    let begins = scenario.calls.iter().map(|call| call.at);
    let happens = actual.calls.iter().flat_map(moments);
    begins.chain(happens).any(|at| at >= HORIZON)
}

fn is_meeting(scenario: &Scenario, actual: &Actual) -> bool {
    let shares = actual.calls.iter().any(|call| call.tokens.is_some())
        || (scenario.draws.len() > 1
            && notes(actual).any(|(_, note)| matches!(note, Note::Drew(_))));
    let mut seen: Vec<Ns> = Vec::new();
    for call in &actual.calls {
        let mut here: Vec<Ns> = moments(call).collect();
        here.sort_unstable();
        here.dedup();
        seen.extend(here);
    }
    seen.sort_unstable();
    shares && seen.windows(2).any(|pair| pair[1] - pair[0] < MICROSECOND)
}

fn is_answered_at_once(_scenario: &Scenario, actual: &Actual) -> bool {
    // Whether the second attempt started before the first one's answer, all at the call's start.
    actual.calls.iter().any(|call| {
        let began = call.notes().next().map(|(at, _)| *at);
        let mut then = call.notes().filter(|(at, _)| Some(*at) == began);
        then.any(|(_, note)| matches!(note, Note::Started { attempt: 2, .. }))
            && then.any(|(_, note)| matches!(note, Note::Outcome { attempt: 1, .. }))
    })
}

fn is_crowded(_scenario: &Scenario, actual: &Actual) -> bool {
    actual.calls.iter().any(|call| {
        let mut moments: Vec<Ns> = moments(call).collect();
        moments.sort_unstable();
        moments.dedup();
        moments.windows(2).any(|pair| pair[1] - pair[0] < MICROSECOND)
    })
}

const MICROSECOND: Ns = 1_000;

fn notes(actual: &Actual) -> impl Iterator<Item = &(Ns, Note)> {
    actual.calls.iter().flat_map(ActualCall::notes)
}

/// The moments at which something happens to a call, or would: its deadline is one.
fn moments(call: &ActualCall) -> impl Iterator<Item = Ns> {
    call.notes().flat_map(|(at, note)| {
        let deadline = match note {
            Note::Began { deadline, .. } => *deadline,
            _ => None,
        };
        std::iter::once(*at).chain(deadline)
    })
}
