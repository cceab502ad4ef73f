//! Log lines as `tracing` events, under the target `redial::couchbase`.

use crate::context::RequestContext;
use crate::log::{RetryLogEvent, RetryLogLine};

/// Emits a log line: a retry at debug level, a request that is not retried at info level.
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
            why = stop_reason.name(),
            "{line}"
        ),
    }
}
