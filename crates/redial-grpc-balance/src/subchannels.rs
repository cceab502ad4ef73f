//! The backends of a channel, and how they are.
//!
//! No socket, no clock, no lock: events and moments come in, wishes and picks come out.
//!
//! Invariants: what stays in a new list keeps its connection and its record; what an attempt says
//! about a backend that is no longer listed is forgotten. Where all is well an attempt's pick and its
//! end look at a few backends, however many there are: both happen under one lock.

mod pick;
mod rotation;

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

use rotation::{Rotation, Turns};

pub(crate) use pick::{Pick, PickResult};

/// A connection, as far as it matters here.
pub(crate) trait Connection: Clone {
    /// Whether it still takes requests.
    fn is_open(&self) -> bool;
}

/// A backend of one list; an address that comes back after it was removed is another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct SubchannelId(u64);

#[derive(Debug)]
pub(crate) enum State<C> {
    /// Nobody needs it.
    Idle,
    /// It is to be dialled, or is being dialled.
    Connecting {
        since: Instant,
    },
    Ready(C),
    /// It could not be connected; the next dial comes by itself.
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
    /// When it last answered with a success.
    last_success: Option<Instant>,
    connections: ConnectionCounters,
    /// When it was last picked.
    turns: Turns,
    connect_request: ConnectRequest,
    /// Wakes the one who dials it.
    connect_task: Arc<Notify>,
}

impl<C: Connection> Subchannel<C> {
    pub(crate) fn is_ready(&self) -> bool {
        matches!(&self.state, State::Ready(connection) if connection.is_open())
    }

    /// It is to be dialled, which nobody wanted before.
    fn request_connect(&mut self, wakeups: &mut Wakeups, now: Instant) {
        self.connect_request.0 += 1;
        self.state = State::Connecting { since: now };
        wakeups.connect_tasks.push(self.connect_task.clone());
    }

    /// Nobody needs it any more.
    fn set_idle(&mut self, wakeups: &mut Wakeups) {
        self.state = State::Idle;
        wakeups.connect_tasks.push(self.connect_task.clone());
    }
}

/// That a backend is to be connected. Each time that somebody needs it again is another one: who
/// waits to dial for the one before waits in vain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ConnectRequest(u64);

/// Who has to look at a roster again: nobody for whom nothing has changed, or each of many dials
/// would wake many.
#[derive(Debug, Default)]
pub(crate) struct Wakeups {
    /// All calls that wait for a pick.
    pub(crate) queued_picks: bool,
    /// Those who dial, whose wish has come or gone.
    pub(crate) connect_tasks: Vec<Arc<Notify>>,
}

/// What is remembered of an attempt until it ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PickRecord {
    pub(crate) id: SubchannelId,
    /// Where it was in the list then, and mostly still is.
    index: usize,
    /// Which of the backend's connections it uses.
    connection: u64,
    /// Whether it tries a backend that was avoided.
    is_probe: bool,
    /// When it was sent.
    started: Instant,
}

impl PickRecord {
    /// Whether it tries a backend that was avoided; asked once.
    pub(crate) fn take_probe(&mut self) -> bool {
        std::mem::take(&mut self.is_probe)
    }
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AttemptEnd {
    /// The backend answered.
    Answered(Code),
    /// The connection was lost under it.
    ConnectionLost,
    /// Its deadline passed, and the backend had not answered.
    DeadlineExceeded,
    /// It was cancelled, or never got there.
    Unknown,
}

/// A backend that somebody has to dial.
#[derive(Debug)]
pub(crate) struct NewSubchannel {
    pub(crate) id: SubchannelId,
    pub(crate) address: SocketAddr,
    /// A wish has come or gone.
    pub(crate) request_changed: Arc<Notify>,
}

/// What a new list of addresses changes.
#[derive(Debug)]
pub(crate) struct AddressChanges<C> {
    pub(crate) added: Vec<NewSubchannel>,
    pub(crate) removed: Vec<Subchannel<C>>,
}

#[derive(Debug)]
pub(crate) struct Subchannels<C> {
    all: Vec<Subchannel<C>>,
    /// Where each of them is in the list.
    index_by_id: HashMap<SubchannelId, usize>,
    /// The order of first attempts.
    first_attempts: Rotation,
    /// The order of retries, hedges and transparent replacements: they prefer backends that their call
    /// has not used, and would skew the order of first attempts.
    later_attempts: Rotation,
    balancing: LoadBalancing,
    detection: OutlierDetection,
    /// The place of the backend that `pick_first` stays with.
    selected: Option<usize>,
    /// Whether calls may wait: some were told to, and have not been woken since.
    has_queued_picks: bool,
    /// So that not every client begins with the same backend.
    rotation_offset: usize,
    last_id: u64,
    wakeups: Wakeups,
}

impl<C: Connection> Subchannels<C> {
    /// An empty one. `draw` in `[0, 1)` says where `round_robin` begins.
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

    /// What has changed since this was last asked.
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

    /// The list in force from now on, in this order; what stays keeps its connection and its record.
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
                Some(stays) => stays,
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
        // Those that had no turn yet are in an order of this channel's own.
        let own = |index: usize| (index + self.rotation_offset) % count;
        self.first_attempts
            .arrange(count, |index| (self.all[index].turns.first_attempt, own(index)));
        self.later_attempts
            .arrange(count, |index| (self.all[index].turns.later_attempt, own(index)));
        let index_by_id = self.all.iter().enumerate().map(|(index, it)| (it.id, index));
        self.index_by_id = index_by_id.collect();
        self.selected = selected.and_then(|id| self.index_by_id.get(&id).copied());
        if first {
            // Also `pick_first` has a connection when the first call comes.
            self.connect_another(&[], now);
        }
        self.connect_all_idle(now);
        self.wakeups.queued_picks = true;
        AddressChanges { added, removed: before.into_values().collect() }
    }

    /// What the config in force says.
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

    /// `round_robin` keeps a connection to each.
    fn connect_all_idle(&mut self, now: Instant) {
        if !self.picks_first() {
            for subchannel in &mut self.all {
                if matches!(subchannel.state, State::Idle) {
                    subchannel.request_connect(&mut self.wakeups, now);
                }
            }
        }
    }

    /// `pick_first` dials no further once it has one.
    fn stop_connecting(&mut self) {
        for subchannel in &mut self.all {
            if matches!(subchannel.state, State::Connecting { .. } | State::TransientFailure { .. })
            {
                subchannel.set_idle(&mut self.wakeups);
            }
        }
    }

    /// For which wish this backend is to be connected; `None`: nobody needs it.
    pub(crate) fn connect_request(&self, id: SubchannelId) -> Option<ConnectRequest> {
        let wanted = self.at(id).filter(|it| !matches!(it.state, State::Idle));
        wanted.map(|it| it.connect_request)
    }

    /// Whether it is in vain to dial for this wish. A connection that came of it serves whoever
    /// needs it next.
    pub(crate) fn is_obsolete(&self, id: SubchannelId, connect_request: ConnectRequest) -> bool {
        self.at(id).is_none_or(|it| match it.state {
            State::Idle => true,
            State::Ready(_) => false,
            State::Connecting { .. } | State::TransientFailure { .. } => {
                it.connect_request != connect_request
            }
        })
    }

    /// It is being dialled.
    pub(crate) fn connect_started(&mut self, id: SubchannelId, now: Instant) {
        if let Some(subchannel) = self.at_mut(id)
            && matches!(subchannel.state, State::Connecting { .. } | State::TransientFailure { .. })
        {
            subchannel.state = State::Connecting { since: now };
        }
    }

    /// A dial succeeded.
    pub(crate) fn connected(&mut self, id: SubchannelId, connection: C) {
        let alone = !self.all.iter().any(Subchannel::is_ready);
        if alone && self.picks_first() {
            self.stop_connecting();
        }
        if let Some(subchannel) = self.at_mut(id) {
            subchannel.state = State::Ready(connection);
            subchannel.connections.add();
            self.wakeups.queued_picks = true;
        }
    }

    /// A connection was closed within its first second. If it has answered a request that is no
    /// failed dial (true): the next dial comes at once. If not, connection backoff follows.
    pub(crate) fn closed_early(&mut self, id: SubchannelId, reason: &str, now: Instant) -> bool {
        let served = self.at(id).is_some_and(|it| it.connections.current_served());
        if !served {
            self.connect_failed(id, reason, now);
        }
        served
    }

    /// The first answer on a connection has come; it may be known only after the connection was
    /// closed, and has been taken for a failed dial.
    pub(crate) fn connection_served(&mut self, record: PickRecord, now: Instant) {
        let Some(index) = self.index_of(record) else { return };
        let subchannel = &mut self.all[index];
        let current = subchannel.connections.mark_served(record.connection);
        if current && matches!(subchannel.state, State::TransientFailure { .. }) {
            subchannel.request_connect(&mut self.wakeups, now);
        }
    }

    /// Ends the connection backoff of every backend: those that wait for it are dialled now.
    pub(crate) fn reset_backoff(&mut self, now: Instant) {
        for subchannel in &mut self.all {
            if matches!(subchannel.state, State::TransientFailure { .. }) {
                subchannel.request_connect(&mut self.wakeups, now);
            }
        }
    }

    /// A dial failed, or what it brought was lost at once; another follows.
    pub(crate) fn connect_failed(&mut self, id: SubchannelId, reason: &str, now: Instant) {
        self.deselect(id);
        let Some(subchannel) = self.at_mut(id) else { return };
        if matches!(subchannel.state, State::Idle) {
            return;
        }
        subchannel.state = State::TransientFailure { reason: reason.into() };
        if self.has_queued_picks {
            // Where one is open, who waits has used it, and which is next depends on the call; where
            // none is, the next is dialled for all of them.
            let open = self.all.iter().any(Subchannel::is_ready);
            self.wakeups.queued_picks |=
                open || matches!(self.pick_without_ready(now), PickResult::Fail);
        }
    }

    /// A connection was lost.
    pub(crate) fn connection_lost(&mut self, id: SubchannelId, now: Instant) {
        let picks_first = self.picks_first();
        if let Some(subchannel) = self.at_mut(id) {
            subchannel.state =
                if picks_first { State::Idle } else { State::Connecting { since: now } };
            // Who waits may want this very one dialled; what is dialled by itself has been hoped for.
            self.wakeups.queued_picks |= picks_first;
        }
        self.deselect(id);
    }

    /// `pick_first` stays with this one no longer.
    fn deselect(&mut self, id: SubchannelId) {
        self.selected.take_if(|index| self.all[*index].id == id);
    }

    /// The backend that an attempt was sent to, if it is still listed.
    pub(crate) fn subchannel_of(&self, record: PickRecord) -> Option<&Subchannel<C>> {
        self.index_of(record).map(|index| &self.all[index])
    }

    fn index_of(&self, PickRecord { id, index, .. }: PickRecord) -> Option<usize> {
        let stays = self.all.get(index).is_some_and(|it| it.id == id);
        if stays { Some(index) } else { self.index_by_id.get(&id).copied() }
    }

    /// An attempt that tries a backend which was avoided has a first message, and goes on.
    pub(crate) fn probe_answered(&mut self, record: PickRecord, now: Instant) {
        if let Some(index) = self.index_of(record) {
            self.all[index].outlier_state.end_ejection(now);
        }
    }

    /// An attempt that was sent to a backend is over; true if the backend is avoided from now on.
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
            // A backend that answered others meanwhile works: this deadline was too short for it.
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
