//! A call before commit: polls its attempts in the caller's task until it commits to one or ends.
//!
//! Invariants: nothing is spawned. This module decides nothing: it reports outcomes to the state
//! machine and runs the commands that come back. No lock is held while an attempt is cancelled.

use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use redial_core::{
    CallStep, Classification, Command, Cost, Directive, End, FailureCause, RunCommands,
    run_commands,
};
use redial_service_config::Code;
use redial_service_config::Pushback;
use tower_service::Service;

use crate::BoxError;
use crate::attempt::{Attempt, FIRST, RunningAttempt};
use crate::body::ResponseBody;
use crate::call_pool::PooledCall;
use crate::call_result::{
    AttemptFailure, CallFailure, CallResult, FailedAttempt, attempt_timed_out, deadline_exceeded,
    failed_response, request_body_failed, with_attempt_count,
};
use crate::call_state::CallState;
use crate::client_adapter::{ClientAdapter, LocalStatus};
use crate::replay_buffer::{Failure, Replay, ReplayBuffer, RequestBodyHandle as _, Signal};
use crate::response_status::{self, Head, STATUS};
use crate::sync::{Mutex, lock};
use crate::transport_error::{self, TransportFailure};

/// A call before commit. Its first attempt is stored in the response future itself.
pub(crate) struct PendingCall<S, B, W, R>
where
    S: Service<Request<B>>,
    R: 'static,
{
    /// Boxed, since it moves to the response body on commit. Empty after that and after the end.
    call: PooledCall<R>,
    retry_service: Arc<Mutex<S>>,
    adapter: W,
    /// The replay buffer of a streaming request. A unary message is in the box of the call instead.
    buffer: Option<Arc<ReplayBuffer<B>>>,
    /// Whether the replay buffer knows the committed attempt.
    buffer_committed: bool,
    /// Whether the state machine knows that the request can no longer be replayed.
    not_replayable: bool,
    retry_state: Option<Box<RetryState<S, B>>>,
}

/// State that exists only once the first attempt was not enough.
struct RetryState<S, B>
where
    S: Service<Request<B>>,
{
    later_attempts: Vec<LaterAttempt<S, B>>,
    /// The most recent failure of an attempt.
    last_failure: Option<FailedAttempt>,
    /// A local failure, which takes precedence over the outcome of the attempts.
    local_failure: Option<CallFailure>,
}

/// A retry or hedge.
type LaterAttempt<S, B> =
    (RunningAttempt, Pin<Box<Attempt<S, <S as Service<Request<B>>>::Future, B>>>);

/// The first attempt; `None` when it has ended.
type FirstFuture<'f, S, B> = Pin<&'f mut Option<<S as Service<Request<B>>>::Future>>;

impl<S, B, W, R> PendingCall<S, B, W, R>
where
    S: Service<Request<B>>,
{
    #[inline]
    pub(crate) fn new(
        call: PooledCall<R>,
        retry_service: Arc<Mutex<S>>,
        adapter: W,
        buffer: Option<Arc<ReplayBuffer<B>>>,
        not_replayable: bool,
    ) -> Self {
        let (buffer_committed, retry_state) = (false, None);
        PendingCall {
            call,
            retry_service,
            adapter,
            buffer,
            buffer_committed,
            not_replayable,
            retry_state,
        }
    }

    /// Whether the call is on the fast path of its first attempt.
    #[inline]
    pub(crate) fn is_fast_path(&self) -> bool {
        self.call.is_fast_path()
    }

    fn retry_state(&mut self) -> &mut RetryState<S, B> {
        let retry_state = || {
            Box::new(RetryState {
                later_attempts: Vec::new(),
                last_failure: None,
                local_failure: None,
            })
        };
        self.retry_state.get_or_insert_with(retry_state)
    }
}

impl<S, B, R, W> PendingCall<S, B, W, R>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
    S::Error: Into<BoxError>,
    B: Body<Data = Bytes> + Unpin + Send + 'static,
    B::Error: Into<BoxError>,
    R: Body<Data = Bytes> + Unpin + 'static,
    R::Error: Into<BoxError>,
    W: ClientAdapter<B>,
{
    /// Commits to the first attempt on the fast path.
    #[inline]
    pub(crate) fn commit_first(&mut self, response: Response<R>) -> Response<ResponseBody<R>> {
        let mut call = self.call.take();
        if let Some(state) = call.state() {
            state.committed(FIRST.slot, FIRST.number);
        }
        call.drop_message();
        response.map(|body| ResponseBody::of(body, call))
    }

    /// Leaves the fast path: the first attempt ended without response headers.
    #[cold]
    pub(crate) fn handle_first_result(
        &mut self,
        result: Result<Response<R>, BoxError>,
        mut first: FirstFuture<'_, S, B>,
        cx: &mut Context<'_>,
    ) -> Poll<CallResult<R>> {
        match self.outcome(FIRST, result, first.as_mut()) {
            Some(response) => Poll::Ready(Ok(response)),
            None => self.poll(first, cx),
        }
    }

    #[inline(never)]
    pub(crate) fn poll(
        &mut self,
        mut first: FirstFuture<'_, S, B>,
        cx: &mut Context<'_>,
    ) -> Poll<CallResult<R>> {
        loop {
            // Outcomes first, in the order in which attempts started (P4). Running attempts are polled
            // before the next one starts, because an outcome may make it unnecessary (P6).
            let outcome = match self.poll_attempts(first.as_mut(), cx) {
                Poll::Ready(Some(response)) => return Poll::Ready(Ok(response)),
                Poll::Ready(None) => true,
                Poll::Pending => false,
            };
            match self.run_commands(first.as_mut()) {
                ControlFlow::Break(end) => return Poll::Ready(self.finish(end)),
                ControlFlow::Continue(started) if started || outcome => continue,
                ControlFlow::Continue(_) => {}
            }
            if self.poll_replay_buffer(cx) {
                continue;
            }
            let Some(state) = self.call.state() else { return Poll::Pending };
            std::task::ready!(state.running_call().poll_due(cx));
        }
    }

    /// Runs the state machine's commands until an attempt has started (true), no command is left (false)
    /// or the call has ended.
    fn run_commands(&mut self, first: FirstFuture<'_, S, B>) -> ControlFlow<End, bool> {
        let started = match run_commands(&mut Commands { call: self, first }) {
            Some(CallStep::End(end)) => return ControlFlow::Break(end),
            Some(CallStep::Start(start)) => {
                self.start(start.into());
                true
            }
            None => false,
        };
        self.commit_replay_buffer();
        ControlFlow::Continue(started)
    }

    fn start(&mut self, running: RunningAttempt) {
        let body = match &self.buffer {
            Some(buffer) => buffer.open(running.attempt),
            None => {
                let message = self.call.message();
                // Only plans with a single attempt leave the body unbuffered.
                debug_assert!(message.is_some(), "no body is buffered for a second attempt");
                Replay::complete(message.unwrap_or_default())
            }
        };
        let Some(state) = self.call.state() else { return };
        let body = self.adapter.wrap(body.counted(state.sent_bytes(running.attempt)));
        let request = state.request(running, body);
        debug_assert!(request.is_some(), "an attempt starts after the end of its call");
        let service = lock(&self.retry_service).clone();
        let attempt = Box::pin(Attempt::Readying { service, request, waited: false });
        self.retry_state().later_attempts.push((running, attempt));
    }

    /// Drops the attempt in this slot.
    fn drop_attempt(
        &mut self,
        slot: usize,
        mut first: FirstFuture<'_, S, B>,
    ) -> Option<RunningAttempt> {
        let running = if slot == FIRST.slot && first.is_some() {
            first.set(None);
            FIRST
        } else {
            let later_attempts = &mut self.retry_state.as_mut()?.later_attempts;
            let index = later_attempts.iter().position(|(running, _)| running.slot == slot)?;
            later_attempts.swap_remove(index).0
        };
        // A connection may still own its body, which must not take further frames.
        if let Some(buffer) = &self.buffer {
            buffer.close(running.attempt);
        }
        Some(running)
    }

    /// An attempt that was cancelled by the attempt timeout counts as a failed attempt.
    fn record_timeout(&mut self, cancelled: Option<RunningAttempt>) {
        if let (Some(RunningAttempt { attempt, number, .. }), Some(state)) =
            (cancelled, self.call.state())
            && let Some(after) = state.running_call().timed_out(attempt)
        {
            let outcome = AttemptFailure::NoResponse(attempt_timed_out(after, number));
            self.retry_state().last_failure =
                Some(FailedAttempt { number, outcome, is_answered: false });
        }
    }

    /// Frees the buffered request once the call is committed.
    fn commit_replay_buffer(&mut self) {
        let Some(state) = self.call.state() else { return };
        if self.buffer_committed || !state.running_call().is_committed() {
            return;
        }
        self.buffer_committed = true;
        match (&self.buffer, state.running_call().attempt_after(0)) {
            (Some(buffer), Some((attempt, _))) => buffer.commit(attempt),
            _ => self.call.drop_message(),
        }
    }

    /// Polls the running attempts. Ready if one of them has an outcome, with the response on commit.
    fn poll_attempts(
        &mut self,
        mut first: FirstFuture<'_, S, B>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Response<ResponseBody<R>>>> {
        let mut previous = 0;
        while let Some(state) = self.call.state()
            && let Some((attempt, slot)) = state.running_call().attempt_after(previous)
        {
            previous = attempt;
            let (running, polled) = {
                let _guard = state.enter_attempt_span(attempt);
                match first.as_mut().as_pin_mut() {
                    Some(future) if slot == FIRST.slot => (FIRST, future.poll(cx)),
                    _ => {
                        let later_attempts = self
                            .retry_state
                            .iter_mut()
                            .flat_map(|retry_state| &mut retry_state.later_attempts);
                        let found =
                            later_attempts.into_iter().find(|(running, _)| running.slot == slot);
                        let Some((running, future)) = found else { continue };
                        (
                            *running,
                            future.as_mut().poll(cx, |request| state.update_timeout(slot, request)),
                        )
                    }
                }
            };
            if let Poll::Ready(result) = polled {
                return Poll::Ready(self.outcome(running, result.map_err(Into::into), first));
            }
        }
        Poll::Pending
    }

    /// Reports the outcome of an attempt to the state machine; returns a response on commit.
    fn outcome(
        &mut self,
        running: RunningAttempt,
        result: Result<Response<R>, BoxError>,
        first: FirstFuture<'_, S, B>,
    ) -> Option<Response<ResponseBody<R>>> {
        let slot = running.slot;
        let head = result.as_ref().ok().map(response_status::head);
        // OK in headers that leave the stream open: messages may follow, and the deadline applies.
        let open = head.is_some_and(Head::is_ok)
            && result.as_ref().is_ok_and(|response| !response.body().is_end_stream());
        if open || head == Some(Head::Headers) {
            self.call.state()?.committed(slot, running.number);
            // Cancels the other attempts and commits the replay buffer. The call continues in the
            // response body.
            let _ = self.run_commands(first);
            let (mut response, mut call) = (result.ok()?, self.call.take());
            if let (Some(buffer), Some(state)) = (&self.buffer, call.state()) {
                state.request_body = Some(buffer.clone());
            }
            if open && let Some(state) = call.state() {
                // Moved to the trailers: a client that finds a status in the headers ignores trailers.
                response.headers_mut().remove(STATUS);
                state.missing_status_code = Code::Ok;
            }
            let response = with_attempt_count(response, running.number);
            return Some(response.map(|body| ResponseBody::of(body, call)));
        }
        if let (Err(_), Some(buffer)) = (&result, &self.buffer)
            && let Some(failure) = buffer.take_failure()
        {
            // The failed request body made the connection reset the stream.
            self.body_failed(failure);
            return None;
        }
        let state = self.call.state()?;
        let answered =
            result.as_ref().err().and_then(|error| transport_error::server_status(&**error));
        let is_answered = result.is_ok() || answered.is_some();
        let mut cause = FailureCause::Response;
        let (code, classification, outcome) = match (result, head, answered) {
            (Ok(response), Some(Head::Status(code, pushback)), _) => {
                (code, state.plan().classify(code, pushback), AttemptFailure::response(response))
            }
            (Ok(mut response), Some(Head::NotGrpc(code, pushback)), _) => {
                response_status::write_status(&mut response, code);
                (code, state.plan().classify(code, pushback), AttemptFailure::response(response))
            }
            (Ok(response), ..) => (
                Code::Unknown,
                Classification::from(Directive::Fail),
                AttemptFailure::response(response),
            ),
            (Err(error), _, Some((code, pushback))) => {
                let local = LocalStatus::from_error(code, error, running.number);
                let classification = state.plan().classify(code, pushback);
                (code, classification, AttemptFailure::NoResponse(CallFailure::Status(local)))
            }
            (Err(error), _, None) => {
                let (failure, code) = transport_error::classify(&*error);
                cause = failure_cause(failure, code);
                let classification = classify_error(state, failure, code);
                let call_failure =
                    CallFailure::from_connection_error(error, failure, code, running.number);
                (code, classification, AttemptFailure::NoResponse(call_failure))
            }
        };
        let message = state.loggable(|| outcome.message());
        if state.running_call().outcome(slot, code, message, classification, cause) {
            self.retry_state().last_failure =
                Some(FailedAttempt { number: running.number, outcome, is_answered });
            self.drop_attempt(slot, first);
        }
        None
    }

    /// Handles a signal of the replay buffer; true if there was one.
    fn poll_replay_buffer(&mut self, cx: &Context<'_>) -> bool {
        let (Some(buffer), Some(state)) = (&self.buffer, self.call.state()) else { return false };
        match buffer.poll_signal(cx) {
            Signal::None => false,
            // The next attempt will be the last one; then the buffer is committed to it.
            Signal::Full(_) if self.not_replayable => false,
            Signal::Full(most) => {
                self.not_replayable = true;
                let running_call = state.running_call();
                let slot = most.and_then(|most| {
                    let (attempt, slot) = running_call.attempt_after(most - 1)?;
                    (attempt == most).then_some(slot)
                });
                running_call.not_replayable(slot);
                true
            }
            Signal::Failed(failure) => {
                self.body_failed(failure);
                true
            }
        }
    }

    /// The request body failed: the call ends without a retry.
    fn body_failed(&mut self, failure: Failure) {
        let Some(state) = self.call.state() else { return };
        let message = state.loggable(|| Some(failure.text()));
        let running_call = state.running_call();
        let attempts = running_call.attempts();
        // Any running attempt will do: the call ends with this outcome, and the others are cancelled.
        let counts = running_call.attempt_after(0).is_some_and(|(_, slot)| {
            running_call.outcome(
                slot,
                failure.code(),
                message,
                Classification::from(Directive::Fail),
                FailureCause::Response,
            )
        });
        // The deadline or the attempt timeout may have ended the call before.
        if counts || running_call.end().is_none() {
            running_call.cancel(failure.code());
            self.retry_state().local_failure = Some(request_body_failed(failure, attempts));
        }
    }

    fn finish(&mut self, end: End) -> CallResult<R> {
        let retry_state = self.retry_state.take().map(|retry_state| *retry_state);
        let (local_failure, last_failure) = retry_state.map_or((None, None), |retry_state| {
            (retry_state.local_failure, retry_state.last_failure)
        });
        let is_answered = local_failure.is_none()
            && end.attempt.is_some()
            && last_failure.as_ref().is_some_and(|last_failure| last_failure.is_answered);
        let (attempts, wait_reason, report) = self.call.state().map_or((0, None, None), |state| {
            let (attempts, wait_reason) =
                (state.running_call().attempts(), state.running_call().wait_reason());
            (attempts, wait_reason, state.report(end, is_answered))
        });
        if let Some(buffer) = self.buffer.take() {
            buffer.release();
        }
        self.call.clear();
        let call_failure = match (local_failure, end.attempt, last_failure) {
            (Some(local_failure), ..) => local_failure,
            (None, Some(_), Some(FailedAttempt { number, outcome, .. })) => match outcome {
                AttemptFailure::Response(head) => {
                    let response = with_attempt_count(head, number).map(|()| ResponseBody::none());
                    return failed_response(response, report, &self.adapter);
                }
                AttemptFailure::NoResponse(call_failure) => call_failure,
            },
            (None, _, last_failure) => CallFailure::Status(deadline_exceeded(
                end.stop_reason,
                attempts,
                last_failure,
                wait_reason,
            )),
        };
        call_failure.into_result(report.map(|(report, _)| report), &self.adapter)
    }
}

/// Carries out the commands of a call before commit.
struct Commands<'a, 'f, S, B, W, R>
where
    S: Service<Request<B>>,
    R: 'static,
{
    call: &'a mut PendingCall<S, B, W, R>,
    first: FirstFuture<'f, S, B>,
}

impl<S, B, R, W> RunCommands for Commands<'_, '_, S, B, W, R>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
    S::Error: Into<BoxError>,
    B: Body<Data = Bytes> + Unpin + Send + 'static,
    B::Error: Into<BoxError>,
    R: Body<Data = Bytes> + Unpin + 'static,
    R::Error: Into<BoxError>,
    W: ClientAdapter<B>,
{
    fn command(&mut self) -> Option<Command> {
        self.call.call.state()?.running_call().command()
    }

    fn cancel(&mut self, slot: usize) {
        let cancelled = self.call.drop_attempt(slot, self.first.as_mut());
        self.call.record_timeout(cancelled);
    }

    // gRPC policies have no strategy, and their throttle answers at once.
    fn ask(&mut self, _failure: redial_core::Failure) {
        debug_assert!(false, "gRPC policies have no strategy");
    }
    fn await_grant(&mut self, _cost: Cost) {
        debug_assert!(false, "gRPC's throttle answers at once");
    }
}

/// Classifies a transport error.
fn classify_error(state: &CallState, failure: TransportFailure, code: Code) -> Classification {
    let plan = state.plan();
    match failure {
        TransportFailure::NotSent => plan.unsent(),
        TransportFailure::Unprocessed => plan.unprocessed(),
        TransportFailure::NotConnected => plan.unconnected(state.wait_for_ready),
        // A timeout set by the client itself is never retried (G5).
        TransportFailure::LocalTimeout => Classification::from(Directive::Fail),
        TransportFailure::MaybeProcessed => plan.classify(code, Pushback::None),
    }
}

/// Whether a transport error comes from a timer. The timer of an unknown client library produces an
/// error that cannot be classified.
fn failure_cause(failure: TransportFailure, code: Code) -> FailureCause {
    match failure {
        TransportFailure::LocalTimeout => FailureCause::Timer,
        TransportFailure::MaybeProcessed if code == Code::Unknown => FailureCause::Unknown,
        _ => FailureCause::Response,
    }
}

impl<S, B, W, R> Drop for PendingCall<S, B, W, R>
where
    S: Service<Request<B>>,
    R: 'static,
{
    fn drop(&mut self) {
        // Readers in other tasks get an error from now on, unless the call continues after commit.
        if let Some(buffer) = &self.buffer
            && self.call.is_some()
        {
            buffer.release();
        }
    }
}
