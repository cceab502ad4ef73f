//! What an attempt and a strategy know of their request (RFC 49, "Accessible Context").

use std::borrow::Cow;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redial::{Failure, strategy::Request};

use crate::operation::RequestOperation;
use crate::response::Response;

/// A request: what it does, what it is about, and what came of it so far.
///
/// A strategy finds it with [`RequestContext::of`]; the user's own data is beside it, as
/// [`Request::data`](redial::strategy::Request::data).
#[derive(Debug)]
pub struct RequestContext {
    operation: RequestOperation,
    about: Cow<'static, str>,
    timeout: Duration,
    /// Whether the attempt that runs may have been sent. Written by the attempt, read when the
    /// request ends, by whoever drives both; nothing else hangs on it.
    sent: AtomicBool,
    /// Written by whoever drives the request, read by strategies; never while another waits.
    last: Mutex<Option<Response>>,
}

impl RequestContext {
    pub(crate) fn new(
        operation: RequestOperation,
        about: Cow<'static, str>,
        timeout: Duration,
    ) -> Self {
        RequestContext {
            operation,
            about,
            timeout,
            sent: AtomicBool::new(true),
            last: Mutex::new(None),
        }
    }

    /// The context of the request that a strategy is asked about; `None` if no orchestrator runs
    /// it.
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

    /// What it does.
    #[must_use]
    pub const fn operation(&self) -> RequestOperation {
        self.operation
    }

    /// What it is about, for instance the document's key; empty if nobody said.
    #[must_use]
    pub fn about(&self) -> &str {
        &self.about
    }

    /// After how long it ends.
    #[must_use]
    pub const fn timeout(&self) -> Duration {
        self.timeout
    }

    /// The response with which the last attempt failed, if it got one: its status, and what the
    /// server's error map says about it.
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
        if self.about.is_empty() { Ok(()) } else { write!(f, " {}", self.about) }
    }
}

/// What an attempt at a request knows of itself.
#[derive(Clone, Debug)]
pub struct RequestAttempt {
    inner: redial::Attempt,
    context: Arc<RequestContext>,
}

impl RequestAttempt {
    pub(crate) fn new(inner: redial::Attempt, context: Arc<RequestContext>) -> Self {
        RequestAttempt { inner, context }
    }

    /// Its number, from 1.
    #[must_use]
    pub const fn number(&self) -> u32 {
        self.inner.number()
    }

    /// How long the request has until its timeout.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.inner.remaining().unwrap_or(self.context.timeout)
    }

    /// What is known of the failure before it; `None` at the first.
    #[must_use]
    pub const fn last_failure(&self) -> Option<&Failure> {
        self.inner.last_failure()
    }

    /// The request.
    #[must_use]
    pub fn context(&self) -> &RequestContext {
        &self.context
    }

    /// Says that nothing has been sent yet: if the timeout comes now, it is not ambiguous. Without
    /// a word an attempt counts as sent from its start.
    pub fn mark_unsent(&self) {
        self.context.set_sent(false);
    }

    /// Says that the request is being sent now.
    pub fn mark_sent(&self) {
        self.context.set_sent(true);
    }
}
