//! The body of a response: passes everything on, and tells the machine how the call ended.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use redial::code::Code;
use redial_core::{Directive, Judgement};
use redial_service_config::Pushback;

use crate::pool::Pooled;
use crate::sizes::TooLarge;
use crate::state::State;
use crate::tape::Failure;
use crate::template::{PREVIOUS, previous};
use crate::wrap::Ended;
use crate::{BoxError, answer, evidence};

pin_project! {
    /// The body of a response.
    ///
    /// # Cancel safety
    /// Dropping it before its end cancels the call, and nothing is counted. The stream is reset; where
    /// the server has stopped reading a request that is still being sent, hyper does that only when
    /// the server reads on.
    #[derive(Debug)]
    pub struct ResponseBody<B> {
        // None: the call ended here.
        #[pin]
        inner: Option<B>,
        // The call, which belongs to the attempt whose response this is, until it ends.
        call: Pooled,
    }
}

impl<B> ResponseBody<B> {
    /// A body that is nobody's concern any more.
    pub(crate) fn pass(inner: B) -> Self {
        ResponseBody { inner: Some(inner), call: Pooled::none() }
    }

    /// No body: the response says it all.
    pub(crate) fn none() -> Self {
        ResponseBody { inner: None, call: Pooled::none() }
    }

    /// The body of the attempt that the call belongs to.
    pub(crate) fn of(inner: B, call: Pooled) -> Self {
        ResponseBody { inner: Some(inner), call }
    }

    /// Ends the call with a status that was made here.
    #[cold]
    fn end(self: Pin<&mut Self>, (code, message): (Code, String)) -> Polled {
        let mut this = self.project();
        let mut attempts = 0;
        if let Some(call) = this.call.state() {
            attempts = call.number;
            call.abandon_body();
        }
        this.call.clear();
        // Dropped, it resets the stream.
        this.inner.set(None);
        let trailers = Ended::new(code, message, attempts).into_trailers();
        Poll::Ready(Some(Ok(Frame::trailers(trailers))))
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
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Polled {
        if self.call.is_some() {
            return self.poll_call(cx);
        }
        match self.project().inner.as_pin_mut() {
            Some(inner) => match inner.poll_frame(cx) {
                Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(unwatched(error.into())))),
                polled => convert(polled),
            },
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        // Until the status is known there is something to come.
        !self.call.is_some() && self.inner.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}

impl<B> ResponseBody<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    /// A body of a call that has not ended.
    // Apart, so that one of a call that nobody watches is polled as it is without us.
    #[inline(never)]
    fn poll_call(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Polled {
        let mut this = self.as_mut().project();
        let Some(inner) = this.inner.as_mut().as_pin_mut() else { return Poll::Ready(None) };
        let Some(call) = this.call.state() else { return convert(inner.poll_frame(cx)) };
        if let Some(too_large) = call.response_sizes.as_ref().and_then(|sizes| sizes.found()) {
            // What came before it was handed on.
            refuse(call);
            return self.end(too_large_text(too_large));
        }
        let polled = {
            let _inside = call.inside();
            inner.poll_frame(cx)
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
            Seen::End(code) if !call.is_out_of_time() => {
                let number = if code == Code::Ok { 1 } else { call.number };
                this.call.clear();
                if number > 1 { numbered(convert(polled), number) } else { convert(polled) }
            }
            seen => match rare(call, seen, convert(polled)) {
                Rare::HandsOn(frame) => Poll::Ready(Some(Ok(frame))),
                Rare::Fails(error) => {
                    this.call.clear();
                    Poll::Ready(Some(Err(error)))
                }
                Rare::Ends(code, message) => self.end((code, message)),
            },
        }
    }
}

/// What a body is asked for.
type Polled = Poll<Option<Result<Frame<Bytes>, BoxError>>>;

/// The same with an error of any kind.
#[inline]
fn convert<E: Into<BoxError>>(polled: Poll<Option<Result<Frame<Bytes>, E>>>) -> Polled {
    polled.map(|frame| frame.map(|frame| frame.map_err(Into::into)))
}

fn out_of_time_text() -> (Code, String) {
    (Code::DeadlineExceeded, "the deadline passed while the response came".to_owned())
}

pub(crate) fn too_large_text(TooLarge { size, limit }: TooLarge) -> (Code, String) {
    let text = format!("a message of {size} bytes is larger than the {limit} that are allowed");
    (Code::ResourceExhausted, text)
}

/// What that which came means for the call.
enum Seen {
    More,
    /// So many bytes, and then a message that is too large.
    Before(usize),
    End(Code),
    TooLarge(TooLarge),
    /// The connection, or what the application wrote.
    Lost,
}

#[inline]
fn saw(call: &mut State, frame: &Frame<Bytes>) -> Seen {
    if let Some(data) = frame.data_ref() {
        call.received(data);
        match call.response_sizes.as_mut().map(|sizes| sizes.look_up_to(data)) {
            Some(Err(too_large)) => {
                refuse(call);
                Seen::TooLarge(too_large)
            }
            Some(Ok(wanted)) if wanted < data.len() => Seen::Before(wanted),
            _ => Seen::More,
        }
    } else if let Some(trailers) = frame.trailers_ref() {
        let (code, pushback) = answer::trailers(trailers);
        call.ended(code, call.plan().judge(code, pushback));
        Seen::End(code)
    } else {
        Seen::More
    }
}

/// A message that is too large ends the call (G41).
#[cold]
fn refuse(call: &mut State) {
    call.ended(Code::ResourceExhausted, Judgement::from(Directive::Fail));
}

/// A response that just stops: no status came.
#[cold]
fn cut_off(call: &mut State) -> Seen {
    call.ended(Code::Unknown, call.plan().judge(Code::Unknown, Pushback::None));
    Seen::End(Code::Unknown)
}

/// Tells the application in a failure's status how many attempts came before (G30).
#[cold]
fn numbered(mut polled: Polled, number: u32) -> Polled {
    if let Poll::Ready(Some(Ok(frame))) = &mut polled
        && let (Some(previous), Some(trailers)) = (previous(number), frame.trailers_mut())
    {
        trailers.insert(PREVIOUS, previous);
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
        (Seen::TooLarge(too_large), _) => too_large_text(too_large),
        (_, Poll::Ready(Some(Err(error)))) => match lost(call, error) {
            _ if call.is_out_of_time() => out_of_time_text(),
            Lost::TooLarge(too_large) => too_large_text(too_large),
            Lost::To(error) => return Rare::Fails(error),
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
    let (code, judgement) = match &failure {
        Some(failure) => (failure.code(), Judgement::from(Directive::Fail)),
        None => {
            let (_, code) = evidence::of(&*error);
            (code, call.plan().judge(code, Pushback::None))
        }
    };
    call.ended(code, judgement);
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
    Poll::Ready(Seen::End(Code::DeadlineExceeded))
}
