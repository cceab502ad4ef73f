//! The subchannels of a channel and their state. As in gRPC, a subchannel is one backend address
//! with its connection, its connectivity state and its connection backoff.
//!
//! A state machine without sockets, clock or locks: events and timestamps go in, picks and wakeups
//! come out.
//!
//! Invariants: an address that stays in a new address list keeps its connection and its outlier
//! state. The end of an attempt on a removed backend is ignored. When all backends are healthy, a
//! pick and the end of an attempt inspect a constant number of subchannels, because both hold the
//! channel's lock.

mod pick;
mod round_robin;

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;

use redial_service_config::Code;
use redial_service_config::LoadBalancing;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::outlier_detection::{ConnectionCounters, Outcome, OutlierDetection, OutlierState};
use super::resolver::ADDRESSES_MAX;
use redial_grpc::BackendId;

use round_robin::{Rotation, Turns};

pub(crate) use pick::{Pick, PickResult};

/// A connection, as far as picking needs it.
pub(crate) trait Connection: Clone {
    /// Whether it still accepts requests.
    fn is_open(&self) -> bool;
}

/// Identifies a subchannel. An address that is removed and added again gets a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct SubchannelId(u64);

#[derive(Debug)]
pub(crate) enum State<C> {
    /// Not connected, and no call needs it.
    Idle,
    /// A connection attempt runs or is about to start.
    Connecting {
        since: Instant,
    },
    Ready(C),
    /// The last connection attempt failed. The next one starts after the connection backoff.
    TransientFailure {
        reason: Arc<str>,
    },
}

#[derive(Debug)]
pub(crate) struct Subchannel<C> {
    pub(crate) id: SubchannelId,
    pub(crate) address: SocketAddr,
    pub(crate) backend_id: BackendId,
    pub(crate) state: State<C>,
    pub(crate) outlier_state: OutlierState,
    pub(crate) in_flight: u64,
    /// When an attempt last succeeded.
    last_success: Option<Instant>,
    connections: ConnectionCounters,
    /// When it was last picked.
    turns: Turns,
    connect_request: ConnectRequest,
    /// Wakes the task that connects this subchannel.
    connect_task: Arc<Notify>,
}

impl<C: Connection> Subchannel<C> {
    pub(crate) fn is_ready(&self) -> bool {
        matches!(&self.state, State::Ready(connection) if connection.is_open())
    }

    /// Asks the connect task for a connection.
    fn request_connect(&mut self, wakeups: &mut Wakeups, now: Instant) {
        self.connect_request.0 += 1;
        self.state = State::Connecting { since: now };
        wakeups.connect_tasks.push(self.connect_task.clone());
    }

    /// No call needs a connection: the connect task stops trying.
    fn set_idle(&mut self, wakeups: &mut Wakeups) {
        self.state = State::Idle;
        wakeups.connect_tasks.push(self.connect_task.clone());
    }
}

/// A request to connect, by sequence number. A new request makes the previous one obsolete, and
/// with it the backoff that its connect task may be waiting for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ConnectRequest(u64);

/// The tasks to wake after a change. Only affected tasks are listed; otherwise each of many
/// connection attempts would wake all the others.
#[derive(Debug, Default)]
pub(crate) struct Wakeups {
    /// Wake all queued picks.
    pub(crate) queued_picks: bool,
    /// Wake these connect tasks: their connect request was made or withdrawn.
    pub(crate) connect_tasks: Vec<Arc<Notify>>,
}

/// An attempt in flight, as the subchannels remember it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PickRecord {
    pub(crate) id: SubchannelId,
    /// The index at the time of the pick: usually still correct, and cheaper than a lookup by id.
    index: usize,
    /// Which of the subchannel's connections it uses, by sequence number.
    connection: u64,
    /// Whether the attempt probes an ejected backend.
    is_probe: bool,
    started: Instant,
}

impl PickRecord {
    /// Returns whether the attempt is a probe, once; `false` afterwards.
    pub(crate) fn take_probe(&mut self) -> bool {
        std::mem::take(&mut self.is_probe)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AttemptEnd {
    /// The backend sent a status.
    Answered(Code),
    /// The connection was lost during the attempt.
    ConnectionLost,
    /// The deadline passed before the backend sent a message.
    DeadlineExceeded,
    /// Cancelled, never sent, or rejected unprocessed: no information about the backend.
    Unknown,
}

/// A subchannel that needs a connect task.
#[derive(Debug)]
pub(crate) struct NewSubchannel {
    pub(crate) id: SubchannelId,
    pub(crate) address: SocketAddr,
    /// Notified when a connect request is made or withdrawn.
    pub(crate) request_changed: Arc<Notify>,
}

/// The difference between two address lists.
#[derive(Debug)]
pub(crate) struct AddressChanges<C> {
    pub(crate) added: Vec<NewSubchannel>,
    pub(crate) removed: Vec<Subchannel<C>>,
}

#[derive(Debug)]
pub(crate) struct Subchannels<C> {
    all: Vec<Subchannel<C>>,
    /// The index of each subchannel in `all`.
    index_by_id: HashMap<SubchannelId, usize>,
    /// The `round_robin` order of first attempts.
    first_attempts: Rotation,
    /// The `round_robin` order of retries, hedges and transparent retries. It is separate because
    /// they prefer backends that their call has not used, which would skew the order of first
    /// attempts.
    later_attempts: Rotation,
    balancing: LoadBalancing,
    detection: OutlierDetection,
    /// The index of the subchannel that `pick_first` uses.
    selected: Option<usize>,
    /// Whether a pick was queued since queued picks were last woken.
    has_queued_picks: bool,
    /// A random start for `round_robin`, so that clients do not all begin with the same backend.
    rotation_offset: usize,
    last_id: u64,
    wakeups: Wakeups,
}

impl<C: Connection> Subchannels<C> {
    /// Creates an empty list. `draw` in `[0, 1)` determines where `round_robin` starts.
    pub(crate) fn new(detection: OutlierDetection, draw: f64) -> Self {
        Subchannels {
            all: Vec::new(),
            index_by_id: HashMap::new(),
            first_attempts: Rotation::default(),
            later_attempts: Rotation::default(),
            balancing: LoadBalancing::default(),
            detection,
            selected: None,
            has_queued_picks: false,
            rotation_offset: (draw * ADDRESSES_MAX as f64) as usize,
            last_id: 0,
            wakeups: Wakeups::default(),
        }
    }

    pub(crate) fn all(&self) -> &[Subchannel<C>] {
        &self.all
    }

    /// Returns the wakeups that have accumulated since the last call.
    pub(crate) fn take_wakeups(&mut self) -> Wakeups {
        self.has_queued_picks &= !self.wakeups.queued_picks;
        std::mem::take(&mut self.wakeups)
    }

    fn at(&self, id: SubchannelId) -> Option<&Subchannel<C>> {
        self.index_by_id.get(&id).map(|index| &self.all[*index])
    }

    fn at_mut(&mut self, id: SubchannelId) -> Option<&mut Subchannel<C>> {
        self.index_by_id.get(&id).map(|index| &mut self.all[*index])
    }

    /// Replaces the address list. Addresses in both lists keep their connection and outlier state.
    pub(crate) fn set_addresses(
        &mut self,
        addresses: impl IntoIterator<Item = SocketAddr>,
        now: Instant,
    ) -> AddressChanges<C> {
        let selected = self.selected.map(|index| self.all[index].id);
        let before = std::mem::take(&mut self.all).into_iter();
        let mut before: HashMap<_, _> = before.map(|it| (it.address, it)).collect();
        let first = before.is_empty();
        let (mut listed, mut added) = (HashSet::new(), Vec::new());
        for address in addresses {
            if self.all.len() == ADDRESSES_MAX {
                break;
            }
            if !listed.insert(address) {
                continue;
            }
            let subchannel = match before.remove(&address) {
                Some(kept) => kept,
                None => {
                    self.last_id += 1;
                    let (id, connect_task) = (SubchannelId(self.last_id), Arc::new(Notify::new()));
                    added.push(NewSubchannel {
                        id,
                        address,
                        request_changed: connect_task.clone(),
                    });
                    Subchannel {
                        id,
                        address,
                        backend_id: BackendId::of(&address),
                        state: State::Idle,
                        outlier_state: OutlierState::default(),
                        in_flight: 0,
                        last_success: None,
                        connections: ConnectionCounters::default(),
                        turns: Turns::default(),
                        connect_request: ConnectRequest::default(),
                        connect_task,
                    }
                }
            };
            self.all.push(subchannel);
        }
        let count = self.all.len();
        // Subchannels without a turn yet are ordered by the random offset.
        let initial_order = |index: usize| (index + self.rotation_offset) % count;
        self.first_attempts
            .arrange(count, |index| (self.all[index].turns.first_attempt, initial_order(index)));
        self.later_attempts
            .arrange(count, |index| (self.all[index].turns.later_attempt, initial_order(index)));
        let index_by_id = self.all.iter().enumerate().map(|(index, it)| (it.id, index));
        self.index_by_id = index_by_id.collect();
        self.selected = selected.and_then(|id| self.index_by_id.get(&id).copied());
        if first {
            // `pick_first` connects too, so that the first call finds a connection.
            self.connect_another(&[], now);
        }
        self.connect_all_idle(now);
        self.wakeups.queued_picks = true;
        AddressChanges { added, removed: before.into_values().collect() }
    }

    /// Sets the load balancing policy of the active config.
    pub(crate) fn set_balancing(&mut self, balancing: LoadBalancing, now: Instant) {
        if self.balancing != balancing {
            self.balancing = balancing;
            self.selected = None;
            self.connect_all_idle(now);
            if self.picks_first() && self.all.iter().any(Subchannel::is_ready) {
                self.stop_connecting();
            }
            self.wakeups.queued_picks = true;
        }
    }

    fn picks_first(&self) -> bool {
        self.balancing != LoadBalancing::RoundRobin
    }

    /// `round_robin` keeps all subchannels connected.
    fn connect_all_idle(&mut self, now: Instant) {
        if !self.picks_first() {
            for subchannel in &mut self.all {
                if matches!(subchannel.state, State::Idle) {
                    subchannel.request_connect(&mut self.wakeups, now);
                }
            }
        }
    }

    /// `pick_first` stops connecting the others once it has a connection.
    fn stop_connecting(&mut self) {
        for subchannel in &mut self.all {
            if matches!(subchannel.state, State::Connecting { .. } | State::TransientFailure { .. })
            {
                subchannel.set_idle(&mut self.wakeups);
            }
        }
    }

    /// The current connect request; `None` if the subchannel is idle.
    pub(crate) fn connect_request(&self, id: SubchannelId) -> Option<ConnectRequest> {
        let wanted = self.at(id).filter(|it| !matches!(it.state, State::Idle));
        wanted.map(|it| it.connect_request)
    }

    /// Whether this connect request no longer needs an answer. A connection that was made for an
    /// obsolete request is kept and used.
    pub(crate) fn is_obsolete(&self, id: SubchannelId, connect_request: ConnectRequest) -> bool {
        self.at(id).is_none_or(|it| match it.state {
            State::Idle => true,
            State::Ready(_) => false,
            State::Connecting { .. } | State::TransientFailure { .. } => {
                it.connect_request != connect_request
            }
        })
    }

    /// A connection attempt starts.
    pub(crate) fn connect_started(&mut self, id: SubchannelId, now: Instant) {
        if let Some(subchannel) = self.at_mut(id)
            && matches!(subchannel.state, State::Connecting { .. } | State::TransientFailure { .. })
        {
            subchannel.state = State::Connecting { since: now };
        }
    }

    /// A connection attempt succeeded.
    pub(crate) fn connected(&mut self, id: SubchannelId, connection: C) {
        let is_first = !self.all.iter().any(Subchannel::is_ready);
        if is_first && self.picks_first() {
            self.stop_connecting();
        }
        if let Some(subchannel) = self.at_mut(id) {
            subchannel.state = State::Ready(connection);
            subchannel.connections.add();
            self.wakeups.queued_picks = true;
        }
    }

    /// The connection closed within its first second. Returns `true` if it had returned a response:
    /// the caller reconnects immediately. Otherwise this counts as a failed connection attempt, and
    /// connection backoff applies.
    pub(crate) fn closed_early(&mut self, id: SubchannelId, reason: &str, now: Instant) -> bool {
        let served = self.at(id).is_some_and(|it| it.connections.current_served());
        if !served {
            self.connect_failed(id, reason, now);
        }
        served
    }

    /// The first response on a connection has arrived. If the connection was closed in the meantime
    /// and counted as a failed attempt, its backoff ends here.
    pub(crate) fn connection_served(&mut self, record: PickRecord, now: Instant) {
        let Some(index) = self.index_of(record) else { return };
        let subchannel = &mut self.all[index];
        let current = subchannel.connections.mark_served(record.connection);
        if current && matches!(subchannel.state, State::TransientFailure { .. }) {
            subchannel.request_connect(&mut self.wakeups, now);
        }
    }

    /// Ends the connection backoff of all subchannels: those in it connect now.
    pub(crate) fn reset_backoff(&mut self, now: Instant) {
        for subchannel in &mut self.all {
            if matches!(subchannel.state, State::TransientFailure { .. }) {
                subchannel.request_connect(&mut self.wakeups, now);
            }
        }
    }

    /// A connection attempt failed, or its connection closed early. The connect task tries again
    /// after the backoff.
    pub(crate) fn connect_failed(&mut self, id: SubchannelId, reason: &str, now: Instant) {
        self.deselect(id);
        let Some(subchannel) = self.at_mut(id) else { return };
        if matches!(subchannel.state, State::Idle) {
            return;
        }
        subchannel.state = State::TransientFailure { reason: reason.into() };
        if self.has_queued_picks {
            // With another backend ready, queued picks are retries that have used it, and each of
            // them decides which address to connect next. Without one, the next address is
            // connected for all of them.
            let ready = self.all.iter().any(Subchannel::is_ready);
            self.wakeups.queued_picks |=
                ready || matches!(self.pick_without_ready(now), PickResult::Fail);
        }
    }

    /// An established connection was lost.
    pub(crate) fn connection_lost(&mut self, id: SubchannelId, now: Instant) {
        let picks_first = self.picks_first();
        if let Some(subchannel) = self.at_mut(id) {
            subchannel.state =
                if picks_first { State::Idle } else { State::Connecting { since: now } };
            // Under `pick_first` a queued pick may need this backend connected again. Under
            // `round_robin` it reconnects anyway, so nothing changes for queued picks.
            self.wakeups.queued_picks |= picks_first;
        }
        self.deselect(id);
    }

    /// Makes `pick_first` select again if it uses this subchannel.
    fn deselect(&mut self, id: SubchannelId) {
        self.selected.take_if(|index| self.all[*index].id == id);
    }

    /// The subchannel that an attempt was sent to, if its address is still listed.
    pub(crate) fn subchannel_of(&self, record: PickRecord) -> Option<&Subchannel<C>> {
        self.index_of(record).map(|index| &self.all[index])
    }

    fn index_of(&self, PickRecord { id, index, .. }: PickRecord) -> Option<usize> {
        let kept = self.all.get(index).is_some_and(|it| it.id == id);
        if kept { Some(index) } else { self.index_by_id.get(&id).copied() }
    }

    /// A probe has received its first message, and continues.
    pub(crate) fn probe_answered(&mut self, record: PickRecord, now: Instant) {
        if let Some(index) = self.index_of(record) {
            self.all[index].outlier_state.end_ejection(now);
        }
    }

    /// Records the end of an attempt. Returns `true` if outlier detection ejects the backend now.
    pub(crate) fn attempt_ended(
        &mut self,
        record: PickRecord,
        attempt_end: AttemptEnd,
        now: Instant,
    ) -> bool {
        let Some(index) = self.index_of(record) else { return false };
        let subchannel = &mut self.all[index];
        subchannel.in_flight = subchannel.in_flight.saturating_sub(1);
        let outcome = match attempt_end {
            AttemptEnd::Answered(code) => self.detection.classify(code),
            AttemptEnd::ConnectionLost => subchannel.connections.lost(record.connection),
            // The backend answered other attempts in the meantime, so it works and this deadline
            // was too short.
            AttemptEnd::DeadlineExceeded if subchannel.last_success >= Some(record.started) => {
                Outcome::Ignored
            }
            AttemptEnd::DeadlineExceeded => Outcome::Failure,
            AttemptEnd::Unknown => Outcome::Ignored,
        };
        if outcome == Outcome::Success {
            subchannel.last_success = Some(now);
        }
        let may_eject = outcome == Outcome::Failure && {
            let ejected = self.all.iter().filter(|it| it.outlier_state.is_ejected()).count();
            ejected < OutlierDetection::max_ejected(self.all.len())
        };
        self.all[index].outlier_state.attempt_ended(
            outcome,
            record.is_probe,
            may_eject,
            &self.detection,
            now,
        )
    }
}

#[cfg(test)]
mod tests;
