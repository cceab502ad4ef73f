//! The queue of events in virtual time: a hierarchical timing wheel with exact order.
//!
//! A level has 64 slots, and a slot of level `k` covers `64^k` ns. An event is in the level of the
//! highest digit (base 64) in which its time differs from the current time, so that it moves down at
//! most once per level; a slot with a single event is popped directly. Push and cancel are O(1), and a
//! pending event takes 24 bytes. Events of one time are popped in the order in which they were pushed.
//!
//! Invariant: the place of an event follows from its time and the current time alone. Hence a timer is
//! unlinked without a search.

use redial_core::Ns;

const BITS: u32 = 6;
const SLOTS: usize = 1 << BITS;
const LEVELS: usize = 64usize.div_ceil(BITS as usize);

/// No event.
pub(crate) const NONE: u32 = u32::MAX;

/// The largest number of pending events: their indices are 32-bit numbers.
pub(crate) const EVENTS_MAX: usize = NONE as usize;

#[derive(Clone, Copy, Debug)]
struct Node {
    time: Ns,
    payload: u64,
    prev: u32,
    next: u32,
}

#[derive(Clone, Copy, Debug)]
struct List {
    head: u32,
    tail: u32,
}

const EMPTY: List = List { head: NONE, tail: NONE };

/// Events with a time and a payload of 64 bits.
#[derive(Debug)]
pub(crate) struct EventQueue {
    now: Ns,
    nodes: Vec<Node>,
    /// Unused nodes, linked by `next`.
    free: u32,
    /// The levels with an event, as a bit set, and the slots with one in each level.
    levels: u16,
    occupied: [u64; LEVELS],
    slots: Box<[[List; SLOTS]; LEVELS]>,
}

impl EventQueue {
    pub(crate) fn new() -> Self {
        EventQueue {
            now: 0,
            nodes: Vec::new(),
            free: NONE,
            levels: 0,
            occupied: [0; LEVELS],
            slots: Box::new([[EMPTY; SLOTS]; LEVELS]),
        }
    }

    /// The time of the last event that was popped.
    #[cfg(test)]
    pub(crate) const fn now(&self) -> Ns {
        self.now
    }

    /// Adds an event, and returns its id for [`EventQueue::cancel`]. A time in the past counts as now.
    ///
    /// # Panics
    /// If [`EVENTS_MAX`] events are pending; the engine stops far below it.
    pub(crate) fn push(&mut self, time: Ns, payload: u64) -> u32 {
        let time = time.max(self.now);
        let node = Node { time, payload, prev: NONE, next: NONE };
        let id = if self.free == NONE {
            assert!(self.nodes.len() < EVENTS_MAX, "too many pending events");
            self.nodes.push(node);
            (self.nodes.len() - 1) as u32
        } else {
            let id = self.free;
            self.free = self.nodes[id as usize].next;
            self.nodes[id as usize] = node;
            id
        };
        self.link(id, time);
        id
    }

    /// The time of a pending event.
    #[inline]
    pub(crate) fn time_of(&self, id: u32) -> Ns {
        self.nodes[id as usize].time
    }

    /// Removes a pending event.
    pub(crate) fn cancel(&mut self, id: u32) {
        let time = self.nodes[id as usize].time;
        self.unlink(id, self.place(time));
        self.release(id);
    }

    /// The next event, unless it is after `until`.
    pub(crate) fn pop(&mut self, until: Ns) -> Option<(Ns, u64)> {
        loop {
            if self.levels == 0 {
                return None;
            }
            let level = self.levels.trailing_zeros() as usize;
            let slot = self.occupied[level].trailing_zeros() as usize;
            let List { head, tail } = self.slots[level][slot];
            // In level 0 all events of a slot have the same time.
            if level == 0 || head == tail {
                let Node { time, payload, .. } = self.nodes[head as usize];
                if time > until {
                    return None;
                }
                self.unlink(head, (level, slot));
                self.now = time;
                self.release(head);
                return Some((time, payload));
            }
            // The start of the slot; the times in it are not before.
            let width = BITS * level as u32;
            let above = self.now.checked_shr(width + BITS).unwrap_or(0);
            let start = (above.checked_shl(width + BITS).unwrap_or(0)) | ((slot as Ns) << width);
            if start > until {
                return None;
            }
            self.now = self.now.max(start);
            self.slots[level][slot] = EMPTY;
            self.clear((level, slot));
            let mut id = head;
            while id != NONE {
                let Node { time, next, .. } = self.nodes[id as usize];
                self.link(id, time);
                id = next;
            }
        }
    }

    /// Whether another event of the current time is pending.
    pub(crate) const fn is_due(&self) -> bool {
        self.occupied[0] & 1 << (self.now % SLOTS as u64) != 0
    }

    /// The level and slot of an event at this time.
    #[inline]
    fn place(&self, time: Ns) -> (usize, usize) {
        let differing = (time ^ self.now) | 1;
        let level = (63 - differing.leading_zeros()) / BITS;
        (level as usize, (time >> (level * BITS)) as usize % SLOTS)
    }

    #[inline]
    fn link(&mut self, id: u32, time: Ns) {
        let (level, slot) = self.place(time);
        let list = &mut self.slots[level][slot];
        let tail = list.tail;
        list.tail = id;
        if tail == NONE {
            list.head = id;
            self.occupied[level] |= 1 << slot;
            self.levels |= 1 << level;
        } else {
            self.nodes[tail as usize].next = id;
        }
        let node = &mut self.nodes[id as usize];
        (node.prev, node.next) = (tail, NONE);
    }

    #[inline]
    fn unlink(&mut self, id: u32, place: (usize, usize)) {
        let Node { prev, next, .. } = self.nodes[id as usize];
        let list = &mut self.slots[place.0][place.1];
        match prev {
            NONE => list.head = next,
            prev => self.nodes[prev as usize].next = next,
        }
        match next {
            NONE => list.tail = prev,
            next => self.nodes[next as usize].prev = prev,
        }
        if self.slots[place.0][place.1].head == NONE {
            self.clear(place);
        }
    }

    fn clear(&mut self, (level, slot): (usize, usize)) {
        self.occupied[level] &= !(1 << slot);
        if self.occupied[level] == 0 {
            self.levels &= !(1 << level);
        }
    }

    fn release(&mut self, id: u32) {
        self.nodes[id as usize].next = self.free;
        self.free = id;
    }
}

#[cfg(test)]
mod tests {
    //! The queue agrees with a sorted map under random pushes, cancellations and pops.

    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn event_queue_node_takes_24_bytes() {
        assert_eq!(size_of::<Node>(), 24);
    }

    #[test]
    fn event_queue_keeps_the_order_of_equal_times() {
        let mut queue = EventQueue::new();
        for payload in 0..5 {
            queue.push(1_000_000, payload);
        }
        queue.push(999_999, 9);
        let popped: Vec<_> = std::iter::from_fn(|| queue.pop(Ns::MAX)).map(|it| it.1).collect();
        assert_eq!(popped, [9, 0, 1, 2, 3, 4]);
    }

    #[test]
    fn event_queue_pops_nothing_after_the_limit() {
        let mut queue = EventQueue::new();
        queue.push(100, 1);
        queue.push(Ns::MAX, 2);
        assert_eq!(queue.pop(99), None);
        assert_eq!(queue.pop(100), Some((100, 1)));
        assert_eq!(queue.pop(Ns::MAX - 1), None);
        assert_eq!(queue.pop(Ns::MAX), Some((Ns::MAX, 2)));
        assert_eq!((queue.pop(Ns::MAX), queue.now()), (None, Ns::MAX));
    }

    #[test]
    fn event_queue_knows_whether_more_is_due() {
        let mut queue = EventQueue::new();
        for payload in 0..2 {
            queue.push(5_000_000, payload);
        }
        queue.push(5_000_001, 2);
        let due = [(); 3].map(|()| (queue.pop(Ns::MAX).map(|it| it.1), queue.is_due()));
        assert_eq!(due, [(Some(0), true), (Some(1), false), (Some(2), false)]);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Push(u64),
        Cancel(usize),
        Pop,
        PopUntil(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        // Distances of all sizes, ties included.
        let distance = (0u32..45).prop_flat_map(|bits| 0..=(1u64 << bits));
        prop_oneof![
            4 => distance.clone().prop_map(Step::Push),
            1 => (0usize..64).prop_map(Step::Cancel),
            3 => Just(Step::Pop),
            1 => distance.prop_map(Step::PopUntil),
        ]
    }

    proptest! {
        #[test]
        fn event_queue_agrees_with_a_sorted_map(steps in prop::collection::vec(step(), 1..400)) {
            let mut queue = EventQueue::new();
            // The key is the time, then the order of pushes.
            let mut model: BTreeMap<(u64, u64), u32> = BTreeMap::new();
            let mut pushed = 0;
            for step in steps {
                let until = match step {
                    Step::Push(distance) => {
                        let time = queue.now() + distance;
                        model.insert((time, pushed), queue.push(time, pushed));
                        pushed += 1;
                        continue;
                    }
                    Step::Cancel(index) => {
                        if let Some((&key, &id)) = model.iter().nth(index) {
                            queue.cancel(id);
                            model.remove(&key);
                        }
                        continue;
                    }
                    Step::Pop => u64::MAX,
                    Step::PopUntil(distance) => queue.now() + distance,
                };
                let expected = model.first_key_value().map(|(&key, _)| key);
                let expected = expected.filter(|key| key.0 <= until);
                prop_assert_eq!(queue.pop(until), expected);
                if let Some(key) = expected {
                    model.remove(&key);
                }
            }
            while let Some((key, _)) = model.pop_first() {
                prop_assert_eq!(queue.pop(u64::MAX), Some(key));
            }
            prop_assert_eq!(queue.pop(u64::MAX), None);
        }
    }
}
