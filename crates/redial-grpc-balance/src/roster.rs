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

use super::health::{Connections, Health, Outcome, OutlierDetection};
use super::resolve::ADDRESSES_MAX;
use redial_grpc::BackendId;

use rotation::{Rotation, Turns};

pub(crate) use pick::{Go, Pick};

/// A connection, as far as it matters here.
pub(crate) trait Connection: Clone {
    /// Whether it still takes requests.
    fn is_open(&self) -> bool;
}

/// A backend of one list; an address that comes back after it was removed is another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Serial(u64);

#[derive(Debug)]
pub(crate) enum State<C> {
    /// Nobody needs it.
    Idle,
    /// It is to be dialled, or is being dialled.
    Connecting {
        since: Instant,
    },
    Open(C),
    /// It could not be connected; the next dial comes by itself.
    Failed {
        stop_reason: Arc<str>,
    },
}

#[derive(Debug)]
pub(crate) struct Backend<C> {
    pub(crate) serial: Serial,
    pub(crate) address: SocketAddr,
    pub(crate) id: BackendId,
    pub(crate) state: State<C>,
    pub(crate) health: Health,
    pub(crate) in_flight: u64,
    /// When it last answered with a success.
    answered: Option<Instant>,
    connections: Connections,
    /// When it was last picked.
    turns: Turns,
    wish: Wish,
    /// Wakes the one who dials it.
    keeper: Arc<Notify>,
}

impl<C: Connection> Backend<C> {
    pub(crate) fn is_open(&self) -> bool {
        matches!(&self.state, State::Open(connection) if connection.is_open())
    }

    /// It is to be dialled, which nobody wanted before.
    fn wake(&mut self, stirred: &mut Stirred, now: Instant) {
        self.wish.0 += 1;
        self.state = State::Connecting { since: now };
        stirred.keepers.push(self.keeper.clone());
    }

    /// Nobody needs it any more.
    fn rest(&mut self, stirred: &mut Stirred) {
        self.state = State::Idle;
        stirred.keepers.push(self.keeper.clone());
    }
}

/// That a backend is to be connected. Each time that somebody needs it again is another one: who
/// waits to dial for the one before waits in vain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wish(u64);

/// Who has to look at a roster again: nobody for whom nothing has changed, or each of many dials
/// would wake many.
#[derive(Debug, Default)]
pub(crate) struct Stirred {
    /// All calls that wait for a pick.
    pub(crate) picks: bool,
    /// Those who dial, whose wish has come or gone.
    pub(crate) keepers: Vec<Arc<Notify>>,
}

/// What is remembered of an attempt until it ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    pub(crate) serial: Serial,
    /// Where it was in the list then, and mostly still is.
    place: usize,
    /// Which of the backend's connections it uses.
    connection: u64,
    /// Whether it tries a backend that was avoided.
    tries: bool,
    /// When it was sent.
    started: Instant,
}

impl Mark {
    /// Whether it tries a backend that was avoided; asked once.
    pub(crate) fn take_trial(&mut self) -> bool {
        std::mem::take(&mut self.tries)
    }
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The backend answered.
    Answered(Code),
    /// The connection was lost under it.
    Lost,
    /// Its deadline passed, and the backend had not answered.
    Unanswered,
    /// It was cancelled, or never got there.
    Untold,
}

/// A backend that somebody has to dial.
#[derive(Debug)]
pub(crate) struct Added {
    pub(crate) serial: Serial,
    pub(crate) address: SocketAddr,
    /// A wish has come or gone.
    pub(crate) woken: Arc<Notify>,
}

/// What a new list of addresses changes.
#[derive(Debug)]
pub(crate) struct Changes<C> {
    pub(crate) added: Vec<Added>,
    pub(crate) removed: Vec<Backend<C>>,
}

#[derive(Debug)]
pub(crate) struct Roster<C> {
    backends: Vec<Backend<C>>,
    /// Where each of them is in the list.
    places: HashMap<Serial, usize>,
    /// The order of first attempts.
    first: Rotation,
    /// The order of retries, hedges and transparent replacements: they prefer backends that their call
    /// has not used, and would skew the order of first attempts.
    further: Rotation,
    balancing: LoadBalancing,
    outliers: OutlierDetection,
    /// The place of the backend that `pick_first` stays with.
    chosen: Option<usize>,
    /// Whether calls may wait: some were told to, and have not been woken since.
    awaited: bool,
    /// So that not every client begins with the same backend.
    start: usize,
    serials: u64,
    stirred: Stirred,
}

impl<C: Connection> Roster<C> {
    /// An empty one. `draw` in `[0, 1)` says where `round_robin` begins.
    pub(crate) fn new(outliers: OutlierDetection, draw: f64) -> Self {
        Roster {
            backends: Vec::new(),
            places: HashMap::new(),
            first: Rotation::default(),
            further: Rotation::default(),
            balancing: LoadBalancing::default(),
            outliers,
            chosen: None,
            awaited: false,
            start: (draw * ADDRESSES_MAX as f64) as usize,
            serials: 0,
            stirred: Stirred::default(),
        }
    }

    pub(crate) fn backends(&self) -> &[Backend<C>] {
        &self.backends
    }

    /// What has changed since this was last asked.
    pub(crate) fn take_stirred(&mut self) -> Stirred {
        self.awaited &= !self.stirred.picks;
        std::mem::take(&mut self.stirred)
    }

    fn at(&self, serial: Serial) -> Option<&Backend<C>> {
        self.places.get(&serial).map(|place| &self.backends[*place])
    }

    fn at_mut(&mut self, serial: Serial) -> Option<&mut Backend<C>> {
        self.places.get(&serial).map(|place| &mut self.backends[*place])
    }

    /// The list in force from now on, in this order; what stays keeps its connection and its record.
    pub(crate) fn set_addresses(
        &mut self,
        addresses: impl IntoIterator<Item = SocketAddr>,
        now: Instant,
    ) -> Changes<C> {
        let chosen = self.chosen.map(|place| self.backends[place].serial);
        let before = std::mem::take(&mut self.backends).into_iter();
        let mut before: HashMap<_, _> = before.map(|it| (it.address, it)).collect();
        let first = before.is_empty();
        let (mut listed, mut added) = (HashSet::new(), Vec::new());
        for address in addresses {
            if self.backends.len() == ADDRESSES_MAX {
                break;
            }
            if !listed.insert(address) {
                continue;
            }
            let backend = match before.remove(&address) {
                Some(stays) => stays,
                None => {
                    self.serials += 1;
                    let (serial, keeper) = (Serial(self.serials), Arc::new(Notify::new()));
                    added.push(Added { serial, address, woken: keeper.clone() });
                    Backend {
                        serial,
                        address,
                        id: BackendId::of(&address),
                        state: State::Idle,
                        health: Health::default(),
                        in_flight: 0,
                        answered: None,
                        connections: Connections::default(),
                        turns: Turns::default(),
                        wish: Wish::default(),
                        keeper,
                    }
                }
            };
            self.backends.push(backend);
        }
        let count = self.backends.len();
        // Those that had no turn yet are in an order of this channel's own.
        let own = |place: usize| (place + self.start) % count;
        self.first.arrange(count, |place| (self.backends[place].turns.first, own(place)));
        self.further.arrange(count, |place| (self.backends[place].turns.further, own(place)));
        let places = self.backends.iter().enumerate().map(|(place, it)| (it.serial, place));
        self.places = places.collect();
        self.chosen = chosen.and_then(|serial| self.places.get(&serial).copied());
        if first {
            // Also `pick_first` has a connection when the first call comes.
            self.dial_another(&[], now);
        }
        self.wake_all(now);
        self.stirred.picks = true;
        Changes { added, removed: before.into_values().collect() }
    }

    /// What the config in force says.
    pub(crate) fn set_balancing(&mut self, balancing: LoadBalancing, now: Instant) {
        if self.balancing != balancing {
            self.balancing = balancing;
            self.chosen = None;
            self.wake_all(now);
            if self.picks_first() && self.backends.iter().any(Backend::is_open) {
                self.rest_all();
            }
            self.stirred.picks = true;
        }
    }

    fn picks_first(&self) -> bool {
        self.balancing != LoadBalancing::RoundRobin
    }

    /// `round_robin` keeps a connection to each.
    fn wake_all(&mut self, now: Instant) {
        if !self.picks_first() {
            for backend in &mut self.backends {
                if matches!(backend.state, State::Idle) {
                    backend.wake(&mut self.stirred, now);
                }
            }
        }
    }

    /// `pick_first` dials no further once it has one.
    fn rest_all(&mut self) {
        for backend in &mut self.backends {
            if matches!(backend.state, State::Connecting { .. } | State::Failed { .. }) {
                backend.rest(&mut self.stirred);
            }
        }
    }

    /// For which wish this backend is to be connected; `None`: nobody needs it.
    pub(crate) fn wish(&self, serial: Serial) -> Option<Wish> {
        let wanted = self.at(serial).filter(|it| !matches!(it.state, State::Idle));
        wanted.map(|it| it.wish)
    }

    /// Whether it is in vain to dial for this wish. A connection that came of it serves whoever
    /// needs it next.
    pub(crate) fn is_over(&self, serial: Serial, wish: Wish) -> bool {
        self.at(serial).is_none_or(|it| match it.state {
            State::Idle => true,
            State::Open(_) => false,
            State::Connecting { .. } | State::Failed { .. } => it.wish != wish,
        })
    }

    /// It is being dialled.
    pub(crate) fn dialling(&mut self, serial: Serial, now: Instant) {
        if let Some(backend) = self.at_mut(serial)
            && matches!(backend.state, State::Connecting { .. } | State::Failed { .. })
        {
            backend.state = State::Connecting { since: now };
        }
    }

    /// A dial succeeded.
    pub(crate) fn connected(&mut self, serial: Serial, connection: C) {
        let alone = !self.backends.iter().any(Backend::is_open);
        if alone && self.picks_first() {
            self.rest_all();
        }
        if let Some(backend) = self.at_mut(serial) {
            backend.state = State::Open(connection);
            backend.connections.add();
            self.stirred.picks = true;
        }
    }

    /// A connection was closed within its first second. If it has answered a request that is no
    /// failed dial (true): the next dial comes at once. If not, connection backoff follows.
    pub(crate) fn closed_early(&mut self, serial: Serial, stop_reason: &str, now: Instant) -> bool {
        let served = self.at(serial).is_some_and(|it| it.connections.current_served());
        if !served {
            self.failed(serial, stop_reason, now);
        }
        served
    }

    /// The first answer on a connection has come; it may be known only after the connection was
    /// closed, and has been taken for a failed dial.
    pub(crate) fn served(&mut self, mark: Mark, now: Instant) {
        let Some(place) = self.place(mark) else { return };
        let backend = &mut self.backends[place];
        let current = backend.connections.serve(mark.connection);
        if current && matches!(backend.state, State::Failed { .. }) {
            backend.wake(&mut self.stirred, now);
        }
    }

    /// Ends the connection backoff of every backend: those that wait for it are dialled now.
    pub(crate) fn dial_failed_now(&mut self, now: Instant) {
        for backend in &mut self.backends {
            if matches!(backend.state, State::Failed { .. }) {
                backend.wake(&mut self.stirred, now);
            }
        }
    }

    /// A dial failed, or what it brought was lost at once; another follows.
    pub(crate) fn failed(&mut self, serial: Serial, stop_reason: &str, now: Instant) {
        self.leave(serial);
        let Some(backend) = self.at_mut(serial) else { return };
        if matches!(backend.state, State::Idle) {
            return;
        }
        backend.state = State::Failed { stop_reason: stop_reason.into() };
        if self.awaited {
            // Where one is open, who waits has used it, and which is next depends on the call; where
            // none is, the next is dialled for all of them.
            let open = self.backends.iter().any(Backend::is_open);
            self.stirred.picks |= open || matches!(self.nothing_open(now), Pick::Fail);
        }
    }

    /// A connection was lost.
    pub(crate) fn lost(&mut self, serial: Serial, now: Instant) {
        let picks_first = self.picks_first();
        if let Some(backend) = self.at_mut(serial) {
            backend.state =
                if picks_first { State::Idle } else { State::Connecting { since: now } };
            // Who waits may want this very one dialled; what is dialled by itself has been hoped for.
            self.stirred.picks |= picks_first;
        }
        self.leave(serial);
    }

    /// `pick_first` stays with this one no longer.
    fn leave(&mut self, serial: Serial) {
        self.chosen.take_if(|place| self.backends[*place].serial == serial);
    }

    /// The backend that an attempt was sent to, if it is still listed.
    pub(crate) fn of(&self, mark: Mark) -> Option<&Backend<C>> {
        self.place(mark).map(|place| &self.backends[place])
    }

    fn place(&self, Mark { serial, place, .. }: Mark) -> Option<usize> {
        let stays = self.backends.get(place).is_some_and(|it| it.serial == serial);
        if stays { Some(place) } else { self.places.get(&serial).copied() }
    }

    /// An attempt that tries a backend which was avoided has a first message, and goes on.
    pub(crate) fn heard(&mut self, mark: Mark, now: Instant) {
        if let Some(place) = self.place(mark) {
            self.backends[place].health.heard(now);
        }
    }

    /// An attempt that was sent to a backend is over; true if the backend is avoided from now on.
    pub(crate) fn ended(&mut self, mark: Mark, ending: Ending, now: Instant) -> bool {
        let Some(place) = self.place(mark) else { return false };
        let backend = &mut self.backends[place];
        backend.in_flight = backend.in_flight.saturating_sub(1);
        let outcome = match ending {
            Ending::Answered(code) => self.outliers.judge(code),
            Ending::Lost => backend.connections.lost(mark.connection),
            // A backend that answered others meanwhile works: this deadline was too short for it.
            Ending::Unanswered if backend.answered >= Some(mark.started) => Outcome::Nothing,
            Ending::Unanswered => Outcome::Failure,
            Ending::Untold => Outcome::Nothing,
        };
        if outcome == Outcome::Success {
            backend.answered = Some(now);
        }
        let room = outcome == Outcome::Failure && {
            let avoided = self.backends.iter().filter(|it| it.health.is_avoided()).count();
            avoided < OutlierDetection::most(self.backends.len())
        };
        self.backends[place].health.end(outcome, mark.tries, room, &self.outliers, now)
    }
}

#[cfg(test)]
mod tests;
