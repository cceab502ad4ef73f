//! The lines of the log as events for `tracing`, under the target `redial::couchbase`.

use crate::context::RequestContext;
use crate::log::{RetryLogEvent, RetryLogLine};

/// Hands a line to whoever listens: a retry at the level debug, what is not retried at info.
pub(crate) fn event(context: &RequestContext, line: &RetryLogLine) {
    let (request, reason, attempt) = (context, line.reason.name(), line.attempt);
    match line.event {
        RetryLogEvent::Retry { after } => tracing::debug!(
            target: "redial::couchbase",
            %request,
            reason,
            attempt,
            delay = ?after,
            "{line}"
        ),
        RetryLogEvent::NotRetried { stop_reason } => tracing::info!(
            target: "redial::couchbase",
            %request,
            reason,
            attempt,
            stop_reason = stop_reason.name(),
            "{line}"
        ),
    }
}
