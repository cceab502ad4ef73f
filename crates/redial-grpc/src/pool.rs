//! Boxes for the states of calls and the messages that they keep, used again by later calls of the
//! same thread.
//!
//! A call's state outlives its future, so it lives in a box; and since many calls begin before the
//! first of them ends, the allocator's own small caches do not hold that many boxes of this size:
//! each call would pay for its slow path, which costs more than everything else that this layer
//! does for a call that succeeds.
//!
//! Invariant: a box in the pool holds nothing but a little room.

use std::cell::RefCell;

use bytes::Bytes;

use crate::message::Message;
use crate::meter::Held;
use crate::state::State;

/// How many empty boxes a thread keeps: some 30 KiB with the room in them.
const KEPT_MAX: usize = 64;

/// What a box holds.
#[derive(Debug, Default)]
struct Place {
    state: Option<State>,
    message: Message,
}

thread_local! {
    // The boxes are what is kept.
    #[allow(clippy::vec_box)]
    static POOL: RefCell<Vec<Box<Place>>> = const { RefCell::new(Vec::new()) };
}

/// A state in a box that goes back into the pool, until it is taken or cleared.
#[derive(Debug)]
pub(crate) struct Pooled(Option<Box<Place>>);

impl Pooled {
    #[inline]
    pub(crate) fn new(state: State) -> Self {
        let kept = POOL.try_with(|pool| pool.try_borrow_mut().ok()?.pop()).ok().flatten();
        let mut place = kept.unwrap_or_default();
        place.state = Some(state);
        Pooled(Some(place))
    }

    /// No state.
    pub(crate) const fn none() -> Self {
        Pooled(None)
    }

    /// Whether there is a state.
    pub(crate) const fn is_some(&self) -> bool {
        self.0.is_some()
    }

    /// Whether there is one, to which nothing can happen but the outcome of its first attempt.
    #[inline]
    pub(crate) fn is_first(&self) -> bool {
        let state = self.0.as_ref().and_then(|place| place.state.as_ref());
        state.is_some_and(State::is_first)
    }

    #[inline]
    pub(crate) fn state(&mut self) -> Option<&mut State> {
        self.0.as_mut()?.state.as_mut()
    }

    /// Keeps a message for the call's further attempts.
    #[inline]
    pub(crate) fn keep(&mut self, bytes: &Bytes, held: Held) {
        if let Some(place) = &mut self.0 {
            place.message.keep(bytes, held);
        }
    }

    /// The message that is kept, for one more attempt.
    pub(crate) fn message(&self) -> Option<Bytes> {
        self.0.as_ref()?.message.again()
    }

    /// The message is needed no more.
    #[inline]
    pub(crate) fn forget_message(&mut self) {
        if let Some(place) = &mut self.0 {
            place.message.forget();
        }
    }

    /// The state, which goes on elsewhere.
    #[inline]
    pub(crate) fn take(&mut self) -> Pooled {
        Pooled(self.0.take())
    }

    /// The call is over: its box goes back.
    #[inline]
    pub(crate) fn clear(&mut self) {
        drop(self.take());
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        let Some(mut place) = self.0.take() else { return };
        // What the state's own drop does may begin and end other calls: the pool is not borrowed.
        place.state = None;
        place.message.forget();
        // A thread that ends may have freed its pool already; then the box is freed too.
        let _ = POOL.try_with(|pool| {
            if let Ok(mut pool) = pool.try_borrow_mut()
                && pool.len() < KEPT_MAX
            {
                pool.push(place);
            }
        });
    }
}
