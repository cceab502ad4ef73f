//! What the outside grants a call: draws, throttle tokens, and somebody who reads the notes.

use crate::time::Ns;
use crate::{Kind, Note};

/// What a retry or hedge is charged for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// The kind of the failure that it answers; a hedge that its delay sends counts as a timeout.
    pub kind: Kind,
}

/// What was taken from a throttle; the throttle that gave it knows its unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken(pub u64);

/// A throttle's answer to a retry or hedge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grant {
    /// It may start.
    Now(Taken),
    /// It is paid for, and may start after this long.
    After(Ns, Taken),
    /// The answer will come later, as [`Call::granted`](crate::Call::granted).
    Later,
    /// It may not start.
    Refused,
}

/// The outside, as a call sees it.
///
/// A world keeps what was taken for the call's last retry or hedge and settles it exactly once;
/// [`Purse`](crate::Purse) does that for any throttle. A world that is dropped gives back what was
/// taken for a retry that never started (ruling P6).
pub trait World {
    /// The next draw in `[0, 1)`.
    fn draw(&mut self) -> f64;

    /// Counts a failure that drains throttles (ruling G11); before the first `take` for it.
    fn failed(&mut self) {}

    /// Asks the throttle for a retry or hedge. What was taken before is then settled.
    fn take(&mut self, cost: Cost, now: Ns) -> Grant;

    /// The answer that was announced as [`Grant::Later`] is here.
    fn granted(&mut self, _grant: Grant) {}

    /// What was taken is being used: its retry or hedge starts.
    fn started(&mut self) {}

    /// The call succeeded.
    fn succeeded(&mut self) {}

    /// The call ended in any other way.
    fn ended(&mut self) {}

    /// The delay before this one, if the backoff made one: for decorrelated jitter and functions.
    fn previous(&self) -> Option<Ns> {
        None
    }

    /// Remembers a delay that the backoff made.
    fn remember(&mut self, _delay: Ns) {}

    /// Takes a note. Nobody listens by default, and then a note costs nothing.
    fn note(&mut self, _at: Ns, _note: Note) {}
}
