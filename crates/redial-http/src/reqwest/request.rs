//! `reqwest::Request` as a request of the layer.

use std::borrow::Cow;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Version};
use http_body::Body as _;
use reqwest::{Body, Request, Url};
use url::Position;

use crate::options::RequestOptions;
use crate::request::{CloneBody, HttpRequest, SavedBody};
use crate::saved_headers::SavedHeaders;

impl HttpRequest for Request {
    type Saved = SavedRequest;

    fn method(&self) -> &Method {
        self.method()
    }

    fn host(&self) -> Cow<'_, str> {
        Cow::Borrowed(&self.url()[Position::BeforeHost..Position::AfterPort])
    }

    fn headers(&self) -> &HeaderMap {
        self.headers()
    }

    fn headers_mut(&mut self) -> &mut HeaderMap {
        self.headers_mut()
    }

    /// The extensions of a request of reqwest are private: `send_with_options` takes options.
    fn options(&self) -> Option<&RequestOptions> {
        None
    }

    #[inline(always)]
    fn save(&mut self, options: Option<&RequestOptions>) -> Option<SavedRequest> {
        let body = match options.and_then(RequestOptions::factory_of) {
            Some(factory) => Some(SavedBody::Factory(factory)),
            None => match self.body_mut() {
                Some(body) => Some(SavedBody::Copy(body.clone_body()?)),
                None => None,
            },
        };
        Some(SavedRequest {
            body,
            method: self.method().clone(),
            url: self.url().clone(),
            version: self.version(),
            headers: SavedHeaders::of(self.headers()),
            timeout: self.timeout().copied(),
        })
    }

    fn restore(saved: SavedRequest) -> Self {
        let SavedRequest { body, method, url, version, headers, timeout } = saved;
        let mut request = Request::new(method, url);
        *request.headers_mut() = headers.restore();
        *request.version_mut() = version;
        *request.body_mut() = body.map(SavedBody::into_body);
        if let Some(timeout) = timeout {
            *request.timeout_mut() = Some(timeout);
        }
        request
    }
}

/// What is kept of a `reqwest::Request`; see [`HttpRequest::Saved`].
#[derive(Debug)]
pub struct SavedRequest {
    body: Option<SavedBody<Body>>,
    method: Method,
    url: Url,
    version: Version,
    headers: SavedHeaders,
    timeout: Option<Duration>,
}

/// A body of reqwest can be cloned only with its whole request, so it is taken apart and made anew from its
/// bytes, which both share.
impl CloneBody for Body {
    fn clone_body(&mut self) -> Option<Self> {
        if self.as_bytes()?.is_empty() {
            return Some(Body::from(Bytes::new()));
        }
        let mut context = Context::from_waker(Waker::noop());
        match Pin::new(&mut *self).poll_frame(&mut context) {
            Poll::Ready(Some(Ok(frame))) => {
                let bytes = frame.into_data().ok()?;
                *self = Body::from(bytes.clone());
                Some(Body::from(bytes))
            }
            _ => unreachable!("bytes in memory are one frame"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redial::s;

    // Decision H4.
    #[test]
    fn reqwest_copy_has_everything_of_the_original() {
        let mut request =
            Request::new(Method::PUT, "http://user@Example.com:81/x?y=1".parse().unwrap());
        request.headers_mut().insert("x-a", "1".parse().unwrap());
        *request.version_mut() = http::Version::HTTP_10;
        *request.timeout_mut() = Some(s(3));
        *request.body_mut() = Some(Body::from("body"));
        let copy = Request::restore(request.save(None).unwrap());
        assert_eq!(
            (copy.method(), copy.url(), copy.version()),
            (request.method(), request.url(), request.version())
        );
        assert_eq!((copy.headers(), copy.timeout()), (request.headers(), request.timeout()));
        for sent in [&request, &copy] {
            assert_eq!(sent.body().unwrap().as_bytes(), Some(&b"body"[..]));
        }
        assert_eq!(HttpRequest::host(&copy), "example.com:81");
    }

    #[test]
    fn reqwest_copy_of_a_stream_needs_a_factory() {
        let mut request = Request::new(Method::PUT, "http://example.com".parse().unwrap());
        assert!(request.save(None).unwrap().body.is_none());
        *request.body_mut() =
            Some(Body::wrap(http_body_util::StreamBody::new(tokio_stream::empty::<
                Result<http_body::Frame<bytes::Bytes>, std::io::Error>,
            >())));
        assert!(request.save(None).is_none() && request.body().is_some());
        let options = RequestOptions::new().body_factory(|| Body::from("made"));
        let copy = Request::restore(request.save(Some(&options)).unwrap());
        assert_eq!(copy.body().unwrap().as_bytes(), Some(&b"made"[..]));
    }
}
