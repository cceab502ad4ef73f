//! Retry and hedge HTTP requests: a tower layer for any HTTP service, one method for [reqwest], and a
//! middleware for reqwest-middleware.
//!
//! # When to use it
//!
//! Use it around an HTTP client for transient failures: a connection that was refused or reset, a server
//! that answers 503, an API that answers 429 with `Retry-After`. The layer knows which requests may run
//! twice, and limits retries per host, so that they do not make an outage worse.
//!
//! # reqwest
//!
//! With the feature `reqwest`:
//! ```no_run
//! # #[cfg(feature = "reqwest")]
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use redial_http::RetryLayer;
//! use redial_http::reqwest::SendWith;
//!
//! let client = reqwest::Client::new();
//! let retries = RetryLayer::standard();
//!
//! let response = client.get("http://example.com/").send_with(&retries).await?;
//! println!("{} after {} attempts", response.status(), redial_http::attempts(response.extensions()));
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "reqwest"))]
//! # fn main() {}
//! ```
//!
//! # tower and hyper
//!
//! ```no_run
//! use bytes::Bytes;
//! use http::Request;
//! use http_body_util::Full;
//! use hyper_util::client::legacy::Client;
//! use hyper_util::rt::TokioExecutor;
//! use redial_http::RetryLayer;
//! use tower::{Service, ServiceBuilder, ServiceExt};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut client = ServiceBuilder::new()
//!     .layer(RetryLayer::standard())
//!     .service(Client::builder(TokioExecutor::new()).build_http());
//! let request = Request::put("http://example.com/x").body(Full::new(Bytes::from("content")))?;
//! let response = client.ready().await?.call(request).await?;
//! # let _ = response;
//! # Ok(())
//! # }
//! ```
//!
//! # Defaults
//!
//! | setting | default | reason |
//! | --- | --- | --- |
//! | attempts, backoff | 3; 200 ms, doubled, at most 20 s, full jitter | outlasts a dropped connection or a brief overload, and spreads out clients that failed together |
//! | statuses, methods, `Retry-After` | [`HttpRules`] | a request must not run twice by accident |
//! | failures with proof that nothing was processed | retried for every method | DNS errors, refused connections, connect timeouts, TLS handshakes that break off, streams that an HTTP/2 server refused |
//! | connection lost or timeout after sending | idempotent requests only | the server may have acted on the request |
//! | certificates, URLs, redirects, decoding | final | a retry fails in the same way |
//! | `Retry-After` | the larger of it and the backoff; above 60 s or the deadline the response is returned at once | a server must not hold a caller for hours |
//! | retry budget | per host: 10 retries, and 1 more per 10 successes and per second; at most 1000 hosts | one failing host cannot start a retry storm, or use up the retries of the others |
//! | bodies | in memory: replayed. Streams: one attempt, or a new body per attempt with [`RequestOptions::body_factory`] | a partial body must never be sent as a complete one |
//! | after the last attempt | the last response, whole, with a [`Report`](redial::Report) in its extensions | the caller decides by status as without retries |
//! | abandoned responses | up to 64 KiB are read, for at most 500 ms and half of the time until a timer; a longer one is dropped before the backoff | the connection can be used again, or is not held |
//! | deadline, attempt timeout, hedging, attempt header, idempotency keys | none | only the caller knows them |
//!
//! # What can go wrong
//!
//! - **A POST is not retried.** The server may have acted on it. Send an `Idempotency-Key` if the server
//!   implements it ([`RetryLayer::add_idempotency_keys`]), or state that this one may run twice
//!   ([`RequestOptions::idempotent`]).
//! - **An upload is not retried, with the reason "already committed to this attempt".** Its body is a stream:
//!   use [`RequestOptions::body_factory`]. A factory that makes another type than the body of the request is
//!   not used; the feature `tracing` has a warning for that.
//! - **Calls end with `throttled`.** The budget of the host is empty: many of its requests failed.
//! - **A retryable status arrives later than without the layer.** Its body is read before the call decides.
//!   The last attempt, a request that cannot be retried, and a response with too long a `Retry-After` are not
//!   delayed.
//! - **Requests are sent more often than there are attempts.** A second layer retries too: reqwest itself
//!   (`ClientBuilder::retry(reqwest::retry::never())` turns that off), a proxy or a service mesh.
//! - **Errors of a middleware are final.** The layer knows the errors of hyper, h2, reqwest and the
//!   operating system. Classify others with [`HttpRules::classify`].
//! - **A failure while the response's body is read is not retried.** The call has ended with the head of the
//!   response.
//!
//! # Features
//!
//! | feature | adds |
//! | --- | --- |
//! | `reqwest` | `send_with` for requests of reqwest 0.13 (module `reqwest`) |
//! | `reqwest-middleware` | `RetryMiddleware` for reqwest-middleware 0.5 |
//! | `tracing` | the events of `redial`, and warnings for a `Retry-After` that cannot be read and a body factory that is not used |
//!
//! The guide is [`docs/http.md`][guide]; references such as `decision H3` point to
//! [`docs/decisions.md`][decisions].
//!
//! [reqwest]: https://docs.rs/reqwest
//! [guide]: https://github.com/redial-rs/redial/blob/main/docs/http.md
//! [decisions]: https://github.com/redial-rs/redial/blob/main/docs/decisions.md
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod call;
mod error;
mod future;
mod host_budgets;
mod layer;
#[cfg(feature = "reqwest-middleware")]
mod middleware;
mod options;
mod policy;
mod request;
#[cfg(feature = "reqwest")]
pub mod reqwest;
mod response;
mod response_body;
mod retry_after;
mod rules;
mod saved_headers;
mod service;
mod service_error;
mod transport;

pub use error::Error;
pub use future::ResponseFuture;
pub use host_budgets::HOSTS_MAX;
pub use layer::RetryLayer;
#[cfg(feature = "reqwest-middleware")]
pub use middleware::RetryMiddleware;
pub use options::RequestOptions;
pub use response::attempts;
pub use retry_after::parse as retry_after;
pub use rules::{HttpRules, IDEMPOTENCY_KEY, Outcome, RequestHead};
pub use service::RetryService;

/// Types that appear in signatures. Programs rarely name them.
pub mod parts {
    pub use crate::request::{CloneBody, HttpRequest, SavedRequest};
    pub use crate::response::{
        DrainResponse, DrainedResponse, HttpResponse, ResponseHead, UnreadBody,
    };
    pub use crate::response_body::{DRAIN_BYTES_MAX, DRAIN_TIME_MAX, ResponseBody};
    pub use crate::service_error::{AsStdError, BoxErrors, StdErrors};
}

/// Compiles the examples of the guide and of the README.
#[cfg(all(doctest, feature = "reqwest-middleware"))]
mod guide {
    #[doc = include_str!("../../../docs/http.md")]
    struct Guide;
    #[doc = include_str!("../README.md")]
    struct Readme;
}
