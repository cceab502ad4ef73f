//! Contains panics of application code: its connectors, their streams and its resolvers.
//!
//! Rule: a future that panics has failed, and so has one whose destructor panics. Otherwise the
//! panic would end the background task that polls it, and calls would wait forever for a backend
//! that no task connects.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::Poll;

/// Runs the future that `start` creates. If either of them panics, returns the result of
/// `panicked`.
pub(crate) async fn run<T, F>(
    start: impl FnOnce() -> Pin<Box<F>>,
    panicked: impl FnOnce() -> T,
) -> T
where
    F: Future<Output = T> + ?Sized,
{
    // Unwind safety: neither is used again after a panic.
    let Ok(future) = catch_unwind(AssertUnwindSafe(start)) else { return panicked() };
    let mut future = CatchPanicOnDrop(Some(future));
    let polled = poll_fn(|cx| {
        let Some(future) = &mut future.0 else { return Poll::Ready(None) };
        catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx).map(Some)))
            .unwrap_or(Poll::Ready(None))
    });
    polled.await.unwrap_or_else(panicked)
}

/// A future whose destructor may panic, even when it is dropped before completion.
struct CatchPanicOnDrop<F: ?Sized>(Option<Pin<Box<F>>>);

impl<F: ?Sized> Drop for CatchPanicOnDrop<F> {
    fn drop(&mut self) {
        let future = self.0.take();
        // The panic hook has reported it; nothing else depends on the destructor.
        let _panicked = catch_unwind(AssertUnwindSafe(|| drop(future)));
    }
}
