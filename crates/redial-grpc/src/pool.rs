//! Boxes for the states of calls, the messages that they keep and the bodies of their responses,
//! used again by later calls of the same thread.
//!
//! A call's state outlives its future, so it lives in a box; and since many calls begin before the
//! first of them ends, the allocator's own small caches do not hold that many boxes of this size:
//! each call would pay for its slow path, which costs more than everything else that this layer
//! does for a call that succeeds.
//!
//! Invariant: a box in the pool holds nothing but a little room.

use std::any::Any;
use std::cell::RefCell;
use std::fmt;

use bytes::Bytes;

use crate::message::Message;
use crate::meter::Held;
use crate::state::State;

/// How many empty boxes a thread keeps: some 30 KiB with the room in them.
const KEPT_MAX: usize = 64;

/// What a box holds.
struct Slot<R> {
    state: Option<State>,
    message: Message,
    /// The body of the response, once the call belongs to an attempt.
    body: Option<R>,
}

impl<R> Slot<R> {
    const EMPTY: Self = Slot { state: None, message: Message::NONE, body: None };

    /// The call has ended, if it had not before.
    #[inline]
    fn forget_state(&mut self) {
        // To drop none is a call too, and a state has been dropped most times.
        if let Some(state) = self.state.take() {
            // Gauges show what is held once this call holds nothing more.
            let gauges = state.sets_gauges();
            drop(state);
            if let Some(shared) = gauges {
                shared.observing.set_gauges(&shared);
            }
        }
    }
}

thread_local! {
    // Of any kind of body: a box of another kind than is wanted, which only a thread has that
    // calls through several kinds of channels, is let go.
    static POOL: RefCell<Vec<Box<dyn Any>>> = const { RefCell::new(Vec::new()) };
}

/// A state in a box that goes back into the pool, until it is taken or cleared.
pub(crate) struct Pooled<R: 'static>(Option<Box<Slot<R>>>);

impl<R> Pooled<R> {
    #[inline]
    pub(crate) fn new(state: State) -> Self {
        let kept = POOL.try_with(|pool| pool.try_borrow_mut().ok()?.pop()).ok().flatten();
        let kept = kept.and_then(|place| place.downcast().ok());
        let mut place = kept.unwrap_or_else(|| Box::new(Slot::EMPTY));
        place.state = Some(state);
        Pooled(Some(place))
    }

    /// No state.
    pub(crate) const fn none() -> Self {
        Pooled(None)
    }

    /// Whether there is a state.
    pub(crate) fn is_some(&self) -> bool {
        self.0.as_ref().is_some_and(|place| place.state.is_some())
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

    /// The call belongs to an attempt, whose response has this body.
    #[inline]
    pub(crate) fn put(&mut self, body: R) {
        if let Some(place) = &mut self.0 {
            place.body = Some(body);
        }
    }

    /// The body of the response.
    #[inline]
    pub(crate) fn body(&self) -> Option<&R> {
        self.0.as_ref()?.body.as_ref()
    }

    /// The same, and the state until the call has ended.
    #[inline]
    pub(crate) fn body_and_state(&mut self) -> Option<(&mut R, Option<&mut State>)> {
        let place = self.0.as_mut()?;
        Some((place.body.as_mut()?, place.state.as_mut()))
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

    /// The call has ended, and of its response there may be more.
    #[inline]
    pub(crate) fn forget_state(&mut self) {
        if let Some(place) = &mut self.0 {
            place.forget_state();
        }
    }

    /// The state, which goes on elsewhere.
    #[inline]
    pub(crate) fn take(&mut self) -> Self {
        Pooled(self.0.take())
    }

    /// The call is over, and so is its response: its box goes back.
    #[inline]
    pub(crate) fn clear(&mut self) {
        drop(self.take());
    }
}

impl<R> fmt::Debug for Pooled<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.0.as_ref().and_then(|place| place.state.as_ref());
        f.debug_tuple("Pooled").field(&state).finish()
    }
}

impl<R> Drop for Pooled<R> {
    #[inline]
    fn drop(&mut self) {
        if let Some(place) = self.0.take() {
            refund(place);
        }
    }
}

#[inline(never)]
fn refund<R: 'static>(mut place: Box<Slot<R>>) {
    // What these drops do may begin and end other calls: the pool is not borrowed.
    place.message.forget();
    place.forget_state();
    place.body = None;
    // A thread that ends may have freed its pool already; then the box is freed too.
    let _ = POOL.try_with(|pool| {
        if let Ok(mut pool) = pool.try_borrow_mut()
            && pool.len() < KEPT_MAX
        {
            pool.push(place);
        }
    });
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;

    use redial_core::CallParams;
    use redial_service_config::Retries;

    use super::*;
    use crate::begun::Recording;
    use crate::layer::RetryLayerBuilder;
    use crate::methods::PlanRef;
    use crate::shared::Shared;
    use crate::state::Begin;
    use crate::template::Template;

    fn state() -> State {
        let shared = Arc::new(Shared::new(RetryLayerBuilder::default()));
        State::begin(Begin {
            method: PlanRef::new(shared.method("/a.B/C"), Retries::All),
            shared,
            template: Template::Usual,
            params: CallParams::default(),
            wait_for_ready: false,
            recording: Recording::default(),
            writes: false,
        })
    }

    fn boxes() -> usize {
        POOL.with_borrow(Vec::len)
    }

    #[test]
    fn a_box_is_used_again_and_holds_nothing_of_the_call_before() {
        let mut call = Pooled::new(state());
        call.put(String::from("a body"));
        let place: *const Slot<String> = call.0.as_deref().unwrap();
        drop(call);
        assert_eq!(boxes(), 1);
        let call = Pooled::<String>::new(state());
        assert!(std::ptr::eq(place, call.0.as_deref().unwrap()));
        // Red: leave out `place.body = None;` in `refund`.
        assert_eq!(call.body(), None);
    }

    #[test]
    fn a_box_for_another_kind_of_body_is_let_go() {
        drop(Pooled::<String>::new(state()));
        let call = Pooled::<u8>::new(state());
        assert!(call.is_some());
        assert_eq!(boxes(), 0);
        drop(call);
        assert_eq!(boxes(), 1);
    }

    #[test]
    fn a_thread_keeps_so_many_boxes_and_no_more() {
        let calls: Vec<Pooled<u8>> = (0..=KEPT_MAX).map(|_| Pooled::new(state())).collect();
        drop(calls);
        assert_eq!(boxes(), KEPT_MAX);
    }
}
