//! The service below the retry layer: each attempt goes to a backend of its own.
//!
//! Rules: it is always ready, so that an attempt that has to wait for a backend waits under its call's
//! deadline. An attempt that fails yields to the runtime at least once: a loop of calls that fail at
//! once would otherwise starve timers and the channel's own dials.

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
use redial_grpc::timeout::{self, TIMEOUT};
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

/// How long after the channel's start calls wait for its first resolution, which may bring the config.
const CONFIG_WAIT_MAX: Duration = Duration::from_secs(5);

/// A channel over several backends, without retries: what
/// [`BalancedChannel`](super::BalancedChannel) has below its layer.
///
/// Its clones share the backends and their connections, which end with the last of them.
#[derive(Clone)]
pub struct BalancedService {
    shared: Arc<Shared>,
}

struct Shared {
    balancer: Arc<Balancer>,
    source: AddressSource,
    started: OnceLock<Started>,
}

/// The task of a channel, and when it was started.
struct Started {
    task: AbortHandle,
    at: Instant,
}

impl Shared {
    /// The task needs a runtime, which there is once the channel is used.
    fn start(&self) -> &Started {
        self.started.get_or_init(|| {
            // Before the task is made: without a runtime this panics, and a task that is dropped
            // marks the channel as ended for all clones.
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

/// Ends when the first config may be in force.
pub(super) type ConfigWait = Pin<Box<dyn Future<Output = ()> + Send>>;

impl BalancedService {
    pub(crate) fn new(balancer: Balancer, source: AddressSource) -> Self {
        let shared = Shared { balancer: Arc::new(balancer), source, started: OnceLock::new() };
        BalancedService { shared: Arc::new(shared) }
    }

    pub(super) fn balancer(&self) -> &Balancer {
        &self.shared.balancer
    }

    /// What the channel's tasks share, as long as they live.
    pub(super) fn downgrade(&self) -> Weak<Balancer> {
        Arc::downgrade(&self.shared.balancer)
    }

    pub(super) fn start(&self) {
        self.shared.start();
    }

    /// Whether a first resolution that may bring the config has not ended yet.
    pub(super) fn may_wait_for_config(&self) -> bool {
        !self.shared.balancer.is_resolved_once() && self.shared.source.may_return_config()
    }

    /// What to wait for then, until this moment at the latest; `None`: the channel has waited long
    /// enough.
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
                // With the channel itself: as long as somebody waits, somebody dials.
                let shared = self.shared.clone();
                let pick = Box::pin(async move { shared.balancer.pick(used, requested_at).await });
                Stage::Picking { pick, request: Some(request), requested_at }
            }
        };
        BalancedServiceFuture { stage, yielded: false }
    }
}

/// An attempt: waits for a backend if it must, then runs.
///
/// # Cancel safety
/// Dropping it cancels the attempt. Its backend is neither credited nor blamed, unless the attempt's
/// `grpc-timeout` is over by then: that counts as a failure ([`OutlierDetection`](super::OutlierDetection)).
pub struct BalancedServiceFuture {
    stage: Stage,
    /// Whether the runtime had a turn since this was first polled.
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
        let timeout = request.headers().get(TIMEOUT).and_then(timeout::parse);
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
                    // Where the connection has ended the error says so, and the attempt is replaced.
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
    if let Head::Status(code, _) | Head::Foreign(code, _) = balancing::head(&response)
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

/// What an error says: of what was never sent, or refused, the backend is not to blame.
fn finish(guard: PickGuard, error: &(dyn std::error::Error + 'static)) {
    match evidence::of(error) {
        (Evidence::None, Code::Unavailable) => guard.finish(AttemptEnd::ConnectionLost),
        (Evidence::None, code) => guard.finish(AttemptEnd::Answered(code)),
        // tonic keeps to `grpc-timeout` as well, and may be the first to drop the attempt.
        (Evidence::LocalTimeout, _) => drop(guard),
        _ => guard.finish(AttemptEnd::Unknown),
    }
}

/// The response of a backend, which has one attempt less when this ends or is dropped.
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
