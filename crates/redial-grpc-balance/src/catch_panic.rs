//! Futures of the application's: its dials, what they bring, and its resolutions.
//!
//! Rule: one that panics has failed, like any other, and so has one whose destructor panics. The task
//! that runs it would die with it, and calls would wait for ever for a backend that is no longer
//! dialled.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::Poll;

/// Begins this and runs it; if either panics, the result is what the last argument says.
pub(crate) async fn run<T, F>(
    begin: impl FnOnce() -> Pin<Box<F>>,
    panicked: impl FnOnce() -> T,
) -> T
where
    F: Future<Output = T> + ?Sized,
{
    // Neither is touched again after it has panicked.
    let Ok(future) = catch_unwind(AssertUnwindSafe(begin)) else { return panicked() };
    let mut future = CatchPanicOnDrop(Some(future));
    let polled = poll_fn(|cx| {
        let Some(future) = &mut future.0 else { return Poll::Ready(None) };
        catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx).map(Some)))
            .unwrap_or(Poll::Ready(None))
    });
    polled.await.unwrap_or_else(panicked)
}

/// A future whose destructor may panic, also when it is dropped before it is done.
struct CatchPanicOnDrop<F: ?Sized>(Option<Pin<Box<F>>>);

impl<F: ?Sized> Drop for CatchPanicOnDrop<F> {
    fn drop(&mut self) {
        let future = self.0.take();
        // The panic was reported by the hook; nothing else depends on the destructor.
        let _panicked = catch_unwind(AssertUnwindSafe(|| drop(future)));
    }
}
