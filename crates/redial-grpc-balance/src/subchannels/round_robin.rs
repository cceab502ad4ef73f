//! The `round_robin` order over a list whose entries are added, removed and skipped.
//!
//! Invariant: the entry whose last turn is longest ago comes first. Over consecutive picks from the
//! same set, every entry gets a turn before any entry gets a second one.

use std::collections::VecDeque;

/// The last turn of a subchannel in each rotation, as a sequence number; 0 if it had none.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Turns {
    pub(super) first_attempt: u64,
    pub(super) later_attempt: u64,
}

/// The indexes of a list, ordered by their last turn, oldest first.
#[derive(Debug, Default)]
pub(super) struct Rotation {
    order: VecDeque<usize>,
    turns: u64,
}

impl Rotation {
    /// Rebuilds the order for a list of `count` entries, sorted by `key`.
    pub(super) fn arrange<K: Ord>(&mut self, count: usize, key: impl Fn(usize) -> K) {
        self.order = (0..count).collect();
        self.order.make_contiguous().sort_unstable_by_key(|index| key(*index));
    }

    /// The first entry that `accepts` accepts.
    pub(super) fn next(&self, accepts: impl Fn(usize) -> bool) -> Option<usize> {
        self.order.iter().copied().find(|index| accepts(*index))
    }

    /// Moves the entry to the end, and returns the sequence number of the turn.
    pub(super) fn take_turn(&mut self, index: usize) -> u64 {
        if self.order.back() != Some(&index)
            && let Some(at) = self.order.iter().position(|it| *it == index)
        {
            self.order.remove(at);
            self.order.push_back(index);
        }
        self.turns += 1;
        self.turns
    }

    #[cfg(test)]
    pub(super) fn order(&self) -> impl Iterator<Item = usize> {
        self.order.iter().copied()
    }
}
