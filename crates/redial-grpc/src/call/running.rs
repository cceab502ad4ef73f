//! A call with its state machine, throttle, recorder, clock and timer.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use redial_core::{
    Call, CallEnvironment, CallLatency, CallParams, Classification, Command, Directive, End,
    FailureCause, FirstAttempt, NEVER, Ns, StopReason, duration,
};
use redial_service_config::Code;

use super::CallContext;
use super::recorder::{CallRecorder, Recording};
use super::responding::ResponseState;
use super::timer::Timer;
use crate::backends::UsedBackends;
use crate::clock::Clock;
use crate::methods::PlanRef;
use crate::observe::Observer;
use crate::replay_buffer::RequestBodyHandle;
use crate::report::{CallReport, CallReports, ReportData};
use crate::throttle::Throttle;

/// A call with its state machine.
pub(crate) struct RunningCall {
    call: Call<PlanRef>,
    env: CallEnvironment<Throttle, CallRecorder>,
    /// The last clock reading.
    last_read: Ns,
    timer: Timer,
    /// A streaming request body, which can fail while the call runs.
    pub(super) request_body: Option<Arc<dyn RequestBodyHandle>>,
    /// The response, after the commit.
    pub(super) response: ResponseState,
    context: CallContext,
}

/// The outcome of an attempt, as the state machine and the recorder get it.
pub(super) struct Outcome {
    pub(super) code: Code,
    pub(super) message: Option<Box<str>>,
    pub(super) classification: Classification,
    pub(super) cause: FailureCause,
}

impl RunningCall {
    /// Starts a call now.
    pub(super) fn start(
        context: CallContext,
        mut params: CallParams,
        recording: Recording,
    ) -> Self {
        let (method, clock) = (context.method.clone(), context.shared.clock);
        let hedged = method.plan().is_hedged();
        let rules = method.rules();
        // Without a timer or a recording, the clock is not needed until something fails.
        let timed = hedged
            || params.deadline.is_some()
            || rules.deadline.is_some()
            || rules.attempt_timeout.is_some();
        let waited = recording.began.is_some();
        let now = match recording.began {
            Some(began) => clock.moment(began),
            None if timed || recording.needs_clock() => clock.now(),
            None => 0,
        };
        let mut recorder = CallRecorder::new(&method, recording);
        if let Some(estimator) = method.latency_estimator().filter(|_| hedged) {
            params.hedge = estimator.delay();
            recorder.call_latency = Some(CallLatency::new(params.hedge));
        }
        let mut env = CallEnvironment::new(context.throttle(), recorder);
        let call = Call::begin(method, params, now, &mut env);
        let mut running_call = RunningCall::new(call, env, context);
        if waited {
            // The deadline may have passed in the meantime; no other timer exists before the first start.
            let now = running_call.read_clock();
            running_call.call.wake_once(now, &mut running_call.env);
        }
        running_call
    }

    /// Records a call that ends with `code` before an attempt starts, because the request body failed. Logs
    /// and observers still get a start and an end.
    pub(super) fn unstarted(
        context: &CallContext,
        params: CallParams,
        mut recording: Recording,
        code: Code,
    ) {
        recording.observer.set_cancel_code(code);
        let recorder = CallRecorder::new(&context.method, recording);
        let mut env = CallEnvironment::new(Throttle::None, recorder);
        let now = context.shared.clock.now();
        Call::cancelled_before_start(context.method.clone(), params, now, &mut env);
    }

    /// Leaves the fast path: the first attempt runs since the start, without call log and observer.
    pub(super) fn from_first_attempt(
        first: FirstAttempt,
        context: CallContext,
        recording: Recording,
    ) -> Self {
        let recorder = CallRecorder::new(&context.method, recording);
        let mut env = CallEnvironment::new(context.throttle(), recorder);
        let call = first.begin(context.method.clone(), &mut env);
        RunningCall::new(call, env, context)
    }

    fn new(
        call: Call<PlanRef>,
        env: CallEnvironment<Throttle, CallRecorder>,
        context: CallContext,
    ) -> Self {
        let last_read = call.seen();
        let (timer, request_body, response) = (Timer::default(), None, ResponseState::FIRST);
        RunningCall { call, env, last_read, timer, request_body, response, context }
    }

    pub(super) fn context(&self) -> &CallContext {
        &self.context
    }

    pub(super) fn command(&mut self) -> Option<Command> {
        self.call.command(&mut self.env)
    }

    pub(super) fn end(&self) -> Option<End> {
        self.call.end()
    }

    pub(super) fn is_committed(&self) -> bool {
        self.call.is_committed()
    }

    /// Whether the request can be sent again, as far as the state machine knows.
    pub(super) fn is_replayable(&self) -> bool {
        self.call.is_replayable()
    }

    /// The running attempt that started next after this one, and its slot.
    pub(super) fn attempt_after(&self, attempt: u32) -> Option<(u32, usize)> {
        self.call.running_after(attempt)
    }

    /// Number of attempts started, without transparent retries.
    pub(super) fn attempts(&self) -> u32 {
        self.call.counters().attempts
    }

    /// Remaining time of the attempt in this slot.
    pub(super) fn remaining_now(&mut self, slot: usize) -> Option<Duration> {
        self.read_clock();
        self.remaining(slot)
    }

    /// Remaining time of the attempt in this slot at the last clock reading: until the earlier of the
    /// call's deadline and the attempt timeout.
    pub(super) fn remaining(&self, slot: usize) -> Option<Duration> {
        let until = self.call.deadline().min(self.call.times_out_at(slot));
        (until != NEVER).then(|| duration(until.saturating_sub(self.last_read)))
    }

    /// The attempt timeout, if this attempt has exceeded it.
    pub(super) fn timed_out(&self, attempt: u32) -> Option<Duration> {
        let timeout = self.context.method.rules().attempt_timeout;
        timeout.filter(|_| self.env.context.timed_out == Some(attempt))
    }

    /// The backends used by the call.
    pub(super) fn used(&self) -> Option<&UsedBackends> {
        self.env.context.used.as_ref()
    }

    /// What the last attempt was waiting for, if it got no backend.
    pub(super) fn wait_reason(&self) -> Option<String> {
        self.env.context.history.as_ref()?.wait_reason().map(ToOwned::to_owned)
    }

    /// The text as logs may show it; `None` if this call records no messages.
    pub(super) fn loggable(&self, text: impl FnOnce() -> Option<String>) -> Option<Box<str>> {
        self.env.context.history.as_ref()?;
        self.context.shared.message_filter.apply(&text()?)
    }

    /// The report of a failed call and its destination; `None` if reports are off. It takes the history,
    /// so only one report has it.
    pub(super) fn report(
        &mut self,
        end: End,
        is_answered: bool,
    ) -> Option<(CallReport, CallReports)> {
        let reports = self.context.shared.reports;
        if reports == CallReports::Off || end.stop_reason == StopReason::Succeeded {
            return None;
        }
        let (history, omitted, began) = match &mut self.env.context.history {
            Some(history) => {
                let (attempts, omitted) = history.take();
                (attempts, omitted, history.began())
            }
            None => (Vec::new(), 0, self.last_read),
        };
        let method = &self.context.method;
        let report = CallReport::from(ReportData {
            method: method.counters().path.clone(),
            target: method.counters().target.clone(),
            policy: method.policy_kind(),
            stop_reason: end.stop_reason,
            attempts: self.attempts(),
            elapsed: duration(self.last_read.saturating_sub(began)),
            history,
            omitted,
            is_answered,
            source: None,
        });
        Some((report, reports))
    }

    /// Ends the call on behalf of the application; it gets a status with this code.
    pub(super) fn cancel(&mut self, code: Code) {
        self.env.context.observer.set_cancel_code(code);
        let now = self.read_clock();
        self.call.cancel(now, &mut self.env);
    }

    pub(super) fn observer(&self) -> &Observer {
        &self.env.context.observer
    }

    /// Counts received response bytes.
    pub(super) fn received(&mut self, data: &Bytes) {
        self.env.context.observer.received(data);
    }

    /// Reports the outcome of an attempt; false if a timer supersedes it.
    pub(super) fn outcome(&mut self, slot: usize, outcome: Outcome) -> bool {
        let Outcome { code, message, classification, cause } = outcome;
        if classification.directive != Directive::Succeed {
            let now = self.read_clock();
            if self.call.superseded(slot, classification, cause, now, &mut self.env) {
                self.last_read = self.call.seen();
                return false;
            }
        }
        self.env.context.set_outcome(code, message);
        let now = self.read_clock_if_needed();
        self.call.outcome(slot, classification, now, &mut self.env);
        true
    }

    /// Reports the outcome of the committed attempt.
    pub(super) fn ended(&mut self, outcome: Outcome) {
        // After commit no other attempt runs.
        if let Some((_, slot)) = self.attempt_after(0) {
            self.outcome(slot, outcome);
        }
    }

    /// Whether the deadline has passed; if so, it ends the call. What arrives at the deadline still
    /// counts (P4).
    pub(super) fn check_deadline(&mut self) -> bool {
        let deadline = self.call.deadline();
        if deadline == NEVER || self.read_clock() <= deadline {
            return false;
        }
        self.call.wake_once(self.last_read, &mut self.env);
        true
    }

    pub(super) fn is_deadline_exceeded(&self) -> bool {
        self.end().is_some_and(|end| end.stop_reason == StopReason::Deadline)
    }

    pub(super) fn committed(&mut self, slot: usize) {
        let now = self.read_clock_if_needed();
        self.call.committed(slot, now, &mut self.env);
    }

    pub(super) fn not_replayable(&mut self, slot: Option<usize>) {
        let now = self.read_clock();
        self.call.not_replayable(slot, now, &mut self.env);
    }

    /// Handles the next due timer; ready if one was due.
    pub(super) fn poll_due(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(at) = self.call.wake_at() else {
            return Poll::Pending;
        };
        std::task::ready!(self.timer.poll(at, self.clock(), cx));
        let now = self.read_clock().max(at);
        self.last_read = now;
        self.call.wake_once(now, &mut self.env);
        Poll::Ready(())
    }

    /// Releases the request body. Otherwise a connection that still sends it would keep the stream open
    /// after the response has been dropped.
    pub(super) fn release_request_body(&mut self) {
        if let Some(body) = self.request_body.take() {
            body.release_body();
        }
    }

    /// The time, read only if an event needs it.
    fn read_clock_if_needed(&mut self) -> Ns {
        if self.env.context.needs_clock() { self.read_clock() } else { self.last_read }
    }

    fn read_clock(&mut self) -> Ns {
        self.last_read = self.last_read.max(self.clock().now());
        self.last_read
    }

    fn clock(&self) -> Clock {
        self.context.shared.clock
    }
}

impl Drop for RunningCall {
    fn drop(&mut self) {
        // Dropped before its end: the application cancelled the call (P6).
        if self.end().is_none() {
            let now = self.read_clock_if_needed();
            self.call.cancel(now, &mut self.env);
        }
        // A server may answer before it has read the whole request, and may go on reading it.
        if self.end().is_none_or(|end| end.attempt.is_none()) {
            self.release_request_body();
        }
    }
}
