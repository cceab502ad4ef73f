//! `reqwest::Response` as a response of the layer.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::response::Builder;
use http::{Extensions, HeaderMap, StatusCode};
use reqwest::{Body, Response, ResponseBuilderExt, Url};

use crate::response::{DrainResponse, DrainedResponse, HttpResponse, ResponseHead, UnreadBody};
use crate::response_body::DRAIN_BYTES_MAX;

impl ResponseHead for Response {
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

impl HttpResponse for Response {
    type Output = Response;
    type Drain = DrainReqwestResponse;

    fn unread_body(&self) -> UnreadBody {
        match self.content_length() {
            Some(0) => UnreadBody::Empty,
            Some(length) if length > DRAIN_BYTES_MAX => UnreadBody::TooLong,
            _ => UnreadBody::Drainable,
        }
    }

    #[inline]
    fn pass(self) -> Response {
        self
    }

    fn drain(self, time_max: Duration) -> DrainReqwestResponse {
        let url = self.url().clone();
        let response = http::Response::<Body>::from(self);
        DrainReqwestResponse { url: Some(url), drain: response.drain(time_max) }
    }
}

/// Reads the body of a response; see [`HttpResponse::drain`].
#[derive(Debug)]
pub struct DrainReqwestResponse {
    url: Option<Url>,
    drain: DrainResponse<Body>,
}

impl Future for DrainReqwestResponse {
    type Output = DrainedResponse<Response>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let drained = ready!(Pin::new(&mut self.drain).poll(cx));
        let mut response = drained.response.map(Body::wrap);
        // The conversion back takes the URL from an extension, which only a builder can set.
        let url = self.url.take().expect("polled after completion");
        if let Some(extensions) = Builder::new().url(url).extensions_mut() {
            response.extensions_mut().extend(std::mem::take(extensions));
        }
        let is_unread = drained.is_unread;
        Poll::Ready(DrainedResponse { response: response.into(), is_unread })
    }
}
