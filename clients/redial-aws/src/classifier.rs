//! The classifier: it carries out what the policy decides.

use aws_smithy_runtime_api::client::interceptors::context::InterceptorContext;
use aws_smithy_runtime_api::client::retries::classifiers::{
    ClassifyRetry, RetryAction, RetryClassifierPriority, RetryReason,
};
use aws_smithy_types::retry::ErrorKind;

use crate::call::Verdict;
use crate::interceptor::RetryInterceptor;
use crate::{failure, handover};

/// What a retry costs in the SDK's own quota does not matter: the call has an unlimited one.
fn kind_of(previous: &RetryAction) -> ErrorKind {
    match previous {
        RetryAction::RetryIndicated(RetryReason::RetryableError { kind, .. }) => *kind,
        _ => ErrorKind::TransientError,
    }
}

impl ClassifyRetry for RetryInterceptor {
    /// Without the answers of the other classifiers there is nothing to decide about.
    fn classify_retry(&self, _context: &InterceptorContext) -> RetryAction {
        RetryAction::NoActionIndicated
    }

    fn classify_retry_v2(
        &self,
        context: &InterceptorContext,
        previous: &RetryAction,
    ) -> RetryAction {
        // A request that is signed and not sent has no result.
        if context.output_or_error().is_none() {
            return RetryAction::NoActionIndicated;
        }
        let Some(call) = handover::take(context) else { return RetryAction::NoActionIndicated };
        match call.end_attempt(context, failure::directive(context, previous)) {
            Verdict::Retry(delay) => {
                RetryAction::retryable_error_with_explicit_delay(kind_of(previous), delay)
            }
            Verdict::Stop => RetryAction::RetryForbidden,
            Verdict::Succeeded => RetryAction::NoActionIndicated,
        }
    }

    fn name(&self) -> &'static str {
        "RedialRetryInterceptor"
    }

    /// After all classifiers of the SDK, and those of the application with a usual priority.
    fn priority(&self) -> RetryClassifierPriority {
        let mut last = RetryClassifierPriority::transient_error_classifier();
        for _ in 0..PRIORITY_DISTANCE {
            last = RetryClassifierPriority::run_after(last);
        }
        last
    }
}

/// How far behind the SDK's last classifier this one runs: applications put theirs between them.
const PRIORITY_DISTANCE: usize = 50;
