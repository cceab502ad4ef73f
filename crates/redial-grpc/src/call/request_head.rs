//! The request head (method, URI, headers, extensions), from which the requests of retries are built.

use std::sync::OnceLock;
use std::time::Duration;

use http::request::Parts;
use http::uri::PathAndQuery;
use http::{Extensions, HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, Version, header};

use crate::header_scanner::{GRPC, GrpcHeader, scan};
use crate::previous_attempts_stamp::stamp_headers;
use crate::timeout::{self, TIMEOUT};

/// The request head of a call.
#[derive(Debug)]
pub(crate) enum RequestHead {
    /// Equal to the default head of the method, so nothing is stored per call.
    Default,
    Custom(Box<CustomHead>),
}

/// The request head that a generated client sends if nothing is added: POST, the path, the two headers
/// that gRPC requires, and the method name.
#[derive(Debug)]
pub(crate) struct DefaultHead {
    path: PathAndQuery,
    name: MethodName,
}

const TRAILERS: &[u8] = b"trailers";

impl DefaultHead {
    /// The default head of a request, if its method, URI and extensions allow one.
    fn of<B>(head: &Request<B>) -> Option<DefaultHead> {
        let name = MethodName::of(head.extensions())?;
        let path = head.uri().path_and_query()?;
        DefaultHead::matches_defaults(head).then(|| DefaultHead { path: path.clone(), name })
    }

    /// Whether HTTP method, version and URI have the default form.
    fn matches_defaults<B>(head: &Request<B>) -> bool {
        matches!(*head.method(), Method::POST)
            && head.version() == Version::HTTP_2
            && head.uri().scheme().is_none()
            && head.uri().authority().is_none()
            && head.uri().query().is_none()
    }

    fn to_parts(&self) -> Parts {
        let (mut parts, ()) = Request::new(()).into_parts();
        parts.method = Method::POST;
        parts.version = Version::HTTP_2;
        parts.uri = Uri::from(self.path.clone());
        // Capacity for the headers of an attempt.
        parts.headers.reserve(4);
        parts.headers.insert(header::TE, HeaderValue::from_static("trailers"));
        let grpc = HeaderValue::from_static("application/grpc");
        parts.headers.insert(header::CONTENT_TYPE, grpc);
        parts.extensions = self.name.to_extensions();
        parts
    }
}

/// The method name that generated tonic clients put into the request extensions.
#[derive(Clone, Debug)]
enum MethodName {
    None,
    #[cfg(feature = "tonic")]
    Tonic(tonic::GrpcMethod<'static>),
}

impl MethodName {
    /// The name, if there are no other extensions.
    fn of(extensions: &Extensions) -> Option<MethodName> {
        match extensions.len() {
            0 => Some(MethodName::None),
            #[cfg(feature = "tonic")]
            1 => extensions.get::<tonic::GrpcMethod<'static>>().cloned().map(MethodName::Tonic),
            _ => None,
        }
    }

    fn is(&self, extensions: &Extensions) -> bool {
        match self {
            MethodName::None => extensions.is_empty(),
            #[cfg(feature = "tonic")]
            MethodName::Tonic(name) => {
                // Generated clients use the same `&'static str` for each call, so pointers are compared first.
                let equal = |one: &str, other: &str| std::ptr::eq(one, other) || one == other;
                let same = |other: &tonic::GrpcMethod<'static>| {
                    equal(other.method(), name.method()) && equal(other.service(), name.service())
                };
                extensions.len() == 1 && extensions.get().is_some_and(same)
            }
        }
    }

    fn to_extensions(&self) -> Extensions {
        match self {
            MethodName::None => Extensions::new(),
            #[cfg(feature = "tonic")]
            MethodName::Tonic(name) => {
                let mut extensions = Extensions::new();
                extensions.insert(name.clone());
                extensions
            }
        }
    }
}

/// A request head that differs from the default and is stored per call.
#[derive(Debug)]
pub(crate) struct CustomHead {
    method: Method,
    uri: Uri,
    version: Version,
    /// A list, not a map: one allocation instead of two, and there are no lookups.
    headers: Vec<(HeaderName, HeaderValue)>,
    extensions: Extensions,
}

impl CustomHead {
    fn of<B>(head: &Request<B>) -> Self {
        let headers = head.headers().iter();
        CustomHead {
            method: head.method().clone(),
            uri: head.uri().clone(),
            version: head.version(),
            headers: headers.map(|(name, value)| (name.clone(), value.clone())).collect(),
            extensions: head.extensions().clone(),
        }
    }

    fn to_parts(&self) -> Parts {
        let (mut parts, ()) = Request::new(()).into_parts();
        parts.method = self.method.clone();
        parts.uri = self.uri.clone();
        parts.version = self.version;
        parts.headers.reserve(self.headers.len() + 2);
        for (name, value) in &self.headers {
            parts.headers.append(name, value.clone());
        }
        parts.extensions = self.extensions.clone();
        parts
    }
}

/// The request headers that matter to this layer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestHeaders {
    /// The deadline set by the application.
    pub(crate) deadline: Option<Duration>,
    /// Whether the application has set `grpc-previous-rpc-attempts`, which only this layer may set.
    pub(crate) has_previous_attempts: bool,
    /// Whether these are the headers of the default head.
    are_default: bool,
}

impl RequestHeaders {
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let (mut deadline, mut has_previous_attempts) = (None, false);
        let (mut default_te, mut default_type) = (false, false);
        for (header, value) in scan(headers) {
            match header {
                GrpcHeader::Te => default_te = value.as_bytes() == TRAILERS,
                GrpcHeader::ContentType => default_type = value.as_bytes() == GRPC,
                GrpcHeader::Timeout => deadline = deadline.or_else(|| timeout::parse(value)),
                GrpcHeader::PreviousAttempts => has_previous_attempts = true,
                GrpcHeader::Status | GrpcHeader::Pushback | GrpcHeader::Details => {}
            }
        }
        let are_default = headers.len() == 2 && default_te && default_type;
        RequestHeaders { deadline, has_previous_attempts, are_default }
    }

    /// Whether a call without retries can ignore these headers.
    pub(crate) fn need_no_handling(headers: &HeaderMap) -> bool {
        scan(headers).all(|(header, _)| {
            !matches!(header, GrpcHeader::Timeout | GrpcHeader::PreviousAttempts)
        })
    }
}

impl RequestHead {
    /// Stores a request head. `headers`: its headers. `default_head`: the default head of the method.
    pub(crate) fn of<B>(
        head: &Request<B>,
        headers: &RequestHeaders,
        default_head: &OnceLock<DefaultHead>,
    ) -> Self {
        // The path needs no comparison: default heads are stored per path.
        if headers.are_default
            && let Some(default_head) =
                default_head.get().or_else(|| init_default(head, default_head))
            && default_head.name.is(head.extensions())
            && DefaultHead::matches_defaults(head)
        {
            return RequestHead::Default;
        }
        RequestHead::Custom(Box::new(CustomHead::of(head)))
    }

    /// Builds the request of an attempt, with its number and remaining time; `None` without the default
    /// head that it refers to.
    pub(crate) fn request<B>(
        &self,
        default_head: Option<&DefaultHead>,
        number: u32,
        remaining: Option<Duration>,
        body: B,
    ) -> Option<Request<B>> {
        let mut parts = match self {
            RequestHead::Default => default_head?.to_parts(),
            RequestHead::Custom(custom) => custom.to_parts(),
        };
        set_attempt_headers(&mut parts, number, remaining);
        Some(Request::from_parts(parts, body))
    }
}

/// The first call of a method defines its default head.
fn init_default<'u, B>(
    head: &Request<B>,
    default_head: &'u OnceLock<DefaultHead>,
) -> Option<&'u DefaultHead> {
    let _ = default_head.set(DefaultHead::of(head)?);
    default_head.get()
}

/// Sets the headers that differ between attempts.
fn set_attempt_headers(parts: &mut Parts, number: u32, remaining: Option<Duration>) {
    stamp_headers(&mut parts.headers, number);
    if let Some(remaining) = remaining {
        parts.headers.insert(TIMEOUT, timeout::format(remaining));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header_scanner::PREVIOUS_ATTEMPTS;

    fn custom() -> Request<()> {
        Request::post("http://h/a.B/C")
            .header("a", "1")
            .header("a", "2")
            .header("grpc-timeout", "9S")
            .extension(7_u8)
            .body(())
            .unwrap()
    }

    /// A request head as generated clients send it.
    fn default_head() -> Request<()> {
        let mut request = Request::post("/a.B/C")
            .version(Version::HTTP_2)
            .header("te", "trailers")
            .header("content-type", "application/grpc")
            .body(())
            .unwrap();
        #[cfg(feature = "tonic")]
        request.extensions_mut().insert(tonic::GrpcMethod::new("a.B", "C"));
        request
    }

    /// The stored head of a request, as in a call.
    fn stored(head: &Request<()>, known: &OnceLock<DefaultHead>) -> RequestHead {
        RequestHead::of(head, &RequestHeaders::of(head.headers()), known)
    }

    #[test]
    fn request_head_attempts_differ_only_in_attempt_headers() {
        let known = OnceLock::new();
        let head = stored(&custom(), &known);
        assert!(matches!(head, RequestHead::Custom(_)));
        let request = |number, remaining| head.request(known.get(), number, remaining, ()).unwrap();
        let second = request(2, Some(Duration::from_secs(5)));
        assert_eq!((second.method(), second.uri().path()), (&Method::POST, "/a.B/C"));
        let all: Vec<_> = second.headers().get_all("a").iter().collect();
        assert_eq!(all, ["1", "2"]);
        assert_eq!(second.headers()[PREVIOUS_ATTEMPTS], "1");
        assert_eq!(second.headers()[TIMEOUT], "5000000u");
        assert_eq!(second.extensions().get::<u8>(), Some(&7));
        let third = request(3, None);
        assert_eq!(third.headers()[PREVIOUS_ATTEMPTS], "2");
        assert_eq!(third.headers()[TIMEOUT], "9S");
        assert!(!request(1, None).headers().contains_key(PREVIOUS_ATTEMPTS));
    }

    #[test]
    fn request_head_default_is_rebuilt_unchanged() {
        let known = OnceLock::new();
        for _ in 0..2 {
            let head = stored(&default_head(), &known);
            assert!(matches!(head, RequestHead::Default));
            let second = head.request(known.get(), 2, None, ()).unwrap();
            let mut expected = default_head();
            expected.headers_mut().insert(PREVIOUS_ATTEMPTS, HeaderValue::from_static("1"));
            assert_eq!(second.headers(), expected.headers());
            assert_eq!(second.uri(), expected.uri());
            assert_eq!((second.method(), second.version()), (&Method::POST, Version::HTTP_2));
            #[cfg(feature = "tonic")]
            assert_eq!(second.extensions().get::<tonic::GrpcMethod<'_>>().unwrap().method(), "C");
        }
    }

    #[test]
    fn request_head_with_any_difference_is_stored() {
        let changes: [fn(&mut Request<()>); 8] = [
            |it| *it.method_mut() = Method::PUT,
            |it| *it.version_mut() = Version::HTTP_11,
            |it| *it.uri_mut() = Uri::from_static("http://h/a.B/C"),
            |it| *it.uri_mut() = Uri::from_static("/a.B/C?q=1"),
            |it| drop(it.headers_mut().insert("te", HeaderValue::from_static("gzip"))),
            |it| drop(it.headers_mut().remove("te")),
            |it| drop(it.headers_mut().insert("a", HeaderValue::from_static("1"))),
            |it| drop(it.extensions_mut().insert(String::new())),
        ];
        for (nth, change) in changes.into_iter().enumerate() {
            let known = OnceLock::new();
            stored(&default_head(), &known);
            let mut request = default_head();
            change(&mut request);
            let head = stored(&request, &known);
            assert!(matches!(head, RequestHead::Custom(_)), "change {nth}");
            let mut twice = default_head();
            twice.headers_mut().remove("content-type");
            twice.headers_mut().append("te", HeaderValue::from_static("trailers"));
            assert!(matches!(stored(&twice, &known), RequestHead::Custom(_)));
        }
    }
}
