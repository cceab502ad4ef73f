//! The load-balanced service below the retry layer: it picks a backend for each attempt.
//!
//! Rules: the service is always ready, so that the wait for a backend is bounded by the call's
//! deadline. A failing attempt yields to the runtime at least once: a loop of calls that fail
//! immediately would otherwise starve timers and connection attempts.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use redial_grpc::balancing::transport_error::{self, TransportFailure};
use redial_grpc::balancing::{self, Head};
use redial_grpc::timeout;
use redial_grpc::{BoxError, Unreachable, UsedBackends};
use redial_service_config::Code;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tonic::transport::Channel;
use tonic::transport::channel::ResponseFuture;
use tower_service::Service;

use super::balancer::{Balancer, PickGuard, Picked, Unpicked};
use super::subchannels::AttemptEnd;
use super::tasks::{self, AddressSource};

/// How long after the channel's start calls wait for the first resolution, which may provide a
/// config.
const CONFIG_WAIT_MAX: Duration = Duration::from_secs(5);

/// A load-balanced service over several backends, without retries: the service inside a
/// [`BalancedChannel`](super::BalancedChannel), below its retry layer.
///
/// Clones share the backends and their connections. Dropping the last clone closes them.
#[derive(Clone)]
pub struct BalancedService {
    shared: Arc<Shared>,
}

struct Shared {
    balancer: Arc<Balancer>,
    source: AddressSource,
    started: OnceLock<Started>,
}

/// The channel's task, and when it was started.
struct Started {
    task: AbortHandle,
    at: Instant,
}

impl Shared {
    /// Starts the channel's task on first use, because it needs a Tokio runtime.
    fn start(&self) -> &Started {
        self.started.get_or_init(|| {
            // Panics without a runtime. This must happen before the task is created: dropping the
            // task would shut the channel down for all clones.
            let runtime = Handle::current();
            let task =
                runtime.spawn(tasks::run_channel(self.balancer.clone(), self.source.clone()));
            Started { task: task.abort_handle(), at: Instant::now() }
        })
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Some(started) = self.started.get() {
            started.task.abort();
        }
    }
}

/// Completes when the first config may be active.
pub(super) type ConfigWait = Pin<Box<dyn Future<Output = ()> + Send>>;

impl BalancedService {
    pub(crate) fn new(balancer: Balancer, source: AddressSource) -> Self {
        let shared = Shared { balancer: Arc::new(balancer), source, started: OnceLock::new() };
        BalancedService { shared: Arc::new(shared) }
    }

    pub(super) fn balancer(&self) -> &Balancer {
        &self.shared.balancer
    }

    pub(super) fn downgrade(&self) -> Weak<Balancer> {
        Arc::downgrade(&self.shared.balancer)
    }

    pub(super) fn start(&self) {
        self.shared.start();
    }

    /// Whether the first resolution is still running and may provide a config.
    pub(super) fn may_wait_for_config(&self) -> bool {
        !self.shared.balancer.is_resolved_once() && self.shared.source.may_return_config()
    }

    /// The wait for that config, until `deadline` at the latest; `None` if the maximum wait is
    /// over.
    pub(super) fn config_wait(&self, deadline: Option<Instant>) -> Option<ConfigWait> {
        let end = self.shared.start().at + CONFIG_WAIT_MAX;
        if Instant::now() >= end {
            return None;
        }
        let (shared, end) =
            (self.shared.clone(), deadline.map_or(end, |deadline| deadline.min(end)));
        Some(Box::pin(async move {
            let _settled = tokio::time::timeout_at(end, shared.balancer.resolved_once()).await;
        }))
    }
}

impl fmt::Debug for BalancedService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BalancedService")
            .field("source", &self.shared.source)
            .finish_non_exhaustive()
    }
}

impl Service<Request<tonic::body::Body>> for BalancedService {
    type Response = Response<BalancedBody>;
    type Error = BoxError;
    type Future = BalancedServiceFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<tonic::body::Body>) -> BalancedServiceFuture {
        self.shared.start();
        let used = request.extensions().get::<UsedBackends>().cloned();
        let requested_at = Instant::now();
        let stage = match self.shared.balancer.try_pick(used.as_ref(), requested_at) {
            Ok(picked) => Stage::new(picked, request, requested_at),
            Err(Unpicked::Fail(unreachable)) => Stage::Failed(Some(unreachable.into())),
            Err(Unpicked::Queue(_)) => {
                // The future keeps the channel alive: as long as a call waits, the channel keeps
                // connecting.
                let shared = self.shared.clone();
                let pick = Box::pin(async move { shared.balancer.pick(used, requested_at).await });
                Stage::Picking { pick, request: Some(request), requested_at }
            }
        };
        BalancedServiceFuture { stage, yielded: false }
    }
}

/// The future of one attempt: waits for a backend if none is ready, then sends the request.
///
/// # Cancel safety
/// Dropping it cancels the attempt. [Outlier detection](super::OutlierDetection) ignores a
/// cancelled attempt, unless its `grpc-timeout` has passed: that counts as a failure.
pub struct BalancedServiceFuture {
    stage: Stage,
    /// Whether the future has returned `Pending` since it was first polled.
    yielded: bool,
}

type AttemptRequest = Request<tonic::body::Body>;

enum Stage {
    Picking {
        pick: Pin<Box<dyn Future<Output = Result<Picked, Unreachable>> + Send>>,
        request: Option<AttemptRequest>,
        requested_at: Instant,
    },
    WaitingForReady {
        channel: Channel,
        request: Option<AttemptRequest>,
        guard: Option<PickGuard>,
    },
    Running {
        future: ResponseFuture,
        guard: Option<PickGuard>,
    },
    Failed(Option<BoxError>),
}

impl Stage {
    fn new(picked: Picked, request: AttemptRequest, requested_at: Instant) -> Self {
        let Picked { channel, mut guard } = picked;
        let timeout = timeout::of_headers(request.headers());
        guard.set_deadline(timeout.and_then(|timeout| requested_at.checked_add(timeout)));
        Stage::WaitingForReady { channel, request: Some(request), guard: Some(guard) }
    }
}

impl fmt::Debug for BalancedServiceFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BalancedServiceFuture").finish_non_exhaustive()
    }
}

impl Future for BalancedServiceFuture {
    type Output = Result<Response<BalancedBody>, BoxError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.stage.poll(cx) {
            Poll::Ready(Err(error)) if !self.yielded => {
                (self.stage, self.yielded) = (Stage::Failed(Some(error)), true);
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Poll::Pending => {
                self.yielded = true;
                Poll::Pending
            }
            ready => ready,
        }
    }
}

impl Stage {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Response<BalancedBody>, BoxError>> {
        loop {
            match self {
                Stage::Picking { pick, request, requested_at } => {
                    let picked = ready!(pick.as_mut().poll(cx))?;
                    let Some(request) = request.take() else { return Poll::Pending };
                    *self = Stage::new(picked, request, *requested_at);
                }
                Stage::WaitingForReady { channel, request, guard } => {
                    // If the connection has closed, the error says that nothing was sent, and the
                    // layer retries transparently.
                    ready!(channel.poll_ready(cx))?;
                    let Some(request) = request.take() else { return Poll::Pending };
                    let (future, guard) = (channel.call(request), guard.take());
                    *self = Stage::Running { future, guard };
                }
                Stage::Running { future, guard } => {
                    let result = ready!(Pin::new(future).poll(cx));
                    let guard = guard.take();
                    return Poll::Ready(match result {
                        Ok(response) => Ok(response_body(response, guard)),
                        Err(error) => Err(transport_error(error.into(), guard)),
                    });
                }
                Stage::Failed(error) => {
                    let Some(error) = error.take() else { return Poll::Pending };
                    return Poll::Ready(Err(error));
                }
            }
        }
    }
}

fn response_body(
    response: Response<tonic::body::Body>,
    mut guard: Option<PickGuard>,
) -> Response<BalancedBody> {
    if let Some(guard) = &guard {
        guard.response_started();
    }
    if let Head::Status(code, _) | Head::NotGrpc(code, _) = balancing::head(&response)
        && let Some(guard) = guard.take()
    {
        guard.finish(AttemptEnd::Answered(code));
    }
    response.map(|body| BalancedBody { body, guard })
}

fn transport_error(error: BoxError, guard: Option<PickGuard>) -> BoxError {
    if let Some(guard) = guard {
        finish(guard, &*error);
    }
    error
}

/// Records an error. A request that was never sent, or was rejected unprocessed, is no failure of
/// the backend.
fn finish(guard: PickGuard, error: &(dyn std::error::Error + 'static)) {
    match transport_error::classify(error) {
        (TransportFailure::MaybeProcessed, Code::Unavailable) => {
            guard.finish(AttemptEnd::ConnectionLost);
        }
        (TransportFailure::MaybeProcessed, code) => guard.finish(AttemptEnd::Answered(code)),
        // tonic enforces `grpc-timeout` too, and may end the attempt before the layer does.
        // Dropping the guard records the passed deadline.
        (TransportFailure::LocalTimeout, _) => drop(guard),
        _ => guard.finish(AttemptEnd::Unknown),
    }
}

/// The response body of a backend. The attempt counts as in flight until the body ends or is
/// dropped.
pub struct BalancedBody {
    body: tonic::body::Body,
    guard: Option<PickGuard>,
}

impl fmt::Debug for BalancedBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BalancedBody").finish_non_exhaustive()
    }
}

impl Body for BalancedBody {
    type Data = Bytes;
    type Error = tonic::Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, tonic::Status>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        match &frame {
            Some(Ok(frame)) => {
                if let Some(trailers) = frame.trailers_ref() {
                    if let Some(guard) = self.guard.take() {
                        guard.finish(AttemptEnd::Answered(balancing::trailers(trailers).0));
                    }
                } else if let Some(guard) = &mut self.guard {
                    guard.first_message();
                }
            }
            Some(Err(status)) => {
                if let Some(guard) = self.guard.take() {
                    finish(guard, status);
                }
            }
            None => {
                if let Some(guard) = self.guard.take() {
                    guard.finish(AttemptEnd::Unknown);
                }
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
