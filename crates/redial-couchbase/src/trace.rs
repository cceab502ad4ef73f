//! The lines of the log as events for `tracing`, under the target `redial::couchbase`.

use crate::context::Context;
use crate::log::{LogEvent, LogLine};

/// Hands a line to whoever listens: a retry at the level debug, what is not retried at info.
pub(crate) fn event(context: &Context, line: &LogLine) {
    let (request, reason, attempt) = (context, line.reason.name(), line.attempt);
    match line.event {
        LogEvent::Retry { after } => tracing::debug!(
            target: "redial::couchbase",
            %request,
            reason,
            attempt,
            delay = ?after,
            "{line}"
        ),
        LogEvent::NotRetried { stop_reason } => tracing::info!(
            target: "redial::couchbase",
            %request,
            reason,
            attempt,
            stop_reason = stop_reason.name(),
            "{line}"
        ),
    }
}
