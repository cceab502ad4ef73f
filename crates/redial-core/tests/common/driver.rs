//! A driver on virtual time: it does to a machine what a real one does, or what a careless one
//! might, and has the referee read the diary after each step.

use std::time::Duration;

use redial_core::{
    Advice, Bucket, Call, CallParams, Classification, Command, Cost, End, Event, Failure, Grant,
    Kind, Ns, Policy, Start, StopReason,
};

use super::invariants::InvariantChecker;
use super::{Model, Shared, Spec, TestEnvironment};

/// The most timers on the way to a moment; more would mean that time does not pass.
const TIMERS_MAX: usize = 10_000;

/// One call on virtual time.
pub(crate) struct TestDriver<'p, 't, 'm, const LIVE: usize> {
    policy: &'p Policy,
    pub(crate) call: Call<&'p Policy, LIVE>,
    pub(crate) env: TestEnvironment<'t>,
    model: &'m mut Model,
    invariants: InvariantChecker<'p>,
    read: usize,
    pub(crate) now: Ns,
    /// What the driver runs: attempts by slot.
    pub(crate) running: [Option<u32>; LIVE],
    /// Starts that a script has not looked at yet.
    pub(crate) started: Vec<Start>,
    /// Attempts that were handed out, in order.
    start_order: Vec<u32>,
    pub(crate) asking: Option<Failure>,
    pub(crate) awaiting: Option<Cost>,
    pub(crate) end: Option<End>,
    starts: Starts,
}

/// How a driver takes the starts of one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Starts {
    /// All of them, before anything else happens.
    All,
    /// One; then something else happens before the next.
    One,
}

impl<'p, 't, 'm, const LIVE: usize> TestDriver<'p, 't, 'm, LIVE> {
    /// Begins a call.
    pub(crate) fn begin(
        policy: &'p Policy,
        params: CallParams,
        now: Ns,
        env: TestEnvironment<'t>,
        model: &'m mut Model,
    ) -> Self {
        TestDriver::begin_taking(Starts::All, policy, params, now, env, model)
    }

    /// Begins a call whose driver takes the starts of one moment like this.
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
            invariants: InvariantChecker::new(policy, LIVE, params),
            read: 0,
            now,
            running: [None; LIVE],
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

    /// The slots in which attempts run.
    pub(crate) fn slots(&self) -> Vec<usize> {
        (0..LIVE).filter(|&slot| self.running[slot].is_some()).collect()
    }

    pub(crate) fn outcome(&mut self, slot: usize, classification: impl Into<Classification>) {
        assert!(self.running[slot].take().is_some(), "the test reports what does not run");
        self.call.outcome(slot, classification.into(), self.now, &mut self.env);
        self.run_commands();
    }

    pub(crate) fn headers(&mut self, slot: usize) {
        self.invariants.response_started |= self.call.is_running(slot);
        self.call.committed(slot, self.now, &mut self.env);
        self.run_commands();
    }

    /// The application wrote too much. The driver names who it was written to, if anybody.
    pub(crate) fn not_replayable(&mut self, slot: Option<usize>) {
        self.call.not_replayable(slot, self.now, &mut self.env);
        self.run_commands();
    }

    pub(crate) fn wake(&mut self) {
        // What starts now is not due now: each slot is once, and so is what it brings about. Only an
        // attempt that may take no time at all has a timer for this very moment.
        let at_once = self.policy.rules().attempt_timeout == Some(Duration::ZERO);
        for _ in 0..2 * LIVE + 2 {
            if !self.wake_once() {
                return;
            }
        }
        assert!(at_once || self.end.is_some(), "something is due again and again");
    }

    /// Of all that is due, one thing happens; false if nothing is due.
    pub(crate) fn wake_once(&mut self) -> bool {
        let something = self.call.wake_once(self.now, &mut self.env);
        self.run_commands();
        something
    }

    pub(crate) fn answer(&mut self, advice: Advice) {
        self.asking = None;
        self.call.answered(advice, self.now, &mut self.env);
        self.run_commands();
    }

    /// The throttle's answer that was announced comes now, whether or not it is still wanted.
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
        assert!(self.end.is_some(), "a dropped call ends");
    }

    /// Lets time pass, and comes back whenever the machine asks for it.
    pub(crate) fn pass(&mut self, span: Ns) {
        let until = self.now.saturating_add(span);
        // An attempt that may take no time, repeated without a pause, would keep time from passing.
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

    /// Goes to a moment, in so many milliseconds since the origin: earlier timers are over, those of
    /// the moment itself are still to come.
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

    /// The moments at which attempts started, in milliseconds.
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

    /// The attempts that were cancelled, and when, in milliseconds.
    pub(crate) fn cancels(&self) -> Vec<(u32, f64)> {
        let cancelled = |(at, event): &(Ns, Event)| match event {
            Event::AttemptCancelled { attempt } => Some((*attempt, *at as f64 / 1e6)),
            _ => None,
        };
        self.env.call_log.iter().filter_map(cancelled).collect()
    }

    /// Somebody else took from the same throttle.
    pub(crate) fn other_call_withdrew(&mut self, kind: Kind, grant: Grant) {
        self.model.withdraw(kind, self.now, grant);
    }

    /// Somebody else gave back to the same throttle.
    pub(crate) fn other_call_refunded(&mut self, kind: Kind) {
        self.model.refund(kind, self.now);
    }

    /// Why the call ended, and whose outcome is handed on.
    pub(crate) fn ended(&self) -> Option<(StopReason, Option<u32>)> {
        self.end.map(|end| (end.stop_reason, end.attempt))
    }

    /// What is left in the throttle now.
    pub(crate) fn tokens(&self) -> f64 {
        self.env.shared().tokens(self.now).expect("this throttle counts")
    }

    /// Reports the outcome of the attempt that started as this one.
    pub(crate) fn report(&mut self, attempt: u32, classification: impl Into<Classification>) {
        let slot = self.running.iter().position(|running| *running == Some(attempt));
        self.outcome(slot.expect("the test reports what does not run"), classification);
    }

    /// The slot of the attempt that started as this one.
    pub(crate) fn slot(&self, attempt: u32) -> usize {
        let slot = self.running.iter().position(|running| *running == Some(attempt));
        slot.expect("it runs")
    }

    /// Lets time pass without coming back: a driver that was held up.
    pub(crate) fn oversleep(&mut self, span: Ns) {
        self.invariants.punctual &= span == 0;
        self.now = self.now.saturating_add(span);
    }

    /// Goes to the next moment that the machine asks for; false if there is none.
    pub(crate) fn next_timer(&mut self) -> bool {
        let Some(at) = self.call.wake_at() else { return false };
        self.now = self.now.max(at);
        self.wake();
        true
    }

    /// The future is dropped: the machine hears nothing of it, the world is dropped with it (P6).
    pub(crate) fn drop_call(mut self) {
        if self.end.is_none() {
            self.invariants.refund(self.now, self.model);
        }
        let (shared, now) = (self.env.shared(), self.now);
        drop(self.env);
        assert_tokens(shared, self.model, now);
    }

    /// Whatever comes after the end changes nothing.
    pub(crate) fn check_after_end(&mut self) {
        let end = self.end.expect("every call ends");
        let length = self.env.call_log.len();
        for slot in 0..LIVE {
            self.call.committed(slot, self.now, &mut self.env);
            self.call.not_replayable(Some(slot), self.now, &mut self.env);
        }
        self.call.answered(Advice::After(0), self.now, &mut self.env);
        assert!(!self.call.wake_once(self.now.saturating_add(1), &mut self.env));
        self.call.cancel(self.now, &mut self.env);
        assert_eq!(self.call.command(&mut self.env), None, "a command after the end");
        assert_eq!(self.env.call_log.len(), length, "a note after the end");
        assert_eq!(self.call.end(), Some(end));
        assert_tokens(self.env.shared(), self.model, self.now);
    }

    /// Carries out the commands, and has everything checked.
    fn run_commands(&mut self) {
        while let Some(command) = self.call.command(&mut self.env) {
            assert_eq!(self.end, None, "{command:?} after the end");
            self.run_command(command);
            let waits = self.starts == Starts::One && matches!(command, Command::Start(_));
            // What the commit of a sealed call cancels is cancelled at once.
            if waits && !self.call.is_committed() {
                break;
            }
        }
        self.check();
    }

    /// The referee reads what was noted, and compares it with the machine and the throttle.
    fn check(&mut self) {
        let events = &self.env.call_log[self.read..];
        self.invariants.read(events, &mut self.env.asked, self.model);
        self.read = self.env.call_log.len();
        let invariants = &self.invariants;
        assert_eq!(self.env.failed, invariants.counted, "each failure is counted once (G13)");
        let paid = invariants.numbers.saturating_sub(1);
        assert_eq!(self.env.started, paid, "each retry and hedge starts once, a first try never");
        let running: Vec<_> = self.slots();
        assert_eq!(running.len(), invariants.running(), "driver and diary disagree");
        for slot in 0..LIVE {
            assert_eq!(self.call.is_running(slot), self.running[slot].is_some(), "slot {slot}");
        }
        assert_eq!(self.call.started() as usize, invariants.started());
        let all = (1..=self.call.started()).eq(self.start_order.iter().copied());
        assert!(all, "a start that the driver never took");
        assert_eq!(self.call.counters().attempts, invariants.numbers);
        assert_tokens(self.env.shared(), self.model, self.now);
        match (self.call.end(), invariants.end) {
            (None, None) => {
                let waits = self.asking.is_some() || self.awaiting.is_some();
                let timer = self.call.wake_at();
                assert!(!running.is_empty() || waits || timer.is_some() || self.never_comes());
            }
            (Some(end), Some((stop_reason, attempt))) => {
                assert_eq!(self.end, Some(end), "the end was not handed out");
                assert_eq!((end.stop_reason, end.attempt), (stop_reason, attempt));
                assert_eq!(self.call.wake_at(), None, "an ended call has a timer");
                assert!(running.is_empty());
            }
            other => panic!("machine and diary disagree: {other:?}"),
        }
    }

    /// Whether the next attempt is so far away that its moment never comes (P2).
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
                assert!(self.running[slot].take().is_some(), "cancels what does not run");
            }
            Command::Start(start) => {
                assert_eq!(self.running[start.slot], None, "a slot for two");
                let in_order = self.start_order.last().is_none_or(|last| *last < start.attempt);
                assert!(in_order, "starts are handed out in their order");
                self.running[start.slot] = Some(start.attempt);
                self.start_order.push(start.attempt);
                self.started.push(start);
            }
            Command::Ask(failure) => self.asking = Some(failure),
            Command::Await(cost) => {
                assert_eq!(Some(cost), self.env.last_cost, "the throttle was asked for another");
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

/// The bucket holds what the model says.
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
