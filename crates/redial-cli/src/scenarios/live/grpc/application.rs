//! The application of a scenario: a generated client, and its timed request messages.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::uri::PathAndQuery;
use http::{Request, Uri};
use redial::time::Sleeper;
use redial_echo::echo_client::EchoClient;
use redial_echo::{EchoRequest, EchoResponse};
use redial_faults::grpc::CALL_HEADER;
use redial_grpc::{CallOptions, RetryService, SharedCallLog};
use tokio::time::Sleep;
use tokio_stream::Stream;
use tonic::{Response, Status};
use tower::Service;

use super::super::clock::ScaledClock;
use super::Setup;
use super::network::Network;
use crate::scenarios::model::{Call, GrpcCall};

/// Makes the call with this index.
pub(super) async fn call(
    setup: Setup<'_>,
    index: usize,
    service: RetryService<Network>,
    call_log: Option<&SharedCallLog>,
    clock: ScaledClock,
) -> Result<Response<EchoResponse>, Status> {
    let call = &setup.scenario.calls[index];
    let Some(grpc) = &call.grpc else { return Err(Status::internal("a call without a method")) };
    let path = path(grpc).ok_or_else(|| Status::internal("a method that no path can hold"))?;
    let mut client = EchoClient::new(Addressed { inner: service, path });
    match grpc.messages.as_slice() {
        [(0, bytes)] => {
            let request = setup.sizes.message(*bytes);
            client.unary(build_request(setup, index, call_log, request)).await
        }
        messages => {
            let writes = messages.iter().map(|(at, bytes)| {
                let at = call.at.saturating_add(*at);
                (at, setup.sizes.message(*bytes))
            });
            let mut writes: Vec<_> = writes.collect();
            writes.sort_by_key(|(at, _)| *at);
            let messages = Messages { writes: writes.into(), clock, timer: None };
            client.client_stream(build_request(setup, index, call_log, messages)).await
        }
    }
}

/// The path of a call's method, if it is a valid URI path.
pub(in crate::scenarios) fn path(call: &GrpcCall) -> Option<PathAndQuery> {
    let path: PathAndQuery = call.method.parse().ok()?;
    (path.path() == call.method).then_some(path)
}

/// Builds a request with the call's deadline, metadata and call log.
fn build_request<M>(
    setup: Setup<'_>,
    index: usize,
    call_log: Option<&SharedCallLog>,
    message: M,
) -> tonic::Request<M> {
    let Call { deadline, .. } = &setup.scenario.calls[index];
    let mut request = tonic::Request::new(message);
    request.metadata_mut().insert(CALL_HEADER, (index as u64).into());
    if let Some(deadline) = deadline {
        request.set_timeout(setup.time_scale.span(*deadline));
    }
    if let Some(call_log) = call_log {
        request.extensions_mut().insert(CallOptions::new().call_log(call_log));
    }
    request
}

/// Replaces the method path of a generated client.
#[derive(Clone)]
struct Addressed<S> {
    inner: S,
    path: PathAndQuery,
}

impl<S, B> Service<Request<B>> for Addressed<S>
where
    S: Service<Request<B>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> S::Future {
        *request.uri_mut() = Uri::from(self.path.clone());
        self.inner.call(request)
    }
}

/// The messages of a call, each at its time; the request ends after the last one.
struct Messages {
    writes: VecDeque<(redial::time::Ns, EchoRequest)>,
    clock: ScaledClock,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Stream for Messages {
    type Item = EchoRequest;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<EchoRequest>> {
        let this = &mut *self;
        let Some((at, _)) = this.writes.front() else { return Poll::Ready(None) };
        if *at > this.clock.now() {
            let timer = this.timer.get_or_insert_with(|| Box::pin(this.clock.sleep_until(*at)));
            std::task::ready!(timer.as_mut().poll(cx));
        }
        this.timer = None;
        Poll::Ready(this.writes.pop_front().map(|(_, message)| message))
    }
}
