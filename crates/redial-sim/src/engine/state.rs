//! The state of calls, requests and servers during a run.

use std::collections::VecDeque;

use redial_core::{
    Call, CallCounters, CallEnvironment, Command, Cost, Failure, Ns, Policy, Random, RunCommands,
};

use super::buckets::{BucketRef, Buckets};
use crate::call_policy::Failures;
use crate::distribution::Sampler;
use crate::model::Balancing;

/// No call, request or timer.
pub(super) const NONE: u32 = u32::MAX;

/// A layer of callers and the service that they call.
#[derive(Debug)]
pub(super) struct Hop<'a> {
    pub(super) policy: &'a Policy,
    pub(super) failures: Failures,
    pub(super) buckets: &'a Buckets,
    /// The time limits of a call and of an attempt, or `NEVER`.
    pub(super) deadline: Ns,
    pub(super) attempt_timeout: Ns,
    /// Whether a call below a retry makes a single attempt.
    pub(super) stops_nested: bool,
    /// Whether [`CallCounters`] and [`decide`](redial_core::decide()) can run the calls of this hop, as
    /// in the drivers: the policy needs only counters, and the throttle is a budget or none.
    pub(super) needs_only_counters: bool,
    pub(super) first_timers: FirstTimers,
}

/// The timers of first attempts. Under one policy they fire in the order in which the calls started, so
/// a list is enough, and a call that succeeds need not cancel its timer.
#[derive(Debug, Default)]
pub(super) struct FirstTimers {
    /// When a timer fires, and its call, which may have ended.
    pub(super) list: VecDeque<(Ns, u32)>,
    /// Whether an event for the first of them is in the queue.
    pub(super) armed: bool,
}

/// A call in flight.
#[derive(Debug)]
pub(super) struct CallState {
    pub(super) machine: Machine,
    /// Its start, and the state of a call that needs no state machine.
    pub(super) counters: CallCounters,
    /// The draws of a call that needs no state machine; set at its first failure.
    pub(super) random: Random,
    /// The index of its hop.
    pub(super) hop: u16,
    /// Whether the request that this call belongs to is a retry.
    pub(super) below_retry: bool,
    /// The client or server that makes the call.
    pub(super) caller: u32,
    /// The request that made it; [`NONE`] for a client's call.
    pub(super) parent: u32,
    /// The pending timer.
    pub(super) timer: u32,
    /// The request of the attempt in slot 0.
    pub(super) request: u32,
    pub(super) last_server: u32,
}

/// What runs a call. As in the drivers, a call needs more than its first attempt only after its first
/// failure or timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Machine {
    /// The first attempt runs.
    First,
    /// The counters of the call and [`decide`](redial_core::decide()).
    Counters,
    /// The state machine with this index.
    Full(u32),
}

/// The state machine of a call.
#[derive(Debug)]
pub(super) struct FullCall<'a> {
    pub(super) call: Call<&'a Policy>,
    pub(super) env: CallEnvironment<BucketRef<'a>, Random>,
    /// The requests of the attempts in slots 1 and above.
    pub(super) hedges: Vec<u32>,
}

impl RunCommands for FullCall<'_> {
    fn command(&mut self) -> Option<Command> {
        self.call.command(&mut self.env)
    }
    fn ask(&mut self, _failure: Failure) {
        unreachable!("a simulation rejects policies that ask a strategy")
    }
    fn await_grant(&mut self, _cost: Cost) {
        unreachable!("the throttles of a simulation answer at once")
    }
}

/// An attempt on its way to a server, at the server, or on its way back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    /// The call; [`NONE`] once the caller has given up the attempt.
    pub(super) call: u32,
    pub(super) server: u32,
    /// When the caller gives up.
    pub(super) deadline: Ns,
    /// The version of the row that it read.
    pub(super) version: u64,
    /// The calls to the next service that have not ended.
    pub(super) pending: u32,
    pub(super) service: u16,
    pub(super) slot: u8,
    pub(super) is_retry: bool,
    pub(super) result: RequestResult,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestResult {
    Succeeded,
    Failed,
    Rejected,
    Refused,
}

/// The settings and the current condition of a service.
#[derive(Debug)]
pub(super) struct ServiceState {
    /// The index of its first server, and their number.
    pub(super) first: u32,
    pub(super) servers: u32,
    /// Servers from this index on are slow.
    pub(super) slow_from: u32,
    pub(super) workers: u32,
    pub(super) queue_max: usize,
    pub(super) time: Sampler,
    pub(super) slow_time: Option<Sampler>,
    pub(super) network: Option<Sampler>,
    pub(super) failure_rate: f64,
    pub(super) fan_out: u32,
    pub(super) propagates: bool,
    pub(super) balancing: Balancing,
    pub(super) optimistic_lock: bool,
    pub(super) next_in_turn: u32,
    pub(super) condition: Condition,
}

impl ServiceState {
    /// The server of the next attempt of a call, whose last one went to server `last`.
    #[inline]
    pub(super) fn choose_server(&mut self, last: u32, random: &mut Random) -> u32 {
        if self.servers == 1 {
            return self.first;
        }
        let count = self.servers;
        let mut below = |count: u32| ((f64::from(count) * random.draw()) as u32).min(count - 1);
        let chosen = match self.balancing {
            Balancing::Random => below(count),
            Balancing::AvoidPrevious if last == NONE => below(count),
            Balancing::AvoidPrevious => (last - self.first + 1 + below(count - 1)) % count,
            Balancing::RoundRobin => {
                self.next_in_turn = (self.next_in_turn + 1) % count;
                self.next_in_turn
            }
        };
        self.first + chosen
    }

    /// The time of a message in one direction.
    #[inline]
    pub(super) fn network_delay(&self, random: &mut Random) -> Ns {
        self.network.as_ref().map_or(0, |network| network.draw(random))
    }
}

/// What disturbances change about a service.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Condition {
    pub(super) stalled: bool,
    pub(super) refusing: bool,
    /// The probability of a failure, in addition to and independent of the service's own.
    pub(super) fail: f64,
    /// The factor on the service time.
    pub(super) slow: f64,
}

impl Condition {
    pub(super) const NORMAL: Condition =
        Condition { stalled: false, refusing: false, fail: 0.0, slow: 1.0 };
}

/// A server.
#[derive(Debug, Default)]
pub(super) struct ServerState {
    pub(super) waiting: VecDeque<u32>,
    pub(super) busy: u32,
    /// The version of the row of an optimistic lock.
    pub(super) version: u64,
}
