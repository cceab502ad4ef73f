//! Options of a single call, as a request extension.

use std::sync::{Arc, Mutex};

use redial::{CallLog, call_log::EventDetail};
use redial_core::{Event, Ns};
use redial_service_config::{AttemptTimeout, Retries};
use tokio::time::Instant;

/// Options of a single call. Insert them into the extensions of its request.
///
/// ```
/// use redial_grpc::{SharedCallLog, CallOptions, Retries};
///
/// let call_log = SharedCallLog::new();
/// let mut request = tonic::Request::new(());
/// request.extensions_mut().insert(CallOptions::new().wait_for_ready().call_log(&call_log));
/// // ... after the call:
/// assert!(call_log.take().events().is_empty());
/// ```
#[derive(Clone, Debug, Default)]
pub struct CallOptions {
    pub(crate) retries: Option<Retries>,
    /// `None`: as the config says.
    pub(crate) wait_for_ready: Option<bool>,
    pub(crate) call_log: Option<SharedCallLog>,
    pub(crate) attempt_timeout: Option<AttemptTimeout>,
    /// The start time of a call that had to wait for its config. The `grpc-timeout` of its request is the
    /// remaining time.
    pub(crate) began: Option<Instant>,
}

impl CallOptions {
    /// Default options.
    #[must_use]
    pub fn new() -> Self {
        CallOptions::default()
    }

    /// Which retries this call may make; the stricter of this and the layer's setting applies.
    #[must_use]
    pub const fn retries(mut self, retries: Retries) -> Self {
        self.retries = Some(retries);
        self
    }

    /// This call waits for a connection, whatever `waitForReady` in the config says (decision G41).
    #[must_use]
    pub const fn wait_for_ready(mut self) -> Self {
        self.wait_for_ready = Some(true);
        self
    }

    /// This call does not wait for a connection, whatever `waitForReady` in the config says: an attempt
    /// that finds none fails with UNAVAILABLE (decision G41).
    #[must_use]
    pub const fn fail_fast(mut self) -> Self {
        self.wait_for_ready = Some(false);
        self
    }

    /// The timeout of each attempt of this call; overrides the layer's setting.
    #[must_use]
    pub const fn attempt_timeout(mut self, timeout: AttemptTimeout) -> Self {
        self.attempt_timeout = Some(timeout);
        self
    }

    /// Records the events of this call.
    #[must_use]
    pub fn call_log(mut self, call_log: &SharedCallLog) -> Self {
        self.call_log = Some(call_log.clone());
        self
    }
}

/// A call log that the application can read while the call runs. Use one log per call: the events of
/// several calls would be mixed.
#[derive(Clone, Debug, Default)]
pub struct SharedCallLog(Arc<Mutex<CallLog>>);

impl SharedCallLog {
    /// An empty log.
    #[must_use]
    pub fn new() -> Self {
        SharedCallLog::default()
    }

    /// Takes the events recorded so far and leaves an empty log.
    #[must_use]
    pub fn take(&self) -> CallLog {
        std::mem::take(&mut *self.lock())
    }

    /// A copy of the events recorded so far.
    #[must_use]
    pub fn read(&self) -> CallLog {
        self.lock().clone()
    }

    pub(crate) fn push(&self, at: Ns, event: Event, detail: EventDetail) {
        let mut call_log = self.lock();
        call_log.push(at, event);
        call_log.annotate(detail);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, CallLog> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
