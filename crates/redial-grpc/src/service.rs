//! The service around a channel: passes a call through, or starts it with retry state.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use redial_service_config::Retries;
use tower_service::Service;

use crate::BoxError;
use crate::call::{self, RequestHeaders, ResponseBody, ResponseFuture};
use crate::client_adapter::{ClientAdapter, Tonic};
use crate::control::Control;
use crate::methods::PlanRef;
use crate::options::CallOptions;
use crate::shared::Shared;
use crate::sync::{Mutex, lock};

/// A channel with retries and hedging.
#[derive(Debug)]
pub struct RetryService<S, W = Tonic> {
    inner: S,
    /// Cloned for retries and hedges. A call with one attempt clones nothing.
    retry_service: Arc<Mutex<S>>,
    shared: Arc<Shared>,
    adapter: W,
}

impl<S: Clone, W: Clone> Clone for RetryService<S, W> {
    fn clone(&self) -> Self {
        RetryService {
            inner: self.inner.clone(),
            retry_service: self.retry_service.clone(),
            shared: self.shared.clone(),
            adapter: self.adapter.clone(),
        }
    }
}

impl<S, W> RetryService<S, W> {
    pub(crate) fn new(inner: S, shared: Arc<Shared>, adapter: W) -> Self
    where
        S: Clone,
    {
        RetryService { retry_service: Arc::new(Mutex::new(inner.clone())), inner, shared, adapter }
    }

    /// The wrapped channel.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// The timeout of a method in the current config.
    #[must_use]
    pub fn config_timeout(&self, path: &str, retries: Retries) -> Option<Duration> {
        let method = PlanRef::new(self.shared.method(path), retries);
        method.plan().policy().rules().deadline
    }

    /// Replaces a service that was made ready but is not called: it may hold a permit until it is called
    /// or dropped.
    fn discard_ready_service(&mut self)
    where
        S: Clone,
    {
        self.inner = lock(&self.retry_service).clone();
    }

    /// Changes and inspects the layer while calls run.
    #[must_use]
    pub fn control(&self) -> Control {
        Control::new(self.shared.clone())
    }
}

impl<S, B, R, W> Service<Request<B>> for RetryService<S, W>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
    S::Error: Into<BoxError>,
    B: Body<Data = Bytes> + Unpin + Send + 'static,
    B::Error: Into<BoxError>,
    R: Body<Data = Bytes> + Unpin,
    R::Error: Into<BoxError>,
    W: ClientAdapter<B>,
{
    type Response = Response<ResponseBody<R>>;
    type Error = BoxError;
    type Future = ResponseFuture<S, B, W>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, mut request: Request<B>) -> ResponseFuture<S, B, W> {
        let options = match request.extensions().get::<CallOptions>() {
            None => CallOptions::default(),
            Some(_) => request.extensions_mut().remove().unwrap_or_default(),
        };
        let retries = self.shared.retries(options.retries, request.extensions());
        if retries == Retries::Off
            && options.call_log.is_none()
            && options.attempt_timeout.is_none()
            && !self.shared.has_limits()
            && !self.shared.observers.is_enabled()
            && RequestHeaders::need_no_handling(request.headers())
        {
            return ResponseFuture::pass_through(self.inner.call(request), self.adapter.clone());
        }
        self.start(request, retries, options)
    }
}

impl<S, W> RetryService<S, W> {
    /// Starts a call with retry state.
    fn start<B>(
        &mut self,
        mut request: Request<B>,
        retries: Retries,
        options: CallOptions,
    ) -> ResponseFuture<S, B, W>
    where
        S: Service<Request<B>> + Clone,
        B: Body<Data = Bytes> + Unpin + Send + 'static,
        B::Error: Into<BoxError>,
        W: ClientAdapter<B>,
    {
        let adapter = self.adapter.clone();
        let retry_service = &self.retry_service;
        match call::start(&self.shared, &mut request, retries, options, retry_service, &adapter) {
            Ok((call, starts_first)) => {
                let first = if starts_first {
                    let _guard = call.enter_first_span();
                    Some(self.inner.call(request))
                } else {
                    self.discard_ready_service();
                    None
                };
                ResponseFuture::started(call, first, adapter)
            }
            Err(failure) => {
                self.discard_ready_service();
                ResponseFuture::failed(failure, adapter)
            }
        }
    }
}
