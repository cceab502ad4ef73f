//! The state machine of a call together with its throttle, recorder, clock and timer.
//!
//! Invariant: this module decides nothing. The state machine in `redial_core` decides every start,
//! delay, cancellation and end.

use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use redial_core::{
    Call, CallEnvironment, CallLatency, CallParams, Classification, Command, Directive,
    DriverContext, End, Event, FailureCause, FirstAttempt, NEVER, Ns, StopReason, duration,
};
use redial_service_config::Code;

use crate::backends::UsedBackends;
use crate::methods::PlanRef;
use crate::observe::Observer;
use crate::options::SharedCallLog;
use crate::report::{self, AttemptHistory, CallReport, ReportData};
use crate::statistics::{CallTally, StatisticsEvent};
use crate::throttle::Throttle;
use crate::timer::{Clock, Timer};

/// What to record about a call.
#[derive(Default)]
pub(crate) struct Recording {
    pub(crate) call_log: Option<SharedCallLog>,
    pub(crate) observer: Observer,
    /// The backends used by its attempts.
    pub(crate) used: Option<UsedBackends>,
    /// Whether a report is needed if it fails.
    pub(crate) reports: bool,
    /// Start time, if the call has been waiting since then.
    pub(crate) began: Option<Ns>,
}

impl Recording {
    /// Whether any recipient needs timestamps.
    fn needs_clock(&self) -> bool {
        self.reports || self.call_log.is_some() || self.observer.is_enabled()
    }
}

/// Receives the events of the state machine and provides its random numbers.
struct CallRecorder {
    method: PlanRef,
    tally: CallTally,
    hedged: bool,
    /// Feeds the latency estimator of the method, if there is one.
    call_latency: Option<CallLatency>,
    /// The last attempt that exceeded the attempt timeout.
    timed_out: Option<u32>,
    call_log: Option<SharedCallLog>,
    observer: Observer,
    used: Option<UsedBackends>,
    /// The status of the last outcome.
    code: Code,
    /// The attempts, for a report or a call log.
    history: Option<AttemptHistory>,
}

impl CallRecorder {
    fn new(method: &PlanRef, recording: Recording) -> Self {
        let timed = recording.needs_clock();
        let Recording { call_log, mut observer, used, reports, .. } = recording;
        if !timed {
            observer.disable_timing();
        }
        let history = (reports || call_log.is_some()).then(AttemptHistory::default);
        let (method, hedged) = (method.clone(), method.plan().is_hedged());
        let (tally, call_latency, timed_out) = (CallTally::default(), None, None);
        let code = Code::Unknown;
        CallRecorder {
            method,
            tally,
            hedged,
            call_latency,
            timed_out,
            call_log,
            observer,
            used,
            code,
            history,
        }
    }

    /// Whether a call log or observer receives the events.
    fn is_observed(&self) -> bool {
        self.call_log.is_some() || self.observer.is_enabled()
    }
}

impl DriverContext for CallRecorder {
    fn draw(&mut self) -> f64 {
        redial::parts::draw()
    }

    // Inlined, so that the compiler drops the branches for other events at each call site.
    #[inline]
    fn record(&mut self, at: Ns, event: Event) {
        if let Event::AttemptTimedOut { attempt } = event {
            self.timed_out = Some(attempt);
            self.code = Code::DeadlineExceeded;
            self.observer.set_outcome_code(Code::DeadlineExceeded);
        }
        let CallRecorder { method, tally, observer, .. } = self;
        tally.record(&event, self.hedged, |counted_event| {
            // A plan with a single attempt loses no retries when the buffer is full.
            if counted_event == StatisticsEvent::BufferFull && method.rules().attempts == Some(1) {
                return;
            }
            method.counters().add(counted_event);
            observer.count(counted_event);
        });
        if let (Some(call_latency), Some(estimator)) =
            (&mut self.call_latency, method.latency_estimator())
        {
            call_latency.record(at, &event, estimator);
        }
        if let Some(history) = &mut self.history {
            history.record(at, &event, self.used.as_ref());
        }
        if let Event::CallEnded { stop_reason, attempt } = event {
            let (code, message) = match &self.history {
                Some(history) => history.end(stop_reason, attempt, self.code),
                None if attempt.is_some() => (self.code, None),
                None => (report::end_without_outcome(stop_reason), None),
            };
            self.observer.ended(at, &self.method, stop_reason, code, message);
        }
        self.observer.record(at, &event);
        if let Some(call_log) = &self.call_log {
            let detail = self.history.as_ref().map(|history| history.detail(&event));
            call_log.push(at, event, detail.unwrap_or_default());
        }
    }
}

/// A call with its state machine.
pub(crate) struct RunningCall {
    call: Call<PlanRef>,
    env: CallEnvironment<Throttle, CallRecorder>,
    clock: Clock,
    /// The last clock reading.
    last_read: Ns,
    /// Whether a call log or observer needs timestamps.
    observed: bool,
    timer: Timer,
}

impl RunningCall {
    /// Starts a call now.
    pub(crate) fn start(
        method: PlanRef,
        throttle: Throttle,
        mut params: CallParams,
        recording: Recording,
        clock: Clock,
    ) -> Self {
        let hedged = method.plan().is_hedged();
        let rules = method.rules();
        // Without a timer or a recording, the clock is not needed until something fails.
        let timed = hedged
            || params.deadline.is_some()
            || rules.deadline.is_some()
            || rules.attempt_timeout.is_some();
        let waited = recording.began.is_some();
        let now = match recording.began {
            Some(began) => began,
            None if timed || recording.needs_clock() => clock.now(),
            None => 0,
        };
        let mut recorder = CallRecorder::new(&method, recording);
        if let Some(estimator) = method.latency_estimator().filter(|_| hedged) {
            params.hedge = estimator.delay();
            recorder.call_latency = Some(CallLatency::new(params.hedge));
        }
        let mut env = CallEnvironment::new(throttle, recorder);
        let call = Call::begin(method, params, now, &mut env);
        let mut running_call = RunningCall::new(call, env, clock, now);
        if waited {
            // The deadline may have passed in the meantime; no other timer exists before the first start.
            let now = running_call.read_clock();
            running_call.call.wake_once(now, &mut running_call.env);
        }
        running_call
    }

    /// Records a call that ends with `code` before an attempt starts, because the request body failed. Logs
    /// and observers still get a start and an end.
    #[cold]
    pub(crate) fn unstarted(
        method: PlanRef,
        params: CallParams,
        mut recording: Recording,
        clock: Clock,
        code: Code,
    ) {
        recording.observer.set_cancel_code(code);
        let mut env = CallEnvironment::new(Throttle(None), CallRecorder::new(&method, recording));
        Call::cancelled_before_start(method, params, clock.now(), &mut env);
    }

    /// Leaves the fast path: the first attempt runs since `start`, without call log and observer.
    pub(crate) fn from_first_attempt(
        method: &PlanRef,
        throttle: Throttle,
        first: FirstAttempt,
        start: Ns,
        recording: Recording,
        clock: Clock,
    ) -> Self {
        let mut env = CallEnvironment::new(throttle, CallRecorder::new(method, recording));
        let call = first.begin(method.clone(), &mut env);
        RunningCall::new(call, env, clock, start)
    }

    fn new(
        call: Call<PlanRef>,
        env: CallEnvironment<Throttle, CallRecorder>,
        clock: Clock,
        now: Ns,
    ) -> Self {
        let observed = env.context.is_observed();
        let timer = Timer::default();
        RunningCall { call, env, clock, last_read: now, observed, timer }
    }

    pub(crate) fn command(&mut self) -> Option<Command> {
        self.call.command(&mut self.env)
    }

    pub(crate) fn end(&self) -> Option<End> {
        self.call.end()
    }

    pub(crate) fn is_committed(&self) -> bool {
        self.call.is_committed()
    }

    /// The running attempt that started next after this one, and its slot.
    pub(crate) fn attempt_after(&self, attempt: u32) -> Option<(u32, usize)> {
        self.call.running_after(attempt)
    }

    /// Number of attempts started, without transparent retries.
    pub(crate) fn attempts(&self) -> u32 {
        self.call.counters().attempts
    }

    /// Remaining time of the attempt in this slot.
    pub(crate) fn remaining_now(&mut self, slot: usize) -> Option<Duration> {
        self.read_clock();
        self.remaining(slot)
    }

    /// Remaining time of the attempt in this slot at the last clock reading.
    pub(crate) fn remaining(&self, slot: usize) -> Option<Duration> {
        let attempt_deadline = self.attempt_deadline(slot);
        (attempt_deadline != NEVER)
            .then(|| duration(attempt_deadline.saturating_sub(self.last_read)))
    }

    /// The earlier of the call's deadline and the attempt timeout.
    fn attempt_deadline(&self, slot: usize) -> Ns {
        self.call.deadline().min(self.call.times_out_at(slot))
    }

    /// The attempt timeout, if this attempt has exceeded it.
    pub(crate) fn timed_out(&self, attempt: u32) -> Option<Duration> {
        let context = &self.env.context;
        context.method.rules().attempt_timeout.filter(|_| context.timed_out == Some(attempt))
    }

    /// The backends used by the call.
    pub(crate) fn used(&self) -> Option<&UsedBackends> {
        self.env.context.used.as_ref()
    }

    /// Takes the backends at the end of the call.
    pub(crate) fn take_used_backends(&mut self) -> Option<UsedBackends> {
        self.env.context.used.take()
    }

    /// What the last attempt was waiting for, if it got no backend.
    pub(crate) fn wait_reason(&self) -> Option<String> {
        self.env.context.history.as_ref()?.wait_reason().map(ToOwned::to_owned)
    }

    /// Whether status messages are recorded.
    pub(crate) fn records_messages(&self) -> bool {
        self.env.context.history.is_some()
    }

    /// The report of a failed call. It takes the history, so only one report has it.
    pub(crate) fn report(&mut self, end: End, is_answered: bool) -> CallReport {
        let (history, omitted, began) = match &mut self.env.context.history {
            Some(history) => {
                let (attempts, omitted) = history.take();
                (attempts, omitted, history.began())
            }
            None => (Vec::new(), 0, self.last_read),
        };
        let method = &self.env.context.method;
        CallReport::from(ReportData {
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
        })
    }

    /// Ends the call on behalf of the application while no attempt runs.
    pub(crate) fn cancel(&mut self, code: Code) {
        self.env.context.observer.set_cancel_code(code);
        let now = self.read_clock();
        self.call.cancel(now, &mut self.env);
    }

    pub(crate) fn observer(&self) -> &Observer {
        &self.env.context.observer
    }

    /// Counts received response bytes.
    pub(crate) fn received(&mut self, data: &Bytes) {
        self.env.context.observer.received(data);
    }

    /// Records the outcome of an attempt; false if a timer supersedes it.
    pub(crate) fn outcome(
        &mut self,
        slot: usize,
        code: Code,
        message: Option<Box<str>>,
        classification: Classification,
        cause: FailureCause,
    ) -> bool {
        if classification.directive != Directive::Succeed {
            let now = self.read_clock();
            if self.call.superseded(slot, classification, cause, now, &mut self.env) {
                self.last_read = self.call.seen();
                return false;
            }
        }
        let recorder = &mut self.env.context;
        recorder.code = code;
        recorder.observer.set_outcome_code(code);
        if let Some(history) = &mut recorder.history {
            history.outcome(code, message);
        }
        let now = self.read_clock_if_observed();
        self.call.outcome(slot, classification, now, &mut self.env);
        true
    }

    /// Records the outcome of the committed attempt.
    pub(crate) fn ended(
        &mut self,
        code: Code,
        message: Option<Box<str>>,
        classification: Classification,
    ) {
        // After commit no other attempt runs.
        if let Some((_, slot)) = self.attempt_after(0) {
            self.outcome(slot, code, message, classification, FailureCause::Response);
        }
    }

    /// Whether the deadline has passed; if so, it ends the call. An outcome at exactly the deadline still
    /// counts (P4).
    pub(crate) fn check_deadline(&mut self) -> bool {
        let deadline = self.call.deadline();
        if deadline == NEVER || self.read_clock() <= deadline {
            return false;
        }
        self.call.wake_once(self.last_read, &mut self.env);
        true
    }

    pub(crate) fn is_deadline_exceeded(&self) -> bool {
        self.end().is_some_and(|end| end.stop_reason == StopReason::Deadline)
    }

    pub(crate) fn committed(&mut self, slot: usize) {
        let now = self.read_clock_if_observed();
        self.call.committed(slot, now, &mut self.env);
    }

    pub(crate) fn not_replayable(&mut self, slot: Option<usize>) {
        let now = self.read_clock();
        self.call.not_replayable(slot, now, &mut self.env);
    }

    /// Handles the next due timer; ready if one was due.
    pub(crate) fn poll_due(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(at) = self.call.wake_at() else {
            return Poll::Pending;
        };
        std::task::ready!(self.timer.poll(at, self.clock, cx));
        let now = self.read_clock().max(at);
        self.last_read = now;
        self.call.wake_once(now, &mut self.env);
        Poll::Ready(())
    }

    /// Cancels the call because the application dropped it; false if it had ended.
    pub(crate) fn cancel_if_running(&mut self) -> bool {
        let runs = self.end().is_none();
        if runs {
            let now = self.read_clock_if_observed();
            self.call.cancel(now, &mut self.env);
        }
        runs
    }

    /// The time, read only if a log, an observer or the latency estimator needs it.
    fn read_clock_if_observed(&mut self) -> Ns {
        let timed = self.env.context.call_latency.as_ref().is_some_and(CallLatency::is_running);
        if self.observed || timed { self.read_clock() } else { self.last_read }
    }

    fn read_clock(&mut self) -> Ns {
        self.last_read = self.last_read.max(self.clock.now());
        self.last_read
    }
}
