//! The clock of a layer, and the one timer that a call has.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use redial_core::{Ns, duration, ns};
use tokio::time::{Instant, Sleep};

/// A clock that counts from the moment at which its layer was made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(Instant);

impl Clock {
    pub(crate) fn new() -> Self {
        Clock(Instant::now())
    }

    pub(crate) fn now(self) -> Ns {
        ns(Instant::now().saturating_duration_since(self.0))
    }

    /// When this was.
    pub(crate) fn moment(self, at: Instant) -> Ns {
        ns(at.saturating_duration_since(self.0))
    }

    fn at(self, moment: Ns) -> Instant {
        after(self.0, duration(moment))
    }
}

/// The end of this span; what no clock can show is as good as never.
pub(crate) fn after(start: Instant, span: Duration) -> Instant {
    start.checked_add(span).unwrap_or_else(|| start + FAR)
}

/// Thirty years: what tokio takes for a time that never comes.
const FAR: Duration = Duration::from_secs(86_400 * 365 * 30);

/// The one timer of a call.
#[derive(Default)]
pub(crate) struct Timer {
    sleep: Option<Pin<Box<Sleep>>>,
    at: Ns,
    /// It fired, and the connection had a turn since.
    yielded: bool,
}

impl Timer {
    /// Ready once this moment has come.
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
        // An answer of the same moment may be on its way through the connection's task: outcomes
        // come before timers (P4), so that task gets one turn.
        if std::mem::replace(&mut self.yielded, true) {
            self.yielded = false;
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}
