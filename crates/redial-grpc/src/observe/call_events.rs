//! The events of the `redial` crate for a gRPC call (feature `tracing`; without it they go nowhere).

use std::time::Duration;

use redial_core::{Event, Ns, StopReason, duration};

/// What the event `gave up` says of a gRPC call.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(feature = "tracing"), expect(dead_code, reason = "read by the event"))]
pub(crate) struct Rpc<'a> {
    /// `package.Service/Method`.
    pub(crate) method: &'a str,
    /// The name of the server, if the client knows one.
    pub(crate) target: Option<&'a str>,
    /// The name of the status code that the application receives.
    pub(crate) status: &'a str,
    /// The message of that status, sanitized for logs.
    pub(crate) message: Option<&'a str>,
}

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
        let Some(suppressed) = redial::trace::gave_up_due(stop_reason) else { return };
        let elapsed = self.timed.then(|| duration(at.saturating_sub(self.began)));
        gave_up(stop_reason, self.attempts, elapsed, rpc, suppressed);
    }
}

/// Emits `gave up`, which has the target and the first fields of the event of `redial`.
#[cfg(feature = "tracing")]
fn gave_up(
    stop_reason: StopReason,
    attempts: u32,
    elapsed: Option<Duration>,
    rpc: Rpc<'_>,
    suppressed: u64,
) {
    tracing::warn!(
        target: "redial",
        why = stop_reason.name(),
        rpc.method = rpc.method,
        grpc.target = rpc.target,
        rpc.response.status_code = rpc.status,
        error = rpc.message,
        attempts,
        elapsed_ms = elapsed.map(|elapsed| elapsed.as_nanos() as f64 / 1e6),
        suppressed,
        "gave up"
    );
}

#[cfg(not(feature = "tracing"))]
fn gave_up(
    _stop_reason: StopReason,
    _attempts: u32,
    _elapsed: Option<Duration>,
    _rpc: Rpc<'_>,
    _suppressed: u64,
) {
}
