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

use crate::buffer_limits::Reservation;
use crate::buffered_message::BufferedMessage;
use crate::call_state::CallState;

/// How many empty boxes a thread keeps: some 30 KiB with the room in them.
const KEPT_MAX: usize = 64;

/// What a box holds.
struct CallSlot<R> {
    state: Option<CallState>,
    message: BufferedMessage,
    /// The body of the response, once the call belongs to an attempt.
    body: Option<R>,
}

impl<R> CallSlot<R> {
    const EMPTY: Self = CallSlot { state: None, message: BufferedMessage::NONE, body: None };

    /// The call has ended, if it had not before.
    #[inline]
    fn drop_state(&mut self) {
        // To drop none is a call too, and a state has been dropped most times.
        if let Some(state) = self.state.take() {
            // Gauges show what is held once this call holds nothing more.
            let gauges = state.sets_gauges();
            drop(state);
            if let Some(shared) = gauges {
                shared.observers.set_gauges(&shared);
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
pub(crate) struct PooledCall<R: 'static>(Option<Box<CallSlot<R>>>);

impl<R> PooledCall<R> {
    #[inline]
    pub(crate) fn new(state: CallState) -> Self {
        let kept = POOL.try_with(|pool| pool.try_borrow_mut().ok()?.pop()).ok().flatten();
        let kept = kept.and_then(|slot| slot.downcast().ok());
        let mut slot = kept.unwrap_or_else(|| Box::new(CallSlot::EMPTY));
        slot.state = Some(state);
        PooledCall(Some(slot))
    }

    /// No state.
    pub(crate) const fn none() -> Self {
        PooledCall(None)
    }

    /// Whether there is a state.
    pub(crate) fn is_some(&self) -> bool {
        self.0.as_ref().is_some_and(|slot| slot.state.is_some())
    }

    /// Whether there is one, to which nothing can happen but the outcome of its first attempt.
    #[inline]
    pub(crate) fn is_first(&self) -> bool {
        let state = self.0.as_ref().and_then(|slot| slot.state.as_ref());
        state.is_some_and(CallState::is_first)
    }

    #[inline]
    pub(crate) fn state(&mut self) -> Option<&mut CallState> {
        self.0.as_mut()?.state.as_mut()
    }

    /// The call belongs to an attempt, whose response has this body.
    #[inline]
    pub(crate) fn set_body(&mut self, body: R) {
        if let Some(slot) = &mut self.0 {
            slot.body = Some(body);
        }
    }

    /// The body of the response.
    #[inline]
    pub(crate) fn body(&self) -> Option<&R> {
        self.0.as_ref()?.body.as_ref()
    }

    /// The same, and the state until the call has ended.
    #[inline]
    pub(crate) fn body_and_state(&mut self) -> Option<(&mut R, Option<&mut CallState>)> {
        let slot = self.0.as_mut()?;
        Some((slot.body.as_mut()?, slot.state.as_mut()))
    }

    /// Keeps a message for the call's further attempts.
    #[inline]
    pub(crate) fn store_message(&mut self, bytes: &Bytes, reservation: Reservation) {
        if let Some(slot) = &mut self.0 {
            slot.message.store(bytes, reservation);
        }
    }

    /// The message that is kept, for one more attempt.
    pub(crate) fn message(&self) -> Option<Bytes> {
        self.0.as_ref()?.message.to_bytes()
    }

    /// The message is needed no more.
    #[inline]
    pub(crate) fn drop_message(&mut self) {
        if let Some(slot) = &mut self.0 {
            slot.message.clear();
        }
    }

    /// The call has ended, and of its response there may be more.
    #[inline]
    pub(crate) fn drop_state(&mut self) {
        if let Some(slot) = &mut self.0 {
            slot.drop_state();
        }
    }

    /// The state, which goes on elsewhere.
    #[inline]
    pub(crate) fn take(&mut self) -> Self {
        PooledCall(self.0.take())
    }

    /// The call is over, and so is its response: its box goes back.
    #[inline]
    pub(crate) fn clear(&mut self) {
        drop(self.take());
    }
}

impl<R> fmt::Debug for PooledCall<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.0.as_ref().and_then(|slot| slot.state.as_ref());
        f.debug_tuple("PooledCall").field(&state).finish()
    }
}

impl<R> Drop for PooledCall<R> {
    #[inline]
    fn drop(&mut self) {
        if let Some(slot) = self.0.take() {
            return_to_pool(slot);
        }
    }
}

#[inline(never)]
fn return_to_pool<R: 'static>(mut slot: Box<CallSlot<R>>) {
    // What these drops do may begin and end other calls: the pool is not borrowed.
    slot.message.clear();
    slot.drop_state();
    slot.body = None;
    // A thread that ends may have freed its pool already; then the box is freed too.
    let _ = POOL.try_with(|pool| {
        if let Ok(mut pool) = pool.try_borrow_mut()
            && pool.len() < KEPT_MAX
        {
            pool.push(slot);
        }
    });
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;

    use redial_core::CallParams;
    use redial_service_config::Retries;

    use super::*;
    use crate::call_state::CallSetup;
    use crate::layer::RetryLayerBuilder;
    use crate::methods::PlanRef;
    use crate::request_head::RequestHead;
    use crate::running_call::Recording;
    use crate::shared::Shared;

    fn state() -> CallState {
        let shared = Arc::new(Shared::new(RetryLayerBuilder::default()));
        CallState::new(CallSetup {
            method: PlanRef::new(shared.method("/a.B/C"), Retries::All),
            shared,
            head: RequestHead::Default,
            params: CallParams::default(),
            wait_for_ready: false,
            recording: Recording::default(),
            body_open: false,
        })
    }

    fn boxes() -> usize {
        POOL.with_borrow(Vec::len)
    }

    #[test]
    fn call_pool_reuses_a_cleared_box() {
        let mut call = PooledCall::new(state());
        call.set_body(String::from("a body"));
        let slot: *const CallSlot<String> = call.0.as_deref().unwrap();
        drop(call);
        assert_eq!(boxes(), 1);
        let call = PooledCall::<String>::new(state());
        assert!(std::ptr::eq(slot, call.0.as_deref().unwrap()));
        // Red: leave out `slot.body = None;` in `return_to_pool`.
        assert_eq!(call.body(), None);
    }

    #[test]
    fn call_pool_frees_boxes_of_another_body_type() {
        drop(PooledCall::<String>::new(state()));
        let call = PooledCall::<u8>::new(state());
        assert!(call.is_some());
        assert_eq!(boxes(), 0);
        drop(call);
        assert_eq!(boxes(), 1);
    }

    #[test]
    fn call_pool_is_bounded_per_thread() {
        let calls: Vec<PooledCall<u8>> = (0..=KEPT_MAX).map(|_| PooledCall::new(state())).collect();
        drop(calls);
        assert_eq!(boxes(), KEPT_MAX);
    }
}
