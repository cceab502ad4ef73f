//! The body of a response: passes everything on, and tells the machine how the call ended.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use http_body::{Body, Frame, SizeHint};
use redial_core::{Classification, Directive};
use redial_service_config::Code;
use redial_service_config::Pushback;

use crate::answer::STATUS;
use crate::pool::Pooled;
use crate::sizes::TooLarge;
use crate::state::State;
use crate::tape::Failure;
use crate::template::{PREVIOUS, previous};
use crate::wrap::{Ended, numbered_error};
use crate::{BoxError, answer, evidence};

/// The body of a response.
///
/// # Cancel safety
/// Dropping it before its end cancels the call, and nothing is counted. The stream is reset; where
/// the server has stopped reading a request that is still being sent, hyper does that only when
/// the server reads on.
#[derive(Debug)]
pub struct ResponseBody<B: 'static>(Kind<B>);

// Small: clients put it into a box, and one of the size of their own costs them nothing.
#[derive(Debug)]
enum Kind<B: 'static> {
    /// It is nobody's concern.
    Pass(B),
    /// It is in the box of its call; none: the call ended here.
    Call(Pooled<B>),
}

impl<B> ResponseBody<B> {
    /// A body that is nobody's concern any more.
    pub(crate) fn pass(body: B) -> Self {
        ResponseBody(Kind::Pass(body))
    }

    /// No body: the response says it all.
    pub(crate) fn none() -> Self {
        ResponseBody(Kind::Call(Pooled::none()))
    }

    /// The body of the attempt that the call belongs to.
    #[inline]
    pub(crate) fn of(body: B, mut call: Pooled<B>) -> Self {
        call.put(body);
        ResponseBody(Kind::Call(call))
    }
}

/// No body. tonic's interceptors answer with one when they end a call themselves.
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
            Kind::Pass(body) => match Pin::new(body).poll_frame(cx) {
                Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(unwatched(error.into())))),
                polled => convert(polled),
            },
            Kind::Call(call) => poll_call(call, cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Pass(body) => body.is_end_stream(),
            // Until the status is known there is something to come.
            Kind::Call(call) => !call.is_some() && call.body().is_none_or(Body::is_end_stream),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Pass(body) => body.size_hint(),
            Kind::Call(call) => {
                call.body().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
            }
        }
    }
}

/// A body that is in the box of its call.
// Apart, so that one of a call that nobody watches is polled as it is without us.
#[inline(never)]
fn poll_call<B>(pooled: &mut Pooled<B>, cx: &mut Context<'_>) -> Polled
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    let Some((body, call)) = pooled.body_and_state() else { return Poll::Ready(None) };
    let body = Pin::new(body);
    let Some(call) = call else { return convert(body.poll_frame(cx)) };
    if let Some(too_large) = call.response_sizes.as_ref().and_then(|sizes| sizes.found()) {
        // What came before it was handed on.
        let refused = refuse(call, too_large);
        return end(pooled, refused);
    }
    let polled = {
        let _inside = call.inside();
        body.poll_frame(cx)
    };
    // By reference: a frame is large, and nearly each is handed on as it is.
    let seen = match &polled {
        Poll::Ready(Some(Ok(frame))) => saw(call, frame),
        Poll::Ready(None) => cut_off(call),
        Poll::Ready(Some(Err(_))) => Seen::Lost,
        Poll::Pending => std::task::ready!(poll_deadline(call, cx)),
    };
    match seen {
        // One that always has something would never come to its timer.
        Seen::More if !call.is_overtaken() => convert(polled),
        Seen::End { code, details } if !call.is_out_of_time() => {
            let number = if code == Code::Ok { 1 } else { call.number };
            let in_headers = call.unsaid_status == Code::Ok;
            match polled {
                // What is at its end is not polled again, also if trailers are made here.
                Poll::Ready(None) => pooled.clear(),
                _ => pooled.forget_state(),
            }
            let polled = convert(polled);
            let polled = if in_headers { with_ok(polled) } else { polled };
            if number > 1 || details { finished(polled, number) } else { polled }
        }
        seen => match rare(call, seen, convert(polled)) {
            Rare::HandsOn(frame) => Poll::Ready(Some(Ok(frame))),
            Rare::Fails(error) => {
                pooled.forget_state();
                Poll::Ready(Some(Err(error)))
            }
            Rare::Ends(code, message) => end(pooled, (code, message)),
        },
    }
}

/// Ends the call with a status that was made here.
#[cold]
fn end<B>(call: &mut Pooled<B>, (code, message): (Code, String)) -> Polled {
    let mut attempts = 0;
    if let Some(call) = call.state() {
        attempts = call.number;
        call.abandon_body();
    }
    // The body goes with it, which resets the stream.
    call.clear();
    let trailers = Ended::new(code, message, attempts).into_trailers();
    Poll::Ready(Some(Ok(Frame::trailers(trailers))))
}

/// What a body is asked for.
type Polled = Poll<Option<Result<Frame<Bytes>, BoxError>>>;

/// The same with an error of any kind.
#[inline]
fn convert<E: Into<BoxError>>(polled: Poll<Option<Result<Frame<Bytes>, E>>>) -> Polled {
    // Each case by itself, so that a frame is moved once.
    match polled {
        Poll::Ready(Some(Ok(frame))) => Poll::Ready(Some(Ok(frame))),
        Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(error.into()))),
        Poll::Ready(None) => Poll::Ready(None),
        Poll::Pending => Poll::Pending,
    }
}

fn out_of_time_text() -> (Code, String) {
    (Code::DeadlineExceeded, "the deadline passed while the response came".to_owned())
}

/// The status of a call whose request has a message that is too large (G41).
pub(crate) fn request_too_large(too_large: TooLarge) -> (Code, String) {
    too_large_text("request", "maxRequestMessageBytes", too_large)
}

/// The status of a call whose response has one.
fn response_too_large(too_large: TooLarge) -> (Code, String) {
    too_large_text("response", "maxResponseMessageBytes", too_large)
}

fn too_large_text(what: &str, field: &str, TooLarge { size, limit }: TooLarge) -> (Code, String) {
    let text = format!(
        "the {what} has a message of {size} bytes, and {field} of the service config is {limit}"
    );
    (Code::ResourceExhausted, text)
}

/// What that which came means for the call.
enum Seen {
    More,
    /// So many bytes, and then a message that is too large.
    Before(usize),
    /// This status, and whether there are details beside it.
    End {
        code: Code,
        details: bool,
    },
    TooLarge(TooLarge),
    /// The connection, or what the application wrote.
    Lost,
}

#[inline]
fn saw(call: &mut State, frame: &Frame<Bytes>) -> Seen {
    if let Some(data) = frame.data_ref() {
        call.received(data);
        match call.response_sizes.as_mut().map(|sizes| sizes.look_up_to(data)) {
            Some(Err(too_large)) => Seen::TooLarge(too_large),
            Some(Ok(wanted)) if wanted < data.len() => Seen::Before(wanted),
            _ => Seen::More,
        }
    } else if let Some(trailers) = frame.trailers_ref() {
        let said = answer::trailers_or(trailers, call.unsaid_status);
        let classification = call.plan().judge(said.code, said.pushback);
        call.ended(said.code, classification, || answer::message(trailers));
        Seen::End { code: said.code, details: said.details }
    } else {
        Seen::More
    }
}

/// A message that is too large ends the call (G41), unless the deadline has.
#[cold]
fn refuse(call: &mut State, too_large: TooLarge) -> (Code, String) {
    let (code, text) = response_too_large(too_large);
    call.ended(code, Classification::from(Directive::Fail), || Some(text));
    if call.is_out_of_time() { out_of_time_text() } else { response_too_large(too_large) }
}

/// A response that just stops: no trailers came.
#[cold]
fn cut_off(call: &mut State) -> Seen {
    let code = call.unsaid_status;
    let classification = call.plan().judge(code, Pushback::None);
    call.ended(code, classification, || Some("the response ended without trailers".into()));
    Seen::End { code, details: false }
}

/// Gives the application in the trailers the OK that was in the headers, unless they have a status.
#[cold]
fn with_ok(polled: Polled) -> Polled {
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

/// Writes into a status how many attempts came before (G30), and removes details that do not decode.
#[cold]
fn finished(mut polled: Polled, number: u32) -> Polled {
    if let Poll::Ready(Some(Ok(frame))) = &mut polled
        && let Some(trailers) = frame.trailers_mut()
    {
        answer::drop_invalid_details(trailers);
        if let Some(previous) = previous(number) {
            trailers.insert(PREVIOUS, previous);
        }
    }
    polled
}

/// What follows from what seldom comes.
enum Rare {
    HandsOn(Frame<Bytes>),
    Fails(BoxError),
    Ends(Code, String),
}

#[cold]
fn rare(call: &mut State, seen: Seen, polled: Polled) -> Rare {
    let (code, text) = match (seen, polled) {
        (Seen::Before(wanted), Poll::Ready(Some(Ok(frame)))) => {
            return Rare::HandsOn(frame.map_data(|data| data.slice(..wanted)));
        }
        (Seen::TooLarge(too_large), _) => refuse(call, too_large),
        (_, Poll::Ready(Some(Err(error)))) => match lost(call, error) {
            _ if call.is_out_of_time() => out_of_time_text(),
            Lost::TooLarge(too_large) => request_too_large(too_large),
            Lost::To(error) => return Rare::Fails(numbered_error(error, call.number)),
        },
        _ => out_of_time_text(),
    };
    Rare::Ends(code, text)
}

/// Why a response that had begun was lost.
enum Lost {
    /// The application wrote a message that is too large.
    TooLarge(TooLarge),
    To(BoxError),
}

#[cold]
fn lost(call: &mut State, error: BoxError) -> Lost {
    // A body that fails resets its stream: it is the reason, and not what the connection says.
    let failure = call.body.as_ref().and_then(|body| body.failure());
    let (code, classification) = match &failure {
        Some(failure) => (failure.code(), Classification::from(Directive::Fail)),
        None => {
            let (_, code) = evidence::of(&*error);
            (code, call.plan().judge(code, Pushback::None))
        }
    };
    call.ended(code, classification, || {
        Some(failure.as_ref().map_or_else(|| evidence::text(&*error), Failure::text))
    });
    match failure {
        Some(Failure::TooLarge(too_large)) => Lost::TooLarge(too_large),
        Some(Failure::Body(failed)) => Lost::To(failed),
        None => Lost::To(evidence::recoded(error, code)),
    }
}

/// A response that nobody watches was lost. Also then a status is ours, not tonic's.
#[cold]
fn unwatched(error: BoxError) -> BoxError {
    let (_, code) = evidence::of(&*error);
    evidence::recoded(error, code)
}

/// Ready if the deadline ended the call.
fn poll_deadline(call: &mut State, cx: &mut Context<'_>) -> Poll<Seen> {
    if call.is_first() {
        return Poll::Pending;
    }
    let begun = call.begun();
    while begun.end().is_none() {
        std::task::ready!(begun.poll_due(cx));
    }
    // The deadline it was: nothing else is due once a call belongs to an attempt.
    Poll::Ready(Seen::End { code: Code::DeadlineExceeded, details: false })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Red: keep the call's box beside the body instead of the body in the box.
    #[test]
    fn a_body_that_is_nobodys_concern_is_one_word_larger_than_without_us() {
        type IntoDirective = usize;
        assert_eq!(size_of::<ResponseBody<[IntoDirective; 2]>>(), 3 * size_of::<IntoDirective>());
    }
}
