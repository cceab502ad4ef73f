//! A clock on which a scenario takes longer than it says.
//!
//! tokio rounds each sleep up to a millisecond: what must be finer is played more slowly.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;

use redial::{Sleeper, Tokio, time::Ns};

/// tokio's sleeper, so many times slower. Its moments are those of the scenario, from its start.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slow {
    origin: Ns,
    slower: Ns,
}

impl Slow {
    /// A clock that begins now.
    pub(super) fn new(slower: Ns) -> Self {
        Slow { origin: Tokio.now(), slower }
    }

    /// Waits until a moment of the scenario; one that is over is not waited for.
    pub(super) async fn wait_until(&self, at: Ns) {
        if at > self.now() {
            self.sleep_until(at).await;
        }
    }
}

impl Sleeper for Slow {
    type Sleep = tokio::time::Sleep;

    fn now(&self) -> Ns {
        (Tokio.now() - self.origin) / self.slower
    }

    fn sleep_until(&self, at: Ns) -> Self::Sleep {
        Tokio.sleep_until(self.origin.saturating_add(at.saturating_mul(self.slower)))
    }
}

/// The output of the future, unless the other one is ready before it. At each turn it goes first.
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

/// Polls all of them, in their order at each turn, until each has its output or `end` is ready.
/// Gives the outputs, and the futures that have none.
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
