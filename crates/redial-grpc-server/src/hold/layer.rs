//! The layer: each request gets a handle, each response a future that waits for its first frame.

use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response};
use http_body::Body;
use tower_layer::Layer;
use tower_service::Service;

use super::{HeaderHold, HoldFuture};
use crate::PeekedBody;
use redial_grpc::BoxError;

/// Holds response headers back until the first message, so that an error before it can be retried.
///
/// A client retries an attempt only as long as it has seen no response headers. A handler of tonic that
/// returns `Ok(stream)` has sent them, so if the first item of that stream is an error, no client of
/// any language retries it, and nobody notices. With this layer the headers wait for what comes first:
/// - the first message: headers, then the message, as ever;
/// - an error: one frame with the headers, the status and all metadata of both (Trailers-Only), which
///   clients retry. An error of the body itself is sent that way too, as the status that tonic makes of it;
/// - the end without any message: headers, then trailers, as ever;
/// - [`HeaderHold::flush`] by the handler, or the end of [`HoldLayer::at_most`]: the headers, then whatever
///   follows.
///
/// Methods that answer with one message, and handlers that return an error, behave as before: their first
/// frame is there at once. The handle costs each call two small allocations.
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
/// A client that sends its first message once it has seen headers, and a handler that answers only after a
/// message, would wait for each other for ever. In tonic, such a client is one that awaits
/// `client.chat(stream)` before it feeds the stream. Its handler calls [`HeaderHold::flush`]; so does one
/// whose first message may take long, and whose clients want to know that they are connected.
/// [`HoldLayer::at_most`] bounds the wait for those that do not.
///
/// # What else changes
/// The response is not there before its first message. So a limit of concurrency above this layer counts the
/// call until then, and tonic's own timeout (`grpc-timeout`, `Server::timeout`), which ends with the
/// headers, lasts until then. Headers and trailers of more than 16 KiB together are not merged. Responses
/// that are not gRPC (by `content-type`), gRPC-Web among them, pass untouched: gRPC-Web's own layer
/// goes above this one.
///
/// # Cancel safety
/// Nothing is spawned: dropping the response drops the handler's stream.
#[derive(Clone, Copy, Debug, Default)]
pub struct HoldLayer {
    at_most: Option<Duration>,
}

impl HoldLayer {
    /// Holds headers back for as long as it takes.
    #[must_use]
    pub const fn new() -> Self {
        Self { at_most: None }
    }

    /// Holds headers back for this long at most, counted from when the handler returned its response;
    /// then they are sent as they are. Zero waits for nothing but still merges an error that is there at
    /// once. Without it there is no bound.
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

/// The service that [`HoldLayer`] makes.
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
        // Of several layers one flush releases all: they share a handle.
        let hold = request.extensions_mut().get_or_insert_with(HeaderHold::new).clone();
        HoldFuture::new(self.inner.call(request), hold, self.at_most)
    }
}
