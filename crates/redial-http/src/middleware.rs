//! A middleware for clients of [reqwest-middleware](reqwest_middleware) (feature `reqwest-middleware`).

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use http::Extensions;
use redial::Directive;
use reqwest::{Request, Response};
use reqwest_middleware::{Error, Middleware, Next, Result};
use tower_service::Service;

use crate::call::CallStart;
use crate::future::{FirstAttempt, ResponseFuture};
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

impl Middleware for RetryMiddleware {
    // What `#[async_trait]` makes of an `async fn`, without the request in the future more than once.
    fn handle<'life0, 'life1, 'life2, 'async_trait>(
        &'life0 self,
        mut request: Request,
        extensions: &'life1 mut Extensions,
        next: Next<'life2>,
    ) -> ResultFuture<'async_trait>
    where
        'life0: 'async_trait,
        'life1: 'async_trait,
        'life2: 'async_trait,
    {
        let settings = &self.layer.settings;
        let options = extensions.get::<RequestOptions>().cloned();
        let original = extensions.clone();
        let Some(start) = CallStart::new(settings, &mut request, options.as_ref()) else {
            let mut service = NextService::new(next, original);
            let call = Call::start(settings, &mut service, request, options);
            return service.run(call, extensions);
        };
        Box::pin(async move {
            let mut first = FirstAttempt::new(next.clone().run(request, extensions));
            let result = Pin::new(&mut first).await;
            let pending_since = first.pending_since();
            drop(first);
            let directive = result.as_ref().ok().map(|response| start.classify(response));
            match result {
                Ok(response) if directive == Some(Directive::Succeed) => Ok(response),
                result => {
                    let service = NextService::new(next, original);
                    let call =
                        Call::resume(start, service.clone(), result, directive, pending_since);
                    service.run(call, extensions).await
                }
            }
        })
    }
}

type ResultFuture<'a> = Pin<Box<dyn Future<Output = Result<Response>> + Send + 'a>>;
type Call<'a> = ResponseFuture<NextService<'a>, Request, StdErrors>;

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

impl<'a> NextService<'a> {
    fn new(next: Next<'a>, original: Extensions) -> Self {
        let extensions = AttemptExtensions { original, last: Mutex::new(None) };
        NextService { next, extensions: Arc::new(extensions) }
    }

    /// Runs a call of this service, which returns the extensions of the last attempt that ended. In a box:
    /// most requests succeed with their first attempt.
    fn run<'e>(self, call: Call<'a>, extensions: &'e mut Extensions) -> ResultFuture<'e>
    where
        'a: 'e,
    {
        Box::pin(async move {
            let result = call.await;
            let last = &self.extensions.last;
            if let Some(last) = last.lock().unwrap_or_else(PoisonError::into_inner).take() {
                *extensions = last;
            }
            result.map_err(into_error)
        })
    }
}

impl<'a> Service<Request> for NextService<'a> {
    type Response = Response;
    type Error = Error;
    type Future = ResultFuture<'a>;

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
