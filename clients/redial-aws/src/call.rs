//! The state of one call, in its config bag.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use aws_smithy_runtime_api::client::interceptors::context::InterceptorContext;
use aws_smithy_types::config_bag::{Storable, StoreReplace};
use aws_smithy_types::retry::RetryConfig;
use redial::external::{ExternalCall, Next};
use redial::time::{Sleeper as _, Tokio};
use redial::{Directive, StopReason};

use crate::failure;
use crate::interceptor::Settings;

/// One call. The config bag has it to the end of the call, from its first failure, or from its first attempt
/// if anything needs it before (`starts_after_failure`); dropping the bag drops it.
pub(crate) struct Call {
    /// In a mutex because the bag wants `Sync`. Nothing locks it: the hooks of a call have its bag alone.
    call: Mutex<ExternalCall>,
    /// The interceptor that the call belongs to.
    settings: Arc<Settings>,
    /// The SDK's retry config of this call, while another one is in its place.
    retry_config: Option<RetryConfig>,
    /// Whether a report is wanted at its end, and was not returned.
    reports: bool,
}

impl Storable for Call {
    type Storer = StoreReplace<Self>;
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").finish_non_exhaustive()
    }
}

impl Call {
    pub(crate) fn new(call: ExternalCall, settings: Arc<Settings>, reports: bool) -> Self {
        Call { call: Mutex::new(call), settings, retry_config: None, reports }
    }

    /// Whether the call is that of an interceptor with these settings.
    pub(crate) fn is_of(&self, settings: &Arc<Settings>) -> bool {
        Arc::ptr_eq(&self.settings, settings)
    }

    fn call(&mut self) -> &mut ExternalCall {
        self.call.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the SDK's config while the decision is made. Only the first one counts: an interceptor that is
    /// installed twice has already put another one in its place.
    pub(crate) fn keep_retry_config(&mut self, config: Option<RetryConfig>) {
        self.retry_config = self.retry_config.take().or(config);
    }

    /// The next attempt starts. Returns the SDK's config if another one is in its place.
    pub(crate) fn start_attempt(&mut self) -> Option<RetryConfig> {
        // A call whose deadline has just passed is cancelled by the SDK's timeout.
        self.call().start_next(Tokio.now());
        self.retry_config.take()
    }

    /// The attempt has an output.
    pub(crate) fn succeed(&mut self) {
        self.call().ended(Directive::Succeed, Tokio.now());
    }

    /// The attempt has failed. Returns [`Next::Wait`] if it is retried.
    pub(crate) fn end_attempt(
        &mut self,
        context: &InterceptorContext,
        directive: Directive,
    ) -> Next {
        let now = Tokio.now();
        // The SDK has the smaller of its own timeout and the policy's, and the policy decides about both.
        if self.settings.has_attempt_timeout() && failure::is_timeout(context) {
            self.call().timed_out(now)
        } else {
            self.call().ended(directive, now)
        }
    }

    /// The SDK returns the result of the call.
    pub(crate) fn end(&mut self, context: &InterceptorContext) {
        let call = self.call();
        // A request that was only signed has no result: dropping the call cancels it.
        if call.stop_reason().is_none() && context.output_or_error().is_some() {
            // The operation timed out, or the SDK's own `max_attempts` is smaller.
            call.stop(StopReason::AttemptsExhausted, Tokio.now());
        }
    }

    /// The report of a call that has ended, once, if it is wanted.
    pub(crate) fn take_report(&mut self) -> Option<redial::Report> {
        if !std::mem::replace(&mut self.reports, false) {
            return None;
        }
        self.call().report().map(|(report, _)| report)
    }
}
