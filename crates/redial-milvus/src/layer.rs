//! The interceptor as a tower layer, for any gRPC client whose channel is a tower service.
//!
//! ```
//! # #[cfg(feature = "tonic")]
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use redial_milvus::{Options, WriteRetries};
//! use tonic::transport::Endpoint;
//! use tower::ServiceBuilder;
//!
//! let interceptor = Options::DEFAULT.write_retries(WriteRetries::OnlyIfNotRun).interceptor()?;
//! let channel = Endpoint::from_static("http://127.0.0.1:19530").connect_lazy();
//! let stack = ServiceBuilder::new().layer(interceptor.layer()).service(channel);
//! // let client = MilvusServiceClient::new(stack);
//! # drop(stack); Ok(())
//! # }
//! # #[cfg(not(feature = "tonic"))] fn main() {}
//! ```
//!
//! # What it does with a call
//! It saves the request's head (with its metadata) and its message, and sends both unchanged in each
//! attempt, with a `grpc-timeout` of its own: the call's own timeout (`Request::set_timeout` of
//! tonic), else that of the options, and never more than what is left of the total deadline. It reads
//! the whole response, so that a status in the trailers and an invalid message are seen. The caller
//! gets the last response, with the retries in the text of its status if they were exhausted.
//!
//! Streaming calls pass unchanged ([`STREAMING_METHODS`], [`InterceptorLayer::streaming`]), and so do
//! requests whose message exceeds [`REQUEST_BYTES_MAX`]: they are sent once.
//!
//! # Several versions of tonic
//! With the feature `tonic` [`Interceptor::layer`] is for tonic 0.14, with `tonic-0-13`
//! `Interceptor::layer_0_13` for tonic 0.13. For other clients [`InterceptorLayer::new`] takes the
//! function that makes a request body.

mod answer;
mod attempt;
mod body;
mod collected;

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use redial_grpc::BoxError;
use tower_layer::Layer;
use tower_service::Service;

use crate::call::Interceptor;

pub use answer::Answer;
pub use body::{BufferedBody, REQUEST_BYTES_MAX, RESPONSE_BYTES_MAX};

/// The methods of Milvus's service that stream; their calls are not retried.
pub const STREAMING_METHODS: [&str; 2] = ["CreateReplicateStream", "DumpMessages"];

/// Makes the client's request body from the saved message.
pub trait MakeBody<B>: Clone {
    /// The body of an attempt.
    fn make_body(&self, body: BufferedBody<B>) -> B;
}

/// The bodies of tonic 0.14.
#[cfg(feature = "tonic")]
#[derive(Clone, Copy, Debug, Default)]
pub struct Tonic;

#[cfg(feature = "tonic")]
impl MakeBody<tonic::body::Body> for Tonic {
    fn make_body(&self, body: BufferedBody<tonic::body::Body>) -> tonic::body::Body {
        tonic::body::Body::new(body)
    }
}

/// The bodies of tonic 0.13.
#[cfg(feature = "tonic-0-13")]
#[derive(Clone, Copy, Debug, Default)]
pub struct Tonic013;

#[cfg(feature = "tonic-0-13")]
impl MakeBody<tonic_0_13::body::Body> for Tonic013 {
    fn make_body(&self, body: BufferedBody<tonic_0_13::body::Body>) -> tonic_0_13::body::Body {
        tonic_0_13::body::Body::new(body)
    }
}

/// Makes bodies with a function.
#[derive(Clone, Copy)]
pub struct MakeBodyFn<F>(F);

impl<F> fmt::Debug for MakeBodyFn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MakeBodyFn(..)")
    }
}

impl<B, F: Fn(BufferedBody<B>) -> B + Clone> MakeBody<B> for MakeBodyFn<F> {
    fn make_body(&self, body: BufferedBody<B>) -> B {
        (self.0)(body)
    }
}

impl Interceptor {
    /// The interceptor as a layer for clients of tonic 0.14.
    #[cfg(feature = "tonic")]
    #[must_use]
    pub fn layer(self) -> InterceptorLayer<Tonic> {
        InterceptorLayer::with(self, Tonic)
    }

    /// The interceptor as a layer for clients of tonic 0.13.
    #[cfg(feature = "tonic-0-13")]
    #[must_use]
    pub fn layer_0_13(self) -> InterceptorLayer<Tonic013> {
        InterceptorLayer::with(self, Tonic013)
    }
}

/// The interceptor as a tower layer. Cheap to clone.
#[derive(Clone, Debug)]
pub struct InterceptorLayer<A> {
    interceptor: Interceptor,
    make_body: A,
    rules: Arc<LayerRules>,
}

/// What the layer knows beside the interceptor.
#[derive(Clone, Debug)]
pub(crate) struct LayerRules {
    streaming: Vec<String>,
    invalid: Option<InvalidFn>,
    request_bytes_max: usize,
    response_bytes_max: usize,
}

/// The predicate for invalid messages.
#[derive(Clone)]
struct InvalidFn(Arc<dyn Fn(&Answer<'_>) -> bool + Send + Sync>);

impl fmt::Debug for InvalidFn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("InvalidFn(..)")
    }
}

impl<F> InterceptorLayer<MakeBodyFn<F>> {
    /// A layer for any client; `make_body` makes its request body, for example `Body::new` of tonic.
    pub fn new<B>(interceptor: Interceptor, make_body: F) -> Self
    where
        F: Fn(BufferedBody<B>) -> B + Clone,
    {
        InterceptorLayer::with(interceptor, MakeBodyFn(make_body))
    }
}

impl<A> InterceptorLayer<A> {
    fn with(interceptor: Interceptor, make_body: A) -> Self {
        let rules = LayerRules {
            streaming: STREAMING_METHODS.map(str::to_owned).to_vec(),
            invalid: None,
            request_bytes_max: REQUEST_BYTES_MAX,
            response_bytes_max: RESPONSE_BYTES_MAX,
        };
        InterceptorLayer { interceptor, make_body, rules: Arc::new(rules) }
    }

    /// Treats responses for which the predicate is true as invalid messages, beside the codes of
    /// [`Interceptor::invalid_codes`]. It sees the method and the encoded message.
    #[must_use]
    pub fn invalid_when(
        mut self,
        is_invalid: impl Fn(&Answer<'_>) -> bool + Send + Sync + 'static,
    ) -> Self {
        Arc::make_mut(&mut self.rules).invalid = Some(InvalidFn(Arc::new(is_invalid)));
        self
    }

    /// Adds a method (`DumpMessages`) that streams: its calls pass unchanged.
    #[must_use]
    pub fn streaming(mut self, method: &str) -> Self {
        Arc::make_mut(&mut self.rules).streaming.push(method.to_owned());
        self
    }

    /// Sends requests with a longer message once; [`REQUEST_BYTES_MAX`] by default.
    #[must_use]
    pub fn request_bytes_max(mut self, bytes: usize) -> Self {
        Arc::make_mut(&mut self.rules).request_bytes_max = bytes;
        self
    }

    /// Passes longer responses to the client as they come, without a look at their status and their
    /// message; [`RESPONSE_BYTES_MAX`] by default.
    #[must_use]
    pub fn response_bytes_max(mut self, bytes: usize) -> Self {
        Arc::make_mut(&mut self.rules).response_bytes_max = bytes;
        self
    }
}

impl<S, A: Clone> Layer<S> for InterceptorLayer<A> {
    type Service = InterceptorService<S, A>;

    fn layer(&self, inner: S) -> Self::Service {
        InterceptorService { inner, layer: self.clone() }
    }
}

/// A channel with the interceptor in front of it; made by [`InterceptorLayer`].
#[derive(Clone, Debug)]
pub struct InterceptorService<S, A> {
    inner: S,
    layer: InterceptorLayer<A>,
}

/// The future of a call.
pub type ResponseFuture<R> =
    Pin<Box<dyn Future<Output = Result<Response<BufferedBody<R>>, BoxError>> + Send>>;

impl<S, A, B, R> Service<Request<B>> for InterceptorService<S, A>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError>,
    A: MakeBody<B> + Send + Sync + 'static,
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<BoxError>,
    R: Body<Data = Bytes> + Send + Unpin + 'static,
    R::Error: Into<BoxError>,
{
    type Response = Response<BufferedBody<R>>;
    type Error = BoxError;
    type Future = ResponseFuture<R>;

    /// Always ready: each attempt waits for the channel.
    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (channel, layer) = (self.inner.clone(), self.layer.clone());
        Box::pin(attempt::call(channel, layer, request))
    }
}

/// The name of the method in a path: `Search` in `/milvus.proto.milvus.MilvusService/Search`.
fn method_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
