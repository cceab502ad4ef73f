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

use super::hub::{Hub, Pending, Picked, Ticket};
use super::keep::{self, Source};
use super::roster::Ending;

/// How long after the channel's start calls wait for its first resolution, which may bring the config.
const CONFIG_WAIT_MAX: Duration = Duration::from_secs(5);

/// A channel over several backends, without retries: what
/// [`BalancedChannel`](super::BalancedChannel) has below its layer.
///
/// Its clones share the backends and their connections, which end with the last of them.
#[derive(Clone)]
pub struct BalancedService {
    inner: Arc<Inner>,
}

struct Inner {
    hub: Arc<Hub>,
    source: Source,
    started: OnceLock<Started>,
}

/// The task of a channel, and when it was started.
struct Started {
    task: AbortHandle,
    at: Instant,
}

impl Inner {
    /// The task needs a runtime, which there is once the channel is used.
    fn start(&self) -> &Started {
        self.started.get_or_init(|| {
            // Before the task is made: without a runtime this panics, and a task that is dropped
            // marks the channel as ended for all clones.
            let runtime = Handle::current();
            let task = runtime.spawn(keep::follow(self.hub.clone(), self.source.clone()));
            Started { task: task.abort_handle(), at: Instant::now() }
        })
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(started) = self.started.get() {
            started.task.abort();
        }
    }
}

/// Ends when the first config may be in force.
pub(super) type ConfigWait = Pin<Box<dyn Future<Output = ()> + Send>>;

impl BalancedService {
    pub(crate) fn new(hub: Hub, source: Source) -> Self {
        let inner = Inner { hub: Arc::new(hub), source, started: OnceLock::new() };
        BalancedService { inner: Arc::new(inner) }
    }

    pub(super) fn hub(&self) -> &Hub {
        &self.inner.hub
    }

    /// What the channel's tasks share, as long as they live.
    pub(super) fn downgrade(&self) -> Weak<Hub> {
        Arc::downgrade(&self.inner.hub)
    }

    pub(super) fn start(&self) {
        self.inner.start();
    }

    /// Whether a first resolution that may bring the config has not ended yet.
    pub(super) fn may_wait_for_config(&self) -> bool {
        !self.inner.hub.is_settled() && self.inner.source.may_return_config()
    }

    /// What to wait for then, until this moment at the latest; `None`: the channel has waited long
    /// enough.
    pub(super) fn config_wait(&self, deadline: Option<Instant>) -> Option<ConfigWait> {
        let end = self.inner.start().at + CONFIG_WAIT_MAX;
        if Instant::now() >= end {
            return None;
        }
        let (inner, end) = (self.inner.clone(), deadline.map_or(end, |deadline| deadline.min(end)));
        Some(Box::pin(async move {
            let _settled = tokio::time::timeout_at(end, inner.hub.settled()).await;
        }))
    }
}

impl fmt::Debug for BalancedService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BalancedService")
            .field("source", &self.inner.source)
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
        self.inner.start();
        let used = request.extensions().get::<UsedBackends>().cloned();
        let asked = Instant::now();
        let stage = match self.inner.hub.try_pick(used.as_ref(), asked) {
            Ok(picked) => Stage::of(picked, request, asked),
            Err(Pending::Fail(unreachable)) => Stage::Failed(Some(unreachable.into())),
            Err(Pending::Wait(_)) => {
                // With the channel itself: as long as somebody waits, somebody dials.
                let inner = self.inner.clone();
                let pick = Box::pin(async move { inner.hub.pick(used, asked).await });
                Stage::Picking { pick, request: Some(request), asked }
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

type Ask = Request<tonic::body::Body>;

enum Stage {
    Picking {
        pick: Pin<Box<dyn Future<Output = Result<Picked, Unreachable>> + Send>>,
        request: Option<Ask>,
        asked: Instant,
    },
    Readying {
        channel: Channel,
        request: Option<Ask>,
        ticket: Option<Ticket>,
    },
    Running {
        future: ResponseFuture,
        ticket: Option<Ticket>,
    },
    Failed(Option<BoxError>),
}

impl Stage {
    fn of(picked: Picked, request: Ask, asked: Instant) -> Self {
        let Picked { channel, mut ticket } = picked;
        let timeout = request.headers().get(TIMEOUT).and_then(timeout::parse);
        ticket.waits_until(timeout.and_then(|timeout| asked.checked_add(timeout)));
        Stage::Readying { channel, request: Some(request), ticket: Some(ticket) }
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
                Stage::Picking { pick, request, asked } => {
                    let picked = ready!(pick.as_mut().poll(cx))?;
                    let Some(request) = request.take() else { return Poll::Pending };
                    *self = Stage::of(picked, request, *asked);
                }
                Stage::Readying { channel, request, ticket } => {
                    // Where the connection has ended the error says so, and the attempt is replaced.
                    ready!(channel.poll_ready(cx))?;
                    let Some(request) = request.take() else { return Poll::Pending };
                    let (future, ticket) = (channel.call(request), ticket.take());
                    *self = Stage::Running { future, ticket };
                }
                Stage::Running { future, ticket } => {
                    let result = ready!(Pin::new(future).poll(cx));
                    let ticket = ticket.take();
                    return Poll::Ready(match result {
                        Ok(response) => Ok(answered(response, ticket)),
                        Err(error) => Err(lost(error.into(), ticket)),
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

fn answered(
    response: Response<tonic::body::Body>,
    mut ticket: Option<Ticket>,
) -> Response<BalancedBody> {
    if let Some(ticket) = &ticket {
        ticket.answered();
    }
    if let Head::Status(code, _) | Head::NotGrpc(code, _) = balancing::head(&response)
        && let Some(ticket) = ticket.take()
    {
        ticket.end(Ending::Answered(code));
    }
    response.map(|body| BalancedBody { body, ticket })
}

fn lost(error: BoxError, ticket: Option<Ticket>) -> BoxError {
    if let Some(ticket) = ticket {
        end(ticket, &*error);
    }
    error
}

/// What an error says: of what was never sent, or refused, the backend is not to blame.
fn end(ticket: Ticket, error: &(dyn std::error::Error + 'static)) {
    match transport_error::classify(error) {
        (TransportFailure::MaybeProcessed, Code::Unavailable) => ticket.end(Ending::Lost),
        (TransportFailure::MaybeProcessed, code) => ticket.end(Ending::Answered(code)),
        // tonic keeps to `grpc-timeout` as well, and may be the first to drop the attempt.
        (TransportFailure::LocalTimeout, _) => drop(ticket),
        _ => ticket.end(Ending::Untold),
    }
}

/// The response of a backend, which has one attempt less when this ends or is dropped.
pub struct BalancedBody {
    body: tonic::body::Body,
    ticket: Option<Ticket>,
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
                    if let Some(ticket) = self.ticket.take() {
                        ticket.end(Ending::Answered(balancing::trailers(trailers).0));
                    }
                } else if let Some(ticket) = &mut self.ticket {
                    ticket.heard();
                }
            }
            Some(Err(status)) => {
                if let Some(ticket) = self.ticket.take() {
                    end(ticket, status);
                }
            }
            None => {
                if let Some(ticket) = self.ticket.take() {
                    ticket.end(Ending::Untold);
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
