//! Virtual time for the async driver, and a small executor that advances it.
//!
//! Each thread has its own clock. It begins at 0 and advances only in [`block_on`], to the earliest armed
//! timer when the future waits.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use redial_core::{Ns, ns};

use crate::sleeper::Sleeper;

/// The virtual clock of this thread.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock;

#[derive(Default)]
struct State {
    now: Ns,
    /// Timers by time, then by the order in which they were armed.
    timers: BTreeMap<(Ns, u64), Waker>,
    armed: u64,
}

thread_local! {
    static STATE: RefCell<State> = RefCell::default();
}

impl Clock {
    /// A future that is ready after `span`.
    pub fn sleep(self, span: Duration) -> Sleep {
        self.sleep_until(self.now().saturating_add(ns(span)))
    }
}

impl Sleeper for Clock {
    type Sleep = Sleep;

    fn now(&self) -> Ns {
        STATE.with_borrow(|state| state.now)
    }

    fn sleep_until(&self, at: Ns) -> Sleep {
        Sleep { at, armed: None }
    }
}

/// A timer of [`Clock`].
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct Sleep {
    at: Ns,
    armed: Option<u64>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        STATE.with_borrow_mut(|state| {
            if state.now >= self.at {
                return Poll::Ready(());
            }
            let armed = *self.armed.get_or_insert_with(|| {
                state.armed += 1;
                state.armed
            });
            state.timers.insert((self.at, armed), cx.waker().clone());
            Poll::Pending
        })
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(armed) = self.armed {
            // The clock may already be destroyed when the thread ends.
            let _ = STATE.try_with(|state| state.borrow_mut().timers.remove(&(self.at, armed)));
        }
    }
}

/// Runs the future on this thread's virtual clock, which advances when the future waits.
///
/// # Panics
/// If the future waits and no timer of [`Clock`] is armed that could wake it.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let woken = Arc::new(Woken(AtomicBool::new(false)));
    let waker = Waker::from(woken.clone());
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        while !woken.0.swap(false, Ordering::Acquire) {
            advance();
        }
    }
}

/// Advances the clock to its earliest timer and wakes all that are due.
fn advance() {
    let due = STATE.with_borrow_mut(|state| {
        let (at, _) = *state.timers.keys().next()?;
        state.now = at.max(state.now);
        let later = state.timers.split_off(&(state.now.saturating_add(1), 0));
        Some(std::mem::replace(&mut state.timers, later))
    });
    let Some(due) = due else {
        panic!("the future waits, and no timer is armed that could wake it")
    };
    for waker in due.into_values() {
        waker.wake();
    }
}

/// Whether the future was woken. The release in `wake` publishes the writes of the waking thread.
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}
