//! The timer of a call.

use std::pin::Pin;
use std::task::{Context, Poll};

use redial_core::Ns;
use tokio::time::Sleep;

use crate::clock::Clock;

/// The timer of a call. One is enough: it is reset to the next due time.
#[derive(Default)]
pub(super) struct Timer {
    sleep: Option<Pin<Box<Sleep>>>,
    at: Ns,
    /// The timer has fired and yielded once to the connection's task.
    yielded: bool,
}

impl Timer {
    /// Ready at this time.
    pub(super) fn poll(&mut self, at: Ns, clock: Clock, cx: &mut Context<'_>) -> Poll<()> {
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
