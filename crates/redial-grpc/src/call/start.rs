//! The start of a call: looks its method up, reads the available part of the request body, and prepares
//! the request of the first attempt.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body::Body;
use redial_core::{CallParams, Command};
use redial_service_config::Retries;
use tower_service::Service;

use super::attempt::FIRST;
use super::buffered_message::BufferedMessage;
use super::failure::{CallFailure, request_body_failed};
use super::first_attempt::FirstAttemptCall;
use super::initial_body::InitialBody;
use super::pending::PendingCall;
use super::recorder::Recording;
use super::request_head::{RequestHead, RequestHeaders};
use super::retry_request::{RetryBody, RetryRequest};
use super::running::RunningCall;
use super::{Call, CallContext};
use crate::BoxError;
use crate::backends::UsedBackends;
use crate::buffer_limits::Reservation;
use crate::client_adapter::ClientAdapter;
use crate::header_scanner::PREVIOUS_ATTEMPTS;
use crate::message_size::MessageSizeLimit;
use crate::methods::PlanRef;
use crate::observe::SentBytes;
use crate::options::CallOptions;
use crate::replay_buffer::{Failure, Replay, ReplayBuffer};
use crate::report::{CallReports, PolicyKind};
use crate::shared::Shared;
use crate::sync::Mutex;
use crate::timeout::{self, TIMEOUT};

/// Starts a call, and turns its request into the request of the first attempt. Returns the call and whether
/// that attempt starts: not if the deadline has already passed, which the future reports on its first poll.
///
/// # Errors
/// The request body failed before an attempt started.
pub(crate) fn start<S, B>(
    shared: &Arc<Shared>,
    request: &mut Request<B>,
    retries: Retries,
    options: CallOptions,
    retry_service: &Arc<Mutex<S>>,
    adapter: &impl ClientAdapter<B>,
) -> Result<(PendingCall<S, B>, bool), CallFailure>
where
    S: Service<Request<B>>,
    B: Body<Data = Bytes> + Unpin + Send + 'static,
    B::Error: Into<BoxError>,
{
    let new_call = NewCall::new(shared, request, retries, options);
    let mut size_limit = new_call.context.method.request_max().map(MessageSizeLimit::new);
    let initial = if new_call.reads_body() || size_limit.is_some() {
        match InitialBody::read(request.body_mut(), &mut size_limit) {
            Ok(initial) => Some(initial),
            Err(failure) => return Err(new_call.body_failed(failure)),
        }
    } else {
        None
    };
    let limit = shared.client.per_rpc_buffer_limit_in_bytes;
    let mut reservation = Reservation::new(shared.buffer_limit.clone(), limit);
    let fits = initial.as_ref().is_none_or(|initial| reservation.add(initial.len() as u64));
    let body_open = matches!(initial, Some(InitialBody::Partial(_)));
    let (mut call, head, wait_for_ready) = new_call.start(fits, body_open);
    let starts_first = call.starts_first_attempt();
    let sent_bytes = if starts_first { call.sent_bytes() } else { SentBytes::default() };
    let wrap = |replay: Replay<B>| adapter.wrap(replay.counted(sent_bytes));
    let retries_enabled = retries != Retries::Off;
    let body = match initial {
        None => RetryBody::NotKept,
        Some(InitialBody::Complete(bytes)) => {
            let keeps = retries_enabled && fits;
            let message = keeps.then(|| BufferedMessage::new(&bytes, reservation));
            *request.body_mut() = wrap(Replay::complete(bytes));
            message.map_or(RetryBody::NotKept, RetryBody::Message)
        }
        Some(InitialBody::Partial(frames)) => {
            let empty = adapter.wrap(Replay::complete(Bytes::new()));
            let body = std::mem::replace(request.body_mut(), empty);
            let frames = frames.into_iter().flatten().collect();
            let buffer = Arc::new(ReplayBuffer::new(body, frames, reservation, size_limit));
            *request.body_mut() = wrap(buffer.open(FIRST.attempt));
            if !retries_enabled {
                // Frames pass through, and a failure of the body is still noticed.
                buffer.commit(FIRST.attempt);
            }
            if let Call::Running(call) = &mut call {
                call.request_body = Some(buffer.clone());
            }
            RetryBody::Stream(buffer)
        }
    };
    let call = PendingCall {
        request: RetryRequest { head, body },
        call,
        retry_service: retry_service.clone(),
        wait_for_ready,
        retries: None,
    };
    Ok((call, starts_first))
}

impl Call {
    /// Whether the first attempt starts.
    fn starts_first_attempt(&mut self) -> bool {
        match self {
            Call::FirstAttempt(_) => true,
            Call::Running(call) => {
                call.end().is_none() && matches!(call.command(), Some(Command::Start(_)))
            }
            Call::Responding(_) | Call::Panicked(_) | Call::Ended => false,
        }
    }

    /// A counter for the request bytes of the first attempt, if metrics are enabled.
    fn sent_bytes(&self) -> SentBytes {
        match self {
            Call::Running(call) => call.observer().sent_bytes(FIRST.attempt),
            _ => SentBytes::default(),
        }
    }
}

/// A call before its first attempt.
struct NewCall {
    context: CallContext,
    params: CallParams,
    recording: Recording,
    head: RequestHead,
    wait_for_ready: bool,
    /// Whether the call has a deadline or an attempt timeout.
    bounded: bool,
}

impl NewCall {
    fn new<B>(
        shared: &Arc<Shared>,
        request: &mut Request<B>,
        retries: Retries,
        CallOptions { wait_for_ready, call_log, attempt_timeout, began, .. }: CallOptions,
    ) -> Self {
        let headers = RequestHeaders::of(request.headers());
        // The header contains the remaining time, not the original deadline.
        let remaining = headers.deadline;
        let waited = began.map_or(Duration::ZERO, |began| began.elapsed());
        let deadline = remaining.map(|remaining| remaining.saturating_add(waited));
        if headers.has_previous_attempts {
            // A value set by the application would be mistaken for ours (G30).
            request.headers_mut().remove(PREVIOUS_ATTEMPTS);
        }
        let mut method = PlanRef::new(shared.method(request.uri().path()), retries);
        if let Some(timeout) = attempt_timeout {
            method = method.with_attempt_timeout(timeout);
        }
        let head = RequestHead::of(request, &headers, method.default_head());
        // With retries disabled there is one attempt, so there is no backend to exclude.
        let distinct_backends = shared.distinct_backends && retries != Retries::Off;
        let used = distinct_backends.then(|| UsedBackends::of(request.extensions()));
        if let Some(used) = &used {
            request.extensions_mut().insert(used.for_attempt(FIRST.attempt));
        }
        // The first attempt sends the config's deadline or the attempt timeout if it is shorter.
        let plan = method.plan();
        let rules = plan.policy().rules();
        let config_deadline = rules.deadline.map(|deadline| deadline.saturating_sub(waited));
        let shortest = [config_deadline, rules.attempt_timeout].into_iter().flatten().min();
        if let Some(shortest) = shortest.filter(|it| remaining.is_none_or(|own| *it < own)) {
            request.headers_mut().insert(TIMEOUT, timeout::format(shortest));
        }
        // In gRPC, a retry or hedging policy declares the method idempotent (P8).
        let idempotent = matches!(method.policy_kind(), PolicyKind::Retry | PolicyKind::Hedging);
        NewCall {
            params: CallParams { deadline, idempotent, ..CallParams::default() },
            recording: Recording {
                call_log,
                observer: shared.observers.call(&method, request.uri().path()),
                used,
                reports: shared.reports != CallReports::Off,
                began,
            },
            head,
            wait_for_ready: wait_for_ready.unwrap_or(plan.waits_for_ready()),
            bounded: deadline.is_some() || shortest.is_some(),
            context: CallContext { method, shared: shared.clone() },
        }
    }

    /// Whether the available part of the request body is read before the first attempt starts: to keep
    /// it for retries, to count it, or to release it at the deadline, at which a connection would keep
    /// on reading it.
    fn reads_body(&self) -> bool {
        self.context.method.retries() != Retries::Off
            || self.recording.observer.counts_bytes()
            || self.bounded
    }

    /// The request body failed before the first attempt.
    fn body_failed(self, failure: Failure) -> CallFailure {
        RunningCall::unstarted(&self.context, self.params, self.recording, failure.code());
        request_body_failed(failure, 0)
    }

    /// Starts the call. `fits`: the available part of the body fits into the buffer. `body_open`: more of
    /// it may follow.
    fn start(self, fits: bool, body_open: bool) -> (Call, RequestHead, bool) {
        let NewCall { context, mut params, recording, head, wait_for_ready, .. } = self;
        params.not_replayable = context.method.retries() != Retries::Off && !fits;
        // Without events to record, a size limit for the response and a request body that can fail, only an
        // outcome or a timer can change the call.
        let limits_response = context.method.response_max().is_some();
        let call = if body_open || limits_response || recording.is_observed() {
            Err((context, recording))
        } else {
            FirstAttemptCall::new(context, params, recording)
        };
        let call = match call {
            Ok(first) => Call::FirstAttempt(first),
            Err((context, recording)) => {
                Call::Running(Box::new(RunningCall::start(context, params, recording)))
            }
        };
        (call, head, wait_for_ready)
    }
}
