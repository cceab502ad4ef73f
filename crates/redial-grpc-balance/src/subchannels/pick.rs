//! The picker: chooses the subchannel for an attempt.
//!
//! Invariants: a picked subchannel is in the current address list and ready. While a ready backend
//! exists that is neither used by the call nor ejected, the picker chooses such a backend. Outlier
//! detection never fails a pick: ejected backends are used when no others are ready. Under
//! `round_robin`, retries, hedges and transparent retries do not affect the order of first
//! attempts.

use std::time::Duration;

use tokio::time::Instant;

use super::{Connection, PickRecord, State, Subchannel, Subchannels};
use redial_grpc::BackendId;

/// How long a pick waits for a connecting subchannel before the next address is tried: the
/// "Connection Attempt Delay" of RFC 8305 (Happy Eyeballs), as in gRPC's `pick_first`.
pub(super) const CONNECT_ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// The chosen subchannel.
#[derive(Debug)]
pub(crate) struct Pick<C> {
    pub(crate) backend_id: BackendId,
    pub(crate) connection: C,
    pub(crate) record: PickRecord,
}

#[derive(Debug)]
pub(crate) enum PickResult<C> {
    Complete(Pick<C>),
    /// No backend is available yet. Pick again after a wakeup, or at this time at the latest.
    Queue(Option<Instant>),
    /// All backends are in connection backoff.
    Fail,
}

impl<C: Connection> Subchannels<C> {
    /// Picks a subchannel for an attempt.
    ///
    /// - `used`: the backends that the call has used, least recently used first.
    /// - `first`: whether this is the first attempt of its call, which advances the `round_robin`
    ///   order.
    /// - `requested_at`: when the attempt first asked for a pick; bounds the wait for an unused
    ///   backend.
    pub(crate) fn pick(
        &mut self,
        used: &[BackendId],
        first: bool,
        requested_at: Instant,
        now: Instant,
    ) -> PickResult<C> {
        let ready = |it: &Subchannel<C>| it.is_ready();
        let healthy = |it: &Subchannel<C>| it.is_ready() && it.outlier_state.accepts_attempts(now);
        let unused = |it: &Subchannel<C>| !used.contains(&it.backend_id);
        // Fast path: with one ready backend among many, it is usually the selected one.
        let any_healthy = self.selected.is_some_and(|index| healthy(&self.all[index]))
            || self.all.iter().any(healthy);
        if !any_healthy {
            if !self.all.iter().any(ready) {
                return self.pick_without_ready(now);
            }
            // All ready backends are ejected: connect another one for the next calls.
            self.connect_another(&[], now);
        }
        let candidate = |it: &Subchannel<C>| if any_healthy { healthy(it) } else { ready(it) };
        if let Some(index) = self.next_candidate(first, |it| candidate(it) && unused(it)) {
            return self.complete(index, first, now);
        }
        // The call has used all ready backends: wait briefly for another one to connect.
        let until = self
            .connect_another(used, now)
            .map(|until| until.min(requested_at + CONNECT_ATTEMPT_DELAY));
        if until.is_some_and(|until| until > now) {
            self.has_queued_picks = true;
            return PickResult::Queue(until);
        }
        let least_recently_used = used.iter().find_map(|backend_id| {
            self.all.iter().position(|it| it.backend_id == *backend_id && candidate(it))
        });
        match least_recently_used {
            Some(index) => self.complete(index, false, now),
            // The connection closed after it was checked above.
            None => self.pick_without_ready(now),
        }
    }

    /// Ensures that a healthy backend outside of `used` is connecting. Returns until when waiting
    /// for it is worthwhile; `None` if there is no such backend, or its connection takes too long.
    pub(super) fn connect_another(&mut self, used: &[BackendId], now: Instant) -> Option<Instant> {
        self.connect_one(
            |it| !used.contains(&it.backend_id) && it.outlier_state.accepts_attempts(now),
            now,
        )
    }

    /// The same, for the backends that `accepts` accepts.
    fn connect_one(
        &mut self,
        accepts: impl Fn(&Subchannel<C>) -> bool,
        now: Instant,
    ) -> Option<Instant> {
        let worth_waiting = |it: &Subchannel<C>| match it.state {
            State::Connecting { since } => {
                Some(since + CONNECT_ATTEMPT_DELAY).filter(|until| *until > now)
            }
            _ => None,
        };
        let connecting_until = self.all.iter().filter(|it| accepts(it)).find_map(worth_waiting);
        if connecting_until.is_some() {
            return connecting_until;
        }
        let idle = |it: &&mut Subchannel<C>| matches!(it.state, State::Idle) && accepts(it);
        self.all.iter_mut().find(idle)?.request_connect(&mut self.wakeups, now);
        Some(now + CONNECT_ATTEMPT_DELAY)
    }

    /// No subchannel is ready: ensures that one is connecting, if any can be.
    pub(super) fn pick_without_ready(&mut self, now: Instant) -> PickResult<C> {
        // Includes ejected backends, since no others are ready.
        let wait_until = self.connect_another(&[], now).or_else(|| self.connect_one(|_| true, now));
        // A closed connection counts as connecting: its connect task is about to reconnect.
        let connecting =
            |it: &Subchannel<C>| matches!(it.state, State::Connecting { .. } | State::Ready(_));
        if !self.all.iter().any(connecting) {
            return PickResult::Fail;
        }
        self.has_queued_picks = true;
        // While idle addresses are left, the queued pick connects the next one after the delay.
        let more = self.all.iter().any(|it| matches!(it.state, State::Idle));
        PickResult::Queue(wait_until.filter(|_| more))
    }

    /// The next candidate in the order of the load balancing policy.
    fn next_candidate(
        &self,
        first: bool,
        candidate: impl Fn(&Subchannel<C>) -> bool,
    ) -> Option<usize> {
        let accepts = |index: usize| candidate(&self.all[index]);
        if self.picks_first() {
            let selected = self.selected.filter(|index| accepts(*index));
            return selected.or_else(|| (0..self.all.len()).find(|index| accepts(*index)));
        }
        let rotation = if first { &self.first_attempts } else { &self.later_attempts };
        rotation.next(accepts)
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
