//! The events of the `redial` crate for a gRPC call (feature `tracing`; without it they go nowhere).

use redial::trace::Rpc;
use redial_core::{Event, Ns, StopReason, duration};

/// Emits the events of a call.
#[derive(Debug)]
pub(crate) struct CallEvents {
    enabled: bool,
    /// Whether events have timestamps.
    timed: bool,
    began: Ns,
    attempts: u32,
}

impl CallEvents {
    pub(crate) fn begin() -> Self {
        CallEvents { enabled: CallEvents::are_enabled(), ..CallEvents::disabled() }
    }

    /// Events of a call for which no subscriber was interested at its start.
    pub(crate) fn disabled() -> Self {
        CallEvents { enabled: false, timed: true, began: 0, attempts: 0 }
    }

    /// Whether a subscriber is interested in events.
    pub(crate) fn are_enabled() -> bool {
        redial::trace::is_enabled()
    }

    /// Whether a subscriber was interested when the call started.
    pub(crate) fn enabled(&self) -> bool {
        self.enabled
    }

    pub(crate) fn disable_timing(&mut self) {
        self.timed = false;
    }

    pub(crate) fn record(&mut self, at: Ns, event: &Event) {
        if self.enabled {
            redial::trace::record(event);
        }
        match *event {
            Event::CallStarted { .. } => self.began = at,
            Event::AttemptStarted { number, .. } => self.attempts = self.attempts.max(number),
            _ => {}
        }
    }

    /// Logs the end of the call.
    pub(crate) fn ended(&self, at: Ns, stop_reason: StopReason, rpc: Rpc<'_>) {
        let elapsed = self.timed.then(|| duration(at.saturating_sub(self.began)));
        redial::trace::gave_up(stop_reason, self.attempts, elapsed, Some(rpc));
    }
}
