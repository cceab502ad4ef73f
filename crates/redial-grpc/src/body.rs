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
        call: Option<Pooled>,
    }
}

impl<B> ResponseBody<B> {
    /// A body that is nobody's concern any more.
    pub(crate) fn pass(inner: B) -> Self {
        ResponseBody { inner: Some(inner), call: None }
    }

    /// No body: the response says it all.
    pub(crate) fn none() -> Self {
        ResponseBody { inner: None, call: None }
    }

    /// The body of the attempt that the call belongs to.
    pub(crate) fn of(inner: B, call: Pooled) -> Self {
        ResponseBody { inner: Some(inner), call: Some(call) }
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

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let mut this = self.project();
        let Some(inner) = this.inner.as_mut().as_pin_mut() else { return Poll::Ready(None) };
        let _inside = this.call.as_ref().map(|call| call.observer().inside());
        let polled = inner.poll_frame(cx).map(|frame| frame.map(|frame| frame.map_err(Into::into)));
        let Some(call) = this.call else { return polled };
        let ended = match polled {
            Poll::Ready(Some(Err(error))) => match lost(call, error) {
                _ if call.is_out_of_time() => out_of_time_text(),
                Lost::TooLarge(too_large) => too_large_text(too_large),
                Lost::To(error) => {
                    *this.call = None;
                    return Poll::Ready(Some(Err(error)));
                }
            },
            Poll::Ready(frame) => match saw(call, frame.as_ref().and_then(|it| it.as_ref().ok())) {
                Seen::More => return Poll::Ready(frame),
                Seen::End if call.is_out_of_time() => out_of_time_text(),
                Seen::End => {
                    *this.call = None;
                    return Poll::Ready(frame);
                }
                Seen::TooLarge(too_large) => too_large_text(too_large),
            },
            Poll::Pending => {
                std::task::ready!(poll_deadline(call, cx));
                out_of_time_text()
            }
        };
        let attempts = call.number;
        call.abandon_body();
        *this.call = None;
        // Dropped, it resets the stream.
        this.inner.set(None);
        let (code, message) = ended;
        let trailers = Ended::new(code, message, attempts).into_trailers();
        Poll::Ready(Some(Ok(Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        // Until the status is known there is something to come.
        self.call.is_none() && self.inner.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}

fn out_of_time_text() -> (Code, String) {
    (Code::DeadlineExceeded, "the deadline passed while the response came".to_owned())
}

pub(crate) fn too_large_text(TooLarge { size, limit }: TooLarge) -> (Code, String) {
    let text = format!("a message of {size} bytes is larger than the {limit} that are allowed");
    (Code::ResourceExhausted, text)
}

/// What a frame means for the call.
enum Seen {
    More,
    End,
    TooLarge(TooLarge),
}

fn saw(call: &mut State, frame: Option<&Frame<Bytes>>) -> Seen {
    let (code, judgement) = match frame {
        Some(frame) => match (frame.data_ref(), frame.trailers_ref()) {
            (Some(data), _) => {
                call.received(data);
                match call.response_sizes.as_mut().map(|sizes| sizes.look(data)) {
                    Some(Err(too_large)) => {
                        let judgement = Judgement::from(Directive::Fail);
                        call.ended(Code::ResourceExhausted, judgement);
                        return Seen::TooLarge(too_large);
                    }
                    _ => return Seen::More,
                }
            }
            (None, Some(trailers)) => {
                let (code, pushback) = answer::trailers(trailers);
                (code, call.plan().judge(code, pushback))
            }
            (None, None) => return Seen::More,
        },
        // A response that just stops: no status came.
        None => (Code::Unknown, call.plan().judge(Code::Unknown, Pushback::None)),
    };
    call.ended(code, judgement);
    Seen::End
}

/// Why a response that had begun was lost.
enum Lost {
    /// The application wrote a message that is too large.
    TooLarge(TooLarge),
    To(BoxError),
}

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

fn poll_deadline(call: &mut State, cx: &mut Context<'_>) -> Poll<()> {
    while call.end().is_none() {
        std::task::ready!(call.poll_due(cx));
    }
    Poll::Ready(())
}
