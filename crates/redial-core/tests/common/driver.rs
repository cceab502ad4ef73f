//! A driver on virtual time. It behaves like a real driver, or like a careless one, and checks the
//! invariants after each step.

use std::time::Duration;

use redial_core::{
    Advice, Bucket, Call, CallParams, Classification, Command, Cost, End, Event, Failure,
    FailureKind, Grant, LIVE_MAX, Ns, Policy, Start, StopReason,
};

use super::invariants::InvariantChecker;
use super::{Model, Shared, Spec, TestEnvironment};

/// The maximum number of timers before a point in time; more means that time does not advance.
const TIMERS_MAX: usize = 10_000;

/// Drives one call on virtual time.
pub(crate) struct TestDriver<'p, 't, 'm> {
    policy: &'p Policy,
    pub(crate) call: Call<&'p Policy>,
    pub(crate) env: TestEnvironment<'t>,
    model: &'m mut Model,
    invariants: InvariantChecker<'p>,
    read: usize,
    pub(crate) now: Ns,
    /// The running attempts by slot.
    pub(crate) running: [Option<u32>; LIVE_MAX],
    /// Starts that the test has not processed yet.
    pub(crate) started: Vec<Start>,
    /// Attempts in the order of their start commands.
    start_order: Vec<u32>,
    pub(crate) asking: Option<Failure>,
    pub(crate) awaiting: Option<Cost>,
    pub(crate) end: Option<End>,
    starts: Starts,
}

/// How the driver takes several starts with the same timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Starts {
    /// All of them before any other input.
    All,
    /// One; another input comes before the next.
    One,
}

impl<'p, 't, 'm> TestDriver<'p, 't, 'm> {
    /// Starts a call.
    pub(crate) fn begin(
        policy: &'p Policy,
        params: CallParams,
        now: Ns,
        env: TestEnvironment<'t>,
        model: &'m mut Model,
    ) -> Self {
        TestDriver::begin_taking(Starts::All, policy, params, now, env, model)
    }

    /// Starts a call with a driver that takes starts in this way.
    pub(crate) fn begin_taking(
        starts: Starts,
        policy: &'p Policy,
        params: CallParams,
        now: Ns,
        mut env: TestEnvironment<'t>,
        model: &'m mut Model,
    ) -> Self {
        let call = Call::begin(policy, params, now, &mut env);
        let mut driver = TestDriver {
            policy,
            call,
            env,
            model,
            invariants: InvariantChecker::new(policy, params),
            read: 0,
            now,
            running: [None; LIVE_MAX],
            started: Vec::new(),
            start_order: Vec::new(),
            asking: None,
            awaiting: None,
            end: None,
            starts,
        };
        driver.invariants.punctual = starts == Starts::All;
        driver.run_commands();
        driver
    }

    /// The slots of running attempts.
    pub(crate) fn slots(&self) -> Vec<usize> {
        (0..LIVE_MAX).filter(|&slot| self.running[slot].is_some()).collect()
    }

    pub(crate) fn outcome(&mut self, slot: usize, classification: impl Into<Classification>) {
        assert!(self.running[slot].take().is_some(), "the attempt is not running");
        self.call.outcome(slot, classification.into(), self.now, &mut self.env);
        self.run_commands();
    }

    pub(crate) fn headers(&mut self, slot: usize) {
        self.invariants.response_started |= self.call.is_running(slot);
        self.call.committed(slot, self.now, &mut self.env);
        self.run_commands();
    }

    /// Reports that the request exceeds the replay buffer; `slot` is the attempt that received most
    /// of it.
    pub(crate) fn not_replayable(&mut self, slot: Option<usize>) {
        self.call.not_replayable(slot, self.now, &mut self.env);
        self.run_commands();
    }

    pub(crate) fn wake(&mut self) {
        // A new attempt has no timer that is due now, so each slot fires at most once, and so does
        // the timer that follows it. The exception is an attempt timeout of zero.
        let at_once = self.policy.rules().attempt_timeout == Some(Duration::ZERO);
        for _ in 0..2 * LIVE_MAX + 2 {
            if !self.wake_once() {
                return;
            }
        }
        assert!(at_once || self.end.is_some(), "timers fire without end");
    }

    /// Fires one timer that is due; returns whether there was one.
    pub(crate) fn wake_once(&mut self) -> bool {
        let something = self.call.wake_once(self.now, &mut self.env);
        self.run_commands();
        something
    }

    /// Reports that another library ended an attempt, by its position in the order of starts.
    pub(crate) fn attempt_timed_out(&mut self, attempt: u32) {
        let slot = self.slot(attempt);
        self.invariants.has_other_timeouts = true;
        self.call.attempt_timed_out(slot, self.now, &mut self.env);
        self.run_commands();
    }

    pub(crate) fn answer(&mut self, advice: Advice) {
        self.asking = None;
        self.call.answered(advice, self.now, &mut self.env);
        self.run_commands();
    }

    /// Delivers the deferred answer of the throttle, even if the call no longer waits for it.
    pub(crate) fn grant(&mut self) {
        let Some(cost) = self.awaiting.take() else { return };
        let grant = self.env.shared().withdraw(cost, self.now);
        self.env.asked.push_back(cost);
        let before = self.env.call_log.len();
        self.call.granted(grant, self.now, &mut self.env);
        if self.env.call_log.len() == before {
            self.env.asked.pop_back();
            self.invariants.late_grant(self.now, grant, cost, self.model);
        }
        self.run_commands();
    }

    pub(crate) fn cancel(&mut self) {
        self.call.cancel(self.now, &mut self.env);
        self.run_commands();
        assert!(self.end.is_some(), "a cancelled call ends");
    }

    /// Advances time, and wakes the call whenever a timer is due.
    pub(crate) fn pass(&mut self, span: Ns) {
        let until = self.now.saturating_add(span);
        // Immediate retries with an attempt timeout of zero would keep time from advancing.
        for _ in 0..64 {
            match self.call.wake_at() {
                Some(at) if at <= until => {
                    self.now = self.now.max(at);
                    self.wake();
                }
                _ => {
                    self.now = until;
                    return;
                }
            }
        }
        self.oversleep(until - self.now);
    }

    /// Advances to a time in milliseconds: earlier timers have fired, those of that time have not.
    pub(crate) fn reach(&mut self, millis: u64) {
        let moment = super::at(millis);
        assert!(moment >= self.now, "time does not go back");
        for _ in 0..TIMERS_MAX {
            if self.call.wake_at().is_none_or(|at| at >= moment) {
                self.now = moment;
                return;
            }
            assert!(self.next_timer());
        }
        panic!("time does not pass");
    }

    /// The start times of the attempts, in milliseconds.
    pub(crate) fn starts(&self) -> Vec<f64> {
        let started = |(at, event): &(Ns, Event)| {
            matches!(event, Event::AttemptStarted { .. }).then_some(*at as f64 / 1e6)
        };
        self.env.call_log.iter().filter_map(started).collect()
    }

    /// The numbers of the attempts that started.
    pub(crate) fn numbers(&self) -> Vec<u32> {
        let number = |(_, event): &(Ns, Event)| match event {
            Event::AttemptStarted { number, .. } => Some(*number),
            _ => None,
        };
        self.env.call_log.iter().filter_map(number).collect()
    }

    /// The cancelled attempts with the time in milliseconds.
    pub(crate) fn cancels(&self) -> Vec<(u32, f64)> {
        let cancelled = |(at, event): &(Ns, Event)| match event {
            Event::AttemptCancelled { attempt } => Some((*attempt, *at as f64 / 1e6)),
            _ => None,
        };
        self.env.call_log.iter().filter_map(cancelled).collect()
    }

    /// Applies a withdrawal by another call to the model.
    pub(crate) fn other_call_withdrew(&mut self, kind: FailureKind, grant: Grant) {
        self.model.withdraw(kind, self.now, grant);
    }

    /// Applies a refund by another call to the model.
    pub(crate) fn other_call_refunded(&mut self, kind: FailureKind) {
        self.model.refund(kind, self.now);
    }

    /// Why the call ended, and the attempt with the result.
    pub(crate) fn ended(&self) -> Option<(StopReason, Option<u32>)> {
        self.end.map(|end| (end.stop_reason, end.attempt))
    }

    /// The tokens left in the throttle.
    pub(crate) fn tokens(&self) -> f64 {
        self.env.shared().tokens(self.now).expect("this throttle has tokens")
    }

    /// Reports the outcome of an attempt, by its position in the order of starts.
    pub(crate) fn report(&mut self, attempt: u32, classification: impl Into<Classification>) {
        let slot = self.running.iter().position(|running| *running == Some(attempt));
        self.outcome(slot.expect("the attempt is not running"), classification);
    }

    /// The slot of an attempt, by its position in the order of starts.
    pub(crate) fn slot(&self, attempt: u32) -> usize {
        let slot = self.running.iter().position(|running| *running == Some(attempt));
        slot.expect("it runs")
    }

    /// Advances time without waking the call, like a driver that is late.
    pub(crate) fn oversleep(&mut self, span: Ns) {
        self.invariants.punctual &= span == 0;
        self.now = self.now.saturating_add(span);
    }

    /// Advances to the next timer; returns whether there was one.
    pub(crate) fn next_timer(&mut self) -> bool {
        let Some(at) = self.call.wake_at() else { return false };
        self.now = self.now.max(at);
        self.wake();
        true
    }

    /// Drops the call without telling the state machine; its environment is dropped as well (P6).
    pub(crate) fn drop_call(mut self) {
        if self.end.is_none() {
            self.invariants.refund(self.now, self.model);
        }
        let (shared, now) = (self.env.shared(), self.now);
        drop(self.env);
        assert_tokens(shared, self.model, now);
    }

    /// Checks that inputs after the end change nothing.
    pub(crate) fn check_after_end(&mut self) {
        let end = self.end.expect("every call ends");
        let length = self.env.call_log.len();
        for slot in 0..LIVE_MAX {
            self.call.committed(slot, self.now, &mut self.env);
            self.call.attempt_timed_out(slot, self.now, &mut self.env);
            self.call.not_replayable(Some(slot), self.now, &mut self.env);
        }
        self.call.answered(Advice::After(0), self.now, &mut self.env);
        assert!(!self.call.wake_once(self.now.saturating_add(1), &mut self.env));
        self.call.cancel(self.now, &mut self.env);
        assert_eq!(self.call.command(&mut self.env), None, "a command after the end");
        assert_eq!(self.env.call_log.len(), length, "an event after the end");
        assert_eq!(self.call.end(), Some(end));
        assert_tokens(self.env.shared(), self.model, self.now);
    }

    /// Runs the commands, and checks all invariants.
    fn run_commands(&mut self) {
        while let Some(command) = self.call.command(&mut self.env) {
            assert_eq!(self.end, None, "{command:?} after the end");
            self.run_command(command);
            let waits = self.starts == Starts::One && matches!(command, Command::Start(_));
            // Cancellations caused by the commit must be taken together with it.
            if waits && !self.call.is_committed() {
                break;
            }
        }
        self.check();
    }

    /// Checks the new events, and compares them with the state machine and the throttle.
    fn check(&mut self) {
        let events = &self.env.call_log[self.read..];
        self.invariants.read(events, &mut self.env.asked, self.model);
        self.read = self.env.call_log.len();
        let invariants = &self.invariants;
        assert_eq!(self.env.failed, invariants.counted, "each failure is counted once (G13)");
        let paid = invariants.numbers.saturating_sub(1);
        assert_eq!(
            self.env.started, paid,
            "each retry and hedge starts once, a first attempt never"
        );
        let running: Vec<_> = self.slots();
        assert_eq!(running.len(), invariants.running(), "the driver and the events disagree");
        for slot in 0..LIVE_MAX {
            assert_eq!(self.call.is_running(slot), self.running[slot].is_some(), "slot {slot}");
        }
        assert_eq!(self.call.started() as usize, invariants.started());
        let all = (1..=self.call.started()).eq(self.start_order.iter().copied());
        assert!(all, "a start without a command");
        assert_eq!(self.call.counters().attempts, invariants.numbers);
        assert_tokens(self.env.shared(), self.model, self.now);
        match (self.call.end(), invariants.end) {
            (None, None) => {
                let waits = self.asking.is_some() || self.awaiting.is_some();
                let timer = self.call.wake_at();
                assert!(!running.is_empty() || waits || timer.is_some() || self.never_comes());
            }
            (Some(end), Some((stop_reason, attempt))) => {
                assert_eq!(self.end, Some(end), "the driver did not get the end");
                assert_eq!((end.stop_reason, end.attempt), (stop_reason, attempt));
                assert_eq!(self.call.wake_at(), None, "an ended call has a timer");
                assert!(running.is_empty());
            }
            other => panic!("the state machine and the events disagree: {other:?}"),
        }
    }

    /// Whether the next attempt is scheduled so late that the clock saturates (P2).
    fn never_comes(&self) -> bool {
        let rules = self.policy.rules();
        rules.hedge.is_some()
            || self.env.call_log.iter().any(|(at, event)| {
                matches!(event, Event::RetryScheduled { after, .. }
                if at.saturating_add(*after) == Ns::MAX)
                    || matches!(event, Event::ThrottleAnswered(Grant::After(debt, _))
                if at.saturating_add(*debt) == Ns::MAX)
            })
    }

    fn run_command(&mut self, command: Command) {
        match command {
            Command::Cancel(slot) => {
                assert!(
                    self.running[slot].take().is_some(),
                    "cancels an attempt that is not running"
                );
            }
            Command::Start(start) => {
                assert_eq!(self.running[start.slot], None, "two attempts in one slot");
                let in_order = self.start_order.last().is_none_or(|last| *last < start.attempt);
                assert!(in_order, "starts come in order");
                self.running[start.slot] = Some(start.attempt);
                self.start_order.push(start.attempt);
                self.started.push(start);
            }
            Command::Ask(failure) => self.asking = Some(failure),
            Command::Await(cost) => {
                assert_eq!(Some(cost), self.env.last_cost, "another request than the last one");
                self.awaiting = Some(cost);
            }
            Command::End(end) => {
                assert!(self.running.iter().all(Option::is_none), "the end comes last");
                self.end = Some(end);
            }
        }
    }

    /// Why the call ended.
    pub(crate) fn stop_reason(&self) -> Option<StopReason> {
        self.end.map(|end| end.stop_reason)
    }
}

/// Asserts that the throttle holds the tokens that the model expects.
#[track_caller]
fn assert_tokens(shared: &Shared, model: &mut Model, now: Ns) {
    let (real, expected) = (shared.tokens(now), model.tokens(now));
    match (real, expected) {
        (Some(real), Some(expected)) => {
            assert!((real - expected).abs() < 1e-5, "{real} tokens, expected {expected}");
        }
        _ => assert_eq!(real, expected),
    }
}
