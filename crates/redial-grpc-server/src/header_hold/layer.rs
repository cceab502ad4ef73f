//! The layer and its service: adds a handle to each request, and delays the headers of each
//! response.

use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response};
use http_body::Body;
use tower_layer::Layer;
use tower_service::Service;

use super::{HeaderHold, HoldFuture};
use crate::PeekedBody;
use redial_grpc::BoxError;

/// Delays response headers until the first message, so that clients can retry an error before it.
///
/// A gRPC client retries an attempt only before it has received response headers. A tonic handler
/// that returns `Ok(stream)` sends its headers immediately. If the first item of that stream is an
/// error, no client retries it. With this layer the headers wait for the first of these events:
/// - A message: headers, then the message, as usual.
/// - An error: one frame with the headers, the status and all metadata of both (Trailers-Only),
///   which clients retry. An error of the body itself is sent the same way, as the status that
///   tonic derives from it.
/// - The end of the stream without a message: headers, then trailers, as usual.
/// - [`HeaderHold::flush`] by the handler, or the time limit [`HoldLayer::at_most`]: the headers,
///   then the rest of the response.
///
/// Nothing changes for unary responses and for handlers that return an error: their first frame is
/// available immediately. The handle costs two small allocations per call.
///
/// ```
/// use redial_echo::Responder;
/// use redial_echo::echo_server::EchoServer;
/// use redial_grpc_server::HoldLayer;
///
/// let server = tonic::transport::Server::builder()
///     .layer(HoldLayer::new())
///     .add_service(EchoServer::new(Responder));
/// # let _ = server;
/// ```
///
/// # When a handler must flush
/// A client that waits for headers before its first message, and a handler that waits for a message
/// before it responds, would deadlock. In tonic this is a client that awaits `client.chat(stream)`
/// before it feeds the stream. Its handler must call [`HeaderHold::flush`]. So should a handler
/// whose first message may take long and whose clients want to know that they are connected.
/// [`HoldLayer::at_most`] bounds the wait for handlers that do not flush.
///
/// # Side effects
/// The response is available only with its first message. A concurrency limit above this layer
/// therefore counts the call until then, and tonic's own timeout (`grpc-timeout`,
/// `Server::timeout`), which ends with the headers, applies until then. Headers and trailers of
/// more than 16 KiB together are not merged. Responses that are not gRPC (by `content-type`) pass
/// through unchanged. This includes gRPC-Web: its layer goes above this one.
///
/// # Cancel safety
/// Nothing is spawned: dropping the response drops the handler's stream.
#[derive(Clone, Copy, Debug, Default)]
pub struct HoldLayer {
    at_most: Option<Duration>,
}

impl HoldLayer {
    /// Creates a layer without a time limit.
    #[must_use]
    pub const fn new() -> Self {
        Self { at_most: None }
    }

    /// Limits how long headers are held, counted from when the handler returned its response. After
    /// that they are sent unchanged. Zero does not wait, but still merges an error that is
    /// available immediately.
    #[must_use]
    pub const fn at_most(self, time: Duration) -> Self {
        Self { at_most: Some(time) }
    }
}

impl<S> Layer<S> for HoldLayer {
    type Service = HoldService<S>;

    fn layer(&self, inner: S) -> HoldService<S> {
        HoldService { inner, at_most: self.at_most }
    }
}

/// The service of [`HoldLayer`].
#[derive(Clone, Debug)]
pub struct HoldService<S> {
    inner: S,
    at_most: Option<Duration>,
}

impl<S, A, B> Service<Request<A>> for HoldService<S>
where
    S: Service<Request<A>, Response = Response<B>>,
    B: Body + Unpin,
    B::Error: Into<BoxError>,
{
    type Response = Response<PeekedBody<B>>;
    type Error = S::Error;
    type Future = HoldFuture<S::Future, B>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<A>) -> Self::Future {
        // Several layers share a handle, so that one flush releases all of them.
        let hold = request.extensions_mut().get_or_insert_with(HeaderHold::new).clone();
        HoldFuture::new(self.inner.call(request), hold, self.at_most)
    }
}
