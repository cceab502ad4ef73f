//! The request context that attempts and strategies can read (RFC 49, "Accessible Context").

use std::borrow::Cow;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redial::{Failure, strategy::Request};

use crate::operation::RequestOperation;
use crate::response::Response;

/// The context of a request: operation, label, timeout and last response.
///
/// A strategy reads it with [`RequestContext::of`]; user data is available as
/// [`Request::data`](redial::strategy::Request::data).
#[derive(Debug)]
pub struct RequestContext {
    operation: RequestOperation,
    label: Cow<'static, str>,
    timeout: Duration,
    /// Whether the running attempt may have been sent. Written by the attempt and read at the end of
    /// the request, both on the task that drives the request, so relaxed access is enough.
    sent: AtomicBool,
    /// Written by the driver, read by strategies; uncontended.
    last: Mutex<Option<Response>>,
}

impl RequestContext {
    pub(crate) fn new(
        operation: RequestOperation,
        label: Cow<'static, str>,
        timeout: Duration,
    ) -> Self {
        RequestContext {
            operation,
            label,
            timeout,
            sent: AtomicBool::new(true),
            last: Mutex::new(None),
        }
    }

    /// The context of the request that a strategy decides about; `None` for calls without an
    /// [`Orchestrator`](crate::Orchestrator).
    ///
    /// ```
    /// use redial::{ms, strategy::{Decision, Request}};
    /// use redial_couchbase::{RequestContext, operation};
    ///
    /// let strategy = |request: &Request<'_>| match RequestContext::of(request) {
    ///     Some(context) if context.operation() == operation::KV_NOOP => Decision::Decline,
    ///     _ => Decision::Retry(ms(10)),
    /// };
    /// # let _: &dyn redial::strategy::Strategy = &strategy;
    /// ```
    #[must_use]
    pub fn of<'a>(request: &'a Request<'_>) -> Option<&'a RequestContext> {
        request.data::<Arc<RequestContext>>().map(|context| &**context)
    }

    /// The operation of the request.
    #[must_use]
    pub const fn operation(&self) -> RequestOperation {
        self.operation
    }

    /// The label of the request, for instance the document's key; empty by default.
    #[must_use]
    pub fn label(&self) -> &str {
        &self.label
    }

    /// The timeout of the request.
    #[must_use]
    pub const fn timeout(&self) -> Duration {
        self.timeout
    }

    /// The response of the last failed attempt, if it got one, with the error map entry of its status.
    #[must_use]
    pub fn last_response(&self) -> Option<Response> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_last_response(&self, response: Option<Response>) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = response;
    }

    pub(crate) fn is_sent(&self) -> bool {
        self.sent.load(Ordering::Relaxed)
    }

    pub(crate) fn set_sent(&self, sent: bool) {
        self.sent.store(sent, Ordering::Relaxed);
    }
}

impl fmt::Display for RequestContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.operation.fmt(f)?;
        if self.label.is_empty() { Ok(()) } else { write!(f, " {}", self.label) }
    }
}

/// An attempt of a request.
#[derive(Clone, Debug)]
pub struct RequestAttempt {
    inner: redial::Attempt,
    context: Arc<RequestContext>,
}

impl RequestAttempt {
    pub(crate) fn new(inner: redial::Attempt, context: Arc<RequestContext>) -> Self {
        RequestAttempt { inner, context }
    }

    /// The attempt number, from 1.
    #[must_use]
    pub const fn number(&self) -> u32 {
        self.inner.number()
    }

    /// The remaining time until the request times out.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.inner.remaining().unwrap_or(self.context.timeout)
    }

    /// The failure of the previous attempt; `None` for the first attempt.
    #[must_use]
    pub const fn last_failure(&self) -> Option<&Failure> {
        self.inner.last_failure()
    }

    /// The context of the request.
    #[must_use]
    pub fn context(&self) -> &RequestContext {
        &self.context
    }

    /// Marks the attempt as not sent yet: a timeout now is unambiguous. By default an attempt counts as
    /// sent from its start.
    pub fn mark_unsent(&self) {
        self.context.set_sent(false);
    }

    /// Marks the attempt as sent.
    pub fn mark_sent(&self) {
        self.context.set_sent(true);
    }

    /// Whether the attempt may have been sent.
    #[cfg(feature = "client")]
    pub(crate) fn sent(&self) -> &AtomicBool {
        &self.context.sent
    }
}
