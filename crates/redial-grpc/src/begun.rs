//! The machine of a call, with what it is granted, who reads its notes, and its timer.
//!
//! Invariant: nothing is decided here. Every start, delay, cancel and end is the machine's.

use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use redial_core::{
    Call, CallEnvironment, CallLatency, CallParams, Classification, Command, Directive,
    DriverContext, End, Event, FirstAttempt, LIVE_MAX, NEVER, Ns, StopReason, duration,
};
use redial_service_config::Code;

use crate::backends::UsedBackends;
use crate::methods::PlanRef;
use crate::observe::Observer;
use crate::options::SharedCallLog;
use crate::report::{self, AttemptHistory, CallReport, Content};
use crate::statistics::{CallTally, Happened};
use crate::throttle::Throttle;
use crate::timer::{Clock, Timer};

/// The machine with room for as many attempts at once as its policy needs.
// The small one is what nearly every call has, and a box around it would cost each of them.
#[allow(clippy::large_enum_variant)]
enum Machine {
    Retry(Call<PlanRef, 1>),
    /// In a box of its own: it is five times as large.
    Hedge(Box<Call<PlanRef, LIVE_MAX>>),
}

/// Does the same with either machine.
macro_rules! with {
    ($machine:expr, $call:ident => $do:expr) => {
        match $machine {
            Machine::Retry($call) => $do,
            Machine::Hedge($call) => $do,
        }
    };
}

/// What is recorded of a call, and for what.
#[derive(Default)]
pub(crate) struct Recording {
    pub(crate) call_log: Option<SharedCallLog>,
    pub(crate) observer: Observer,
    /// The backends that its attempts went to.
    pub(crate) used: Option<UsedBackends>,
    /// Whether its failure is reported.
    pub(crate) reports: bool,
    /// When it began, if it has waited since then.
    pub(crate) began: Option<Ns>,
}

impl Recording {
    /// Whether the notes are read by something that wants to know when.
    fn is_timed(&self) -> bool {
        self.reports || self.call_log.is_some() || self.observer.is_listened_to()
    }
}

/// Where draws come from, and who reads the notes.
struct Book {
    method: PlanRef,
    tally: CallTally,
    hedged: bool,
    /// What the pace of its method hears of it, if there is one.
    call_latency: Option<CallLatency>,
    /// The last attempt that ran into its own timeout.
    timed_out: Option<u32>,
    call_log: Option<SharedCallLog>,
    observer: Observer,
    used: Option<UsedBackends>,
    /// The status of the last outcome.
    code: Code,
    /// What each attempt did, for a report or a call log.
    history: Option<AttemptHistory>,
}

impl Book {
    fn new(method: &PlanRef, recording: Recording) -> Self {
        let timed = recording.is_timed();
        let Recording { call_log, mut observer, used, reports, .. } = recording;
        if !timed {
            observer.has_no_clock();
        }
        let history = (reports || call_log.is_some()).then(AttemptHistory::default);
        let (method, hedged) = (method.clone(), method.plan().is_hedged());
        let (tally, call_latency, timed_out) = (CallTally::default(), None, None);
        let code = Code::Unknown;
        Book {
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

    /// Whether somebody reads the notes.
    fn is_read(&self) -> bool {
        self.call_log.is_some() || self.observer.is_listened_to()
    }
}

impl DriverContext for Book {
    fn draw(&mut self) -> f64 {
        redial::parts::draw()
    }

    // Where a note is written it is known which, and most mean nothing here.
    #[inline]
    fn record(&mut self, at: Ns, event: Event) {
        if let Event::AttemptTimedOut { attempt } = event {
            self.timed_out = Some(attempt);
            self.code = Code::DeadlineExceeded;
            self.observer.saw(Code::DeadlineExceeded);
        }
        let Book { method, tally, observer, .. } = self;
        tally.record(&event, self.hedged, |happened| {
            // Who makes one attempt whatever happens has no retries to lose.
            if happened == Happened::BufferFull && method.rules().attempts == Some(1) {
                return;
            }
            method.counters().add(happened);
            observer.happened(happened);
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

/// A call with its machine.
pub(crate) struct Begun {
    machine: Machine,
    env: CallEnvironment<Throttle, Book>,
    clock: Clock,
    /// When the machine was last told something.
    seen: Ns,
    /// Whether somebody reads the notes, who wants to know when.
    observed: bool,
    timer: Timer,
}

impl Begun {
    /// A call that begins now.
    pub(crate) fn now(
        method: PlanRef,
        throttle: Throttle,
        mut params: CallParams,
        recording: Recording,
        clock: Clock,
    ) -> Self {
        let hedged = method.plan().is_hedged();
        let rules = method.rules();
        // A call without a timer that is not recorded needs no clock until something fails.
        let timed = hedged
            || params.deadline.is_some()
            || rules.deadline.is_some()
            || rules.attempt_timeout.is_some();
        let waited = recording.began.is_some();
        let now = match recording.began {
            Some(began) => began,
            None if timed || recording.is_timed() => clock.now(),
            None => 0,
        };
        let mut book = Book::new(&method, recording);
        if let Some(estimator) = method.latency_estimator().filter(|_| hedged) {
            params.hedge = estimator.delay();
            book.call_latency = Some(CallLatency::new(params.hedge));
        }
        let mut env = CallEnvironment::new(throttle, book);
        let machine = if hedged {
            Machine::Hedge(Box::new(Call::begin(method, params, now, &mut env)))
        } else {
            Machine::Retry(Call::begin(method, params, now, &mut env))
        };
        let mut begun = Begun::of(machine, env, clock, now);
        if waited {
            // The deadline may have passed meanwhile; nothing else can be due before the first start.
            let now = begun.look();
            with!(&mut begun.machine, call => call.wake_once(now, &mut begun.env));
        }
        begun
    }

    /// A call that ends before anything starts, since what the application wanted to send failed: it
    /// hears this status, and who reads the notes finds a beginning and an end.
    #[cold]
    pub(crate) fn unstarted(
        method: PlanRef,
        params: CallParams,
        mut recording: Recording,
        clock: Clock,
        code: Code,
    ) {
        recording.observer.ends_with(code);
        let mut env = CallEnvironment::new(Throttle(None), Book::new(&method, recording));
        Call::<_, 1>::cancelled_before_start(method, params, clock.now(), &mut env);
    }

    /// A call whose first attempt runs since `start`, and that has no call log and no observer.
    pub(crate) fn begin_late(
        method: &PlanRef,
        throttle: Throttle,
        first: FirstAttempt,
        start: Ns,
        recording: Recording,
        clock: Clock,
    ) -> Self {
        let mut env = CallEnvironment::new(throttle, Book::new(method, recording));
        let machine = Machine::Retry(first.begin(method.clone(), start, &mut env));
        Begun::of(machine, env, clock, start)
    }

    fn of(machine: Machine, env: CallEnvironment<Throttle, Book>, clock: Clock, now: Ns) -> Self {
        let observed = env.context.is_read();
        let timer = Timer::default();
        Begun { machine, env, clock, seen: now, observed, timer }
    }

    pub(crate) fn command(&mut self) -> Option<Command> {
        with!(&mut self.machine, call => call.command(&mut self.env))
    }

    pub(crate) fn end(&self) -> Option<End> {
        with!(&self.machine, call => call.end())
    }

    pub(crate) fn is_committed(&self) -> bool {
        with!(&self.machine, call => call.is_committed())
    }

    /// The attempt that runs and started next after this one, and its slot.
    pub(crate) fn running_after(&self, attempt: u32) -> Option<(u32, usize)> {
        with!(&self.machine, call => call.running_after(attempt))
    }

    /// How many attempts have started, replacements aside.
    pub(crate) fn attempts(&self) -> u32 {
        with!(&self.machine, call => call.counters().attempts)
    }

    /// What remains now for the attempt in this slot, whenever the machine was last told something.
    pub(crate) fn remaining_now(&mut self, slot: usize) -> Option<Duration> {
        self.look();
        self.remaining(slot)
    }

    /// What remained for the attempt in this slot when the machine was last told something.
    pub(crate) fn remaining(&self, slot: usize) -> Option<Duration> {
        let until = self.until(slot);
        (until != NEVER).then(|| duration(until.saturating_sub(self.seen)))
    }

    /// When the attempt in this slot ends at the latest: the deadline, or its own timeout.
    fn until(&self, slot: usize) -> Ns {
        with!(&self.machine, call => call.deadline().min(call.times_out_at(slot)))
    }

    /// A timer below that was set to what remained for the attempt in this slot has fired, perhaps:
    /// `grpc-timeout` is rounded down, by less than one part in 50,000. If so, the time is up.
    pub(crate) fn is_time_up(&mut self, slot: usize) -> bool {
        let (now, until) = (self.look(), self.until(slot));
        let began = with!(&self.machine, call => call.counters().start);
        let is_up = until.saturating_sub(now) <= now.saturating_sub(began) / 50_000;
        if is_up {
            self.pass(slot, now.max(until));
        }
        is_up
    }

    /// Time has passed up to this moment, which is the last of the attempt in this slot.
    fn pass(&mut self, slot: usize, now: Ns) {
        self.seen = now;
        // Another attempt's timer may come before its own.
        while with!(&self.machine, call => call.is_running(slot))
            && with!(&mut self.machine, call => call.wake_once(now, &mut self.env))
        {}
    }

    /// After how long this attempt ran into its own timeout, if it did.
    pub(crate) fn timed_out(&self, attempt: u32) -> Option<Duration> {
        let context = &self.env.context;
        context.method.rules().attempt_timeout.filter(|_| context.timed_out == Some(attempt))
    }

    /// The backends that the call has used.
    pub(crate) fn used(&self) -> Option<&UsedBackends> {
        self.env.context.used.as_ref()
    }

    /// The same, when the call is over.
    pub(crate) fn take_used(&mut self) -> Option<UsedBackends> {
        self.env.context.used.take()
    }

    /// What the last attempt waited for, if it found no backend.
    pub(crate) fn waited(&self) -> Option<String> {
        self.env.context.history.as_ref()?.waited().map(ToOwned::to_owned)
    }

    /// Whether messages are recorded.
    pub(crate) fn records_messages(&self) -> bool {
        self.env.context.history.is_some()
    }

    /// Why the call failed, and what its attempts did; the attempts are in one report only.
    pub(crate) fn report(&mut self, end: End, is_answered: bool) -> CallReport {
        let (history, omitted, began) = match &mut self.env.context.history {
            Some(history) => {
                let (attempts, omitted) = history.take();
                (attempts, omitted, history.began())
            }
            None => (Vec::new(), 0, self.seen),
        };
        let method = &self.env.context.method;
        CallReport::from(Content {
            method: method.counters().path.clone(),
            target: method.counters().target.clone(),
            policy: method.policy_kind(),
            stop_reason: end.stop_reason,
            attempts: self.attempts(),
            elapsed: duration(self.seen.saturating_sub(began)),
            history,
            omitted,
            is_answered,
            source: None,
        })
    }

    /// Ends the call for a reason of the application's, while no attempt runs.
    pub(crate) fn cancel(&mut self, code: Code) {
        self.env.context.observer.ends_with(code);
        let now = self.look();
        with!(&mut self.machine, call => call.cancel(now, &mut self.env));
    }

    /// What is told of the call while it runs.
    pub(crate) fn observer(&self) -> &Observer {
        &self.env.context.observer
    }

    /// The response's body brought this.
    pub(crate) fn received(&mut self, data: &Bytes) {
        self.env.context.observer.received(data);
    }

    /// An attempt's outcome is there; false if it does not count. A failure that comes after the
    /// deadline, or after the attempt's own timeout, was overtaken by it: a server that keeps to
    /// `grpc-timeout` gives up in the same moment, and its answer may be seen first.
    pub(crate) fn outcome(
        &mut self,
        slot: usize,
        code: Code,
        message: Option<Box<str>>,
        classification: Classification,
    ) -> bool {
        if classification.directive != Directive::Succeed {
            let now = self.look();
            if now > self.until(slot) {
                self.pass(slot, now);
                return false;
            }
        }
        let book = &mut self.env.context;
        book.code = code;
        book.observer.saw(code);
        if let Some(history) = &mut book.history {
            history.outcome(code, message);
        }
        let now = self.look_if_observed();
        with!(&mut self.machine, call => call.outcome(slot, classification, now, &mut self.env));
        true
    }

    /// The outcome of the attempt that the call belongs to.
    pub(crate) fn ended(
        &mut self,
        code: Code,
        message: Option<Box<str>>,
        classification: Classification,
    ) {
        // A call that belongs to an attempt has no other.
        if let Some((_, slot)) = self.running_after(0) {
            self.outcome(slot, code, message, classification);
        }
    }

    /// Whether the deadline has passed, which ends the call. What comes in its very moment comes
    /// before it (P4).
    pub(crate) fn is_overtaken(&mut self) -> bool {
        let deadline = with!(&self.machine, call => call.deadline());
        if deadline == NEVER || self.look() <= deadline {
            return false;
        }
        with!(&mut self.machine, call => call.wake_once(self.seen, &mut self.env));
        true
    }

    /// Whether the deadline ended the call.
    pub(crate) fn is_out_of_time(&self) -> bool {
        self.end().is_some_and(|end| end.stop_reason == StopReason::Deadline)
    }

    pub(crate) fn committed(&mut self, slot: usize) {
        let now = self.look_if_observed();
        with!(&mut self.machine, call => call.committed(slot, now, &mut self.env));
    }

    pub(crate) fn not_replayable(&mut self, slot: Option<usize>) {
        let now = self.look();
        with!(&mut self.machine, call => call.not_replayable(slot, now, &mut self.env));
    }

    /// Does what is due; ready if something was.
    pub(crate) fn poll_due(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(at) = with!(&self.machine, call => call.wake_at()) else {
            return Poll::Pending;
        };
        std::task::ready!(self.timer.poll(at, self.clock, cx));
        let now = self.look().max(at);
        self.seen = now;
        with!(&mut self.machine, call => call.wake_once(now, &mut self.env));
        Poll::Ready(())
    }

    /// The application dropped the call; false if it had ended.
    pub(crate) fn cancel_if_running(&mut self) -> bool {
        let runs = self.end().is_none();
        if runs {
            let now = self.look_if_observed();
            with!(&mut self.machine, call => call.cancel(now, &mut self.env));
        }
        runs
    }

    /// The moment, where it only matters to who reads the notes, or times the first attempt.
    fn look_if_observed(&mut self) -> Ns {
        let timed = self.env.context.call_latency.as_ref().is_some_and(CallLatency::is_running);
        if self.observed || timed { self.look() } else { self.seen }
    }

    fn look(&mut self) -> Ns {
        self.seen = self.seen.max(self.clock.now());
        self.seen
    }
}
