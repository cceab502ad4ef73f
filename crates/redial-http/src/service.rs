//! The service: starts a call for each request.

use std::task::{Context, Poll};

use redial::{Report, StopReason};
use tower_service::Service;

use crate::error::Error;
use crate::future::ResponseFuture;
use crate::layer::RetryLayer;
use crate::options::RequestOptions;
use crate::request::HttpRequest;
use crate::response::HttpResponse;
use crate::service_error::{AsStdError, StdErrors};

/// A service that retries or hedges the requests of another one; [`RetryLayer`] makes it.
///
/// `poll_ready` is passed through: the service that is ready makes the first attempt. It is called at once,
/// or, if the request has a deadline, an attempt timeout, hedges or options, when the future is polled. A
/// retry runs on a clone of the service, and waits until that is ready.
#[derive(Debug)]
pub struct RetryService<S, X = StdErrors> {
    inner: S,
    layer: RetryLayer<X>,
}

impl<S, X> RetryService<S, X> {
    pub(crate) const fn new(inner: S, layer: RetryLayer<X>) -> Self {
        RetryService { inner, layer }
    }

    /// The service inside.
    #[must_use]
    pub const fn inner(&self) -> &S {
        &self.inner
    }

    /// The service inside.
    #[must_use]
    pub fn into_inner(self) -> S {
        self.inner
    }

    /// Calls the service with options for this request, for requests whose type has no extensions. The
    /// service must be ready.
    pub fn call_with_options<Req>(
        &mut self,
        request: Req,
        options: RequestOptions,
    ) -> ResponseFuture<S, Req, X>
    where
        S: Service<Req, Response: HttpResponse> + Clone,
        Req: HttpRequest,
        X: AsStdError<S::Error>,
    {
        ResponseFuture::start(&self.layer.settings, &mut self.inner, request, Some(options))
    }
}

impl<S: Clone, X> Clone for RetryService<S, X> {
    fn clone(&self) -> Self {
        RetryService { inner: self.inner.clone(), layer: self.layer.clone() }
    }
}

impl<S, Req, X> Service<Req> for RetryService<S, X>
where
    S: Service<Req, Response: HttpResponse> + Clone,
    Req: HttpRequest,
    X: AsStdError<S::Error>,
{
    type Response = <S::Response as HttpResponse>::Output;
    type Error = Error<S::Error>;
    type Future = ResponseFuture<S, Req, X>;

    #[inline]
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx).map_err(|error| {
            let policy = self.layer.settings.policy.policy.name();
            Error::new(Some(error), None, Report::not_started(policy, StopReason::NotRetryable))
        })
    }

    #[inline]
    fn call(&mut self, request: Req) -> Self::Future {
        ResponseFuture::start(&self.layer.settings, &mut self.inner, request, None)
    }
}
