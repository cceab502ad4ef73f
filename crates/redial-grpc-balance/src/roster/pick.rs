//! Which backend an attempt goes to.
//!
//! Invariants: a pick is a backend of the list in force with an open connection. As long as a backend
//! that the call has not used is open and not avoided, it is one of those. Avoidance never keeps a
//! call from the last open backend. Under `round_robin` a retry, a hedge or a replacement does not
//! move the order of first attempts.

use std::time::Duration;

use tokio::time::Instant;

use super::{Backend, Connection, Mark, Roster, State};
use redial_grpc::BackendId;

/// How long a backend that is being dialled is worth waiting for while others could be tried: the
/// pace at which `pick_first` goes through its addresses (RFC 8305, "Connection Attempt Delay").
pub(super) const PATIENCE: Duration = Duration::from_millis(250);

/// Where an attempt goes.
#[derive(Debug)]
pub(crate) struct Go<C> {
    pub(crate) id: BackendId,
    pub(crate) connection: C,
    pub(crate) mark: Mark,
}

#[derive(Debug)]
pub(crate) enum Pick<C> {
    Go(Go<C>),
    /// Ask again when something has changed, or at this moment.
    Wait(Option<Instant>),
    /// There is nothing to wait for.
    Fail,
}

impl<C: Connection> Roster<C> {
    /// Where an attempt goes whose call has used these backends, the least recently used one first.
    /// `first`: whether it is the first attempt of its call, which takes a turn of its own. `asked`:
    /// when it was asked for the first time.
    pub(crate) fn pick(
        &mut self,
        used: &[BackendId],
        first: bool,
        asked: Instant,
        now: Instant,
    ) -> Pick<C> {
        let open = |it: &Backend<C>| it.is_open();
        let good = |it: &Backend<C>| it.is_open() && it.health.is_good(now);
        let unused = |it: &Backend<C>| !used.contains(&it.id);
        // Where one of many is open, it is mostly the one that the last call went to.
        let any_good = self.chosen.is_some_and(|place| good(&self.backends[place]))
            || self.backends.iter().any(good);
        if !any_good {
            if !self.backends.iter().any(open) {
                return self.nothing_open(now);
            }
            // The only one that is connected keeps failing: have another ready for the next call.
            self.dial_another(&[], now);
        }
        let candidate = |it: &Backend<C>| if any_good { good(it) } else { open(it) };
        if let Some(place) = self.best(first, |it| candidate(it) && unused(it)) {
            return self.go(place, first, now);
        }
        // What is open was used: another that is about to be is worth a moment.
        let until = self.dial_another(used, now).map(|until| until.min(asked + PATIENCE));
        if until.is_some_and(|until| until > now) {
            self.awaited = true;
            return Pick::Wait(until);
        }
        let oldest = used
            .iter()
            .find_map(|id| self.backends.iter().position(|it| it.id == *id && candidate(it)));
        match oldest {
            Some(place) => self.go(place, false, now),
            // It has ended since it was looked at.
            None => self.nothing_open(now),
        }
    }

    /// Makes sure that a backend which the call has not used is being dialled; until when that one
    /// is worth waiting for. `None`: there is none, or it takes too long.
    pub(super) fn dial_another(&mut self, used: &[BackendId], now: Instant) -> Option<Instant> {
        self.dial_one(|it| !used.contains(&it.id) && it.health.is_good(now), now)
    }

    /// The same for one of these.
    fn dial_one(&mut self, is_one: impl Fn(&Backend<C>) -> bool, now: Instant) -> Option<Instant> {
        let patient = |it: &Backend<C>| match it.state {
            State::Connecting { since } => Some(since + PATIENCE).filter(|until| *until > now),
            _ => None,
        };
        let soon = self.backends.iter().filter(|it| is_one(it)).find_map(patient);
        if soon.is_some() {
            return soon;
        }
        let idle = |it: &&mut Backend<C>| matches!(it.state, State::Idle) && is_one(it);
        self.backends.iter_mut().find(idle)?.wake(&mut self.stirred, now);
        Some(now + PATIENCE)
    }

    /// No connection is open: makes sure that one is being dialled, if there is one to dial.
    pub(super) fn nothing_open(&mut self, now: Instant) -> Pick<C> {
        // Also those that are avoided: there are no others.
        let dialled = self.dial_another(&[], now).or_else(|| self.dial_one(|_| true, now));
        // A connection that has ended counts as being dialled: its keeper is about to notice.
        let hope = |it: &Backend<C>| matches!(it.state, State::Connecting { .. } | State::Open(_));
        if !self.backends.iter().any(hope) {
            return Pick::Fail;
        }
        self.awaited = true;
        // With more addresses to dial, the next one's turn comes by itself.
        let more = self.backends.iter().any(|it| matches!(it.state, State::Idle));
        Pick::Wait(dialled.filter(|_| more))
    }

    /// The one of these whose turn it is.
    fn best(&self, first: bool, candidate: impl Fn(&Backend<C>) -> bool) -> Option<usize> {
        let is_one = |place: usize| candidate(&self.backends[place]);
        if self.picks_first() {
            let chosen = self.chosen.filter(|place| is_one(*place));
            return chosen.or_else(|| (0..self.backends.len()).find(|place| is_one(*place)));
        }
        let rotation = if first { &self.first } else { &self.further };
        rotation.next(is_one)
    }

    fn go(&mut self, place: usize, first: bool, now: Instant) -> Pick<C> {
        let State::Open(connection) = &self.backends[place].state else { return Pick::Fail };
        let connection = connection.clone();
        let backend = &mut self.backends[place];
        backend.in_flight += 1;
        if first {
            self.chosen = Some(place);
            backend.turns.first = self.first.take_turn(place);
        } else {
            backend.turns.further = self.further.take_turn(place);
        }
        let mark = Mark {
            serial: backend.serial,
            place,
            connection: backend.connections.current(),
            tries: backend.health.begin(now),
            started: now,
        };
        Pick::Go(Go { id: backend.id, connection, mark })
    }
}
