//! A call whose response headers have arrived: the response of one attempt is received, until its final
//! status.

use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;
use redial_core::{Classification, Directive, FailureCause};
use redial_service_config::{Code, Plan, Pushback};

use super::CallContext;
use super::first_attempt::FirstAttemptCall;
use super::running::{Outcome, RunningCall};
use crate::message_size::{MessageSizeLimit, TooLarge};
use crate::observe::SpanGuard;
use crate::replay_buffer::Failure;
use crate::response_status::{self, Trailers};
use crate::{BoxError, transport_error};

/// A call whose response headers have arrived, so it is committed.
pub(crate) enum RespondingCall {
    /// Fast path: no state machine yet, and nothing to know about the response.
    FirstAttempt(FirstAttemptCall),
    Running(Box<RunningCall>),
}

/// What is known about the response of a call with its state machine.
pub(super) struct ResponseState {
    /// Number of the committed attempt, as reported to the application.
    pub(super) number: u32,
    /// Status of a response whose trailers have none: UNKNOWN, or OK if the headers carried it and left
    /// the stream open.
    missing_status_code: Code,
    size_limit: Option<MessageSizeLimit>,
}

impl ResponseState {
    /// The response of the first attempt.
    pub(super) const FIRST: ResponseState =
        ResponseState { number: 1, missing_status_code: Code::Unknown, size_limit: None };

    /// The response of the attempt with this number. `ok_in_headers`: the response headers have the status
    /// OK already but leave the stream open.
    pub(super) fn new(number: u32, ok_in_headers: bool, max: Option<u32>) -> Self {
        let missing_status_code = if ok_in_headers { Code::Ok } else { Code::Unknown };
        ResponseState { number, missing_status_code, size_limit: max.map(MessageSizeLimit::new) }
    }
}

/// Why a started response stream failed.
pub(super) enum StreamError {
    /// The request contained a message over the size limit.
    RequestTooLarge(TooLarge),
    /// A bug in this crate.
    Internal(String),
    Other(BoxError),
}

impl RespondingCall {
    fn context(&self) -> &CallContext {
        match self {
            RespondingCall::FirstAttempt(first) => first.context(),
            RespondingCall::Running(call) => call.context(),
        }
    }

    fn response(&self) -> &ResponseState {
        match self {
            RespondingCall::FirstAttempt(_) => &ResponseState::FIRST,
            RespondingCall::Running(call) => &call.response,
        }
    }

    /// Number of the committed attempt, as reported to the application.
    pub(super) fn number(&self) -> u32 {
        self.response().number
    }

    /// Whether the response headers have the status OK already.
    pub(super) fn ok_in_headers(&self) -> bool {
        self.response().missing_status_code == Code::Ok
    }

    fn plan(&self) -> &Plan {
        self.context().plan()
    }

    /// The state machine; leaves the fast path if necessary.
    fn machine(&mut self) -> &mut RunningCall {
        if let RespondingCall::FirstAttempt(first) = self {
            *self = RespondingCall::Running(Box::new(first.start_machine()));
        }
        match self {
            RespondingCall::Running(call) => call,
            RespondingCall::FirstAttempt(_) => unreachable!("the fast path was left above"),
        }
    }

    /// Enters the span of the call.
    pub(super) fn enter_span(&self) -> Option<SpanGuard> {
        match self {
            RespondingCall::FirstAttempt(_) => None,
            RespondingCall::Running(call) => Some(call.observer().enter_span()),
        }
    }

    /// A message over the size limit that follows the messages before it, which have been forwarded.
    pub(super) fn found_too_large(&self) -> Option<TooLarge> {
        self.response().size_limit.as_ref().and_then(MessageSizeLimit::found)
    }

    /// Records received data. Returns how much of it may be forwarded before a message over the size
    /// limit: all of it, or less, and then [`found_too_large`](RespondingCall::found_too_large) follows.
    pub(super) fn received(&mut self, data: &Bytes) -> Result<usize, TooLarge> {
        let RespondingCall::Running(call) = self else { return Ok(data.len()) };
        call.received(data);
        match &mut call.response.size_limit {
            None => Ok(data.len()),
            Some(size_limit) => size_limit.scan_prefix(data),
        }
    }

    /// The trailers have arrived.
    pub(super) fn received_trailers(&mut self, trailers: &HeaderMap) -> Trailers {
        let default = self.response().missing_status_code;
        let found = response_status::trailers_with_default(trailers, default);
        let classification = self.plan().classify(found.code, found.pushback);
        self.ended(found.code, classification, || response_status::message(trailers));
        found
    }

    /// The response ended without trailers.
    pub(super) fn received_no_trailers(&mut self) -> Trailers {
        let (code, pushback) = (self.response().missing_status_code, Pushback::None);
        let classification = self.plan().classify(code, pushback);
        self.ended(code, classification, || Some("the response ended without trailers".into()));
        Trailers { code, pushback, details: false }
    }

    /// Ends the call because of a message over the size limit (G41), unless the deadline has passed.
    pub(super) fn reject_response(&mut self, too_large: TooLarge) -> (Code, String) {
        let (code, text) = response_too_large(too_large);
        self.ended(code, Classification::from(Directive::Fail), || Some(text.clone()));
        if self.is_deadline_exceeded() { deadline_status() } else { (code, text) }
    }

    /// The stream failed: the connection, or the request body.
    pub(super) fn stream_failed(&mut self, error: BoxError) -> StreamError {
        // A request body that fails resets its stream, so its error is the cause, not the reset.
        let failure = match self {
            RespondingCall::FirstAttempt(_) => None,
            RespondingCall::Running(call) => {
                call.request_body.as_ref().and_then(|body| body.take_failure())
            }
        };
        let (code, classification) = match &failure {
            Some(failure) => (failure.code(), Classification::from(Directive::Fail)),
            None => {
                let (_, code) = transport_error::classify(&*error);
                (code, self.plan().classify(code, Pushback::None))
            }
        };
        self.ended(code, classification, || {
            let text = failure
                .as_ref()
                .map_or_else(|| transport_error::chain_text(&*error), Failure::text);
            Some(text)
        });
        match failure {
            Some(Failure::TooLarge(too_large)) => StreamError::RequestTooLarge(too_large),
            Some(Failure::Body(failed)) => StreamError::Other(failed),
            Some(Failure::Internal) => StreamError::Internal(Failure::Internal.text()),
            None => StreamError::Other(transport_error::with_code(error, code)),
        }
    }

    /// Records the outcome of the committed attempt.
    fn ended(
        &mut self,
        code: Code,
        classification: Classification,
        message: impl FnOnce() -> Option<String>,
    ) {
        if let RespondingCall::FirstAttempt(first) = self
            && classification.directive == Directive::Succeed
        {
            return first.succeeded();
        }
        let call = self.machine();
        let message = call.loggable(message);
        let cause = FailureCause::Response;
        call.ended(Outcome { code, message, classification, cause });
    }

    /// Whether the deadline has passed; if so, it ends the call.
    pub(super) fn check_deadline(&mut self) -> bool {
        match self {
            RespondingCall::FirstAttempt(_) => false,
            RespondingCall::Running(call) => call.check_deadline(),
        }
    }

    pub(super) fn is_deadline_exceeded(&self) -> bool {
        matches!(self, RespondingCall::Running(call) if call.is_deadline_exceeded())
    }

    /// Ready if the deadline ended the call.
    pub(super) fn poll_deadline(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let RespondingCall::Running(call) = self else { return Poll::Pending };
        // After commit the deadline is the only timer of a call.
        while call.end().is_none() {
            std::task::ready!(call.poll_due(cx));
        }
        Poll::Ready(())
    }

    /// Releases the request body: the call ends on this side.
    pub(super) fn release_request_body(&mut self) {
        if let RespondingCall::Running(call) = self {
            call.release_request_body();
        }
    }
}

pub(super) fn deadline_status() -> (Code, String) {
    (Code::DeadlineExceeded, "the deadline passed while receiving the response".to_owned())
}

/// The status of a call whose request contains a message over the size limit (G41).
pub(crate) fn request_too_large(too_large: TooLarge) -> (Code, String) {
    too_large_text("request", "maxRequestMessageBytes", too_large)
}

/// The status of a call whose response contains one.
fn response_too_large(too_large: TooLarge) -> (Code, String) {
    too_large_text("response", "maxResponseMessageBytes", too_large)
}

fn too_large_text(
    direction: &str,
    field: &str,
    TooLarge { size, limit }: TooLarge,
) -> (Code, String) {
    let text = format!(
        "the {direction} has a message of {size} bytes, and {field} of the service config is {limit}"
    );
    (Code::ResourceExhausted, text)
}
