//! Who may use the server: pages that came from it, with the token of its address.
//!
//! A page of another site can send requests to a port of this machine. It does not know the token, its
//! `Origin` is another one, and the body would need a media type that browsers ask about first. A
//! site whose name suddenly resolves to 127.0.0.1 (DNS rebinding) is refused by its `Host`.

use std::fmt::Write as _;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::{Path, Request, State};
use axum::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use axum::http::{StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Redirect, Response};

use super::request::Refusal;
use super::server::Shared;

/// Scripts, styles and requests of this server alone; pictures are made by the page itself.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
                      img-src 'self' blob:; connect-src 'self'; form-action 'none'; \
                      base-uri 'none'; frame-ancestors 'none'";

/// The headers of every response.
const HEADERS: [(HeaderName, &str); 6] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// The token, and the names of this server.
pub(super) struct Access {
    port: u16,
    token: String,
    /// The values of `Host` that are this server.
    hosts: Vec<String>,
    origins: Vec<String>,
    /// The code of the address that leads to the page once.
    code: Mutex<Option<String>>,
}

impl Access {
    pub(super) fn new(port: u16) -> io::Result<Access> {
        let mut hosts = vec![format!("127.0.0.1:{port}"), format!("localhost:{port}")];
        if port == 80 {
            // Browsers leave it out.
            hosts.extend(["127.0.0.1".to_owned(), "localhost".to_owned()]);
        }
        let origins = hosts.iter().map(|host| format!("http://{host}")).collect();
        Ok(Access { port, token: random()?, hosts, origins, code: Mutex::new(Some(random()?)) })
    }

    /// The path of the page.
    pub(super) fn base(&self) -> String {
        format!("/{}/", self.token)
    }

    pub(super) fn url(&self) -> String {
        format!("http://127.0.0.1:{}{}", self.port, self.base())
    }

    pub(super) fn opening_url(&self) -> String {
        let code = self.code.lock().unwrap_or_else(PoisonError::into_inner);
        format!("http://127.0.0.1:{}/open/{}", self.port, code.as_deref().unwrap_or_default())
    }

    /// The page, if this is the code and it is used for the first time.
    fn opened(&self, given: &str) -> Option<String> {
        let mut code = self.code.lock().unwrap_or_else(PoisonError::into_inner);
        code.take_if(|code| is_equal(code, given)).map(|_| self.base())
    }

    /// Why a request is refused.
    fn refusal(&self, uri: &Uri, headers: &HeaderMap) -> Option<Refusal> {
        let is = |value: &HeaderValue, known: &[String]| {
            value.to_str().is_ok_and(|value| known.iter().any(|known| known == value))
        };
        let mut hosts = headers.get_all(header::HOST).iter();
        let is_here = matches!((hosts.next(), hosts.next()), (Some(host), None)
            if is(host, &self.hosts))
            && uri.authority().is_none_or(|it| self.hosts.iter().any(|host| host == it.as_str()));
        if !is_here {
            return Some(Refusal::forbidden("this server is 127.0.0.1 alone"));
        }
        if !headers.get_all(header::ORIGIN).iter().all(|origin| is(origin, &self.origins)) {
            return Some(Refusal::forbidden("requests of other sites are refused"));
        }
        let first = uri.path().split('/').nth(1).unwrap_or_default();
        if first != "open" && !is_equal(first, &self.token) {
            return Some(Refusal::forbidden("open the address that `redial ui` has printed"));
        }
        None
    }
}

/// 128 random bits.
fn random() -> io::Result<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    let mut text = String::new();
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    Ok(text)
}

/// Whether two texts are equal, in a time that does not depend on where they differ.
fn is_equal(a: &str, b: &str) -> bool {
    let differences = a.bytes().zip(b.bytes()).fold(0, |found, (a, b)| found | (a ^ b));
    a.len() == b.len() && differences == 0
}

/// Refuses requests that may not be made, and adds the headers to every response.
pub(super) async fn check(
    State(shared): State<Arc<Shared>>,
    request: Request,
    next: Next,
) -> Response {
    let mut response = match shared.access.refusal(request.uri(), request.headers()) {
        Some(refusal) => refusal.into_response(),
        None => next.run(request).await,
    };
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// The address that leads to the page once.
pub(super) async fn open(State(shared): State<Arc<Shared>>, Path(code): Path<String>) -> Response {
    match shared.access.opened(&code) {
        Some(page) => Redirect::to(&page).into_response(),
        None => Refusal::forbidden("this address works once").into_response(),
    }
}

/// No such path.
pub(super) async fn not_found() -> Refusal {
    Refusal::new(StatusCode::NOT_FOUND, "there is no such page")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ui_tokens_are_compared_whole() {
        assert!(is_equal("abc", "abc"));
        assert!(!is_equal("abc", "abd") && !is_equal("abc", "ab") && !is_equal("", "a"));
        let (one, other) = (random().expect("random"), random().expect("random"));
        assert!(one.len() == 32 && one != other);
    }

    #[test]
    fn ui_port_80_is_left_out_of_host_and_origin() {
        let access = Access::new(80).expect("random");
        let uri: Uri = access.base().parse().expect("a path");
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, HeaderValue::from_static("localhost"));
        headers.insert(header::ORIGIN, HeaderValue::from_static("http://localhost"));
        assert!(access.refusal(&uri, &headers).is_none());
        assert!(Access::new(81).expect("random").refusal(&uri, &headers).is_some());
    }
}
