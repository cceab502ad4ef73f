//! Futures of the application's: its dials, what they bring, and its resolutions.
//!
//! Rule: one that panics has failed, like any other. The task that runs it would die with it, and
//! calls would wait for ever for a backend that nobody dials any more.

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
    let Ok(mut future) = catch_unwind(AssertUnwindSafe(begin)) else { return panicked() };
    let polled = poll_fn(|cx| {
        catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx).map(Some)))
            .unwrap_or(Poll::Ready(None))
    });
    polled.await.unwrap_or_else(panicked)
}
