//! The service around a channel: prepares a call and starts its first attempt.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use redial_core::CallParams;
use redial_service_config::Retries;
use tower_service::Service;

use crate::BoxError;
use crate::attempt::FIRST;
use crate::backends::UsedBackends;
use crate::body::ResponseBody;
use crate::buffer_limits::Reservation;
use crate::call_pool::PooledCall;
use crate::call_result::request_body_failed;
use crate::call_state::{CallSetup, CallState};
use crate::client_adapter::{ClientAdapter, Tonic};
use crate::control::Control;
use crate::future::{Kind, ResponseFuture};
use crate::initial_body::InitialBody;
use crate::message_size::MessageSizeLimit;
use crate::methods::PlanRef;
use crate::observe::SentBytes;
use crate::options::CallOptions;
use crate::pending_call::PendingCall;
use crate::replay_buffer::{Replay, ReplayBuffer};
use crate::report::{CallReports, PolicyKind};
use crate::request_head::{PREVIOUS_ATTEMPTS, RequestHead, RequestHeaders};
use crate::running_call::{Recording, RunningCall};
use crate::shared::Shared;
use crate::sync::{Mutex, lock};
use crate::timeout::{self, TIMEOUT};

/// Request extension of a call that had to wait for its config: its real start time. The `grpc-timeout`
/// of the request is the remaining time.
#[derive(Clone, Copy, Debug)]
pub struct CallStartTime(pub tokio::time::Instant);

/// A channel with retries and hedging.
#[derive(Debug)]
pub struct RetryService<S, W = Tonic> {
    inner: S,
    /// Cloned for retries and hedges. A call with one attempt clones nothing.
    retry_service: Arc<Mutex<S>>,
    shared: Arc<Shared>,
    adapter: W,
}

impl<S: Clone, W: Clone> Clone for RetryService<S, W> {
    fn clone(&self) -> Self {
        RetryService {
            inner: self.inner.clone(),
            retry_service: self.retry_service.clone(),
            shared: self.shared.clone(),
            adapter: self.adapter.clone(),
        }
    }
}

impl<S, W> RetryService<S, W> {
    pub(crate) fn new(inner: S, shared: Arc<Shared>, adapter: W) -> Self
    where
        S: Clone,
    {
        RetryService { retry_service: Arc::new(Mutex::new(inner.clone())), inner, shared, adapter }
    }

    /// The wrapped channel.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// The timeout of a method in the current config.
    #[must_use]
    pub fn config_timeout(&self, path: &str, retries: Retries) -> Option<Duration> {
        let method = PlanRef::new(self.shared.method(path), retries);
        method.plan().policy().rules().deadline
    }

    /// Replaces a service that was made ready but is not called: it may hold a permit until it is called
    /// or dropped.
    fn discard_ready_service(&mut self)
    where
        S: Clone,
    {
        self.inner = lock(&self.retry_service).clone();
    }

    /// Changes and inspects the layer while calls run.
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
    R: Body<Data = Bytes> + Unpin + 'static,
    R::Error: Into<BoxError>,
    W: ClientAdapter<B>,
{
    type Response = Response<ResponseBody<R>>;
    type Error = BoxError;
    type Future = ResponseFuture<S, B, W, R>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, mut request: Request<B>) -> ResponseFuture<S, B, W, R> {
        let options = match request.extensions().get::<CallOptions>() {
            None => CallOptions::default(),
            Some(_) => request.extensions_mut().remove().unwrap_or_default(),
        };
        let retries = self.shared.retries(options.retries, request.extensions());
        if retries == Retries::Off
            && options.call_log.is_none()
            && options.attempt_timeout.is_none()
            && !self.shared.has_limits()
            && !self.shared.observers.is_enabled()
            && RequestHeaders::need_no_handling(request.headers())
        {
            let adapter = self.adapter.clone();
            return ResponseFuture::new(Some(self.inner.call(request)), Kind::PassThrough(adapter));
        }
        self.start_call(request, retries, options)
    }
}

impl<S, W> RetryService<S, W> {
    /// Starts a call that needs retry state.
    // Not inlined, so that the pass-through path stays as small as without this layer.
    #[inline(never)]
    fn start_call<B, R>(
        &mut self,
        mut request: Request<B>,
        retries: Retries,
        CallOptions { wait_for_ready, call_log, attempt_timeout, .. }: CallOptions,
    ) -> ResponseFuture<S, B, W, R>
    where
        S: Service<Request<B>, Response = Response<R>> + Clone,
        S::Error: Into<BoxError>,
        B: Body<Data = Bytes> + Unpin + Send + 'static,
        B::Error: Into<BoxError>,
        R: 'static,
        W: ClientAdapter<B>,
    {
        let began = request.extensions_mut().remove::<CallStartTime>().map(|CallStartTime(at)| at);
        let headers = RequestHeaders::of(request.headers());
        let RequestHeaders { deadline, previous, .. } = headers;
        // The header contains the remaining time, not the original deadline.
        let remaining = deadline;
        let waited = began.map_or(Duration::ZERO, |began| began.elapsed());
        let deadline = remaining.map(|remaining| remaining.saturating_add(waited));
        let default_headers = headers.are_default();
        if previous {
            // A value set by the application would be mistaken for ours (G30).
            request.headers_mut().remove(PREVIOUS_ATTEMPTS);
        }
        let method = PlanRef::new(self.shared.method(request.uri().path()), retries);
        let method = match attempt_timeout {
            Some(timeout) => method.with_attempt_timeout(timeout),
            None => method,
        };
        let observer = self.shared.observers.call(&method, request.uri().path());
        let head = RequestHead::of(&request, default_headers, method.default_head());
        // With retries disabled there is one attempt, so there is no backend to exclude.
        let distinct_backends = self.shared.distinct_backends && retries != Retries::Off;
        let used = distinct_backends.then(|| UsedBackends::of(request.extensions()));
        if let Some(used) = &used {
            request.extensions_mut().insert(used.for_attempt(FIRST.attempt));
        }
        let reports = self.shared.reports != CallReports::Off;
        let began = began.map(|began| self.shared.clock.moment(began));
        let recording = Recording { call_log, observer, used, reports, began };
        let plan = method.plan();
        // The first attempt sends the config's deadline or the attempt timeout if it is shorter.
        let rules = plan.policy().rules();
        let config_deadline = rules.deadline.map(|deadline| deadline.saturating_sub(waited));
        let shortest = [config_deadline, rules.attempt_timeout].into_iter().flatten().min();
        if let Some(shortest) = shortest.filter(|it| remaining.is_none_or(|own| *it < own)) {
            request.headers_mut().insert(TIMEOUT, timeout::format(shortest));
        }
        let wait_for_ready = wait_for_ready.unwrap_or(plan.waits_for_ready());
        // In gRPC, a retry or hedging policy declares the method idempotent (P8).
        let idempotent = matches!(method.policy_kind(), PolicyKind::Retry | PolicyKind::Hedging);
        let retries_enabled = retries != Retries::Off;
        let mut size_limit = method.request_max().map(MessageSizeLimit::new);
        // At its deadline a call must release its body, which a connection would keep on reading.
        let bounded = deadline.is_some() || shortest.is_some();
        let initial = if retries_enabled
            || recording.observer.counts_bytes()
            || size_limit.is_some()
            || bounded
        {
            match InitialBody::read(request.body_mut(), &mut size_limit) {
                Ok(initial) => Some(initial),
                Err(failure) => {
                    self.discard_ready_service();
                    let (params, clock) = (
                        CallParams { deadline, idempotent, ..CallParams::default() },
                        self.shared.clock,
                    );
                    RunningCall::unstarted(method, params, recording, clock, failure.code());
                    let call_failure = Some(Box::new(request_body_failed(failure, 0)));
                    return ResponseFuture::new(
                        None,
                        Kind::Ended(call_failure, self.adapter.clone()),
                    );
                }
            }
        } else {
            None
        };
        let limit = self.shared.client.per_rpc_buffer_limit_in_bytes;
        let mut reservation = Reservation::new(self.shared.buffer_limit.clone(), limit);
        let over_limit =
            initial.as_ref().is_some_and(|initial| !reservation.add(initial.len() as u64));
        let mut state = CallState::new(CallSetup {
            method,
            shared: self.shared.clone(),
            head,
            params: CallParams {
                deadline,
                idempotent,
                not_replayable: retries_enabled && over_limit,
                ..CallParams::default()
            },
            wait_for_ready,
            recording,
            body_open: matches!(initial, Some(InitialBody::Partial(_))),
        });
        let starts_first = state.starts_first_attempt();
        let sent_bytes =
            if starts_first { state.sent_bytes(FIRST.attempt) } else { SentBytes::default() };
        let wrap = |replay: Replay<B>| self.adapter.wrap(replay.counted(sent_bytes));
        let mut call = PooledCall::new(state);
        let mut buffer = None;
        match initial {
            None => {}
            Some(InitialBody::Complete(bytes)) => {
                if retries_enabled && !over_limit {
                    call.store_message(&bytes, reservation);
                }
                *request.body_mut() = wrap(Replay::complete(bytes));
            }
            Some(InitialBody::Partial(frames)) => {
                let (parts, body) = request.into_parts();
                let frames = frames.into_iter().flatten().collect();
                let replay_buffer =
                    Arc::new(ReplayBuffer::new(body, frames, reservation, size_limit));
                request = Request::from_parts(parts, wrap(replay_buffer.open(FIRST.attempt)));
                if !retries_enabled {
                    // Frames pass through, and a failure of the body is still noticed.
                    replay_buffer.commit(FIRST.attempt);
                }
                buffer = Some(replay_buffer);
            }
        }
        let future = if starts_first {
            let _guard = call.state().and_then(|state| state.enter_attempt_span(FIRST.attempt));
            Some(self.inner.call(request))
        } else {
            self.discard_ready_service();
            None
        };
        let (retry_service, adapter) = (self.retry_service.clone(), self.adapter.clone());
        ResponseFuture::new(
            future,
            Kind::Call(PendingCall::new(call, retry_service, adapter, buffer, over_limit)),
        )
    }
}
