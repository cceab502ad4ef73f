//! A clock that the test advances, a function that polls once, and values that count their instances.

use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use redial::testing::nanoseconds;
use redial::time::{Ns, Sleeper};

/// A clock that the test advances. It wakes no task: the test polls.
#[derive(Clone, Debug, Default)]
pub(crate) struct ManualClock {
    now: Arc<AtomicU64>,
}

impl ManualClock {
    pub(crate) fn pass(&self, span: Duration) {
        self.now.fetch_add(nanoseconds(span), Ordering::Relaxed);
    }

    /// A sleep for an operation of the test.
    pub(crate) fn sleep(&self, span: Duration) -> Until {
        self.sleep_until(self.now() + nanoseconds(span))
    }
}

impl Sleeper for ManualClock {
    type Sleep = Until;
    fn now(&self) -> Ns {
        self.now.load(Ordering::Relaxed)
    }
    fn sleep_until(&self, at: Ns) -> Until {
        Until { clock: self.clone(), at }
    }
}

/// Ready once the clock has reached its time.
#[derive(Debug)]
pub(crate) struct Until {
    clock: ManualClock,
    at: Ns,
}

impl Future for Until {
    type Output = ();
    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if self.clock.now() >= self.at { Poll::Ready(()) } else { Poll::Pending }
    }
}

/// Polls once, with a waker that does nothing.
pub(crate) fn poll<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// The number of values made, and the number of live ones.
#[derive(Clone, Debug, Default)]
pub(crate) struct Count {
    made: Rc<Cell<usize>>,
    alive: Rc<Cell<usize>>,
}

impl Count {
    pub(crate) fn one(&self) -> Counted {
        self.made.set(self.made.get() + 1);
        self.alive.set(self.alive.get() + 1);
        Counted(self.alive.clone())
    }

    pub(crate) fn made(&self) -> usize {
        self.made.get()
    }

    pub(crate) fn alive(&self) -> usize {
        self.alive.get()
    }
}

/// A value that an attempt owns.
#[derive(Debug)]
pub(crate) struct Counted(Rc<Cell<usize>>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}
