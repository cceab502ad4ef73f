//! A clock that runs a scenario slower than written.
//!
//! tokio rounds each sleep up to a millisecond; slowing down gives finer resolution.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;

use redial::time::{Ns, Sleeper, Tokio};

/// tokio's sleeper with a slowdown. Times are in scenario time, since the start.
#[derive(Clone, Copy, Debug)]
pub(super) struct ScaledClock {
    origin: Ns,
    slower: Ns,
}

impl ScaledClock {
    /// A clock that starts now.
    pub(super) fn new(slower: Ns) -> Self {
        ScaledClock { origin: Tokio.now(), slower }
    }

    /// Waits until a scenario time; returns immediately if it has passed.
    pub(super) async fn wait_until(&self, at: Ns) {
        if at > self.now() {
            self.sleep_until(at).await;
        }
    }
}

impl Sleeper for ScaledClock {
    type Sleep = tokio::time::Sleep;

    fn now(&self) -> Ns {
        (Tokio.now() - self.origin) / self.slower
    }

    fn sleep_until(&self, at: Ns) -> Self::Sleep {
        Tokio.sleep_until(self.origin.saturating_add(at.saturating_mul(self.slower)))
    }
}

/// The output of the future, unless `end` is ready first. The future is polled first.
pub(super) async fn first<T>(
    one: impl Future<Output = T>,
    other: impl Future<Output = ()>,
) -> Option<T> {
    let (mut one, mut other) = (pin!(one), pin!(other));
    poll_fn(|cx| match one.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => other.as_mut().poll(cx).map(|()| None),
    })
    .await
}

/// Polls all futures in order until each is done or `end` is ready. Returns the outputs and the
/// unfinished futures.
pub(super) async fn all<F: Future>(
    futures: impl IntoIterator<Item = F>,
    end: impl Future<Output = ()>,
) -> (Vec<Option<F::Output>>, Vec<Option<Pin<Box<F>>>>) {
    let mut running: Vec<_> = futures.into_iter().map(|future| Some(Box::pin(future))).collect();
    let mut outputs: Vec<_> = running.iter().map(|_| None).collect();
    let done = poll_fn(|cx| {
        for (future, output) in running.iter_mut().zip(&mut outputs) {
            if let Some(polled) = future
                && let Poll::Ready(ready) = polled.as_mut().poll(cx)
            {
                *output = Some(ready);
                *future = None;
            }
        }
        if running.iter().all(Option::is_none) { Poll::Ready(()) } else { Poll::Pending }
    });
    first(done, end).await;
    (outputs, running)
}
