//! The fast path: a call whose first attempt runs and which has no state machine.
//!
//! Invariant: no result, statistic or token count depends on whether a call took the fast path.

use redial_core::{CallParams, FirstAttempt, NEVER, Policy};
use redial_service_config::Retries;
use tokio::time::Instant;

use super::CallContext;
use super::recorder::Recording;
use super::running::RunningCall;
use crate::backends::UsedBackends;
use crate::report::CallReports;

/// A call whose first attempt runs, or has response headers, and which has no state machine.
pub(crate) struct FirstAttemptCall {
    first: FirstAttempt,
    /// The start time, if a report of the call's failure needs it.
    started_at: Option<Instant>,
    used: Option<UsedBackends>,
    context: CallContext,
}

impl FirstAttemptCall {
    /// A new call; gives its parts back if the state machine is needed from the start, because a timer
    /// can change the call.
    pub(super) fn new(
        context: CallContext,
        params: CallParams,
        recording: Recording,
    ) -> Result<Self, (CallContext, Recording)> {
        let policy: &Policy = &context.method;
        match FirstAttempt::of(policy, params, 0) {
            Some(first) if first.wake_at(policy) == NEVER => {
                let Recording { used, reports, began, .. } = recording;
                let started_at = began.or_else(|| reports.then(Instant::now));
                Ok(FirstAttemptCall { first, started_at, used, context })
            }
            _ => Err((context, recording)),
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
            self.first.succeeded(&self.context.shared.throttle);
        }
    }

    /// Leaves the fast path: the state machine takes over, and this value is dropped.
    pub(super) fn start_machine(&mut self) -> RunningCall {
        let reports = self.context.shared.reports != CallReports::Off;
        let recording = Recording { used: self.used.take(), reports, ..Recording::default() };
        let started_at = self.started_at.map_or(0, |at| self.context.shared.clock.moment(at));
        let first = self.first.started_at(started_at);
        RunningCall::from_first_attempt(first, self.context.clone(), recording)
    }
}
