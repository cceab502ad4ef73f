//! Requests, and copies of them for further attempts (decision H4).

use bytes::{Buf, Bytes};
use http::{Extensions, HeaderMap, Method, Request, Uri, Version};
use http_body_util::combinators::{BoxBody, UnsyncBoxBody};
use http_body_util::{Either, Empty, Full, StreamBody};

use crate::options::RequestOptions;
use crate::saved_headers::SavedHeaders;

/// A request that the layer can send more than once: `http::Request`, and `reqwest::Request` with the
/// feature `reqwest`.
pub trait HttpRequest: Sized {
    /// What is kept of a request while an attempt runs, for the next attempt.
    type Saved;

    /// The method.
    fn method(&self) -> &Method;
    /// The host and port; empty if the request has none.
    fn host(&self) -> &str;
    /// The headers.
    fn headers(&self) -> &HeaderMap;
    /// The headers.
    fn headers_mut(&mut self) -> &mut HeaderMap;
    /// The options of this request.
    fn options(&self) -> Option<&RequestOptions>;
    /// Copies what the next attempt needs; `None` if the body can be sent only once. `options` are those of
    /// the request, or those that came with it. It takes the request by mutable reference because some
    /// bodies have to be taken apart to be shared.
    fn save(&mut self, options: Option<&RequestOptions>) -> Option<Self::Saved>;
    /// The request of the next attempt.
    fn restore(saved: Self::Saved) -> Self;
}

/// A body that can be sent again.
///
/// Bodies in memory return a copy, which shares the bytes. Streams return `None`: the request has one
/// attempt, unless its options have a [`RequestOptions::body_factory`].
pub trait CloneBody: Sized {
    /// A copy; `None` if the body is a stream.
    fn clone_body(&self) -> Option<Self>;
}

macro_rules! in_memory {
    ($([$($generics:tt)*] $body:ty,)*) => {$(
        impl<$($generics)*> CloneBody for $body {
            fn clone_body(&self) -> Option<Self> {
                Some(self.clone())
            }
        }
    )*};
}

macro_rules! streams {
    ($([$($generics:tt)*] $body:ty,)*) => {$(
        impl<$($generics)*> CloneBody for $body {
            fn clone_body(&self) -> Option<Self> {
                None
            }
        }
    )*};
}

in_memory! {
    [] (),
    [] Bytes,
    [] String,
    [] Vec<u8>,
    [D: Buf + Clone] Full<D>,
    [D] Empty<D>,
}

streams! {
    [D, E] BoxBody<D, E>,
    [D, E] UnsyncBoxBody<D, E>,
    [S] StreamBody<S>,
    [] hyper::body::Incoming,
}

impl<B: CloneBody> CloneBody for Option<B> {
    fn clone_body(&self) -> Option<Self> {
        match self {
            Some(body) => body.clone_body().map(Some),
            None => Some(None),
        }
    }
}

impl<L: CloneBody, R: CloneBody> CloneBody for Either<L, R> {
    fn clone_body(&self) -> Option<Self> {
        match self {
            Either::Left(body) => body.clone_body().map(Either::Left),
            Either::Right(body) => body.clone_body().map(Either::Right),
        }
    }
}

impl<B: CloneBody + 'static> HttpRequest for Request<B> {
    type Saved = SavedRequest<B>;

    fn method(&self) -> &Method {
        self.method()
    }

    fn host(&self) -> &str {
        match self.uri().authority() {
            Some(authority) => {
                let text = authority.as_str();
                text.rsplit_once('@').map_or(text, |(_user, host)| host)
            }
            // A request for a service that knows its server.
            None => {
                let host = self.headers().get(http::header::HOST);
                host.and_then(|host| host.to_str().ok()).unwrap_or_default()
            }
        }
    }

    fn headers(&self) -> &HeaderMap {
        self.headers()
    }

    fn headers_mut(&mut self) -> &mut HeaderMap {
        self.headers_mut()
    }

    fn options(&self) -> Option<&RequestOptions> {
        self.extensions().get()
    }

    #[inline(always)]
    fn save(&mut self, options: Option<&RequestOptions>) -> Option<SavedRequest<B>> {
        let made = options.and_then(RequestOptions::new_body);
        Some(SavedRequest {
            body: made.or_else(|| self.body().clone_body())?,
            method: self.method().clone(),
            uri: self.uri().clone(),
            version: self.version(),
            headers: SavedHeaders::of(self.headers()),
            extensions: self.extensions().clone(),
        })
    }

    fn restore(saved: SavedRequest<B>) -> Self {
        let SavedRequest { body, method, uri, version, headers, extensions } = saved;
        let mut request = Request::new(body);
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        *request.version_mut() = version;
        *request.headers_mut() = headers.restore();
        *request.extensions_mut() = extensions;
        request
    }
}

/// What is kept of an `http::Request`; see [`HttpRequest::Saved`].
#[derive(Debug)]
pub struct SavedRequest<B> {
    body: B,
    method: Method,
    uri: Uri,
    version: Version,
    headers: SavedHeaders,
    extensions: Extensions,
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;

    #[test]
    fn request_host_has_no_user_or_is_the_header() {
        let host = |uri: &str| Request::get(uri).body(()).unwrap().host().to_owned();
        assert_eq!(host("http://user:pass@example.com:8080/x"), "example.com:8080");
        assert_eq!(host("http://example.com/x"), "example.com");
        assert_eq!(host("/x"), "");
        let request = Request::get("/x").header("host", "inner:81").body(()).unwrap();
        assert_eq!(HttpRequest::host(&request), "inner:81");
    }

    // Decision H4.
    #[test]
    fn request_copy_has_everything_of_the_original() {
        let mut request = Request::put("http://example.com/x?y=1")
            .version(http::Version::HTTP_2)
            .header("x-a", "1")
            .header("x-a", "2")
            .extension(7u32)
            .body(Full::new(Bytes::from("body")))
            .unwrap();
        let copy = Request::restore(request.save(None).unwrap());
        assert_eq!(
            (copy.method(), copy.uri(), copy.version()),
            (request.method(), request.uri(), request.version())
        );
        assert_eq!(copy.headers(), request.headers());
        assert_eq!(copy.extensions().get::<u32>(), Some(&7));
        assert_eq!(format!("{:?}", copy.body()), format!("{:?}", request.body()));
    }

    #[test]
    fn request_with_a_stream_is_copied_only_by_its_factory() {
        let body = || Full::new(Bytes::from("body")).boxed();
        let mut request = Request::put("http://example.com").body(body()).unwrap();
        assert!(request.save(None).is_none());
        let options = RequestOptions::new().body_factory(body);
        assert!(request.save(Some(&options)).is_some());
        let wrong = RequestOptions::new().body_factory(String::new);
        assert!(request.save(Some(&wrong)).is_none());
    }

    #[test]
    fn bodies_of_two_kinds_are_copied_as_their_kind_allows() {
        type Body = Either<Full<Bytes>, BoxBody<Bytes, std::convert::Infallible>>;
        let memory: Body = Either::Left(Full::from("x"));
        let stream: Body = Either::Right(Full::from("x").boxed());
        assert!(memory.clone_body().is_some() && stream.clone_body().is_none());
        assert!(Some(memory).clone_body().is_some() && None::<Full<Bytes>>.clone_body().is_some());
        assert!(Some(stream).clone_body().is_none());
    }
}
