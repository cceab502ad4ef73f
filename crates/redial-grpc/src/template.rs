//! The head of the request as the application made it, from which each further attempt's is made.

use std::sync::OnceLock;
use std::time::Duration;

use http::request::Parts;
use http::uri::PathAndQuery;
use http::{Extensions, HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, Version, header};

use crate::timeout::{self, TIMEOUT};

/// How many attempts came before: set by gRPC libraries, read by servers (decision G30).
pub(crate) const PREVIOUS: HeaderName = HeaderName::from_static("grpc-previous-rpc-attempts");

/// What is kept of a request's head.
#[derive(Debug)]
pub(crate) enum Template {
    /// It is what the method's requests usually have: nothing of it is kept.
    Usual,
    Own(Box<OwnHead>),
}

/// The head that requests of a method have if nobody adds anything to what its generated client
/// makes: POST, the path, the two headers that gRPC asks for, and the method's name.
#[derive(Debug)]
pub(crate) struct UsualHead {
    path: PathAndQuery,
    name: Name,
}

const TRAILERS: &[u8] = b"trailers";
const GRPC: &[u8] = b"application/grpc";

impl UsualHead {
    /// The usual head that this one is, if it is one; its headers are.
    fn of<B>(head: &Request<B>) -> Option<UsualHead> {
        let name = Name::of(head.extensions())?;
        let path = head.uri().path_and_query()?;
        UsualHead::is_like(head).then(|| UsualHead { path: path.clone(), name })
    }

    /// Whether this head is a usual one, names and headers aside.
    #[inline]
    fn is_like<B>(head: &Request<B>) -> bool {
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
        // Room for what is stamped on an attempt.
        parts.headers.reserve(4);
        parts.headers.insert(header::TE, HeaderValue::from_static("trailers"));
        let grpc = HeaderValue::from_static("application/grpc");
        parts.headers.insert(header::CONTENT_TYPE, grpc);
        parts.extensions = self.name.to_extensions();
        parts
    }
}

/// What generated clients of tonic call the method in the extensions of its requests.
#[derive(Clone, Debug)]
enum Name {
    None,
    #[cfg(feature = "tonic")]
    Tonic(tonic::GrpcMethod<'static>),
}

impl Name {
    /// The name, if there is nothing else.
    fn of(extensions: &Extensions) -> Option<Name> {
        match extensions.len() {
            0 => Some(Name::None),
            #[cfg(feature = "tonic")]
            1 => extensions.get::<tonic::GrpcMethod<'static>>().cloned().map(Name::Tonic),
            _ => None,
        }
    }

    #[inline]
    fn is(&self, extensions: &Extensions) -> bool {
        match self {
            Name::None => extensions.is_empty(),
            #[cfg(feature = "tonic")]
            Name::Tonic(name) => {
                // Generated clients name a method by the same text each time.
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
            Name::None => Extensions::new(),
            #[cfg(feature = "tonic")]
            Name::Tonic(name) => {
                let mut extensions = Extensions::new();
                extensions.insert(name.clone());
                extensions
            }
        }
    }
}

/// A head that is like no other.
#[derive(Debug)]
pub(crate) struct OwnHead {
    method: Method,
    uri: Uri,
    version: Version,
    /// A list, not a map: nobody looks anything up, and it is one allocation instead of two.
    headers: Vec<(HeaderName, HeaderValue)>,
    extensions: Extensions,
}

impl OwnHead {
    fn of<B>(head: &Request<B>) -> Self {
        let headers = head.headers().iter();
        OwnHead {
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

/// The same names for comparing: a constant would be made and dropped each time.
static PREVIOUS_NAME: HeaderName = PREVIOUS;
static TIMEOUT_NAME: HeaderName = TIMEOUT;

/// What the headers of a request say to this layer. One look at each is cheaper than looking for
/// any: there are few, and hashing a name costs more than comparing it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Said<'h> {
    /// The application's own deadline.
    pub(crate) deadline: Option<Duration>,
    /// Whether the application set what only this layer may set.
    pub(crate) previous: bool,
    te: Option<&'h HeaderValue>,
    content_type: Option<&'h HeaderValue>,
    /// How many headers there are.
    count: u32,
}

impl<'h> Said<'h> {
    #[inline]
    pub(crate) fn of(headers: &'h HeaderMap) -> Self {
        let mut said = Said::default();
        for (name, value) in headers {
            said.count += 1;
            match *name {
                header::TE => said.te = Some(value),
                header::CONTENT_TYPE => said.content_type = Some(value),
                ref name if *name == TIMEOUT_NAME => {
                    said.deadline = said.deadline.or_else(|| timeout::parse(value));
                }
                ref name if *name == PREVIOUS_NAME => said.previous = true,
                _ => {}
            }
        }
        said
    }

    /// Whether these headers say nothing to a call that is not repeated.
    #[inline]
    pub(crate) fn is_nothing(headers: &HeaderMap) -> bool {
        headers.keys().all(|name| *name != TIMEOUT_NAME && *name != PREVIOUS_NAME)
    }

    /// Whether these are the headers of a usual head.
    #[inline]
    pub(crate) fn is_usual(&self) -> bool {
        self.count == 2
            && self.te.is_some_and(|value| value.as_bytes() == TRAILERS)
            && self.content_type.is_some_and(|value| value.as_bytes() == GRPC)
    }
}

impl Template {
    /// What must be kept of this head, given whether its headers are usual and the usual one of its
    /// method.
    #[inline]
    pub(crate) fn of<B>(head: &Request<B>, headers: bool, usual: &OnceLock<UsualHead>) -> Self {
        // The path is the method's, or it would have another usual head.
        if headers
            && let Some(usual) = usual.get().or_else(|| first_usual(head, usual))
            && usual.name.is(head.extensions())
            && UsualHead::is_like(head)
        {
            return Template::Usual;
        }
        Template::Own(Box::new(OwnHead::of(head)))
    }

    /// The request of the attempt with this number, and what remains of its deadline.
    pub(crate) fn request<B>(
        &self,
        usual: &OnceLock<UsualHead>,
        number: u32,
        remaining: Option<Duration>,
        body: B,
    ) -> Option<Request<B>> {
        let mut parts = match self {
            Template::Usual => usual.get()?.to_parts(),
            Template::Own(own) => own.to_parts(),
        };
        stamp(&mut parts, number, remaining);
        Some(Request::from_parts(parts, body))
    }
}

/// Whoever is first says what is usual.
#[cold]
fn first_usual<'u, B>(head: &Request<B>, usual: &'u OnceLock<UsualHead>) -> Option<&'u UsualHead> {
    let _ = usual.set(UsualHead::of(head)?);
    usual.get()
}

/// What differs between the attempts of a call.
fn stamp(parts: &mut Parts, number: u32, remaining: Option<Duration>) {
    if let Some(previous) = previous(number) {
        parts.headers.insert(PREVIOUS, previous);
    }
    if let Some(remaining) = remaining {
        parts.headers.insert(TIMEOUT, timeout::format(remaining));
    }
}

/// How many attempts came before the one with this number; absent where that is none.
pub(crate) fn previous(number: u32) -> Option<HeaderValue> {
    (number > 1).then(|| HeaderValue::from(number - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> Request<()> {
        Request::post("http://h/a.B/C")
            .header("a", "1")
            .header("a", "2")
            .header("grpc-timeout", "9S")
            .extension(7_u8)
            .body(())
            .unwrap()
    }

    /// A head as generated clients make it.
    fn usual() -> Request<()> {
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

    /// As a call makes it.
    fn kept(head: &Request<()>, known: &OnceLock<UsualHead>) -> Template {
        Template::of(head, Said::of(head.headers()).is_usual(), known)
    }

    #[test]
    fn every_attempt_has_the_same_head_but_for_what_differs() {
        let known = OnceLock::new();
        let template = kept(&own(), &known);
        assert!(matches!(template, Template::Own(_)));
        let request = |number, remaining| template.request(&known, number, remaining, ()).unwrap();
        let second = request(2, Some(Duration::from_secs(5)));
        assert_eq!((second.method(), second.uri().path()), (&Method::POST, "/a.B/C"));
        let all: Vec<_> = second.headers().get_all("a").iter().collect();
        assert_eq!(all, ["1", "2"]);
        assert_eq!(second.headers()[PREVIOUS], "1");
        assert_eq!(second.headers()[TIMEOUT], "5000000u");
        assert_eq!(second.extensions().get::<u8>(), Some(&7));
        let third = request(3, None);
        assert_eq!(third.headers()[PREVIOUS], "2");
        assert_eq!(third.headers()[TIMEOUT], "9S");
        assert!(!request(1, None).headers().contains_key(PREVIOUS));
    }

    #[test]
    fn a_usual_head_is_made_anew_as_it_was() {
        let known = OnceLock::new();
        for _ in 0..2 {
            let template = kept(&usual(), &known);
            assert!(matches!(template, Template::Usual));
            let second = template.request(&known, 2, None, ()).unwrap();
            let mut expected = usual();
            expected.headers_mut().insert(PREVIOUS, HeaderValue::from_static("1"));
            assert_eq!(second.headers(), expected.headers());
            assert_eq!(second.uri(), expected.uri());
            assert_eq!((second.method(), second.version()), (&Method::POST, Version::HTTP_2));
            #[cfg(feature = "tonic")]
            assert_eq!(second.extensions().get::<tonic::GrpcMethod<'_>>().unwrap().method(), "C");
        }
    }

    #[test]
    fn what_differs_from_the_usual_in_anything_is_kept_whole() {
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
            kept(&usual(), &known);
            let mut request = usual();
            change(&mut request);
            let template = kept(&request, &known);
            assert!(matches!(template, Template::Own(_)), "change {nth}");
            let mut twice = usual();
            twice.headers_mut().remove("content-type");
            twice.headers_mut().append("te", HeaderValue::from_static("trailers"));
            assert!(matches!(kept(&twice, &known), Template::Own(_)));
        }
    }
}
