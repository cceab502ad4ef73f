//! The state of one call. It moves from the response future to the response body on commit.
//!
//! Fast path: most calls succeed with the first attempt and never need the retry state machine.
//! [`Phase::FirstAttempt`] is that case; the state machine is created when anything else happens.
//!
//! Invariant: this module decides nothing. The state machine in `redial_core` decides every start,
//! delay, cancellation and end.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use redial_core::{
    CallParams, Classification, Command, Directive, End, FirstAttempt, NEVER, Ns, StopReason,
};
use redial_service_config::Code;
use redial_service_config::{Plan, Retries};

use crate::attempt::RunningAttempt;
use crate::backends::UsedBackends;
use crate::message_size::MessageSizeLimit;
use crate::methods::PlanRef;
use crate::observe::{Observer, SentBytes, SpanGuard};
use crate::replay_buffer::RequestBodyHandle;
use crate::report::{CallReport, CallReports};
use crate::request_head::RequestHead;
use crate::running_call::{Recording, RunningCall};
use crate::shared::Shared;
use crate::throttle::Throttle;
use crate::timeout::{self, TIMEOUT};

/// Parameters of a new call.
pub(crate) struct CallSetup {
    pub(crate) method: PlanRef,
    pub(crate) shared: Arc<Shared>,
    pub(crate) head: RequestHead,
    pub(crate) params: CallParams,
    pub(crate) wait_for_ready: bool,
    pub(crate) recording: Recording,
    /// Whether the request body may still produce frames.
    pub(crate) body_open: bool,
}

/// The state of one call.
pub(crate) struct CallState {
    phase: Phase,
    method: PlanRef,
    shared: Arc<Shared>,
    /// Source of retry requests; reset to the default once no further attempt can start.
    head: RequestHead,
    pub(crate) wait_for_ready: bool,
    /// Number of the committed attempt, as reported to the application.
    pub(crate) number: u32,
    /// Status of a response whose trailers have none: UNKNOWN, or OK if the headers carried it and left
    /// the stream open.
    pub(crate) missing_status_code: Code,
    /// The request body, which can still fail after commit.
    pub(crate) request_body: Option<Arc<dyn RequestBodyHandle>>,
    /// Boxed, since few configs set a response size limit.
    pub(crate) response_size_limit: Option<Box<MessageSizeLimit>>,
}

enum Phase {
    /// Fast path: the first attempt is running, and there is no call log and no observer.
    FirstAttempt {
        first: FirstAttempt,
        /// Start time; 0 if nothing needs it.
        started_at: Ns,
        used: Option<UsedBackends>,
    },
    Running(Box<RunningCall>),
}

impl std::fmt::Debug for CallState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CallState").field("number", &self.number).finish_non_exhaustive()
    }
}

impl CallState {
    #[inline]
    pub(crate) fn new(setup: CallSetup) -> Self {
        let CallSetup { method, shared, head, params, wait_for_ready, recording, body_open } =
            setup;
        let response_size_limit =
            method.response_max().map(|max| Box::new(MessageSizeLimit::new(max)));
        let observed = recording.call_log.is_some() || recording.observer.is_enabled();
        let fast = !body_open && !observed;
        let started_at = match recording.began {
            Some(began) => began,
            None if fast && recording.reports => shared.clock.now(),
            None => 0,
        };
        // The fast path has no timer.
        let first = FirstAttempt::of(&method, params, started_at)
            .filter(|first| fast && first.wake_at(&method) == NEVER);
        let phase = match first {
            Some(first) => Phase::FirstAttempt { first, started_at, used: recording.used },
            None => {
                let (throttle, clock) = (throttle(&method, &shared), shared.clock);
                let running_call =
                    RunningCall::start(method.clone(), throttle, params, recording, clock);
                Phase::Running(Box::new(running_call))
            }
        };
        CallState {
            phase,
            method,
            shared,
            head,
            wait_for_ready,
            number: 0,
            missing_status_code: Code::Unknown,
            request_body: None,
            response_size_limit,
        }
    }

    /// The shared state, if gauges are updated at the end of calls.
    pub(crate) fn sets_gauges(&self) -> Option<Arc<Shared>> {
        self.shared.observers.sets_gauges().then(|| self.shared.clone())
    }

    /// Whether the first attempt starts. If not, the deadline has already passed, and the future
    /// reports that on its first poll.
    pub(crate) fn starts_first_attempt(&mut self) -> bool {
        match &mut self.phase {
            Phase::FirstAttempt { .. } => true,
            Phase::Running(running_call) => {
                running_call.end().is_none()
                    && matches!(running_call.command(), Some(Command::Start(_)))
            }
        }
    }

    /// Whether the call is on the fast path.
    #[inline]
    pub(crate) fn is_fast_path(&self) -> bool {
        matches!(self.phase, Phase::FirstAttempt { .. })
    }

    /// The running call; leaves the fast path if necessary.
    pub(crate) fn running_call(&mut self) -> &mut RunningCall {
        if let Phase::FirstAttempt { first, started_at, used } = &mut self.phase {
            let (throttle, clock) = (throttle(&self.method, &self.shared), self.shared.clock);
            let reports = self.shared.reports != CallReports::Off;
            let recording = Recording { used: used.take(), reports, ..Recording::default() };
            let running_call = RunningCall::from_first_attempt(
                &self.method,
                throttle,
                *first,
                *started_at,
                recording,
                clock,
            );
            self.phase = Phase::Running(Box::new(running_call));
        }
        match &mut self.phase {
            Phase::Running(running_call) => running_call,
            Phase::FirstAttempt { .. } => unreachable!("the fast path was left above"),
        }
    }

    /// The text as logs may show it; `None` if this call records no messages.
    pub(crate) fn loggable(&mut self, text: impl FnOnce() -> Option<String>) -> Option<Box<str>> {
        self.running_call()
            .records_messages()
            .then(text)
            .flatten()
            .and_then(|text| self.shared.message_filter.apply(&text))
    }

    /// The report of a failed call and its destination; `None` if reports are off.
    pub(crate) fn report(
        &mut self,
        end: End,
        is_answered: bool,
    ) -> Option<(CallReport, CallReports)> {
        let reports = self.shared.reports;
        let reported = reports != CallReports::Off && end.stop_reason != StopReason::Succeeded;
        reported.then(|| (self.running_call().report(end, is_answered), reports))
    }

    pub(crate) fn plan(&self) -> &Plan {
        self.method.plan()
    }

    /// The request of a retry or hedge.
    pub(crate) fn request<B>(&mut self, running: RunningAttempt, body: B) -> Option<Request<B>> {
        let remaining = self.running_call().remaining(running.slot);
        let default_head = self.method.default_head();
        let mut request = self.head.request(default_head, running.number, remaining, body)?;
        if let Some(used) = self.running_call().used() {
            request.extensions_mut().insert(used.for_attempt(running.attempt));
        }
        Some(request)
    }

    /// Sets `grpc-timeout` to the remaining time; false if none is left and the request must not be sent
    /// (P4).
    pub(crate) fn update_timeout<B>(&mut self, slot: usize, request: &mut Request<B>) -> bool {
        let remaining = self.running_call().remaining_now(slot);
        if let Some(remaining) = remaining {
            request.headers_mut().insert(TIMEOUT, timeout::format(remaining));
        }
        remaining != Some(Duration::ZERO)
    }

    /// Commits the call to the attempt with this number: its response headers have arrived.
    #[inline]
    pub(crate) fn committed(&mut self, slot: usize, number: u32) {
        match &mut self.phase {
            Phase::FirstAttempt { first, .. } => first.committed(),
            Phase::Running(running_call) => running_call.committed(slot),
        }
        self.number = number;
        self.head = RequestHead::Default;
    }

    /// Records the outcome of the committed attempt.
    #[inline]
    pub(crate) fn ended(
        &mut self,
        code: Code,
        classification: Classification,
        message: impl FnOnce() -> Option<String>,
    ) {
        match &self.phase {
            Phase::FirstAttempt { first, .. } if classification.directive == Directive::Succeed => {
                if self.method.retries() != Retries::Off {
                    first.succeeded(&self.shared.server.tokens);
                }
            }
            _ => {
                let message = self.loggable(message);
                self.running_call().ended(code, message, classification);
            }
        }
    }

    /// Whether the deadline has passed; if so, it ends the call.
    #[inline]
    pub(crate) fn check_deadline(&mut self) -> bool {
        match &mut self.phase {
            Phase::FirstAttempt { .. } => false,
            Phase::Running(running_call) => running_call.check_deadline(),
        }
    }

    pub(crate) fn is_deadline_exceeded(&self) -> bool {
        matches!(&self.phase, Phase::Running(running_call) if running_call.is_deadline_exceeded())
    }

    /// A counter for the request bytes of an attempt, if metrics are enabled.
    pub(crate) fn sent_bytes(&self, attempt: u32) -> SentBytes {
        self.observer().map_or_else(SentBytes::default, |observer| observer.sent_bytes(attempt))
    }

    /// Enters the span of the call.
    pub(crate) fn enter_span(&self) -> Option<SpanGuard> {
        self.observer().map(Observer::enter_span)
    }

    /// Enters the span of an attempt.
    pub(crate) fn enter_attempt_span(&self, attempt: u32) -> Option<SpanGuard> {
        self.observer().map(|observer| observer.enter_attempt_span(attempt))
    }

    /// The observer; `None` on the fast path.
    fn observer(&self) -> Option<&Observer> {
        match &self.phase {
            Phase::FirstAttempt { .. } => None,
            Phase::Running(running_call) => Some(running_call.observer()),
        }
    }

    /// Records received response bytes.
    pub(crate) fn received(&mut self, data: &Bytes) {
        if let Phase::Running(running_call) = &mut self.phase {
            running_call.received(data);
        }
    }

    /// Releases the request body. Otherwise a connection that still sends it would keep the stream open
    /// after the response has been dropped.
    pub(crate) fn release_request_body(&mut self) {
        if let Some(body) = self.request_body.take() {
            body.release_body();
        }
    }
}

/// The throttle of the server; none if retries are off (G12).
fn throttle(method: &PlanRef, shared: &Shared) -> Throttle {
    Throttle((method.retries() != Retries::Off).then(|| shared.server.clone()))
}

impl Drop for CallState {
    #[inline]
    fn drop(&mut self) {
        // Dropped before its end: the application cancelled the call (P6). On the fast path there is
        // nothing to settle, and no request body that is still being written.
        if let Phase::Running(running_call) = &mut self.phase
            && running_call.cancel_if_running()
        {
            self.release_request_body();
        }
        let used = match &mut self.phase {
            Phase::FirstAttempt { used, .. } => used.take(),
            Phase::Running(running_call) => running_call.take_used_backends(),
        };
        if let Some(used) = used {
            used.return_to_pool();
        }
    }
}
