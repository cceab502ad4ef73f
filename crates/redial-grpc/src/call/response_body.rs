//! The response body: forwards frames and reports the final status of the call.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use http_body::{Body, Frame, SizeHint};
use redial_service_config::Code;

use super::Call;
use super::responding::{StreamError, deadline_status, request_too_large};
use crate::client_adapter::LocalStatus;
use crate::header_scanner::STATUS;
use crate::previous_attempts_stamp::{stamp_error, stamp_headers};
use crate::response_status::{self, Trailers};
use crate::{BoxError, transport_error};

/// The body of a response.
///
/// # Panics
/// If user code panics during a poll, for example a metrics recorder, the panic is passed on, and each
/// further poll panics: the body can only be dropped.
///
/// # Cancel safety
/// Dropping it before its end cancels the call; no outcome is counted. The stream is reset. If the
/// server has stopped reading a request that is still being sent, hyper sends the reset only after
/// the server resumes reading.
#[derive(Debug)]
pub struct ResponseBody<B> {
    /// `None` for a Trailers-Only response, and if the call ended on this side.
    body: Option<B>,
    /// Responding, or ended. A call without retry state has ended from the start.
    call: Call,
}

/// Result of polling a body.
type Polled = Poll<Option<Result<Frame<Bytes>, BoxError>>>;

impl<B> ResponseBody<B> {
    /// The body of the attempt that the call is committed to.
    pub(super) fn new(body: B, call: Call) -> Self {
        ResponseBody { body: Some(body), call }
    }

    /// A body without retry state.
    pub(super) fn pass_through(body: B) -> Self {
        ResponseBody::new(body, Call::Ended)
    }

    /// An empty body, for a Trailers-Only response.
    pub(super) fn none() -> Self {
        ResponseBody { body: None, call: Call::Ended }
    }

    fn is_responding(&self) -> bool {
        matches!(self.call, Call::Responding(_))
    }

    /// Ends the call with a locally generated status.
    fn end_locally(&mut self, (code, message): (Code, String)) -> Polled {
        let mut attempts = 0;
        if let Call::Responding(call) = &mut self.call {
            attempts = call.number();
            call.release_request_body();
        }
        self.call = Call::Ended;
        // Dropping the body resets the stream.
        self.body = None;
        let trailers = LocalStatus::new(code, message, attempts).into_trailers();
        Poll::Ready(Some(Ok(Frame::trailers(trailers))))
    }
}

/// Marks the call as panicked, unless it is forgotten. Its status may have been received and be lost. The
/// call is kept, because its end is reported to user code, where a second panic during the unwinding would
/// abort the process.
struct PanicGuard<'a, B>(&'a mut ResponseBody<B>);

impl<B> Drop for PanicGuard<'_, B> {
    fn drop(&mut self) {
        if let Call::Responding(call) = std::mem::replace(&mut self.0.call, Call::Ended) {
            self.0.call = Call::Panicked(Box::new(call));
        }
    }
}

/// An empty body. tonic's interceptors return one when they end a call themselves.
impl<B> Default for ResponseBody<B> {
    fn default() -> Self {
        ResponseBody::none()
    }
}

impl<B> Body for ResponseBody<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Polled {
        let this = self.get_mut();
        if this.is_responding() {
            let guard = PanicGuard(this);
            let polled = guard.0.poll_responding(cx);
            std::mem::forget(guard);
            return polled;
        }
        assert!(!matches!(this.call, Call::Panicked(_)), "polled after a panic");
        match &mut this.body {
            Some(body) => Pin::new(body).poll_frame(cx).map_err(|error| with_code(error.into())),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        // The body has not ended before its status is known.
        matches!(self.call, Call::Ended) && self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}

impl<B> ResponseBody<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    /// Polls the body of a call whose final status is not known yet.
    fn poll_responding(&mut self, cx: &mut Context<'_>) -> Polled {
        let (Some(body), Call::Responding(call)) = (&mut self.body, &mut self.call) else {
            return Poll::Ready(None);
        };
        if let Some(too_large) = call.found_too_large() {
            let status = call.reject_response(too_large);
            return self.end_locally(status);
        }
        let polled = {
            let _guard = call.enter_span();
            Pin::new(body).poll_frame(cx)
        };
        let frame = match polled {
            Poll::Ready(Some(Ok(frame))) => frame,
            Poll::Ready(Some(Err(error))) => return self.stream_failed(error.into()),
            Poll::Ready(None) => {
                let trailers = call.received_no_trailers();
                return self.call_ended(None, trailers);
            }
            Poll::Pending => {
                ready!(call.poll_deadline(cx));
                return self.end_locally(deadline_status());
            }
        };
        if let Some(trailers) = frame.trailers_ref() {
            let trailers = call.received_trailers(trailers);
            return self.call_ended(Some(frame), trailers);
        }
        let frame = match frame.data_ref() {
            Some(data) => match call.received(data) {
                Ok(valid_len) if valid_len < data.len() => {
                    return Poll::Ready(Some(Ok(frame.map_data(|data| data.slice(..valid_len)))));
                }
                Ok(_) => frame,
                Err(too_large) => {
                    let status = call.reject_response(too_large);
                    return self.end_locally(status);
                }
            },
            None => frame,
        };
        // A body that is always ready would never get to poll its deadline timer.
        if call.check_deadline() {
            return self.end_locally(deadline_status());
        }
        Poll::Ready(Some(Ok(frame)))
    }

    /// The final status is known, with or without trailers.
    fn call_ended(&mut self, mut frame: Option<Frame<Bytes>>, trailers: Trailers) -> Polled {
        let Call::Responding(call) = &self.call else { return Poll::Ready(None) };
        if call.is_deadline_exceeded() {
            return self.end_locally(deadline_status());
        }
        let number = if trailers.code == Code::Ok { 1 } else { call.number() };
        let ok_in_headers = call.ok_in_headers();
        self.call = Call::Ended;
        if frame.is_none() {
            // A body that has ended must not be polled again, even if trailers are generated here.
            self.body = None;
        }
        if ok_in_headers {
            frame = Some(with_ok_status(frame));
        }
        if (number > 1 || trailers.details)
            && let Some(trailers) = frame.as_mut().and_then(Frame::trailers_mut)
        {
            response_status::drop_invalid_details(trailers);
            stamp_headers(trailers, number);
        }
        Poll::Ready(frame.map(Ok))
    }

    fn stream_failed(&mut self, error: BoxError) -> Polled {
        let Call::Responding(call) = &mut self.call else { return Poll::Ready(None) };
        let number = call.number();
        match call.stream_failed(error) {
            _ if call.is_deadline_exceeded() => self.end_locally(deadline_status()),
            StreamError::RequestTooLarge(too_large) => {
                self.end_locally(request_too_large(too_large))
            }
            StreamError::Internal(text) => self.end_locally((Code::Internal, text)),
            StreamError::Other(error) => {
                self.call = Call::Ended;
                Poll::Ready(Some(Err(stamp_error(error, number))))
            }
        }
    }
}

/// Moves the OK status from the headers into the trailers, unless the trailers have a status.
fn with_ok_status(frame: Option<Frame<Bytes>>) -> Frame<Bytes> {
    let mut trailers = match frame.map(Frame::into_trailers) {
        None => HeaderMap::new(),
        Some(Ok(trailers)) => trailers,
        Some(Err(data)) => return data,
    };
    trailers.entry(STATUS).or_insert(HeaderValue::from_static("0"));
    Frame::trailers(trailers)
}

/// The error of a response without retry state. The status code comes from this layer's mapping, not
/// from tonic.
fn with_code(error: BoxError) -> BoxError {
    let (_, code) = transport_error::classify(&*error);
    transport_error::with_code(error, code)
}
