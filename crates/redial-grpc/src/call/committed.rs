//! A call after the commit: the response of one attempt is received, until its final status.

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

/// A call after the commit.
pub(crate) struct CommittedCall {
    progress: Progress,
    /// Number of the committed attempt, as reported to the application.
    pub(super) number: u32,
    /// Status of a response whose trailers have none: UNKNOWN, or OK if the headers carried it and left
    /// the stream open.
    pub(super) missing_status_code: Code,
    /// Boxed, since few configs set a response size limit.
    response_size_limit: Option<Box<MessageSizeLimit>>,
}

/// How far the call got before the commit.
pub(super) enum Progress {
    /// Fast path: no state machine yet.
    FirstAttempt(FirstAttemptCall),
    Running(Box<RunningCall>),
}

/// Why a started response stream failed.
pub(super) enum StreamError {
    /// The request contained a message over the size limit.
    RequestTooLarge(TooLarge),
    /// A bug in this crate.
    Internal(String),
    Other(BoxError),
}

impl CommittedCall {
    pub(super) fn new(mut progress: Progress, number: u32, ok_in_headers: bool) -> Self {
        if let Progress::FirstAttempt(first) = &mut progress {
            first.committed();
        }
        let response_max = progress.context().method.response_max();
        CommittedCall {
            progress,
            number,
            missing_status_code: if ok_in_headers { Code::Ok } else { Code::Unknown },
            response_size_limit: response_max.map(|max| Box::new(MessageSizeLimit::new(max))),
        }
    }

    fn plan(&self) -> &Plan {
        self.progress.context().plan()
    }

    /// The state machine; leaves the fast path if necessary.
    fn machine(&mut self) -> &mut RunningCall {
        if let Progress::FirstAttempt(first) = &mut self.progress {
            self.progress = Progress::Running(Box::new(first.start_machine()));
        }
        match &mut self.progress {
            Progress::Running(call) => call,
            Progress::FirstAttempt(_) => unreachable!("the fast path was left above"),
        }
    }

    /// Enters the span of the call.
    pub(super) fn enter_span(&self) -> Option<SpanGuard> {
        match &self.progress {
            Progress::FirstAttempt(_) => None,
            Progress::Running(call) => Some(call.observer().enter_span()),
        }
    }

    /// A message over the size limit that follows the messages before it, which have been forwarded.
    pub(super) fn found_too_large(&self) -> Option<TooLarge> {
        self.response_size_limit.as_ref().and_then(|size_limit| size_limit.found())
    }

    /// Records received data. Returns how much of it may be forwarded before a message over the size
    /// limit: all of it, or less, and then [`found_too_large`](CommittedCall::found_too_large) follows.
    pub(super) fn received(&mut self, data: &Bytes) -> Result<usize, TooLarge> {
        if let Progress::Running(call) = &mut self.progress {
            call.received(data);
        }
        match &mut self.response_size_limit {
            None => Ok(data.len()),
            Some(size_limit) => size_limit.scan_prefix(data),
        }
    }

    /// The trailers have arrived.
    pub(super) fn received_trailers(&mut self, trailers: &HeaderMap) -> Trailers {
        let found = response_status::trailers_with_default(trailers, self.missing_status_code);
        let classification = self.plan().classify(found.code, found.pushback);
        self.ended(found.code, classification, || response_status::message(trailers));
        found
    }

    /// The response ended without trailers.
    pub(super) fn received_no_trailers(&mut self) -> Trailers {
        let (code, pushback) = (self.missing_status_code, Pushback::None);
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
        let failure = match &self.progress {
            Progress::FirstAttempt(_) => None,
            Progress::Running(call) => {
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
        if let Progress::FirstAttempt(first) = &self.progress
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
        match &mut self.progress {
            Progress::FirstAttempt(_) => false,
            Progress::Running(call) => call.check_deadline(),
        }
    }

    pub(super) fn is_deadline_exceeded(&self) -> bool {
        matches!(&self.progress, Progress::Running(call) if call.is_deadline_exceeded())
    }

    /// Ready if the deadline ended the call.
    pub(super) fn poll_deadline(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Progress::Running(call) = &mut self.progress else { return Poll::Pending };
        // After commit the deadline is the only timer of a call.
        while call.end().is_none() {
            std::task::ready!(call.poll_due(cx));
        }
        Poll::Ready(())
    }

    /// Releases the request body: the call ends on this side.
    pub(super) fn release_request_body(&mut self) {
        if let Progress::Running(call) = &mut self.progress {
            call.release_request_body();
        }
    }
}

impl Progress {
    fn context(&self) -> &CallContext {
        match self {
            Progress::FirstAttempt(first) => first.context(),
            Progress::Running(call) => call.context(),
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
