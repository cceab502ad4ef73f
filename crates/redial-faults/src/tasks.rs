//! What the tasks of a server or a proxy share: one state behind a lock, its changes, a clock and the stop.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::Instant;

#[derive(Debug)]
pub(crate) struct Tasks<S> {
    start: Instant,
    state: Mutex<S>,
    changed: Notify,
    stop: watch::Sender<bool>,
}

impl<S> Tasks<S> {
    pub(crate) fn new(state: S) -> Self {
        Tasks {
            start: Instant::now(),
            state: Mutex::new(state),
            changed: Notify::new(),
            stop: watch::Sender::new(false),
        }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, S> {
        // A panic leaves complete entries: the user's callback runs without the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time from the start to a moment.
    pub(crate) fn since_start(&self, at: Instant) -> Duration {
        at.saturating_duration_since(self.start)
    }

    pub(crate) fn now(&self) -> Duration {
        self.since_start(Instant::now())
    }

    /// The moment this long after the start; `None` if it is too late for a clock.
    pub(crate) fn moment(&self, since_start: Duration) -> Option<Instant> {
        self.start.checked_add(since_start)
    }

    /// Wakes those who wait for a change.
    pub(crate) fn notify(&self) {
        self.changed.notify_waiters();
    }

    /// Waits until `look` returns a value; it is called after every change.
    pub(crate) async fn until<T>(&self, mut look: impl FnMut() -> Option<T>) -> T {
        loop {
            let changed = self.changed.notified();
            let mut changed = std::pin::pin!(changed);
            changed.as_mut().enable();
            if let Some(found) = look() {
                return found;
            }
            changed.await;
        }
    }

    /// Stops every task.
    pub(crate) fn stop(&self) {
        self.stop.send_replace(true);
    }

    pub(crate) fn is_stopped(&self) -> bool {
        *self.stop.borrow()
    }

    /// Waits until the tasks are stopped.
    pub(crate) async fn stopped(&self) {
        // It cannot fail: `self` owns the sender.
        let _ = self.stop.subscribe().wait_for(|stop| *stop).await;
    }
}

/// Removes the oldest finished entries above `max`; open ones stay.
pub(crate) fn forget_oldest<T>(
    list: &mut VecDeque<T>,
    max: usize,
    is_finished: impl Fn(&T) -> bool,
) {
    while list.len() > max
        && let Some(index) = list.iter().position(&is_finished)
    {
        list.remove(index);
    }
}
