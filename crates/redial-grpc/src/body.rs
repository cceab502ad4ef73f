//! The response body: forwards frames and reports the outcome of the call to the state machine.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use http_body::{Body, Frame, SizeHint};
use redial_core::{Classification, Directive};
use redial_service_config::Code;
use redial_service_config::Pushback;

use crate::call_pool::PooledCall;
use crate::call_state::CallState;
use crate::client_adapter::{LocalStatus, error_with_attempt_count};
use crate::message_size::TooLarge;
use crate::replay_buffer::Failure;
use crate::request_head::{PREVIOUS_ATTEMPTS, previous_attempts_header};
use crate::response_status::STATUS;
use crate::{BoxError, response_status, transport_error};

/// The body of a response.
///
/// # Cancel safety
/// Dropping it before its end cancels the call; no outcome is counted. The stream is reset. If the
/// server has stopped reading a request that is still being sent, hyper sends the reset only after
/// the server resumes reading.
#[derive(Debug)]
pub struct ResponseBody<B: 'static>(Kind<B>);

// Kept small: clients box the body, and the box should stay in the allocator's size class for theirs.
#[derive(Debug)]
enum Kind<B: 'static> {
    /// Pass-through: no retry state attached.
    PassThrough(B),
    /// The body is in the box of its call. Empty if the call ended on this side.
    Call(PooledCall<B>),
}

impl<B> ResponseBody<B> {
    /// A body without retry state.
    pub(crate) fn pass_through(body: B) -> Self {
        ResponseBody(Kind::PassThrough(body))
    }

    /// An empty body, for a Trailers-Only response.
    pub(crate) fn none() -> Self {
        ResponseBody(Kind::Call(PooledCall::none()))
    }

    /// The body of the attempt that the call is committed to.
    #[inline]
    pub(crate) fn of(body: B, mut call: PooledCall<B>) -> Self {
        call.set_body(body);
        ResponseBody(Kind::Call(call))
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
        match &mut self.get_mut().0 {
            Kind::PassThrough(body) => match Pin::new(body).poll_frame(cx) {
                Poll::Ready(Some(Err(error))) => {
                    Poll::Ready(Some(Err(pass_through_error(error.into()))))
                }
                polled => convert(polled),
            },
            Kind::Call(call) => poll_call(call, cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::PassThrough(body) => body.is_end_stream(),
            // The body has not ended before its status is known.
            Kind::Call(call) => !call.is_some() && call.body().is_none_or(Body::is_end_stream),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::PassThrough(body) => body.size_hint(),
            Kind::Call(call) => {
                call.body().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
            }
        }
    }
}

/// Polls a body that is in the box of its call.
// Not inlined, so that the pass-through path stays as small as without this layer.
#[inline(never)]
fn poll_call<B>(pooled: &mut PooledCall<B>, cx: &mut Context<'_>) -> Polled
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    let Some((body, call)) = pooled.body_and_state() else { return Poll::Ready(None) };
    let body = Pin::new(body);
    let Some(call) = call else { return convert(body.poll_frame(cx)) };
    if let Some(too_large) =
        call.response_size_limit.as_ref().and_then(|size_limit| size_limit.found())
    {
        // The messages before it have been forwarded.
        let rejected = reject_response(call, too_large);
        return end_call(pooled, rejected);
    }
    let polled = {
        let _guard = call.enter_span();
        body.poll_frame(cx)
    };
    // By reference: frames are large, and nearly all of them are forwarded unchanged.
    let effect = match &polled {
        Poll::Ready(Some(Ok(frame))) => inspect_frame(call, frame),
        Poll::Ready(None) => missing_trailers(call),
        Poll::Ready(Some(Err(_))) => FrameEffect::Lost,
        Poll::Pending => std::task::ready!(poll_deadline(call, cx)),
    };
    match effect {
        // A body that is always ready would never get to poll its deadline timer.
        FrameEffect::Continue if !call.check_deadline() => convert(polled),
        FrameEffect::End { code, details } if !call.is_deadline_exceeded() => {
            let number = if code == Code::Ok { 1 } else { call.number };
            let in_headers = call.missing_status_code == Code::Ok;
            match polled {
                // A body that has ended must not be polled again, even if trailers are generated here.
                Poll::Ready(None) => pooled.clear(),
                _ => pooled.drop_state(),
            }
            let polled = convert(polled);
            let polled = if in_headers { add_ok_status(polled) } else { polled };
            if number > 1 || details { finish_trailers(polled, number) } else { polled }
        }
        effect => match slow_path(call, effect, convert(polled)) {
            SlowPath::Forward(frame) => Poll::Ready(Some(Ok(frame))),
            SlowPath::Fail(error) => {
                pooled.drop_state();
                Poll::Ready(Some(Err(error)))
            }
            SlowPath::End(code, message) => end_call(pooled, (code, message)),
        },
    }
}

/// Ends the call with a locally generated status.
#[cold]
fn end_call<B>(call: &mut PooledCall<B>, (code, message): (Code, String)) -> Polled {
    let mut attempts = 0;
    if let Some(call) = call.state() {
        attempts = call.number;
        call.release_request_body();
    }
    // Dropping the body resets the stream.
    call.clear();
    let trailers = LocalStatus::new(code, message, attempts).into_trailers();
    Poll::Ready(Some(Ok(Frame::trailers(trailers))))
}

/// Result of polling a body.
type Polled = Poll<Option<Result<Frame<Bytes>, BoxError>>>;

/// Converts the error type.
#[inline]
fn convert<E: Into<BoxError>>(polled: Poll<Option<Result<Frame<Bytes>, E>>>) -> Polled {
    // Case by case, so that the frame is moved only once.
    match polled {
        Poll::Ready(Some(Ok(frame))) => Poll::Ready(Some(Ok(frame))),
        Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(error.into()))),
        Poll::Ready(None) => Poll::Ready(None),
        Poll::Pending => Poll::Pending,
    }
}

fn deadline_status() -> (Code, String) {
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

/// Effect of a received frame on the call.
enum FrameEffect {
    Continue,
    /// The frame is valid up to this length; a message over the size limit follows.
    TruncateAt(usize),
    /// The call ended with this status. `details`: the trailers contain status details.
    End {
        code: Code,
        details: bool,
    },
    TooLarge(TooLarge),
    /// The stream failed: the connection, or the request body.
    Lost,
}

#[inline]
fn inspect_frame(call: &mut CallState, frame: &Frame<Bytes>) -> FrameEffect {
    if let Some(data) = frame.data_ref() {
        call.received(data);
        match call.response_size_limit.as_mut().map(|size_limit| size_limit.scan_prefix(data)) {
            Some(Err(too_large)) => FrameEffect::TooLarge(too_large),
            Some(Ok(valid_len)) if valid_len < data.len() => FrameEffect::TruncateAt(valid_len),
            _ => FrameEffect::Continue,
        }
    } else if let Some(trailers) = frame.trailers_ref() {
        let status = response_status::trailers_with_default(trailers, call.missing_status_code);
        let classification = call.plan().classify(status.code, status.pushback);
        call.ended(status.code, classification, || response_status::message(trailers));
        FrameEffect::End { code: status.code, details: status.details }
    } else {
        FrameEffect::Continue
    }
}

/// Ends the call because of a message over the size limit (G41), unless the deadline has passed.
#[cold]
fn reject_response(call: &mut CallState, too_large: TooLarge) -> (Code, String) {
    let (code, text) = response_too_large(too_large);
    call.ended(code, Classification::from(Directive::Fail), || Some(text));
    if call.is_deadline_exceeded() { deadline_status() } else { response_too_large(too_large) }
}

/// The response ended without trailers.
#[cold]
fn missing_trailers(call: &mut CallState) -> FrameEffect {
    let code = call.missing_status_code;
    let classification = call.plan().classify(code, Pushback::None);
    call.ended(code, classification, || Some("the response ended without trailers".into()));
    FrameEffect::End { code, details: false }
}

/// Moves the OK status from the headers into the trailers, unless the trailers have a status.
#[cold]
fn add_ok_status(polled: Polled) -> Polled {
    let mut trailers = match polled {
        Poll::Ready(None) => HeaderMap::new(),
        Poll::Ready(Some(Ok(frame))) => match frame.into_trailers() {
            Ok(trailers) => trailers,
            Err(data) => return Poll::Ready(Some(Ok(data))),
        },
        other => return other,
    };
    trailers.entry(STATUS).or_insert(HeaderValue::from_static("0"));
    Poll::Ready(Some(Ok(Frame::trailers(trailers))))
}

/// Adds the number of previous attempts to a status (G30) and removes status details that are not
/// valid base64.
#[cold]
fn finish_trailers(mut polled: Polled, number: u32) -> Polled {
    if let Poll::Ready(Some(Ok(frame))) = &mut polled
        && let Some(trailers) = frame.trailers_mut()
    {
        response_status::drop_invalid_details(trailers);
        if let Some(previous) = previous_attempts_header(number) {
            trailers.insert(PREVIOUS_ATTEMPTS, previous);
        }
    }
    polled
}

/// Result of the slow path.
enum SlowPath {
    Forward(Frame<Bytes>),
    Fail(BoxError),
    End(Code, String),
}

#[cold]
fn slow_path(call: &mut CallState, effect: FrameEffect, polled: Polled) -> SlowPath {
    let (code, text) = match (effect, polled) {
        (FrameEffect::TruncateAt(valid_len), Poll::Ready(Some(Ok(frame)))) => {
            return SlowPath::Forward(frame.map_data(|data| data.slice(..valid_len)));
        }
        (FrameEffect::TooLarge(too_large), _) => reject_response(call, too_large),
        (_, Poll::Ready(Some(Err(error)))) => match handle_stream_error(call, error) {
            _ if call.is_deadline_exceeded() => deadline_status(),
            StreamError::RequestTooLarge(too_large) => request_too_large(too_large),
            StreamError::Other(error) => {
                return SlowPath::Fail(error_with_attempt_count(error, call.number));
            }
        },
        _ => deadline_status(),
    };
    SlowPath::End(code, text)
}

/// Why a started response stream failed.
enum StreamError {
    /// The request contained a message over the size limit.
    RequestTooLarge(TooLarge),
    Other(BoxError),
}

#[cold]
fn handle_stream_error(call: &mut CallState, error: BoxError) -> StreamError {
    // A request body that fails resets its stream, so its error is the cause, not the reset.
    let failure = call.request_body.as_ref().and_then(|body| body.take_failure());
    let (code, classification) = match &failure {
        Some(failure) => (failure.code(), Classification::from(Directive::Fail)),
        None => {
            let (_, code) = transport_error::classify(&*error);
            (code, call.plan().classify(code, Pushback::None))
        }
    };
    call.ended(code, classification, || {
        Some(failure.as_ref().map_or_else(|| transport_error::chain_text(&*error), Failure::text))
    });
    match failure {
        Some(Failure::TooLarge(too_large)) => StreamError::RequestTooLarge(too_large),
        Some(Failure::Body(failed)) => StreamError::Other(failed),
        None => StreamError::Other(transport_error::with_code(error, code)),
    }
}

/// A pass-through response failed. The status code comes from this layer's mapping, not from tonic.
#[cold]
fn pass_through_error(error: BoxError) -> BoxError {
    let (_, code) = transport_error::classify(&*error);
    transport_error::with_code(error, code)
}

/// Ready if the deadline ended the call.
fn poll_deadline(call: &mut CallState, cx: &mut Context<'_>) -> Poll<FrameEffect> {
    if call.is_fast_path() {
        return Poll::Pending;
    }
    let running_call = call.running_call();
    while running_call.end().is_none() {
        std::task::ready!(running_call.poll_due(cx));
    }
    // After commit the deadline is the only timer of a call.
    Poll::Ready(FrameEffect::End { code: Code::DeadlineExceeded, details: false })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn pass_through_body_adds_one_machine_word() {
        assert_eq!(size_of::<ResponseBody<[usize; 2]>>(), 3 * size_of::<usize>());
    }
}
