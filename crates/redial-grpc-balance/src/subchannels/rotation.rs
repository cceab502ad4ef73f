//! Whose turn it is: round robin over backends that come, go and are skipped.
//!
//! Invariant: the backend whose last turn is longest ago comes first. So over consecutive picks from
//! the same backends each has its turn before one of them has another.

use std::collections::VecDeque;

/// When a backend had its last turn in each rotation, counted in turns; 0: never.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Turns {
    pub(super) first_attempt: u64,
    pub(super) later_attempt: u64,
}

/// Places of a list, the one whose last turn is longest ago first.
#[derive(Debug, Default)]
pub(super) struct Rotation {
    order: VecDeque<usize>,
    turns: u64,
}

impl Rotation {
    /// For a list of so many places from now on, in the order of this key.
    pub(super) fn arrange<K: Ord>(&mut self, count: usize, key: impl Fn(usize) -> K) {
        self.order = (0..count).collect();
        self.order.make_contiguous().sort_unstable_by_key(|index| key(*index));
    }

    /// The first of these.
    pub(super) fn next(&self, is_one: impl Fn(usize) -> bool) -> Option<usize> {
        self.order.iter().copied().find(|index| is_one(*index))
    }

    /// This place has its turn; which one that is.
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
