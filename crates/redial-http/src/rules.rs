//! The rules: which responses and requests may be retried. Plain values without I/O.

mod methods;
mod statuses;

use std::fmt;
use std::sync::Arc;

use http::{HeaderMap, HeaderName, Method, StatusCode};
use redial::{Directive, Failure, Reason};

use crate::retry_after;
use methods::Methods;
pub(crate) use methods::is_safe;
use statuses::Statuses;

/// The header that makes a request of any method idempotent, for servers that implement it.
pub const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Which statuses, methods and headers allow a retry (decisions H1 to H3 and H6).
///
/// | rule | default | reason |
/// | --- | --- | --- |
/// | statuses | 408, 425, 429, 500, 502, 503, 504; 413 with `Retry-After` | the server may answer otherwise soon. 501, 505 and 511 say that it will not |
/// | methods | GET, HEAD, OPTIONS, TRACE, PUT, DELETE, QUERY | RFC 9110 defines them as idempotent: a second request changes nothing more |
/// | other methods | with an `Idempotency-Key`, with [`RequestOptions::idempotent`](crate::RequestOptions::idempotent), or after a failure that proves that nothing was processed | a POST must not run twice by accident |
/// | 429, and 503 with `Retry-After` | no proof that nothing was processed | some servers reject a request halfway: [`HttpRules::trust_rejections`] |
/// | 409 with an `Idempotency-Key` | returned | the first request may still run: [`HttpRules::retry_conflicts`] |
/// | `Retry-After` | respected | the server knows its own load |
///
/// ```
/// use http::{Method, StatusCode};
/// use redial_http::HttpRules;
///
/// let rules = HttpRules::standard()
///     .retry_status(StatusCode::LOCKED)
///     .never_status(StatusCode::INTERNAL_SERVER_ERROR)
///     .idempotent_method(Method::from_bytes(b"PROPFIND")?);
/// assert!(rules.is_idempotent(&Method::from_bytes(b"PROPFIND")?));
/// assert!(!rules.is_idempotent(&Method::POST));
/// # Ok::<(), http::method::InvalidMethod>(())
/// ```
#[derive(Clone)]
pub struct HttpRules {
    statuses: Statuses,
    methods: Methods,
    ignores_retry_after: bool,
    trusts_rejections: bool,
    retries_conflicts: bool,
    hook: Option<Arc<Hook>>,
}

/// A function that classifies outcomes before the rules do.
type Hook = dyn Fn(&RequestHead, Outcome<'_>) -> Option<Directive> + Send + Sync;

/// The request of an outcome, for [`HttpRules::classify`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RequestHead {
    /// The method.
    pub method: Method,
    /// The host and port.
    pub host: String,
    /// The headers, with an `Idempotency-Key` that the layer has added.
    pub headers: HeaderMap,
    /// Whether the request may run twice.
    pub idempotent: bool,
}

/// What an attempt returned, for [`HttpRules::classify`].
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Outcome<'a> {
    /// A response; its body has not been read.
    Response {
        /// The status.
        status: StatusCode,
        /// The headers.
        headers: &'a HeaderMap,
    },
    /// An error of the client.
    Error(&'a (dyn std::error::Error + 'static)),
}

impl HttpRules {
    /// The defaults of the table above.
    #[must_use]
    pub fn standard() -> Self {
        HttpRules {
            statuses: Statuses::standard(),
            methods: Methods::standard(),
            ignores_retry_after: false,
            trusts_rejections: false,
            retries_conflicts: false,
            hook: None,
        }
    }

    /// Retries responses with this status.
    #[must_use]
    pub fn retry_status(mut self, status: StatusCode) -> Self {
        self.statuses.insert(status);
        self
    }

    /// Returns responses with this status.
    #[must_use]
    pub fn never_status(mut self, status: StatusCode) -> Self {
        self.statuses.remove(status);
        self
    }

    /// Takes requests of this method as idempotent.
    #[must_use]
    pub fn idempotent_method(mut self, method: Method) -> Self {
        self.methods.insert(method);
        self
    }

    /// Takes requests of this method as not idempotent, for servers on which a PUT or DELETE is not.
    #[must_use]
    pub fn not_idempotent_method(mut self, method: &Method) -> Self {
        self.methods.remove(method);
        self
    }

    /// Ignores `Retry-After`: delays are those of the policy.
    #[must_use]
    pub fn ignore_retry_after(mut self) -> Self {
        self.ignores_retry_after = true;
        self
    }

    /// Takes 429, and 503 with `Retry-After`, as proof that the server has not processed the request, so
    /// that every method is retried after them.
    #[must_use]
    pub fn trust_rejections(mut self) -> Self {
        self.trusts_rejections = true;
        self
    }

    /// Retries 409 if the request has an `Idempotency-Key`: the server still processes the first request
    /// with this key. 422, which reports another request with the same key, is never retried.
    #[must_use]
    pub fn retry_conflicts(mut self) -> Self {
        self.retries_conflicts = true;
        self
    }

    /// Classifies outcomes with a function that sees the request and the outcome. `None` leaves the
    /// outcome to the rules.
    ///
    /// ```
    /// use redial::{Directive, Failure};
    /// use redial_http::{Outcome, HttpRules};
    ///
    /// // This API answers 404 until a new record has reached its replicas.
    /// let rules = HttpRules::standard().classify(|request, outcome| match outcome {
    ///     Outcome::Response { status, .. } if status == 404 && request.host == "api.example" => {
    ///         Some(Directive::Retry(Failure::server()))
    ///     }
    ///     _ => None,
    /// });
    /// # let _ = rules;
    /// ```
    #[must_use]
    pub fn classify(
        mut self,
        hook: impl Fn(&RequestHead, Outcome<'_>) -> Option<Directive> + Send + Sync + 'static,
    ) -> Self {
        self.hook = Some(Arc::new(hook));
        self
    }

    /// Whether requests of this method may run twice.
    #[must_use]
    pub fn is_idempotent(&self, method: &Method) -> bool {
        self.methods.contains(method)
    }

    /// Whether a conflict is retried if the request has a key.
    pub(crate) const fn retries_conflicts(&self) -> bool {
        self.retries_conflicts
    }

    /// Whether a function classifies outcomes, which needs the head of the request.
    pub(crate) fn has_hook(&self) -> bool {
        self.hook.is_some()
    }

    /// Asks the function of [`HttpRules::classify`].
    pub(crate) fn ask_hook(
        &self,
        head: Option<&RequestHead>,
        outcome: Outcome<'_>,
    ) -> Option<Directive> {
        self.hook.as_ref().zip(head).and_then(|(hook, head)| hook(head, outcome))
    }

    /// Classifies a response. `has_key`: the request has an `Idempotency-Key`. `ignores_hints`: the request
    /// ignores `Retry-After`.
    pub(crate) fn classify_response(
        &self,
        status: StatusCode,
        headers: &HeaderMap,
        has_key: bool,
        ignores_hints: bool,
    ) -> Directive {
        if status.is_success() && !self.statuses.contains(status) {
            return Directive::Succeed;
        }
        self.classify_failure(status, headers, has_key, ignores_hints)
    }

    #[cold]
    fn classify_failure(
        &self,
        status: StatusCode,
        headers: &HeaderMap,
        has_key: bool,
        ignores_hints: bool,
    ) -> Directive {
        let respects = !self.ignores_retry_after && !ignores_hints;
        let retry_after = if respects { retry_after::parse(headers) } else { None };
        let asks = headers.contains_key(http::header::RETRY_AFTER);
        let is_conflict = status == StatusCode::CONFLICT && self.retries_conflicts && has_key;
        let is_too_large = status == StatusCode::PAYLOAD_TOO_LARGE && asks && respects;
        let is_retried = self.statuses.contains(status) || is_conflict || is_too_large;
        if !is_retried || status == StatusCode::UNPROCESSABLE_ENTITY {
            return if status.is_server_error() { Directive::Fail } else { Directive::Succeed };
        }
        let mut reason = Reason::new(statuses::reason(status));
        let is_rejection = status == StatusCode::TOO_MANY_REQUESTS
            || status == StatusCode::SERVICE_UNAVAILABLE && asks;
        if self.trusts_rejections && is_rejection {
            reason = reason.allow_non_idempotent();
        }
        let failure = match status {
            StatusCode::TOO_MANY_REQUESTS => Failure::throttling(),
            _ => Failure::server(),
        };
        let failure = failure.because(reason);
        Directive::Retry(match retry_after {
            Some(delay) => failure.retry_after(delay),
            None => failure,
        })
    }
}

impl Default for HttpRules {
    fn default() -> Self {
        HttpRules::standard()
    }
}

impl fmt::Debug for HttpRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpRules")
            .field("statuses", &self.statuses)
            .field("methods", &self.methods)
            .field("ignores_retry_after", &self.ignores_retry_after)
            .field("trusts_rejections", &self.trusts_rejections)
            .field("retries_conflicts", &self.retries_conflicts)
            .field("classify", &self.hook.is_some())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;
    use redial::classify::Hint;
    use redial::{FailureKind, s};

    fn classify(
        rules: &HttpRules,
        status: u16,
        headers: &[(&str, &str)],
        has_key: bool,
    ) -> Directive {
        let headers: HeaderMap = headers
            .iter()
            .map(|(name, value)| {
                (
                    HeaderName::from_bytes(name.as_bytes()).unwrap(),
                    HeaderValue::from_str(value).unwrap(),
                )
            })
            .collect();
        let status = StatusCode::from_u16(status).unwrap();
        rules.classify_response(status, &headers, has_key, false)
    }

    fn is_retried(rules: &HttpRules, status: u16, headers: &[(&str, &str)], has_key: bool) -> bool {
        matches!(classify(rules, status, headers, has_key), Directive::Retry(_))
    }

    // Decision H1.
    #[test]
    fn statuses_that_are_retried_are_those_of_the_table() {
        let rules = HttpRules::standard();
        let retried: Vec<u16> =
            (100..600).filter(|it| is_retried(&rules, *it, &[], false)).collect();
        assert_eq!(retried, [408, 425, 429, 500, 502, 503, 504]);
        let asked = [("retry-after", "1")];
        let retried: Vec<u16> =
            (100..600).filter(|it| is_retried(&rules, *it, &asked, true)).collect();
        assert_eq!(retried, [408, 413, 425, 429, 500, 502, 503, 504]);
        for status in [501, 505, 511] {
            assert_eq!(classify(&rules, status, &[], false), Directive::Fail, "{status}");
        }
        for status in [200, 204, 301, 404] {
            assert_eq!(classify(&rules, status, &[], false), Directive::Succeed, "{status}");
        }
    }

    #[test]
    fn statuses_can_be_added_and_removed() {
        let rules = HttpRules::standard()
            .retry_status(StatusCode::OK)
            .retry_status(StatusCode::from_u16(999).unwrap())
            .never_status(StatusCode::BAD_GATEWAY);
        assert!(is_retried(&rules, 200, &[], false) && is_retried(&rules, 999, &[], false));
        assert!(!is_retried(&rules, 502, &[], false) && !is_retried(&rules, 998, &[], false));
    }

    // Decision H6.
    #[test]
    fn conflict_with_key_is_retried_by_option_422_never() {
        assert!(!is_retried(&HttpRules::standard(), 409, &[], true));
        let rules =
            HttpRules::standard().retry_conflicts().retry_status(StatusCode::UNPROCESSABLE_ENTITY);
        assert!(is_retried(&rules, 409, &[], true) && !is_retried(&rules, 409, &[], false));
        assert!(!is_retried(&rules, 422, &[], true));
    }

    #[test]
    fn rejections_prove_nothing_unless_trusted() {
        let proves = |rules: &HttpRules, status, headers: &[(&str, &str)]| {
            let Directive::Retry(failure) = classify(rules, status, headers, false) else {
                panic!()
            };
            failure.proves_not_run()
        };
        let asked = [("retry-after", "1")];
        for (status, headers, proof) in
            [(429, &[][..], true), (503, &asked, true), (503, &[], false), (500, &asked, false)]
        {
            assert!(!proves(&HttpRules::standard(), status, headers), "{status}");
            assert_eq!(
                proves(&HttpRules::standard().trust_rejections(), status, headers),
                proof,
                "{status}"
            );
        }
    }

    #[test]
    fn retry_after_becomes_the_hint_or_is_ignored() {
        let asked = [("retry-after", "7")];
        let Directive::Retry(failure) = classify(&HttpRules::standard(), 429, &asked, false) else {
            panic!()
        };
        assert_eq!((failure.kind, failure.hint), (FailureKind::Throttling, Hint::After(s(7))));
        let ignoring = HttpRules::standard().ignore_retry_after();
        let Directive::Retry(failure) = classify(&ignoring, 503, &asked, false) else { panic!() };
        assert_eq!((failure.kind, failure.hint), (FailureKind::Server, Hint::None));
    }
}
