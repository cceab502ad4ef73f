//! The clock of a layer and the timer of a call.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use redial_core::{Ns, duration, ns};
use tokio::time::{Instant, Sleep};

/// A clock in nanoseconds since the creation of its layer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(Instant);

impl Clock {
    pub(crate) fn new() -> Self {
        Clock(Instant::now())
    }

    pub(crate) fn now(self) -> Ns {
        ns(Instant::now().saturating_duration_since(self.0))
    }

    /// Converts an instant to nanoseconds.
    pub(crate) fn moment(self, at: Instant) -> Ns {
        ns(at.saturating_duration_since(self.0))
    }

    fn at(self, moment: Ns) -> Instant {
        after(self.0, duration(moment))
    }
}

/// `start + span`, saturating far in the future.
pub(crate) fn after(start: Instant, span: Duration) -> Instant {
    start.checked_add(span).unwrap_or_else(|| start + FAR)
}

/// Thirty years: the same limit that tokio uses for a time that never comes.
const FAR: Duration = Duration::from_secs(86_400 * 365 * 30);

/// The timer of a call. One is enough: it is reset to the next due time.
#[derive(Default)]
pub(crate) struct Timer {
    sleep: Option<Pin<Box<Sleep>>>,
    at: Ns,
    /// The timer has fired and yielded once to the connection's task.
    yielded: bool,
}

impl Timer {
    /// Ready at this time.
    pub(crate) fn poll(&mut self, at: Ns, clock: Clock, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.sleep {
            Some(sleep) if self.at != at => {
                sleep.as_mut().reset(clock.at(at));
                self.yielded = false;
            }
            Some(_) => {}
            none => *none = Some(Box::pin(tokio::time::sleep_until(clock.at(at)))),
        }
        self.at = at;
        let Some(sleep) = &mut self.sleep else { return Poll::Pending };
        std::task::ready!(sleep.as_mut().poll(cx));
        // A response with the same timestamp may still be in the connection's task. Outcomes come before
        // timers (P4), so that task gets one turn first.
        if std::mem::replace(&mut self.yielded, true) {
            self.yielded = false;
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}
