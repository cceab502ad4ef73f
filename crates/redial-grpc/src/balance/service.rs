//! The service below the retry layer: each attempt goes to a backend of its own.
//!
//! Rule: it is always ready, so that an attempt that has to wait for a backend waits under its call's
//! deadline. Only a first resolution that may bring the config is waited for before.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use redial::code::Code;
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tonic::transport::Channel;
use tonic::transport::channel::ResponseFuture;
use tower_service::Service;

use super::error::Unreachable;
use super::hub::{Hub, Pending, Picked, Ticket};
use super::keep::{self, Source};
use super::roster::Ending;
use super::view::View;
use crate::answer::{self, Head};
use crate::backends::UsedBackends;
use crate::evidence::{self, Evidence};
use crate::template::TIMEOUT;
use crate::{BoxError, RetryService, timeout};

/// How long the first resolution is waited for before a call; after that under its deadline.
const SETTLE_MAX: Duration = Duration::from_secs(5);

/// A channel over several backends, without retries: what
/// [`BalancedChannel`](super::BalancedChannel) has below its layer.
///
/// Its clones share the backends and their connections, which end with the last of them.
pub struct Balanced {
    inner: Arc<Inner>,
    settling: Option<Settling>,
}

type Settling = Pin<Box<dyn Future<Output = ()> + Send + Sync>>;

struct Inner {
    hub: Arc<Hub>,
    source: Source,
    task: OnceLock<AbortHandle>,
}

impl Inner {
    /// The task needs a runtime, which there is once somebody calls.
    fn start(&self) {
        self.task.get_or_init(|| {
            tokio::spawn(keep::follow(self.hub.clone(), self.source.clone())).abort_handle()
        });
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(task) = self.task.get() {
            task.abort();
        }
    }
}

impl Balanced {
    pub(crate) fn new(hub: Hub, source: Source) -> Self {
        let inner = Inner { hub: Arc::new(hub), source, task: OnceLock::new() };
        Balanced { inner: Arc::new(inner), settling: None }
    }
}

impl Clone for Balanced {
    fn clone(&self) -> Self {
        Balanced { inner: self.inner.clone(), settling: None }
    }
}

impl fmt::Debug for Balanced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Balanced").field("source", &self.inner.source).finish_non_exhaustive()
    }
}

impl RetryService<Balanced> {
    /// The backends as they are now.
    #[must_use]
    pub fn view(&self) -> View {
        self.inner().inner.hub.view()
    }

    /// Starts to resolve and to connect, so that the first call finds a connection. Without it the
    /// first call does.
    ///
    /// # Panics
    /// There is no Tokio runtime.
    pub fn start(&self) {
        self.inner().inner.start();
    }
}

impl Service<Request<tonic::body::Body>> for Balanced {
    type Response = Response<BalancedBody>;
    type Error = BoxError;
    type Future = Calling;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        if self.inner.hub.is_settled() || !self.inner.source.may_bring_config() {
            self.settling = None;
            return Poll::Ready(Ok(()));
        }
        self.inner.start();
        let settling = self.settling.get_or_insert_with(|| {
            let hub = self.inner.hub.clone();
            Box::pin(async move {
                let _settled = tokio::time::timeout(SETTLE_MAX, hub.settled()).await;
            })
        });
        ready!(settling.as_mut().poll(cx));
        self.settling = None;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<tonic::body::Body>) -> Calling {
        self.inner.start();
        let used = request.extensions().get::<UsedBackends>().cloned();
        let asked = Instant::now();
        let stage = match self.inner.hub.try_pick(used.as_ref(), asked) {
            Ok(picked) => Stage::of(picked, request, asked),
            Err(Pending::Fail(unreachable)) => Stage::Failed(Some(unreachable)),
            Err(Pending::Wait(_)) => {
                // With the channel itself: as long as somebody waits, somebody dials.
                let inner = self.inner.clone();
                let pick = Box::pin(async move { inner.hub.pick(used, asked).await });
                Stage::Picking { pick, request: Some(request), asked }
            }
        };
        Calling { stage }
    }
}

/// An attempt: waits for a backend if it must, then runs.
///
/// # Cancel safety
/// Dropping it cancels the attempt. Its backend is neither credited nor blamed, unless the attempt's
/// `grpc-timeout` is over by then: that counts as a failure ([`Outliers`](super::Outliers)).
pub struct Calling {
    stage: Stage,
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
    Failed(Option<Unreachable>),
}

impl Stage {
    fn of(picked: Picked, request: Ask, asked: Instant) -> Self {
        let Picked { link, mut ticket } = picked;
        let timeout = request.headers().get(TIMEOUT).and_then(timeout::parse);
        ticket.waits_until(timeout.and_then(|timeout| asked.checked_add(timeout)));
        Stage::Readying { channel: link.channel, request: Some(request), ticket: Some(ticket) }
    }
}

impl fmt::Debug for Calling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Calling").finish_non_exhaustive()
    }
}

impl Future for Calling {
    type Output = Result<Response<BalancedBody>, BoxError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            match &mut self.stage {
                Stage::Picking { pick, request, asked } => {
                    let picked = ready!(pick.as_mut().poll(cx))?;
                    let Some(request) = request.take() else { return Poll::Pending };
                    self.stage = Stage::of(picked, request, *asked);
                }
                Stage::Readying { channel, request, ticket } => {
                    // Where the connection has ended the error says so, and the attempt is replaced.
                    ready!(channel.poll_ready(cx))?;
                    let Some(request) = request.take() else { return Poll::Pending };
                    let (future, ticket) = (channel.call(request), ticket.take());
                    self.stage = Stage::Running { future, ticket };
                }
                Stage::Running { future, ticket } => {
                    let result = ready!(Pin::new(future).poll(cx));
                    let ticket = ticket.take();
                    return Poll::Ready(match result {
                        Ok(response) => Ok(answered(response, ticket)),
                        Err(error) => Err(lost(error.into(), ticket)),
                    });
                }
                Stage::Failed(unreachable) => {
                    let Some(unreachable) = unreachable.take() else { return Poll::Pending };
                    return Poll::Ready(Err(unreachable.into()));
                }
            }
        }
    }
}

fn answered(
    response: Response<tonic::body::Body>,
    mut ticket: Option<Ticket>,
) -> Response<BalancedBody> {
    if let Head::Status(code, _) | Head::Foreign(code, _) = answer::head(&response)
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
    match evidence::of(error) {
        (Evidence::None, Code::Unavailable) => ticket.end(Ending::Lost),
        (Evidence::None, code) => ticket.end(Ending::Answered(code)),
        // tonic keeps to `grpc-timeout` as well, and may be the first to drop the attempt.
        (Evidence::LocalTimeout, _) => drop(ticket),
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
                        ticket.end(Ending::Answered(answer::trailers(trailers).0));
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
