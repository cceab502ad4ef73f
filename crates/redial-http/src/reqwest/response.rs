//! `reqwest::Response` as a response of the layer.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::response::Builder;
use http::{Extensions, HeaderMap, StatusCode};
use reqwest::{Body, Response, ResponseBuilderExt, Url};

use crate::response::{DrainResponse, HttpResponse, ResponseHead};
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

    fn is_drainable(&self) -> bool {
        let length = self.content_length();
        length != Some(0) && length.unwrap_or(0) <= DRAIN_BYTES_MAX
    }

    #[inline]
    fn pass(self) -> Response {
        self
    }

    fn drain(self) -> DrainReqwestResponse {
        let url = self.url().clone();
        let response = http::Response::<Body>::from(self);
        DrainReqwestResponse { url: Some(url), drain: response.drain() }
    }
}

/// Reads the body of a response; see [`HttpResponse::drain`].
#[derive(Debug)]
pub struct DrainReqwestResponse {
    url: Option<Url>,
    drain: DrainResponse<Body>,
}

impl Future for DrainReqwestResponse {
    type Output = Response;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Response> {
        let mut response = ready!(Pin::new(&mut self.drain).poll(cx)).map(Body::wrap);
        // The conversion back takes the URL from an extension, which only a builder can set.
        let url = self.url.take().expect("polled after completion");
        if let Some(extensions) = Builder::new().url(url).extensions_mut() {
            response.extensions_mut().extend(std::mem::take(extensions));
        }
        Poll::Ready(response.into())
    }
}
