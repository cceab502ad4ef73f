//! A middleware for clients of [reqwest-middleware](reqwest_middleware) (feature `reqwest-middleware`).

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use http::Extensions;
use reqwest::{Request, Response};
use reqwest_middleware::{Error, Middleware, Next, Result};
use tower_service::Service;

use crate::future::ResponseFuture;
use crate::layer::RetryLayer;
use crate::options::RequestOptions;
use crate::service_error::StdErrors;

/// Retries or hedges the requests of a `ClientWithMiddleware`, as [`RetryLayer`] does.
///
/// A [`RequestOptions`] in the extensions of a request applies to it.
///
/// ```no_run
/// use redial_http::{RequestOptions, RetryLayer, RetryMiddleware};
/// use reqwest_middleware::ClientBuilder;
/// use redial::s;
///
/// let client = ClientBuilder::new(reqwest::Client::new())
///     .with(RetryMiddleware::new(RetryLayer::standard()))
///     .build();
/// let request = client.get("http://example.com/").with_extension(RequestOptions::new().deadline(s(2)));
/// # let _ = request;
/// ```
///
/// Middleware that is added before this one sees a request once, middleware after it sees every attempt.
/// Each attempt gets a copy of the extensions; those of the last attempt that ended are returned.
///
/// An error after one attempt is returned as it is. An error after several is
/// `reqwest_middleware::Error::Middleware` with a [`redial_http::Error`](crate::Error) inside.
#[derive(Clone, Debug)]
pub struct RetryMiddleware {
    layer: RetryLayer,
}

impl RetryMiddleware {
    /// A middleware with the policy, rules and budgets of this layer.
    #[must_use]
    pub fn new(layer: RetryLayer) -> Self {
        RetryMiddleware { layer }
    }
}

#[async_trait::async_trait]
impl Middleware for RetryMiddleware {
    async fn handle(
        &self,
        request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> Result<Response> {
        let options = extensions.get::<RequestOptions>().cloned();
        let shared =
            Arc::new(AttemptExtensions { original: extensions.clone(), last: Mutex::new(None) });
        let service = NextService { next, extensions: shared.clone() };
        let settings = &self.layer.settings;
        let call = ResponseFuture::<_, _, StdErrors>::start(settings, service, request, options);
        let result = call.await;
        if let Some(last) = shared.last.lock().unwrap_or_else(PoisonError::into_inner).take() {
            *extensions = last;
        }
        result.map_err(into_error)
    }
}

/// The error as callers of reqwest-middleware expect it.
fn into_error(error: crate::Error<Error>) -> Error {
    match error.attempts() {
        0 | 1 if error.last().is_some() => error.into_last().expect("it is some"),
        _ => Error::middleware(error),
    }
}

/// The extensions of a request and of its last attempt that ended.
struct AttemptExtensions {
    original: Extensions,
    last: Mutex<Option<Extensions>>,
}

/// The rest of the middleware, as a service that sends an attempt.
#[derive(Clone)]
struct NextService<'a> {
    next: Next<'a>,
    extensions: Arc<AttemptExtensions>,
}

impl<'a> Service<Request> for NextService<'a> {
    type Response = Response;
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response>> + Send + 'a>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let NextService { next, extensions } = self.clone();
        Box::pin(async move {
            let mut own = extensions.original.clone();
            let result = next.run(request, &mut own).await;
            *extensions.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(own);
            result
        })
    }
}
