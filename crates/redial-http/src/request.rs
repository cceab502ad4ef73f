//! Requests, and copies of them for further attempts (decision H4).

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use bytes::{Buf, Bytes};
use http::{Extensions, HeaderMap, Method, Request, Uri, Version};
use http_body_util::combinators::{BoxBody, UnsyncBoxBody};
use http_body_util::{Either, Empty, Full, StreamBody};

use crate::options::{BodyFactory, RequestOptions};
use crate::saved_headers::SavedHeaders;

/// A request that the layer can send more than once: `http::Request`, and `reqwest::Request` with the
/// feature `reqwest`.
pub trait HttpRequest: Sized {
    /// What is kept of a request while an attempt runs, for the next attempt.
    type Saved;

    /// The method.
    fn method(&self) -> &Method;
    /// The host and port, in lower case and without the default port of the scheme; empty if the request
    /// has none.
    fn host(&self) -> Cow<'_, str>;
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

/// A body that can be sent again. Requests of the layer have bodies of these types.
///
/// | body | copy |
/// | --- | --- |
/// | `()`, `Bytes`, `String`, `Vec<u8>`, `Full`, `Empty` | yes; of `Bytes` and `Full<Bytes>` it shares the bytes |
/// | `reqwest::Body` (feature `reqwest`) | if it is in memory |
/// | `Option`, `Either`, `Box` of these | as the body inside |
/// | `BoxBody`, `UnsyncBoxBody`, `StreamBody`, `hyper::body::Incoming` | no: the request has one attempt, unless its options have a [`RequestOptions::body_factory`] |
///
/// Implement it for a body of your own:
/// ```
/// use bytes::Bytes;
/// use http_body_util::Full;
/// use redial_http::parts::CloneBody;
///
/// struct SignedBody {
///     content: Full<Bytes>,
/// }
///
/// impl CloneBody for SignedBody {
///     fn clone_body(&mut self) -> Option<Self> {
///         Some(SignedBody { content: self.content.clone() })
///     }
/// }
/// ```
/// A body of another crate, such as that of axum or tonic, is put into a box before the layer sees it:
/// ```
/// use bytes::Bytes;
/// use http::{Request, Response};
/// use http_body_util::{BodyExt, Full};
/// use redial_http::RetryLayer;
/// use std::io;
/// use tower::{ServiceBuilder, service_fn};
/// # use http_body_util::combinators::UnsyncBoxBody;
///
/// # type AxumBody = http_body_util::combinators::WithTrailers<Full<Bytes>, std::future::Ready<Option<Result<http::HeaderMap, std::convert::Infallible>>>>;
/// # let client = service_fn(|_: Request<UnsyncBoxBody<_, _>>| async {
/// #     Ok::<_, io::Error>(Response::new(Full::new(Bytes::new())))
/// # });
/// let service = ServiceBuilder::new()
///     // In a program: `axum::body::Body`.
///     .map_request(|request: Request<AxumBody>| request.map(BodyExt::boxed_unsync))
///     .layer(RetryLayer::standard())
///     .service(client);
/// # fn is_service<S: tower::Service<Request<AxumBody>>>(_: S) {}
/// # is_service(service);
/// ```
#[diagnostic::on_unimplemented(
    message = "the layer does not know whether a body of type `{Self}` can be sent again",
    note = "implement `redial_http::parts::CloneBody` for a type of your own",
    note = "put a body of another crate into a box before the layer: \
            `.map_request(|request: Request<_>| request.map(BodyExt::boxed_unsync))`"
)]
pub trait CloneBody: Sized {
    /// A copy; `None` if the body is a stream. It takes the body by mutable reference because some bodies
    /// have to be taken apart to be shared.
    fn clone_body(&mut self) -> Option<Self>;
}

macro_rules! in_memory {
    ($([$($generics:tt)*] $body:ty,)*) => {$(
        impl<$($generics)*> CloneBody for $body {
            fn clone_body(&mut self) -> Option<Self> {
                Some(self.clone())
            }
        }
    )*};
}

macro_rules! streams {
    ($([$($generics:tt)*] $body:ty,)*) => {$(
        impl<$($generics)*> CloneBody for $body {
            fn clone_body(&mut self) -> Option<Self> {
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

impl<B: CloneBody> CloneBody for Box<B> {
    fn clone_body(&mut self) -> Option<Self> {
        (**self).clone_body().map(Box::new)
    }
}

impl<B: CloneBody> CloneBody for Option<B> {
    fn clone_body(&mut self) -> Option<Self> {
        match self {
            Some(body) => body.clone_body().map(Some),
            None => Some(None),
        }
    }
}

impl<L: CloneBody, R: CloneBody> CloneBody for Either<L, R> {
    fn clone_body(&mut self) -> Option<Self> {
        match self {
            Either::Left(body) => body.clone_body().map(Either::Left),
            Either::Right(body) => body.clone_body().map(Either::Right),
        }
    }
}

/// The body of the next attempt.
pub(crate) enum SavedBody<B> {
    Copy(B),
    /// Makes it when the attempt starts, so that a request without a retry makes none.
    Factory(Arc<BodyFactory<B>>),
}

impl<B> SavedBody<B> {
    pub(crate) fn into_body(self) -> B {
        match self {
            SavedBody::Copy(body) => body,
            SavedBody::Factory(factory) => factory(),
        }
    }
}

impl<B> fmt::Debug for SavedBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SavedBody").finish_non_exhaustive()
    }
}

impl<B: CloneBody + 'static> HttpRequest for Request<B> {
    type Saved = SavedRequest<B>;

    fn method(&self) -> &Method {
        self.method()
    }

    fn host(&self) -> Cow<'_, str> {
        let host = match self.uri().authority() {
            Some(authority) => {
                let text = authority.as_str();
                text.rsplit_once('@').map_or(text, |(_user, host)| host)
            }
            // A request for a service that knows its server.
            None => {
                let host = self.headers().get(http::header::HOST);
                host.and_then(|host| host.to_str().ok()).unwrap_or_default()
            }
        };
        let default_port = match self.uri().scheme_str() {
            Some("https") => ":443",
            Some("http") => ":80",
            _ => "",
        };
        let host = host.strip_suffix(default_port).unwrap_or(host);
        if host.bytes().any(|byte| byte.is_ascii_uppercase()) {
            return Cow::Owned(host.to_ascii_lowercase());
        }
        Cow::Borrowed(host)
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
        let body = match options.and_then(RequestOptions::factory_of) {
            Some(factory) => SavedBody::Factory(factory),
            None => SavedBody::Copy(self.body_mut().clone_body()?),
        };
        Some(SavedRequest {
            body,
            method: self.method().clone(),
            uri: self.uri().clone(),
            version: self.version(),
            headers: SavedHeaders::of(self.headers()),
            extensions: self.extensions().clone(),
        })
    }

    fn restore(saved: SavedRequest<B>) -> Self {
        let SavedRequest { body, method, uri, version, headers, extensions } = saved;
        let mut request = Request::new(body.into_body());
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
    body: SavedBody<B>,
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
        let host = |uri: &str| Request::get(uri).body(()).unwrap().host().into_owned();
        assert_eq!(host("http://user:pass@example.com:8080/x"), "example.com:8080");
        assert_eq!(host("http://example.com/x"), "example.com");
        assert_eq!(host("/x"), "");
        assert_eq!(host("http://[::1]:80/x"), "[::1]");
        let request = Request::get("/x").header("host", "inner:81").body(()).unwrap();
        assert_eq!(HttpRequest::host(&request), "inner:81");
    }

    // Of reqwest, the URL is normalized.
    #[test]
    fn request_host_is_normalized() {
        let host = |uri: &str| Request::get(uri).body(()).unwrap().host().into_owned();
        for (uri, expected) in [
            ("https://Example.COM/x", "example.com"),
            ("https://example.com:443/x", "example.com"),
            ("http://example.com:80/x", "example.com"),
            ("http://example.com:443/x", "example.com:443"),
            ("https://example.com:80/x", "example.com:80"),
            ("https://example.com:8443/x", "example.com:8443"),
        ] {
            assert_eq!(host(uri), expected, "{uri}");
        }
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
        let mut memory: Body = Either::Left(Full::from("x"));
        let mut stream: Body = Either::Right(Full::from("x").boxed());
        assert!(memory.clone_body().is_some() && stream.clone_body().is_none());
        assert!(Some(memory).clone_body().is_some() && None::<Full<Bytes>>.clone_body().is_some());
        assert!(Box::new(Full::<Bytes>::from("x")).clone_body().is_some());
        assert!(Some(stream).clone_body().is_none());
    }
}
