//! A first attempt that starts before the call of its request.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

/// A first attempt that did not succeed before the deadline. The call of the request begins with it, as of
/// the time at which the attempt started.
///
/// Dropping it drops the attempt, so that no retry waits for what the attempt holds.
pub(crate) struct StartedAttempt<'f, F: Future> {
    future: Pin<&'f mut Option<F>>,
    /// `None` if the attempt is pending: the deadline came first.
    result: Option<F::Output>,
}

impl<'f, F, T, E> StartedAttempt<'f, F>
where
    F: Future<Output = Result<T, E>>,
{
    /// Runs a first attempt until its result or the end of the timer; of the same moment the result comes
    /// first (decision P4).
    ///
    /// # Errors
    /// It did not succeed. What follows is not decided here: the attempt goes to the call.
    pub(crate) async fn run(
        future: Pin<&'f mut Option<F>>,
        mut poll_timer: impl FnMut(&mut Context<'_>) -> Poll<()>,
    ) -> Result<T, Self> {
        let mut attempt = StartedAttempt { future, result: None };
        let result = poll_fn(|cx| {
            if let Some(future) = attempt.future.as_mut().as_pin_mut()
                && let Poll::Ready(result) = future.poll(cx)
            {
                return Poll::Ready(Some(result));
            }
            poll_timer(cx).map(|()| None)
        });
        match result.await {
            Some(Ok(value)) => Ok(value),
            result => {
                attempt.result = result;
                Err(attempt)
            }
        }
    }

    /// Continues the attempt in the call.
    pub(crate) async fn resume(mut self) -> Result<T, E> {
        match (self.result.take(), self.future.as_mut().as_pin_mut()) {
            (Some(result), _) => result,
            (None, Some(future)) => future.await,
            (None, None) => unreachable!("an attempt is pending or has its result"),
        }
    }
}

impl<F: Future> Drop for StartedAttempt<'_, F> {
    fn drop(&mut self) {
        self.future.set(None);
    }
}
