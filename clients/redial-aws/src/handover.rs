//! Passes a decided delay from the interceptor to the classifier.
//!
//! The SDK's retry strategy runs the classifiers directly after the interceptors' `read_after_attempt`, in
//! one poll, and gives them the context of the call but not its config bag. So the interceptor leaves the
//! delay with its thread, marked with the address of that context, and the classifier takes it.
//!
//! Invariant: a classifier gets a delay of its own call or none. The SDK also runs the classifiers before
//! the attempt is complete, to find connections that must not be used again: nothing is there then.
//!
//! Whether there is a retry does not depend on this: the interceptor sets that in the config bag.

use std::cell::RefCell;
use std::time::Duration;

use aws_smithy_runtime_api::client::interceptors::context::InterceptorContext;

/// The most delays that a thread keeps: one for each call that an interceptor makes while another call
/// decides. More are forgotten, the oldest first.
pub(crate) const KEPT_MAX: usize = 8;

thread_local! {
    static DELAYS: RefCell<Vec<(usize, Duration)>> = const { RefCell::new(Vec::new()) };
}

/// A context is not moved while its call runs, so its address identifies the call.
fn address(context: &InterceptorContext) -> usize {
    std::ptr::from_ref(context).addr()
}

/// Leaves the delay of this call for the classifier.
pub(crate) fn put(context: &InterceptorContext, delay: Duration) {
    let own = address(context);
    // In the destructor of a thread-local nothing can be kept; the SDK then chooses the delay.
    let _ = DELAYS.try_with(|delays| {
        let mut delays = delays.borrow_mut();
        delays.retain(|(owner, _)| *owner != own);
        if delays.len() == KEPT_MAX {
            delays.remove(0);
        }
        delays.push((own, delay));
    });
}

/// Takes the delay of this call, if the interceptor has left one.
pub(crate) fn take(context: &InterceptorContext) -> Option<Duration> {
    let own = address(context);
    let position =
        |delays: &Vec<(usize, Duration)>| delays.iter().position(|(owner, _)| *owner == own);
    DELAYS
        .try_with(|delays| {
            let mut delays = delays.borrow_mut();
            position(&delays).map(|index| delays.remove(index).1)
        })
        .ok()
        .flatten()
}

#[cfg(test)]
mod tests {
    use aws_smithy_runtime_api::client::interceptors::context::Input;

    use super::*;

    fn contexts(count: usize) -> Vec<InterceptorContext> {
        (0..count).map(|number| InterceptorContext::new(Input::erase(number))).collect()
    }

    #[test]
    fn handover_is_taken_once_and_by_its_own_call() {
        let contexts = contexts(2);
        put(&contexts[0], Duration::from_secs(1));
        assert_eq!(take(&contexts[1]), None);
        put(&contexts[0], Duration::from_secs(2));
        assert_eq!(take(&contexts[0]), Some(Duration::from_secs(2)));
        assert_eq!(take(&contexts[0]), None);
    }

    #[test]
    fn handover_keeps_no_more_than_its_limit() {
        let contexts = contexts(KEPT_MAX + 1);
        for context in &contexts {
            put(context, Duration::from_secs(1));
        }
        let kept: Vec<_> = contexts.iter().map(|context| take(context).is_some()).collect();
        assert!(!kept[0] && kept[1..].iter().all(|kept| *kept), "{kept:?}");
        for context in &contexts[..KEPT_MAX] {
            put(context, Duration::from_secs(1));
        }
        assert!(contexts[..KEPT_MAX].iter().all(|context| take(context).is_some()));
    }

    #[test]
    fn handover_does_not_cross_threads() {
        let contexts = contexts(1);
        put(&contexts[0], Duration::from_secs(1));
        std::thread::scope(|scope| {
            let other = scope.spawn(|| take(&contexts[0]));
            assert_eq!(other.join().unwrap(), None);
        });
        assert!(take(&contexts[0]).is_some());
    }
}
