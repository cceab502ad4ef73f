//! One call. It goes from the response's future into the response's body when it belongs to an
//! attempt.
//!
//! Most calls are never more than a first attempt that succeeds: such a call has no machine
//! ([`First`]), and gets it when anything else happens.
//!
//! Invariant: nothing is decided here. Every start, delay, cancel and end is the core's.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use redial_core::{
    CallParams, Classification, Command, Directive, End, FirstAttempt, Ns, StopReason,
};
use redial_service_config::Code;
use redial_service_config::{Plan, Retries};

use crate::attempt::Running;
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

/// What a call is begun with.
pub(crate) struct CallSetup {
    pub(crate) method: PlanRef,
    pub(crate) shared: Arc<Shared>,
    pub(crate) head: RequestHead,
    pub(crate) params: CallParams,
    pub(crate) wait_for_ready: bool,
    pub(crate) recording: Recording,
    /// Whether the application may still write.
    pub(crate) body_open: bool,
}

/// One call.
pub(crate) struct CallState {
    phase: Phase,
    method: PlanRef,
    shared: Arc<Shared>,
    /// What further attempts are made of; it keeps nothing once there can be none.
    head: RequestHead,
    pub(crate) wait_for_ready: bool,
    /// The number of the attempt that the call belongs to, as the application was told.
    pub(crate) number: u32,
    /// The status of a response that ends without one in its trailers: UNKNOWN, or the OK of headers
    /// that left the stream open.
    pub(crate) missing_status_code: Code,
    /// The application's body, as long as it may still fail after the call belongs to an attempt.
    pub(crate) request_body: Option<Arc<dyn RequestBodyHandle>>,
    /// In a box: few configs have such a limit.
    pub(crate) response_size_limit: Option<Box<MessageSizeLimit>>,
}

enum Phase {
    /// It has no call log and no observer, and nothing has happened but the start of its first
    /// attempt.
    FirstAttempt {
        first: FirstAttempt,
        /// When that was; 0 if nothing needs to know.
        started_at: Ns,
        used: Option<UsedBackends>,
    },
    Running(Box<RunningCall>),
}

impl std::fmt::Debug for CallState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("number", &self.number).finish_non_exhaustive()
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
        let phase = match FirstAttempt::of(&method, params) {
            Some(first) if !body_open && !observed => {
                let started_at = match recording.began {
                    Some(began) => began,
                    None if recording.reports => shared.clock.now(),
                    None => 0,
                };
                Phase::FirstAttempt { first, started_at, used: recording.used }
            }
            _ => {
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

    /// What its layer shares, if gauges are set when the call ends.
    pub(crate) fn sets_gauges(&self) -> Option<Arc<Shared>> {
        self.shared.observers.sets_gauges().then(|| self.shared.clone())
    }

    /// Whether the first attempt is to start. Otherwise the deadline has passed: the machine says
    /// that the call has ended, which is for the future to hear.
    pub(crate) fn starts_first_attempt(&mut self) -> bool {
        match &mut self.phase {
            Phase::FirstAttempt { .. } => true,
            Phase::Running(running_call) => {
                running_call.end().is_none()
                    && matches!(running_call.command(), Some(Command::Start(_)))
            }
        }
    }

    /// Whether nothing can happen but the outcome of the first attempt.
    #[inline]
    pub(crate) fn is_first(&self) -> bool {
        matches!(self.phase, Phase::FirstAttempt { .. })
    }

    /// The call with its machine, which begins now if it has not.
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
            Phase::FirstAttempt { .. } => unreachable!("it has just begun"),
        }
    }

    /// A message or error as logs may show it, if this call records any.
    pub(crate) fn loggable(&mut self, text: impl FnOnce() -> Option<String>) -> Option<Box<str>> {
        self.running_call()
            .records_messages()
            .then(text)
            .flatten()
            .and_then(|text| self.shared.message_filter.apply(&text))
    }

    /// Why the call failed, if that is reported, and where the report goes.
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

    /// The request of this attempt.
    pub(crate) fn request<B>(&mut self, running: Running, body: B) -> Option<Request<B>> {
        let remaining = self.running_call().remaining(running.slot);
        let default_head = self.method.default_head();
        let mut request = self.head.request(default_head, running.number, remaining, body)?;
        if let Some(used) = self.running_call().used() {
            request.extensions_mut().insert(used.for_attempt(running.attempt));
        }
        Some(request)
    }

    /// Writes into the request of an attempt what remains by now; false if nothing does, and it is
    /// not sent (P4).
    pub(crate) fn update_timeout<B>(&mut self, slot: usize, request: &mut Request<B>) -> bool {
        let remaining = self.running_call().remaining_now(slot);
        if let Some(remaining) = remaining {
            request.headers_mut().insert(TIMEOUT, timeout::format(remaining));
        }
        remaining != Some(Duration::ZERO)
    }

    /// The response of the attempt with this number has begun: the call belongs to it.
    #[inline]
    pub(crate) fn committed(&mut self, slot: usize, number: u32) {
        match &mut self.phase {
            Phase::FirstAttempt { first, .. } => first.committed(),
            Phase::Running(running_call) => running_call.committed(slot),
        }
        self.number = number;
        self.head = RequestHead::Default;
    }

    /// The outcome of the attempt that the call belongs to.
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

    /// Whether the deadline has passed, which ends the call.
    #[inline]
    pub(crate) fn check_deadline(&mut self) -> bool {
        match &mut self.phase {
            Phase::FirstAttempt { .. } => false,
            Phase::Running(running_call) => running_call.check_deadline(),
        }
    }

    /// Whether the deadline ended the call.
    pub(crate) fn is_deadline_exceeded(&self) -> bool {
        matches!(&self.phase, Phase::Running(running_call) if running_call.is_deadline_exceeded())
    }

    /// Counts what the attempt is sent, if somebody wants to know.
    pub(crate) fn sent_bytes(&self, attempt: u32) -> SentBytes {
        self.observer().map_or_else(SentBytes::default, |observer| observer.sent_bytes(attempt))
    }

    /// What runs while this is held runs in the call's span.
    pub(crate) fn enter_span(&self) -> Option<SpanGuard> {
        self.observer().map(Observer::enter_span)
    }

    /// The same for the span of an attempt.
    pub(crate) fn enter_attempt_span(&self, attempt: u32) -> Option<SpanGuard> {
        self.observer().map(|observer| observer.enter_attempt_span(attempt))
    }

    /// What is told of the call while it runs, if anything is.
    fn observer(&self) -> Option<&Observer> {
        match &self.phase {
            Phase::FirstAttempt { .. } => None,
            Phase::Running(running_call) => Some(running_call.observer()),
        }
    }

    /// The response's body brought this.
    pub(crate) fn received(&mut self, data: &Bytes) {
        if let Phase::Running(running_call) = &mut self.phase {
            running_call.received(data);
        }
    }

    /// Nobody needs what the application still writes. A connection that sends it would keep the
    /// stream open, whoever dropped the response.
    pub(crate) fn release_request_body(&mut self) {
        if let Some(body) = self.request_body.take() {
            body.release_body();
        }
    }
}

/// The throttle of a call: its server's, or none where retries are off (G12).
fn throttle(method: &PlanRef, shared: &Shared) -> Throttle {
    Throttle((method.retries() != Retries::Off).then(|| shared.server.clone()))
}

impl Drop for CallState {
    #[inline]
    fn drop(&mut self) {
        // Dropped before its end: the application cancelled it (P6). What has no machine has
        // nothing to settle, and no body that anybody still writes.
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
