//! Polls the attempts of a call in the caller's task, and carries out the commands of its state machine.
//!
//! Invariant: no lock is held while an attempt is cancelled.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use redial_core::{
    CallStep, Classification, Command, Cost, Directive, Driver, End, FailureCause, PollLoop,
    PollStep, RunCommands, Start, run_commands,
};
use tower_service::Service;

use super::attempt::{Attempt, FIRST, RunningAttempt};
use super::attempt_outcome::{AttemptOutcome, EndedAttempt};
use super::failure::{
    AttemptFailure, CallFailure, FailedAttempt, attempt_timed_out, internal, request_body_failed,
};
use super::retry_request::RetryRequest;
use super::running::{Outcome, RunningCall};
use crate::BoxError;
use crate::client_adapter::ClientAdapter;
use crate::replay_buffer::{Failure, RequestBodyHandle as _, Signal};
use crate::sync::{Mutex, lock};
use crate::timeout::{self, TIMEOUT};

/// Further attempts, and what failed.
pub(super) struct RetryState<S, B>
where
    S: Service<Request<B>>,
{
    attempts: Vec<LaterAttempt<S, B>>,
    /// The most recent failure of an attempt.
    pub(super) last_failure: Option<FailedAttempt>,
    /// A local failure, which takes precedence over the outcome of the attempts.
    pub(super) local_failure: Option<CallFailure>,
}

/// A retry or hedge.
type LaterAttempt<S, B> =
    (RunningAttempt, Pin<Box<Attempt<S, <S as Service<Request<B>>>::Future, B>>>);

/// The first attempt; `None` when it has ended.
pub(super) type FirstFuture<'f, S, B> = Pin<&'f mut Option<<S as Service<Request<B>>>::Future>>;

/// What ends a pending call.
pub(super) enum PendingEnd<R> {
    /// Response headers: the response of this attempt is the result.
    Response(CommittedResponse<R>),
    /// The call ended without a response to read.
    Ended(End),
}

/// The response of the attempt that the call is committed to.
pub(super) struct CommittedResponse<R> {
    pub(super) attempt: RunningAttempt,
    pub(super) response: Response<R>,
    /// The headers have the status OK already but leave the stream open.
    pub(super) ok_in_headers: bool,
}

/// Polls the attempts of a call that has its state machine, and carries out its commands.
pub(super) struct AttemptDriver<'a, S, B, W>
where
    S: Service<Request<B>>,
{
    pub(super) call: &'a mut RunningCall,
    pub(super) request: &'a mut RetryRequest<B>,
    pub(super) retry_service: &'a Mutex<S>,
    pub(super) wait_for_ready: bool,
    pub(super) retries: &'a mut Option<Box<RetryState<S, B>>>,
    pub(super) first: FirstFuture<'a, S, B>,
    pub(super) adapter: &'a W,
}

impl<S, B, R, W> AttemptDriver<'_, S, B, W>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
    S::Error: Into<BoxError>,
    B: Body<Data = Bytes> + Unpin + Send + 'static,
    B::Error: Into<BoxError>,
    R: Body,
    W: ClientAdapter<B>,
{
    /// Polls the call until it is committed or has ended.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<PendingEnd<R>> {
        let mut position = PollLoop::START;
        loop {
            match ready!(position.next_step(self, cx)) {
                PollStep::Poll(slot) => {
                    // The replay buffer may have committed the call in this step.
                    self.commit_request();
                    let Poll::Ready((attempt, result)) = self.poll_attempt(slot, cx) else {
                        continue;
                    };
                    position.outcome();
                    if let Some(committed) = self.outcome(attempt, result) {
                        return Poll::Ready(PendingEnd::Response(committed));
                    }
                }
                PollStep::Command(CallStep::Cancel(slot)) => self.cancel(slot),
                PollStep::Command(CallStep::Start(start)) => {
                    self.start(start);
                    // The last attempt of a request that cannot be replayed commits the call when it
                    // starts; its body must have been opened before.
                    self.commit_request();
                }
                PollStep::Command(CallStep::End(end)) => {
                    return Poll::Ready(PendingEnd::Ended(end));
                }
            }
        }
    }

    /// Polls the attempt in this slot.
    fn poll_attempt(
        &mut self,
        slot: usize,
        cx: &mut Context<'_>,
    ) -> Poll<(RunningAttempt, Result<Response<R>, BoxError>)> {
        let is_first = slot == FIRST.slot && self.first.is_some();
        let later = self.retries.iter_mut().flat_map(|retries| &mut retries.attempts);
        let found = later.into_iter().find(|(running, _)| running.slot == slot && !is_first);
        let attempt = found.as_ref().map_or(FIRST, |(running, _)| *running);
        let _guard = self.call.observer().enter_attempt_span(attempt.attempt);
        let result = match (found, self.first.as_mut().as_pin_mut()) {
            (Some((_, future)), _) => {
                let call = &mut *self.call;
                let update = |request: &mut _| update_timeout(call, slot, request);
                ready!(future.as_mut().poll(cx, update))
            }
            (None, Some(first)) => ready!(first.poll(cx)),
            (None, None) => return Poll::Pending,
        };
        Poll::Ready((attempt, result.map_err(Into::into)))
    }

    /// Reports the outcome of an attempt to the state machine; returns a response on commit.
    pub(super) fn outcome(
        &mut self,
        attempt: RunningAttempt,
        result: Result<Response<R>, BoxError>,
    ) -> Option<CommittedResponse<R>> {
        if result.is_err()
            && let Some(buffer) = self.request.replay_buffer()
            && let Some(failure) = buffer.take_failure()
        {
            // The failed request body made the connection reset the stream.
            self.body_failed(failure);
            return None;
        }
        let plan = self.call.context().plan();
        match AttemptOutcome::classify(result, attempt.number, plan, self.wait_for_ready) {
            AttemptOutcome::Response { response, ok_in_headers } => {
                self.call.committed(attempt.slot);
                // A committed call starts nothing; its only commands cancel the other attempts.
                while let Some(CallStep::Cancel(slot)) = run_commands(self) {
                    self.cancel(slot);
                }
                self.commit_request();
                Some(CommittedResponse { attempt, response, ok_in_headers })
            }
            AttemptOutcome::Ended(ended) => {
                self.attempt_ended(attempt, ended);
                None
            }
        }
    }

    fn attempt_ended(&mut self, attempt: RunningAttempt, ended: EndedAttempt) {
        let EndedAttempt { code, classification, cause, attempt: failed } = ended;
        let message = self.call.loggable(|| failed.outcome.message());
        if self.call.outcome(attempt.slot, Outcome { code, message, classification, cause }) {
            self.retries().last_failure = Some(failed);
            self.drop_attempt(attempt.slot);
        }
    }

    /// Tells the replay buffer once the call is committed to an attempt.
    fn commit_request(&mut self) {
        if self.call.is_committed()
            && let Some((attempt, _)) = self.call.attempt_after(0)
        {
            self.request.commit(attempt);
        }
    }

    fn cancel(&mut self, slot: usize) {
        let Some(RunningAttempt { attempt, number, .. }) = self.drop_attempt(slot) else { return };
        // An attempt that was cancelled by the attempt timeout counts as a failed attempt.
        if let Some(after) = self.call.timed_out(attempt) {
            let outcome = AttemptFailure::NoResponse(attempt_timed_out(after, number));
            self.retries().last_failure =
                Some(FailedAttempt { number, outcome, is_answered: false });
        }
    }

    /// Starts a retry, a hedge or a transparent retry.
    fn start(&mut self, start: Start) {
        let attempt = RunningAttempt::from(start);
        let sent_bytes = self.call.observer().sent_bytes(attempt.attempt);
        let remaining = self.call.remaining(attempt.slot);
        let default_head = self.call.context().method.default_head().get();
        let request =
            self.request.build(default_head, attempt, remaining, sent_bytes, self.adapter);
        let Some(mut request) = request else {
            // Only calls whose request is kept may start a second attempt.
            self.fail(CallFailure::Status(internal("the request is not kept", attempt.number)));
            return;
        };
        if let Some(used) = self.call.used() {
            request.extensions_mut().insert(used.for_attempt(attempt.attempt));
        }
        let service = lock(self.retry_service).clone();
        let future = Box::pin(Attempt::Readying { service, request, waited: false });
        self.retries().attempts.push((attempt, future));
    }

    /// Drops the attempt in this slot.
    fn drop_attempt(&mut self, slot: usize) -> Option<RunningAttempt> {
        let attempt = if slot == FIRST.slot && self.first.is_some() {
            self.first.set(None);
            FIRST
        } else {
            let attempts = &mut self.retries.as_mut()?.attempts;
            let index = attempts.iter().position(|(running, _)| running.slot == slot)?;
            attempts.swap_remove(index).0
        };
        self.request.close(attempt.attempt);
        Some(attempt)
    }

    /// Handles a signal of the replay buffer; true if there was one.
    fn poll_replay_buffer(&mut self, cx: &Context<'_>) -> bool {
        let Some(buffer) = self.request.replay_buffer() else { return false };
        match buffer.poll_signal(cx) {
            Signal::None => false,
            // The next attempt will be the last one; then the buffer is committed to it.
            Signal::Full(_) if !self.call.is_replayable() => false,
            Signal::Full(most) => {
                let slot = most.and_then(|most| {
                    let (attempt, slot) = self.call.attempt_after(most - 1)?;
                    (attempt == most).then_some(slot)
                });
                self.call.not_replayable(slot);
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
        let (code, attempts) = (failure.code(), self.call.attempts());
        let message = self.call.loggable(|| Some(failure.text()));
        // Any running attempt will do: the call ends with this outcome, and the others are cancelled.
        let counts = self.call.attempt_after(0).is_some_and(|(_, slot)| {
            let classification = Classification::from(Directive::Fail);
            let cause = FailureCause::Response;
            self.call.outcome(slot, Outcome { code, message, classification, cause })
        });
        // The deadline or the attempt timeout may have ended the call before.
        if counts || self.call.end().is_none() {
            self.call.cancel(code);
            self.retries().local_failure = Some(request_body_failed(failure, attempts));
        }
    }

    /// Ends the call with a local failure.
    fn fail(&mut self, failure: CallFailure) {
        self.call.cancel(failure.code());
        self.retries().local_failure = Some(failure);
    }

    fn retries(&mut self) -> &mut RetryState<S, B> {
        self.retries.get_or_insert_with(|| {
            let (last_failure, local_failure) = (None, None);
            Box::new(RetryState { attempts: Vec::new(), last_failure, local_failure })
        })
    }
}

impl<S, B, R, W> RunCommands for AttemptDriver<'_, S, B, W>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
    S::Error: Into<BoxError>,
    B: Body<Data = Bytes> + Unpin + Send + 'static,
    B::Error: Into<BoxError>,
    R: Body,
    W: ClientAdapter<B>,
{
    fn command(&mut self) -> Option<Command> {
        self.call.command()
    }

    // gRPC policies have no strategy, and their throttle answers at once.
    fn ask(&mut self, _failure: redial_core::Failure) {
        let attempts = self.call.attempts();
        self.fail(CallFailure::Status(internal("the policy has a strategy", attempts)));
    }

    fn await_grant(&mut self, _cost: Cost) {
        let attempts = self.call.attempts();
        self.fail(CallFailure::Status(internal("the throttle defers its answer", attempts)));
    }
}

impl<S, B, R, W> Driver for AttemptDriver<'_, S, B, W>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
    S::Error: Into<BoxError>,
    B: Body<Data = Bytes> + Unpin + Send + 'static,
    B::Error: Into<BoxError>,
    R: Body,
    W: ClientAdapter<B>,
{
    fn running_after(&self, attempt: u32) -> Option<(u32, usize)> {
        self.call.attempt_after(attempt)
    }

    fn poll_answer(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.poll_replay_buffer(cx) { Poll::Ready(()) } else { Poll::Pending }
    }

    fn poll_timer(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.call.poll_due(cx)
    }
}

/// Sets `grpc-timeout` to the remaining time; false if none is left and the request must not be sent
/// (P4).
fn update_timeout<B>(call: &mut RunningCall, slot: usize, request: &mut Request<B>) -> bool {
    let remaining = call.remaining_now(slot);
    if let Some(remaining) = remaining {
        request.headers_mut().insert(TIMEOUT, timeout::format(remaining));
    }
    remaining.is_none_or(|remaining| !remaining.is_zero())
}
