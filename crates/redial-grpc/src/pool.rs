//! Boxes for the states of calls, used again by later calls of the same thread.
//!
//! A call's state outlives its future, so it lives in a box; and since many calls begin before the
//! first of them ends, the allocator's own small caches do not hold that many boxes of this size:
//! each call would pay for its slow path, which costs more than everything else that this layer
//! does for a call that succeeds.
//!
//! Invariant: a box in the pool holds nothing.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};

use crate::state::State;

/// How many empty boxes a thread keeps: some 60 KiB.
const KEPT_MAX: usize = 64;

thread_local! {
    // The boxes are what is kept.
    #[allow(clippy::vec_box)]
    static POOL: RefCell<Vec<Box<Option<State>>>> = const { RefCell::new(Vec::new()) };
}

/// A state in a box that goes back into the pool.
#[derive(Debug)]
pub(crate) struct Pooled(Option<Box<Option<State>>>);

impl Pooled {
    pub(crate) fn new(state: State) -> Self {
        let kept = POOL.try_with(|pool| pool.try_borrow_mut().ok()?.pop()).ok().flatten();
        let filled = match kept {
            Some(mut kept) => {
                *kept = Some(state);
                kept
            }
            None => Box::new(Some(state)),
        };
        Pooled(Some(filled))
    }
}

/// Why there is a state: only dropping takes it out.
const FULL: &str = "a state until it is dropped";

impl Deref for Pooled {
    type Target = State;

    fn deref(&self) -> &State {
        self.0.as_deref().and_then(Option::as_ref).expect(FULL)
    }
}

impl DerefMut for Pooled {
    fn deref_mut(&mut self) -> &mut State {
        self.0.as_deref_mut().and_then(Option::as_mut).expect(FULL)
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        let Some(mut full) = self.0.take() else { return };
        // What the state's own drop does may begin and end other calls: the pool is not borrowed.
        *full = None;
        // A thread that ends may have freed its pool already; then the box is freed too.
        let _ = POOL.try_with(|pool| {
            if let Ok(mut pool) = pool.try_borrow_mut()
                && pool.len() < KEPT_MAX
            {
                pool.push(full);
            }
        });
    }
}
