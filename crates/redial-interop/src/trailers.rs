//! A layer that lets a handler add trailers to a successful call, for which tonic has no API.
//!
//! Trailers that the handler has set when its body ends are sent with the status.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use http::{HeaderMap, Request, Response};
use http_body_util::BodyExt;
use tonic::body::Body;
use tonic::codegen::BoxFuture;
use tower::{Layer, Service};

/// The additional trailers of a handler, from the extensions of its request.
#[derive(Clone, Default)]
pub(crate) struct Trailers(Arc<Mutex<HeaderMap>>);

impl Trailers {
    /// The trailers of `request`; without the layer they are discarded.
    pub(crate) fn of<T>(request: &tonic::Request<T>) -> Self {
        request.extensions().get().cloned().unwrap_or_default()
    }

    pub(crate) fn insert(&self, name: &'static str, value: http::HeaderValue) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(name, value);
    }

    fn take(&self) -> HeaderMap {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[derive(Clone, Copy)]
pub(crate) struct TrailersLayer;

impl<S> Layer<S> for TrailersLayer {
    type Service = TrailersService<S>;

    fn layer(&self, inner: S) -> TrailersService<S> {
        TrailersService(inner)
    }
}

#[derive(Clone)]
pub(crate) struct TrailersService<S>(S);

impl<S, A> Service<Request<A>> for TrailersService<S>
where
    S: Service<Request<A>, Response = Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Response<Body>, Infallible>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<A>) -> Self::Future {
        let trailers = Trailers::default();
        request.extensions_mut().insert(trailers.clone());
        let response = self.0.call(request);
        Box::pin(async move {
            let response = response.await?;
            Ok(response.map(|body| {
                Body::new(body.map_frame(move |mut frame| {
                    if let Some(last) = frame.trailers_mut() {
                        last.extend(trailers.take());
                    }
                    frame
                }))
            }))
        })
    }
}
