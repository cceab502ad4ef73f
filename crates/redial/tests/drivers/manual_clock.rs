//! A clock that is moved by hand, polling by hand, and things that count themselves.

use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use redial::testing::nanoseconds;
use redial::{Sleeper, time::Ns};

/// A clock that stands still until it is moved. Nobody is woken: tests poll by hand.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hand {
    now: Arc<AtomicU64>,
}

impl Hand {
    pub(crate) fn pass(&self, span: Duration) {
        self.now.fetch_add(nanoseconds(span), Ordering::Relaxed);
    }

    /// A sleep for an operation of the test's own.
    pub(crate) fn sleep(&self, span: Duration) -> Until {
        self.sleep_until(self.now() + nanoseconds(span))
    }
}

impl Sleeper for Hand {
    type Sleep = Until;
    fn now(&self) -> Ns {
        self.now.load(Ordering::Relaxed)
    }
    fn sleep_until(&self, at: Ns) -> Until {
        Until { hand: self.clone(), at }
    }
}

/// Ready once the clock has been moved far enough.
#[derive(Debug)]
pub(crate) struct Until {
    hand: Hand,
    at: Ns,
}

impl Future for Until {
    type Output = ();
    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if self.hand.now() >= self.at { Poll::Ready(()) } else { Poll::Pending }
    }
}

/// Polls once, and tells nobody.
pub(crate) fn poll<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// How many were made, and how many of them are alive.
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

/// What an attempt owns.
#[derive(Debug)]
pub(crate) struct Counted(Rc<Cell<usize>>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}
