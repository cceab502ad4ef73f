//! The fast path: a call whose first attempt runs and which has no state machine.
//!
//! Invariant: no result, statistic or token count depends on whether a call took the fast path.

use redial_core::{CallParams, FirstAttempt, NEVER, Ns};
use redial_service_config::Retries;

use super::CallContext;
use super::recorder::Recording;
use super::running::RunningCall;
use crate::backends::UsedBackends;
use crate::report::CallReports;

/// A call whose first attempt runs, or has response headers, and which has no state machine.
pub(crate) struct FirstAttemptCall {
    first: FirstAttempt,
    used: Option<UsedBackends>,
    context: CallContext,
}

impl FirstAttemptCall {
    /// A new call; gives its parts back if the state machine is needed from the start, because a timer
    /// can change the call.
    pub(super) fn new(
        context: CallContext,
        params: CallParams,
        started_at: Ns,
        recording: Recording,
    ) -> Result<Self, (CallContext, Recording)> {
        let first = FirstAttempt::of(&context.method, params, started_at)
            .filter(|first| first.wake_at(&context.method) == NEVER);
        match first {
            Some(first) => Ok(FirstAttemptCall { first, used: recording.used, context }),
            None => Err((context, recording)),
        }
    }

    pub(super) fn context(&self) -> &CallContext {
        &self.context
    }

    /// Commits the call: response headers have arrived.
    pub(super) fn committed(&mut self) {
        self.first.committed();
    }

    /// The final status is OK.
    pub(super) fn succeeded(&self) {
        if self.context.method.retries() != Retries::Off {
            self.first.succeeded(&self.context.shared.server.tokens);
        }
    }

    /// Leaves the fast path: the state machine takes over, and this value is dropped.
    pub(super) fn start_machine(&mut self) -> RunningCall {
        let reports = self.context.shared.reports != CallReports::Off;
        let recording = Recording { used: self.used.take(), reports, ..Recording::default() };
        RunningCall::from_first_attempt(self.first, self.context.clone(), recording)
    }
}
