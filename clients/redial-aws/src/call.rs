//! The state of one call, in its config bag.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aws_smithy_runtime_api::client::interceptors::context::InterceptorContext;
use aws_smithy_types::config_bag::{Storable, StoreReplace};
use aws_smithy_types::retry::RetryConfig;
use redial::external::{ExternalCall, Next};
use redial::{Directive, Sleeper as _, StopReason, Tokio};

use crate::failure;
use crate::interceptor::Settings;

/// One call. The config bag has it from the first attempt to the end of the call; dropping the bag drops it.
#[derive(Clone)]
pub(crate) struct SharedCall {
    state: Arc<Mutex<State>>,
    /// The interceptor that the call belongs to.
    settings: Arc<Settings>,
    /// Whether a report is wanted at its end.
    reports: bool,
}

struct State {
    call: ExternalCall,
    /// The SDK's retry config of this call, while another one is in its place.
    retry_config: Option<RetryConfig>,
    /// Whether the report of the call was returned.
    reported: bool,
}

impl Storable for SharedCall {
    type Storer = StoreReplace<Self>;
}

impl fmt::Debug for SharedCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedCall").finish_non_exhaustive()
    }
}

impl SharedCall {
    pub(crate) fn new(call: ExternalCall, settings: Arc<Settings>, reports: bool) -> Self {
        let state = State { call, retry_config: None, reported: false };
        SharedCall { state: Arc::new(Mutex::new(state)), settings, reports }
    }

    pub(crate) const fn reports(&self) -> bool {
        self.reports
    }

    pub(crate) const fn settings(&self) -> &Arc<Settings> {
        &self.settings
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the SDK's config while the decision is made. Only the first one counts: an interceptor that is
    /// installed twice has already put another one in its place.
    pub(crate) fn keep_retry_config(&self, config: Option<&RetryConfig>) {
        let mut state = self.state();
        if state.retry_config.is_none() {
            state.retry_config = config.cloned();
        }
    }

    /// The next attempt starts. Returns the SDK's config if another one is in its place.
    pub(crate) fn start_attempt(&self) -> Option<RetryConfig> {
        let mut state = self.state();
        // A call whose deadline has just passed is cancelled by the SDK's timeout.
        state.call.start_next(Tokio.now());
        state.retry_config.take()
    }

    /// The attempt has an output.
    pub(crate) fn succeed(&self) {
        self.state().call.ended(Directive::Succeed, Tokio.now());
    }

    /// The attempt has failed. Returns [`Next::Wait`] if it is retried.
    pub(crate) fn end_attempt(&self, context: &InterceptorContext, directive: Directive) -> Next {
        let mut state = self.state();
        let now = Tokio.now();
        if self.settings.has_attempt_timeout() && failure::is_timeout(context) {
            state.call.timed_out(now)
        } else {
            state.call.ended(directive, now)
        }
    }

    /// The SDK returns the result of the call.
    pub(crate) fn end(&self, context: &InterceptorContext) {
        let mut state = self.state();
        // A request that was only signed has no result: dropping the call cancels it.
        if state.call.stop_reason().is_none() && context.output_or_error().is_some() {
            // The operation timed out, or the SDK's own `max_attempts` is smaller.
            state.call.stop(StopReason::AttemptsExhausted, Tokio.now());
        }
    }

    /// The report of a call that has ended, once.
    pub(crate) fn take_report(&self) -> Option<redial::Report> {
        let mut state = self.state();
        if std::mem::replace(&mut state.reported, true) {
            return None;
        }
        state.call.report().map(|(report, _)| report)
    }
}
