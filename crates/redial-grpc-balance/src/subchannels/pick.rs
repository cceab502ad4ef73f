//! Which backend an attempt goes to.
//!
//! Invariants: a pick is a backend of the list in force with an open connection. As long as a backend
//! that the call has not used is open and not avoided, it is one of those. Avoidance never keeps a
//! call from the last open backend. Under `round_robin` a retry, a hedge or a replacement does not
//! move the order of first attempts.

use std::time::Duration;

use tokio::time::Instant;

use super::{Connection, PickRecord, State, Subchannel, Subchannels};
use redial_grpc::BackendId;

/// How long a backend that is being dialled is worth waiting for while others could be tried: the
/// pace at which `pick_first` goes through its addresses (RFC 8305, "Connection Attempt Delay").
pub(super) const CONNECT_ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// Where an attempt goes.
#[derive(Debug)]
pub(crate) struct Pick<C> {
    pub(crate) backend_id: BackendId,
    pub(crate) connection: C,
    pub(crate) record: PickRecord,
}

#[derive(Debug)]
pub(crate) enum PickResult<C> {
    Complete(Pick<C>),
    /// Ask again when something has changed, or at this moment.
    Queue(Option<Instant>),
    /// There is nothing to wait for.
    Fail,
}

impl<C: Connection> Subchannels<C> {
    /// Where an attempt goes whose call has used these backends, the least recently used one first.
    /// `first`: whether it is the first attempt of its call, which takes a turn of its own. `requested_at`:
    /// when it was asked for the first time.
    pub(crate) fn pick(
        &mut self,
        used: &[BackendId],
        first: bool,
        requested_at: Instant,
        now: Instant,
    ) -> PickResult<C> {
        let open = |it: &Subchannel<C>| it.is_ready();
        let healthy = |it: &Subchannel<C>| it.is_ready() && it.outlier_state.accepts_attempts(now);
        let unused = |it: &Subchannel<C>| !used.contains(&it.backend_id);
        // Where one of many is open, it is mostly the one that the last call went to.
        let any_healthy = self.selected.is_some_and(|index| healthy(&self.all[index]))
            || self.all.iter().any(healthy);
        if !any_healthy {
            if !self.all.iter().any(open) {
                return self.pick_without_ready(now);
            }
            // The only one that is connected keeps failing: have another ready for the next call.
            self.connect_another(&[], now);
        }
        let candidate = |it: &Subchannel<C>| if any_healthy { healthy(it) } else { open(it) };
        if let Some(index) = self.next_candidate(first, |it| candidate(it) && unused(it)) {
            return self.complete(index, first, now);
        }
        // What is open was used: another that is about to be is worth a moment.
        let until = self
            .connect_another(used, now)
            .map(|until| until.min(requested_at + CONNECT_ATTEMPT_DELAY));
        if until.is_some_and(|until| until > now) {
            self.has_queued_picks = true;
            return PickResult::Queue(until);
        }
        let oldest = used.iter().find_map(|backend_id| {
            self.all.iter().position(|it| it.backend_id == *backend_id && candidate(it))
        });
        match oldest {
            Some(index) => self.complete(index, false, now),
            // It has ended since it was looked at.
            None => self.pick_without_ready(now),
        }
    }

    /// Makes sure that a backend which the call has not used is being dialled; until when that one
    /// is worth waiting for. `None`: there is none, or it takes too long.
    pub(super) fn connect_another(&mut self, used: &[BackendId], now: Instant) -> Option<Instant> {
        self.connect_one(
            |it| !used.contains(&it.backend_id) && it.outlier_state.accepts_attempts(now),
            now,
        )
    }

    /// The same for one of these.
    fn connect_one(
        &mut self,
        is_one: impl Fn(&Subchannel<C>) -> bool,
        now: Instant,
    ) -> Option<Instant> {
        let patient = |it: &Subchannel<C>| match it.state {
            State::Connecting { since } => {
                Some(since + CONNECT_ATTEMPT_DELAY).filter(|until| *until > now)
            }
            _ => None,
        };
        let soon = self.all.iter().filter(|it| is_one(it)).find_map(patient);
        if soon.is_some() {
            return soon;
        }
        let idle = |it: &&mut Subchannel<C>| matches!(it.state, State::Idle) && is_one(it);
        self.all.iter_mut().find(idle)?.request_connect(&mut self.wakeups, now);
        Some(now + CONNECT_ATTEMPT_DELAY)
    }

    /// No connection is open: makes sure that one is being dialled, if there is one to dial.
    pub(super) fn pick_without_ready(&mut self, now: Instant) -> PickResult<C> {
        // Also those that are avoided: there are no others.
        let dialled = self.connect_another(&[], now).or_else(|| self.connect_one(|_| true, now));
        // A connection that has ended counts as being dialled: its keeper is about to notice.
        let hope =
            |it: &Subchannel<C>| matches!(it.state, State::Connecting { .. } | State::Ready(_));
        if !self.all.iter().any(hope) {
            return PickResult::Fail;
        }
        self.has_queued_picks = true;
        // With more addresses to dial, the next one's turn comes by itself.
        let more = self.all.iter().any(|it| matches!(it.state, State::Idle));
        PickResult::Queue(dialled.filter(|_| more))
    }

    /// The one of these whose turn it is.
    fn next_candidate(
        &self,
        first: bool,
        candidate: impl Fn(&Subchannel<C>) -> bool,
    ) -> Option<usize> {
        let is_one = |index: usize| candidate(&self.all[index]);
        if self.picks_first() {
            let selected = self.selected.filter(|index| is_one(*index));
            return selected.or_else(|| (0..self.all.len()).find(|index| is_one(*index)));
        }
        let rotation = if first { &self.first_attempts } else { &self.later_attempts };
        rotation.next(is_one)
    }

    fn complete(&mut self, index: usize, first: bool, now: Instant) -> PickResult<C> {
        let State::Ready(connection) = &self.all[index].state else { return PickResult::Fail };
        let connection = connection.clone();
        let subchannel = &mut self.all[index];
        subchannel.in_flight += 1;
        if first {
            self.selected = Some(index);
            subchannel.turns.first_attempt = self.first_attempts.take_turn(index);
        } else {
            subchannel.turns.later_attempt = self.later_attempts.take_turn(index);
        }
        let record = PickRecord {
            id: subchannel.id,
            index,
            connection: subchannel.connections.current(),
            is_probe: subchannel.outlier_state.attempt_started(now),
            started: now,
        };
        PickResult::Complete(Pick { backend_id: subchannel.backend_id, connection, record })
    }
}
