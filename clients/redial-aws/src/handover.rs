//! Passes the state of a call from the interceptor to the classifier.
//!
//! The SDK's retry strategy runs the classifiers directly after the interceptors' `read_after_attempt`, in
//! one poll, and gives them the context of the call but not its config bag. So the interceptor leaves the
//! state in a slot of its thread, marked with the address of that context, and the classifier takes it.
//!
//! Invariant: a classifier gets the state of its own call or none. The SDK also runs the classifiers before
//! the attempt is complete, to find connections that must not be used again; the slot is empty then.

use std::cell::RefCell;

use aws_smithy_runtime_api::client::interceptors::context::InterceptorContext;

use crate::call::SharedCall;

thread_local! {
    static SLOT: RefCell<Option<(usize, SharedCall)>> = const { RefCell::new(None) };
}

/// A context is not moved while its call runs, so its address identifies the call.
fn address(context: &InterceptorContext) -> usize {
    std::ptr::from_ref(context).addr()
}

/// Leaves the state of this call for the classifier.
pub(crate) fn put(context: &InterceptorContext, call: SharedCall) {
    // In the destructor of a thread-local there may be no slot; then the call is not retried.
    let _ = SLOT.try_with(|slot| slot.replace(Some((address(context), call))));
}

/// Takes the state of this call, if the interceptor has left it.
pub(crate) fn take(context: &InterceptorContext) -> Option<SharedCall> {
    let is_its_own = |slot: &mut Option<(usize, SharedCall)>| {
        slot.take_if(|(owner, _)| *owner == address(context)).map(|(_, call)| call)
    };
    SLOT.try_with(|slot| is_its_own(&mut slot.borrow_mut())).ok().flatten()
}

/// Empties the slot before an attempt: a panic may have left the state of another call in it.
pub(crate) fn clear() {
    let _ = SLOT.try_with(|slot| slot.replace(None));
}
