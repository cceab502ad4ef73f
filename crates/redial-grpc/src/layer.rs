//! The layer, and the service that it makes of a channel.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::{Buf, Bytes};
use http::{Request, Response};
use http_body::Body;
use redial_core::{Command, Terms};
use redial_service_config::{Client, Jitter, Late, Problem, Problems, Retries, ServiceConfig};
use tower_layer::Layer;
use tower_service::Service;

use crate::backends::UsedBackends;
use crate::body::ResponseBody;
use crate::control::Control;
use crate::future::{Kind, Pending, ResponseFuture, Written, of_body};
use crate::meter::Held;
use crate::methods::PlanRef;
use crate::observe::Listeners;
use crate::options::CallOptions;
use crate::pool::Pooled;
use crate::shared::Shared;
use crate::sizes::Sizes;
use crate::state::{Begin, State};
use crate::sync::Mutex;
use crate::tape::{Failure, Replay};
use crate::template::{PREVIOUS, Said, TIMEOUT, Template};
use crate::throttle::Throttle;
use crate::wrap::{Bodies, Tonic, Wrapping};
use crate::{BoxError, timeout};

/// gRPC's retry and hedging around a channel.
///
/// ```
/// use redial_grpc::RetryLayer;
/// use tonic::transport::Endpoint;
/// use tower::ServiceBuilder;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let config = r#"{
///   "methodConfig": [{
///     "name": [{ "service": "echo.Echo" }],
///     "retryPolicy": { "maxAttempts": 4, "initialBackoff": "0.1s", "maxBackoff": "1s",
///                      "backoffMultiplier": 2, "retryableStatusCodes": ["UNAVAILABLE"] }
///   }],
///   "retryThrottling": { "maxTokens": 100, "tokenRatio": 0.1 }
/// }"#;
/// let channel = Endpoint::from_static("http://127.0.0.1:50051").connect_lazy();
/// let channel = ServiceBuilder::new().layer(RetryLayer::from_json(config)?).service(channel);
/// // let mut client = EchoClient::new(channel);
/// # drop(channel); Ok(())
/// # }
/// ```
///
/// Its clones, and the services that it makes, share one config, one buffer limit, one throttle and
/// one set of statistics: [`RetryLayer::control`] leads to them.
#[derive(Clone, Debug)]
pub struct RetryLayer<W = Tonic> {
    shared: Arc<Shared>,
    bodies: W,
}

impl RetryLayer {
    /// A layer with this service config, checked.
    ///
    /// # Errors
    /// Everything that is wrong with the config, with places.
    pub fn from_json(config: &str) -> Result<RetryLayer, Problems> {
        Ok(RetryLayer::builder().config(ServiceConfig::parse(config)?).build())
    }

    /// A layer of your own making; without a config only transparent retries happen.
    pub fn builder() -> RetryLayerBuilder {
        RetryLayerBuilder::default()
    }
}

impl<W> RetryLayer<W> {
    /// For a client of another kind: says how an attempt's body becomes one that its channel takes.
    ///
    /// For another version of tonic that is `RetryLayer::wrapping(tonic::body::Body::new)`; a call
    /// that ends on this side is then told by a Trailers-Only response.
    pub fn wrapping<B, F>(self, wrap: F) -> RetryLayer<Wrapping<F>>
    where
        F: Fn(Replay<B>) -> B + Clone,
    {
        RetryLayer { shared: self.shared, bodies: Wrapping(wrap) }
    }

    /// What can be changed and read while calls run.
    #[must_use]
    pub fn control(&self) -> Control {
        Control::new(self.shared.clone())
    }
}

impl<S: Clone, W: Clone> Layer<S> for RetryLayer<W> {
    type Service = RetryService<S, W>;

    fn layer(&self, inner: S) -> RetryService<S, W> {
        RetryService {
            spare: Arc::new(Mutex::new(inner.clone())),
            inner,
            shared: self.shared.clone(),
            bodies: self.bodies.clone(),
        }
    }
}

/// A [`RetryLayer`] that is being written. Options have the seed's names.
#[derive(Clone, Debug, Default)]
#[must_use = "a builder does nothing until it is built"]
pub struct RetryLayerBuilder {
    pub(crate) config: ServiceConfig,
    pub(crate) client: Client,
    pub(crate) server: Option<Box<str>>,
    depth: bool,
    distinct: bool,
    pub(crate) listeners: Listeners,
}

impl RetryLayerBuilder {
    /// The service config.
    pub fn config(mut self, config: ServiceConfig) -> Self {
        self.config = config;
        self
    }

    /// Everything that a client says beside the config.
    pub const fn client(mut self, client: Client) -> Self {
        self.client = client;
        self
    }

    /// The name of the server: all layers of the process with the same name share one throttle
    /// (ruling G15). Without a name the layer is, with its clones, a server of its own.
    /// Metrics and spans have it as `grpc.target`: for those it is best the target's URI.
    pub fn for_server(mut self, name: impl Into<Box<str>>) -> Self {
        self.server = Some(name.into());
        self
    }

    /// The most attempts of a call, whatever the config says; 5 by default.
    ///
    /// # Panics
    /// The cap is 0: a call makes at least one attempt.
    pub const fn attempts_cap(mut self, attempts: u32) -> Self {
        assert!(attempts > 0, "a call makes at least one attempt");
        self.client.attempts_cap = attempts;
        self
    }

    /// The randomness in a delay; full by default, as the seed has it.
    pub const fn jitter(mut self, jitter: Jitter) -> Self {
        self.client.jitter = jitter;
        self
    }

    /// What happens when the next retry cannot start before the deadline; by default the call waits
    /// and ends at its deadline.
    pub const fn late(mut self, late: Late) -> Self {
        self.client.late = late;
        self
    }

    /// How many bytes one call may keep for a repetition; 1 MiB by default.
    pub const fn per_rpc_buffer_limit_in_bytes(mut self, bytes: u64) -> Self {
        self.client.per_rpc_buffer_limit_in_bytes = bytes;
        self
    }

    /// How many bytes all calls of the channel may keep; 16 MiB by default.
    pub const fn retry_buffer_size_in_bytes(mut self, bytes: u64) -> Self {
        self.client.retry_buffer_size_in_bytes = bytes;
        self
    }

    /// Which repetitions are allowed; all by default. [`Control::set_retries`] changes it later.
    pub const fn retries(mut self, retries: Retries) -> Self {
        self.client.retries = retries;
        self
    }

    /// The longest delay that a server may ask for; a longer one becomes this.
    pub const fn pushback_max(mut self, most: std::time::Duration) -> Self {
        self.client.pushback_max = Some(most);
        self
    }

    /// A call that is made while a retry is being served does not retry itself, so that the retries
    /// of several layers of services do not multiply. Off by default; see
    /// `server::Serving` (feature `tonic`).
    pub const fn depth_control(mut self) -> Self {
        self.depth = true;
        self
    }

    /// Every attempt carries the backends that its call has used ([`UsedBackends`]), so that a
    /// balancer below can send it elsewhere. Off by default, since it is an allocation for each
    /// call; the balanced channel (feature `balance`) switches it on.
    pub const fn distinct_backends(mut self) -> Self {
        self.distinct = true;
        self
    }

    /// The layer.
    #[must_use]
    pub fn build(self) -> RetryLayer {
        let RetryLayerBuilder { config, client, server, depth, distinct, listeners } = self;
        let shared = Shared::new(config, client, server, depth, distinct, &listeners);
        RetryLayer { shared: Arc::new(shared), bodies: Tonic }
    }

    /// What is legal in the config and surely not meant.
    #[must_use]
    pub fn warnings(&self) -> &[Problem] {
        self.config.warnings()
    }
}

/// A channel with retry and hedging around it.
#[derive(Debug)]
pub struct RetryService<S, W = Tonic> {
    inner: S,
    /// Further attempts are made on clones of this one; a call that needs none clones nothing.
    spare: Arc<Mutex<S>>,
    shared: Arc<Shared>,
    bodies: W,
}

impl<S: Clone, W: Clone> Clone for RetryService<S, W> {
    fn clone(&self) -> Self {
        RetryService {
            inner: self.inner.clone(),
            spare: self.spare.clone(),
            shared: self.shared.clone(),
            bodies: self.bodies.clone(),
        }
    }
}

impl<S, W> RetryService<S, W> {
    /// The channel below.
    #[cfg(feature = "balance")]
    pub(crate) fn inner(&self) -> &S {
        &self.inner
    }

    /// What can be changed and read while calls run.
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
    R: Body<Data = Bytes>,
    R::Error: Into<BoxError>,
    W: Bodies<B>,
{
    type Response = Response<ResponseBody<R>>;
    type Error = BoxError;
    type Future = ResponseFuture<S, B, W>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, mut request: Request<B>) -> ResponseFuture<S, B, W> {
        let options = match request.extensions().is_empty() {
            true => None,
            false => request.extensions_mut().remove::<CallOptions>(),
        };
        let CallOptions { retries, wait_for_ready, diary } = options.unwrap_or_default();
        let retries = self.shared.retries(retries, request.extensions());
        let said = Said::of(request.headers());
        if said.previous {
            // What the application set under this name would be taken for ours (G30).
            request.headers_mut().remove(PREVIOUS);
        }
        let deadline = said.deadline;
        if retries == Retries::Off
            && deadline.is_none()
            && diary.is_none()
            && !self.shared.has_terms()
            && !self.shared.observing.is_listened_to()
        {
            let bodies = self.bodies.clone();
            return ResponseFuture::new(Some(self.inner.call(request)), Kind::Pass(bodies));
        }
        let method = PlanRef::new(self.shared.method(request.uri().path()), retries);
        let mut observer = self.shared.observing.call(&method, request.uri().path());
        let plan = method.plan();
        // The first attempt carries the config's deadline if that is the smaller one.
        let config_deadline = plan.policy().rules().deadline;
        if let Some(config) = config_deadline.filter(|it| deadline.is_none_or(|own| *it < own)) {
            request.headers_mut().insert(TIMEOUT, timeout::format(config));
        }
        let (mut parts, body) = request.into_parts();
        let template = Template::of(&parts, method.usual_head());
        let used = self.shared.distinct.then(|| UsedBackends::of(&mut parts.extensions)).flatten();
        let sizes = method.request_max().map(Sizes::new);
        let keeps = retries != Retries::Off;
        let counts = observer.counts_bytes();
        let read = match self.read(body, sizes, keeps || counts) {
            Ok(read) => read,
            Err(failure) => {
                observer.never_began(failure.code());
                let finish = Some(Box::new(of_body(failure, 0)));
                return ResponseFuture::new(None, Kind::Ended(finish, self.bodies.clone()));
            }
        };
        let wait_for_ready = wait_for_ready.unwrap_or(plan.waits_for_ready());
        let mut state = Pooled::new(State::begin(Begin {
            method,
            template,
            used,
            throttle: Throttle(keeps.then(|| self.shared.server.clone())),
            terms: Terms { deadline, sealed: keeps && read.sealed, ..Terms::default() },
            wait_for_ready,
            diary,
            observer,
            clock: self.shared.clock,
        }));
        let mut written = read.written;
        // The first thing that a machine says is to start, unless the deadline has passed: then it
        // says that it has ended, which is for the future to hear.
        let command = if state.end().is_none() { state.command() } else { None };
        let (first, future) = match command {
            Some(Command::Start(start)) => {
                let wrap = |replay: Replay<B>| {
                    self.bodies.wrap(replay.counted(state.observer().sent(start.attempt)))
                };
                let body = match (&written, read.untouched) {
                    (_, Some(body)) => body,
                    (Written::Tape(tape), _) => wrap(tape.open(start.attempt)),
                    (Written::Whole(bytes, _), _) => wrap(Replay::whole(bytes.clone())),
                    (Written::Gone, None) => wrap(Replay::whole(Bytes::new())),
                };
                if !keeps {
                    match &written {
                        // It passes, and is heard of if it fails.
                        Written::Tape(tape) => tape.choose(start.attempt),
                        _ => written = Written::Gone,
                    }
                }
                let _inside = state.observer().inside_attempt(start.attempt);
                let future = self.inner.call(Request::from_parts(parts, body));
                (Some(start.into()), Some(future))
            }
            _ => (None, None),
        };
        let (spare, bodies) = (self.spare.clone(), self.bodies.clone());
        let call = Pending::new(state, spare, bodies, written, first, read.sealed);
        ResponseFuture::new(future, Kind::Call(call))
    }
}

/// What is there of the application's body when the call begins.
struct ReadAhead<B> {
    written: Written<B>,
    /// The body as it came, where nothing of it is kept.
    untouched: Option<B>,
    /// Whether what is there does not fit the limits.
    sealed: bool,
}

impl<S, W> RetryService<S, W> {
    /// Reads what is there of a body: one frame, and whether it is the last. A unary call is then
    /// one piece of bytes, and needs no tape.
    fn read<B>(
        &self,
        mut body: B,
        mut sizes: Option<Sizes>,
        keeps: bool,
    ) -> Result<ReadAhead<B>, Failure>
    where
        B: Body<Data = Bytes> + Unpin + Send + 'static,
        B::Error: Into<BoxError>,
    {
        if !keeps && sizes.is_none() {
            let (written, untouched) = (Written::Gone, Some(body));
            return Ok(ReadAhead { written, untouched, sealed: false });
        }
        let limit = self.shared.client.per_rpc_buffer_limit_in_bytes;
        let mut held = Held::new(self.shared.meter.clone(), limit);
        // Two frames at the most: more would take from the application what nobody asked for.
        let (written, sealed) = match read_frame(&mut body, &mut sizes)? {
            Poll::Ready(None) => (Written::Whole(Bytes::new(), None), false),
            Poll::Pending => (Written::tape(body, [], held, sizes), false),
            Poll::Ready(Some(first)) => match read_frame(&mut body, &mut sizes)? {
                Poll::Ready(None) => {
                    let sealed = !held.add(first.len() as u64);
                    (Written::Whole(compact(first), Some(held)), sealed)
                }
                second => {
                    let second = if let Poll::Ready(second) = second { second } else { None };
                    let size = first.len() + second.as_ref().map_or(0, Bytes::len);
                    let sealed = !held.add(size as u64);
                    let frames = [first].into_iter().chain(second);
                    (Written::tape(body, frames, held, sizes), sealed)
                }
            },
        };
        Ok(ReadAhead { written, untouched: None, sealed })
    }
}

/// The largest message that is copied to be kept.
const COPIED_MAX: usize = 4096;
/// The largest message that is copied into the same allocation as its count of users.
const SMALL_MAX: usize = 256;

/// The same bytes without the room around them: tonic encodes a message into a buffer of 8 KiB,
/// which a small message would otherwise hold on to, uncounted, for as long as its call runs.
fn compact(bytes: Bytes) -> Bytes {
    let len = bytes.len();
    if len > COPIED_MAX {
        return bytes;
    }
    if len > SMALL_MAX {
        return Bytes::copy_from_slice(&bytes);
    }
    let mut small = Small { len, bytes: [0; SMALL_MAX] };
    small.bytes[..len].copy_from_slice(&bytes);
    Bytes::from_owner(small)
}

struct Small {
    len: usize,
    bytes: [u8; SMALL_MAX],
}

impl AsRef<[u8]> for Small {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// What a body has now; pending if it has nothing yet, in which case nobody is woken for it: the
/// attempt that needs it asks again.
fn read_frame<B>(body: &mut B, sizes: &mut Option<Sizes>) -> Result<Poll<Option<Bytes>>, Failure>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    let mut cx = Context::from_waker(Waker::noop());
    loop {
        let frame = match Pin::new(&mut *body).poll_frame(&mut cx) {
            Poll::Ready(Some(Ok(frame))) => frame,
            Poll::Ready(Some(Err(error))) => return Err(Failure::Body(error.into())),
            Poll::Ready(None) => return Ok(Poll::Ready(None)),
            Poll::Pending => return Ok(Poll::Pending),
        };
        // A request of gRPC has no trailers, and an empty frame says nothing.
        let Ok(bytes) = frame.into_data() else { continue };
        if let Some(Err(large)) = sizes.as_mut().map(|sizes| sizes.look(&bytes)) {
            return Err(Failure::TooLarge(large));
        }
        if bytes.has_remaining() {
            return Ok(Poll::Ready(Some(bytes)));
        }
    }
}
