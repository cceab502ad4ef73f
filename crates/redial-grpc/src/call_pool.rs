//! A per-thread pool of boxes that hold the state of a call, its buffered message and its response
//! body.
//!
//! The state of a call outlives the response future, so it is boxed. Many calls start before the first
//! one ends, more than the allocator caches boxes of this size class for. Without the pool each call
//! would take the allocator's slow path, which costs more than the rest of this layer for a call that
//! succeeds.
//!
//! Invariant: a pooled box is empty, apart from the capacity of its message buffer.

use std::any::Any;
use std::cell::RefCell;
use std::fmt;

use bytes::Bytes;

use crate::buffer_limits::Reservation;
use crate::buffered_message::BufferedMessage;
use crate::call_state::CallState;

/// Maximum number of pooled boxes per thread: about 30 KiB including message capacity.
const KEPT_MAX: usize = 64;

/// Contents of a box.
struct CallSlot<R> {
    state: Option<CallState>,
    message: BufferedMessage,
    /// The response body, once the call is committed to an attempt.
    body: Option<R>,
}

impl<R> CallSlot<R> {
    const EMPTY: Self = CallSlot { state: None, message: BufferedMessage::NONE, body: None };

    /// Drops the state; a call that has not ended is cancelled.
    #[inline]
    fn drop_state(&mut self) {
        // Checked first: usually the state is gone, and dropping `None` is still a function call.
        if let Some(state) = self.state.take() {
            // The gauges must not include the resources of this call, so they are set after the drop.
            let gauges = state.sets_gauges();
            drop(state);
            if let Some(shared) = gauges {
                shared.observers.set_gauges(&shared);
            }
        }
    }
}

thread_local! {
    // Boxes for any response body type. A box of another type is freed; that happens only if one
    // thread uses channels with different body types.
    static POOL: RefCell<Vec<Box<dyn Any>>> = const { RefCell::new(Vec::new()) };
}

/// A call in a pooled box. Dropping it returns the box to the pool.
pub(crate) struct PooledCall<R: 'static>(Option<Box<CallSlot<R>>>);

impl<R> PooledCall<R> {
    #[inline]
    pub(crate) fn new(state: CallState) -> Self {
        let pooled = POOL.try_with(|pool| pool.try_borrow_mut().ok()?.pop()).ok().flatten();
        let pooled = pooled.and_then(|slot| slot.downcast().ok());
        let mut slot = pooled.unwrap_or_else(|| Box::new(CallSlot::EMPTY));
        slot.state = Some(state);
        PooledCall(Some(slot))
    }

    /// An empty handle without a call.
    pub(crate) const fn none() -> Self {
        PooledCall(None)
    }

    /// Whether the call has not ended.
    pub(crate) fn is_some(&self) -> bool {
        self.0.as_ref().is_some_and(|slot| slot.state.is_some())
    }

    /// Whether the call is still in its first attempt, with no state machine attached.
    #[inline]
    pub(crate) fn is_fast_path(&self) -> bool {
        let state = self.0.as_ref().and_then(|slot| slot.state.as_ref());
        state.is_some_and(CallState::is_fast_path)
    }

    #[inline]
    pub(crate) fn state(&mut self) -> Option<&mut CallState> {
        self.0.as_mut()?.state.as_mut()
    }

    /// Stores the response body after commit.
    #[inline]
    pub(crate) fn set_body(&mut self, body: R) {
        if let Some(slot) = &mut self.0 {
            slot.body = Some(body);
        }
    }

    #[inline]
    pub(crate) fn body(&self) -> Option<&R> {
        self.0.as_ref()?.body.as_ref()
    }

    /// The response body and, until the call has ended, its state.
    #[inline]
    pub(crate) fn body_and_state(&mut self) -> Option<(&mut R, Option<&mut CallState>)> {
        let slot = self.0.as_mut()?;
        Some((slot.body.as_mut()?, slot.state.as_mut()))
    }

    /// Buffers a message for retries.
    #[inline]
    pub(crate) fn store_message(&mut self, bytes: &Bytes, reservation: Reservation) {
        if let Some(slot) = &mut self.0 {
            slot.message.store(bytes, reservation);
        }
    }

    /// The buffered message, for another attempt.
    pub(crate) fn message(&self) -> Option<Bytes> {
        self.0.as_ref()?.message.to_bytes()
    }

    /// Frees the buffered message.
    #[inline]
    pub(crate) fn drop_message(&mut self) {
        if let Some(slot) = &mut self.0 {
            slot.message.clear();
        }
    }

    /// The call has ended, but its response body may not have.
    #[inline]
    pub(crate) fn drop_state(&mut self) {
        if let Some(slot) = &mut self.0 {
            slot.drop_state();
        }
    }

    /// Moves the call out of this handle.
    #[inline]
    pub(crate) fn take(&mut self) -> Self {
        PooledCall(self.0.take())
    }

    /// Returns the box: both the call and its response have ended.
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
    // These drops may start and end other calls, so the pool must not be borrowed here.
    slot.message.clear();
    slot.drop_state();
    slot.body = None;
    // The thread may be exiting and have destroyed its pool; then the box is simply freed.
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
