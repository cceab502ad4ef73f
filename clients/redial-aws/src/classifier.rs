//! The classifier: it gives the SDK the delay that the policy has decided.

use std::sync::LazyLock;

use aws_smithy_runtime_api::client::interceptors::context::InterceptorContext;
use aws_smithy_runtime_api::client::retries::classifiers::{
    ClassifyRetry, RetryAction, RetryClassifierPriority, RetryReason,
};
use aws_smithy_types::retry::ErrorKind;

use crate::handover;
use crate::interceptor::{NAME, RetryInterceptor};

/// How far behind the SDK's last classifier this one runs: applications put theirs between them.
const PRIORITY_DISTANCE: usize = 50;

impl ClassifyRetry for RetryInterceptor {
    /// Without the answers of the other classifiers there is nothing to add to.
    fn classify_retry(&self, _context: &InterceptorContext) -> RetryAction {
        RetryAction::NoActionIndicated
    }

    fn classify_retry_v2(
        &self,
        context: &InterceptorContext,
        previous: &RetryAction,
    ) -> RetryAction {
        if !context.is_failed() {
            // An output is a success, and the call has ended for its policy.
            return if previous.should_retry() {
                RetryAction::RetryForbidden
            } else {
                RetryAction::NoActionIndicated
            };
        }
        let Some(delay) = handover::take(context) else { return RetryAction::NoActionIndicated };
        // The kind is what a retry costs in the SDK's own quota, which does not apply.
        let kind = match previous {
            RetryAction::RetryIndicated(RetryReason::RetryableError { kind, .. }) => *kind,
            _ => ErrorKind::TransientError,
        };
        RetryAction::retryable_error_with_explicit_delay(kind, delay)
    }

    fn name(&self) -> &'static str {
        NAME
    }

    /// After all classifiers of the SDK, and those of the application with a usual priority.
    fn priority(&self) -> RetryClassifierPriority {
        *PRIORITY
    }
}

/// Computed once: the SDK sorts the classifiers for every call.
static PRIORITY: LazyLock<RetryClassifierPriority> = LazyLock::new(|| {
    let last = RetryClassifierPriority::transient_error_classifier();
    (0..PRIORITY_DISTANCE).fold(last, |last, _| RetryClassifierPriority::run_after(last))
});
