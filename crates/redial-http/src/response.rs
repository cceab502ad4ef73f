//! Responses: what the layer reads of them, and what callers get.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::response::Parts;
use http::{Extensions, HeaderMap, Response, StatusCode};
use http_body::Body;
use redial::Report;

use crate::response_body::{DrainBody, ResponseBody};

/// The head of a response.
pub trait ResponseHead {
    /// The status.
    fn status(&self) -> StatusCode;
    /// The headers.
    fn headers(&self) -> &HeaderMap;
    /// The extensions, for the report of the call.
    fn extensions_mut(&mut self) -> &mut Extensions;
}

/// A response of a service: `http::Response`, and `reqwest::Response` with the feature `reqwest`.
pub trait HttpResponse: ResponseHead + Sized {
    /// What callers get.
    type Output: ResponseHead;
    /// Reads the body of a response that is probably abandoned.
    type Drain: Future<Output = DrainedResponse<Self::Output>> + Unpin;

    /// What is known of the body that has not been read.
    fn unread_body(&self) -> UnreadBody;
    /// The response, with its body as it is.
    fn pass(self) -> Self::Output;
    /// Reads the body into memory within its limits, for at most this time. The response stays whole.
    fn drain(self, time_max: Duration) -> Self::Drain;
}

/// The body of a response that has not been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnreadBody {
    /// There is none.
    Empty,
    /// It may be within the limit.
    Drainable,
    /// It is known to be above the limit.
    TooLong,
}

/// A response whose body has been read within the limits.
#[derive(Clone, Copy, Debug)]
pub struct DrainedResponse<T> {
    /// The response, whole.
    pub response: T,
    /// Whether the body has not been read to its end, so that it holds a connection or a stream.
    pub is_unread: bool,
}

/// The number of attempts of the call that returned a response with these extensions.
///
/// A call that was retried, or that ended without a success, has a [`Report`] in the extensions of its
/// response, with the attempts. A call that succeeded at once has none, which saves an allocation.
///
/// ```
/// let response = http::Response::new(());
/// assert_eq!(redial_http::attempts(response.extensions()), 1);
/// ```
#[must_use]
pub fn attempts(extensions: &Extensions) -> u32 {
    extensions.get::<Report>().map_or(1, |report| report.attempts)
}

impl<B> ResponseHead for Response<B> {
    fn status(&self) -> StatusCode {
        self.status()
    }
    fn headers(&self) -> &HeaderMap {
        self.headers()
    }
    fn extensions_mut(&mut self) -> &mut Extensions {
        self.extensions_mut()
    }
}

impl<B: Body> HttpResponse for Response<B> {
    type Output = Response<ResponseBody<B>>;
    type Drain = DrainResponse<B>;

    fn unread_body(&self) -> UnreadBody {
        DrainBody::unread(self.body())
    }

    #[inline]
    fn pass(self) -> Self::Output {
        self.map(ResponseBody::untouched)
    }

    fn drain(self, time_max: Duration) -> Self::Drain {
        let (parts, body) = self.into_parts();
        DrainResponse { parts: Some(parts), body: Box::pin(DrainBody::new(body, time_max)) }
    }
}

/// Reads the body of a response; see [`HttpResponse::drain`].
#[derive(Debug)]
pub struct DrainResponse<B: Body> {
    parts: Option<Parts>,
    body: Pin<Box<DrainBody<B>>>,
}

impl<B: Body> Future for DrainResponse<B> {
    type Output = DrainedResponse<Response<ResponseBody<B>>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let body = ready!(self.body.as_mut().poll(cx));
        let parts = self.parts.take().expect("polled after completion");
        let is_unread = body.is_unread();
        Poll::Ready(DrainedResponse { response: Response::from_parts(parts, body), is_unread })
    }
}
