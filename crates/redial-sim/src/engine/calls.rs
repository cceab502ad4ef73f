//! The driver of calls: translates between the state machine and the events of the engine. It decides
//! nothing about retries.

use redial_core::{
    Call, CallEnvironment, CallParams, Classification, Command, Directive, FirstAttempt, NEVER, Ns,
    Policy, Random, Start, StopReason, duration,
};

use super::buckets::BucketRef;
use super::state::{CallState, FullCall, Machine, NONE, RequestResult};
use super::{Engine, Kind};

type Env<'a> = CallEnvironment<BucketRef<'a>, Random>;

impl<'a> Engine<'a> {
    /// Starts a call of a client, or of a server on behalf of a request.
    pub(super) fn start_call(&mut self, hop: usize, caller: u32, parent: u32) {
        let mut params = CallParams::default();
        let mut below_retry = false;
        if parent != NONE {
            let request = &self.requests[parent as usize];
            below_retry = request.is_retry;
            params.not_replayable = below_retry && self.hops[hop].stops_nested;
            if self.services[usize::from(request.service)].propagates && request.deadline != NEVER {
                params.deadline = Some(duration(request.deadline.saturating_sub(self.now)));
            }
        }
        self.metrics.services[hop].calls += 1;
        let policy = self.hops[hop].policy;
        let first = FirstAttempt::of(policy, params, self.now);
        let id = self.calls.insert(CallState {
            machine: Machine::Full(NONE),
            started: self.now,
            hop: hop as u16,
            below_retry,
            caller,
            parent,
            timer: NONE,
            timer_at: NEVER,
            request: NONE,
            last_server: NONE,
        }) as u32;
        if let Some(first) = first {
            self.calls[id as usize].machine = Machine::First(first);
            self.send(id, Start { slot: 0, attempt: 1, number: 1 });
            if params.deadline.is_some() {
                self.arm(id, first.wake_at(policy));
            } else {
                self.arm_first(id, hop, policy.first_wake_at(self.now));
            }
        } else {
            let mut env = self.environment(hop, caller);
            let call = Call::begin(policy, params, self.now, &mut env);
            self.keep_machine(id, call, env);
            self.run_commands(id);
        }
    }

    /// The outcome of an attempt.
    pub(super) fn outcome(&mut self, id: u32, slot: usize, result: RequestResult) {
        let CallState { machine, hop, caller, .. } = self.calls[id as usize];
        let hop = &self.hops[usize::from(hop)];
        if let (Machine::First(first), RequestResult::Succeeded) = (machine, result) {
            first.succeeded(&hop.buckets.of(caller));
            self.end_call(id, StopReason::Succeeded, 1);
            return;
        }
        let classification: Classification = match result {
            RequestResult::Succeeded => Directive::Succeed.into(),
            RequestResult::Failed => hop.failures.failed,
            RequestResult::Rejected => hop.failures.rejected,
            RequestResult::Refused => hop.failures.refused,
        };
        let machine = self.machine(id);
        let now = self.now;
        let FullCall { call, env, .. } = &mut self.machines[machine as usize];
        call.outcome(slot, classification, now, env);
        self.cancel_if_abandoned(id);
        self.run_commands(id);
    }

    /// The timer of a call has fired.
    pub(super) fn wake(&mut self, id: u32) {
        self.calls[id as usize].timer = NONE;
        let machine = self.machine(id) as usize;
        self.cancel_if_abandoned(id);
        loop {
            let FullCall { call, env, .. } = &mut self.machines[machine];
            let fired = call.wake_once(self.now, env);
            if self.run_commands(id) == Progress::Ended || !fired {
                return;
            }
        }
    }

    /// Cancels a call whose caller has given up, if cancellation reaches it.
    fn cancel_if_abandoned(&mut self, id: u32) {
        let CallState { parent, machine, .. } = self.calls[id as usize];
        let (Machine::Full(machine), false) = (machine, parent == NONE) else { return };
        let request = &self.requests[parent as usize];
        if request.call == NONE && self.services[usize::from(request.service)].propagates {
            let FullCall { call, env, .. } = &mut self.machines[machine as usize];
            call.cancel(self.now, env);
        }
    }

    /// Carries out the commands of a call, and sets its timer.
    fn run_commands(&mut self, id: u32) -> Progress {
        let Machine::Full(machine) = self.calls[id as usize].machine else {
            return Progress::Waiting;
        };
        loop {
            let FullCall { call, env, .. } = &mut self.machines[machine as usize];
            match call.command(env) {
                Some(Command::Start(start)) => self.send(id, start),
                Some(Command::Cancel(slot)) => self.abandon(id, slot),
                Some(Command::End(end)) => {
                    let attempts = call.started();
                    self.end_call(id, end.stop_reason, attempts);
                    return Progress::Ended;
                }
                // No policy here asks a strategy, and no throttle defers its answer.
                Some(Command::Ask(_) | Command::Await(_)) => {
                    debug_assert!(false, "a question that a simulation cannot answer");
                    return Progress::Waiting;
                }
                None => {
                    let at = call.wake_at().unwrap_or(NEVER);
                    self.arm(id, at);
                    return Progress::Waiting;
                }
            }
        }
    }

    /// The state machine of a call; created now if the call did not need it before.
    fn machine(&mut self, id: u32) -> u32 {
        let CallState { machine, hop, caller, .. } = self.calls[id as usize];
        match machine {
            Machine::Full(machine) => machine,
            Machine::First(first) => {
                let mut env = self.environment(usize::from(hop), caller);
                let call = first.begin(self.hops[usize::from(hop)].policy, &mut env);
                self.keep_machine(id, call, env)
            }
        }
    }

    fn keep_machine(&mut self, id: u32, call: Call<&'a Policy>, env: Env<'a>) -> u32 {
        let full = FullCall { call, env, hedges: Vec::new() };
        let machine = self.machines.insert(full) as u32;
        self.calls[id as usize].machine = Machine::Full(machine);
        machine
    }

    /// The environment of a call, with random numbers of its own.
    fn environment(&mut self, hop: usize, caller: u32) -> Env<'a> {
        let buckets = self.hops[hop].buckets;
        CallEnvironment::new(buckets.of(caller), Random::new(self.streams.calls.bits()))
    }

    /// Sets the timer of a first attempt.
    #[inline]
    fn arm_first(&mut self, id: u32, hop: usize, at: Ns) {
        if at == NEVER {
            return;
        }
        let timers = &mut self.hops[hop].first_timers;
        timers.list.push_back((at, id));
        if !timers.armed {
            timers.armed = true;
            self.queue.push(at, Kind::FirstTimer.of(hop as u32));
        }
    }

    /// Fires the timers of first attempts that are due.
    pub(super) fn first_timers_due(&mut self, hop: usize) {
        // Outcomes of this moment come first (decision P4).
        if self.queue.is_due() {
            self.queue.push(self.now, Kind::FirstTimer.of(hop as u32));
            return;
        }
        while let Some(&(at, id)) = self.hops[hop].first_timers.list.front() {
            let is_pending = self.calls.get(id as usize).is_some_and(|call| {
                let after = self.hops[hop].policy.first_wake_at(call.started);
                matches!(call.machine, Machine::First(_)) && after == at
            });
            if is_pending && at > self.now {
                self.queue.push(at, Kind::FirstTimer.of(hop as u32));
                return;
            }
            self.hops[hop].first_timers.list.pop_front();
            if is_pending {
                self.wake(id);
            }
        }
        self.hops[hop].first_timers.armed = false;
    }

    /// Sets the timer of a call.
    fn arm(&mut self, id: u32, at: Ns) {
        let call = &mut self.calls[id as usize];
        if call.timer != NONE {
            if call.timer_at == at {
                return;
            }
            self.queue.cancel(call.timer);
            call.timer = NONE;
        }
        if at != NEVER {
            call.timer = self.queue.push(at, Kind::Wake.of(id));
            call.timer_at = at;
        }
    }

    fn end_call(&mut self, id: u32, reason: StopReason, attempts: u32) {
        let CallState { machine, started, hop, caller, parent, timer, .. } =
            self.calls.remove(id as usize);
        if timer != NONE {
            self.queue.cancel(timer);
        }
        if let Machine::Full(machine) = machine {
            self.machines.remove(machine as usize);
        }
        if hop > 0 {
            self.nested_call_ended(parent, reason);
            return;
        }
        self.client_calls -= 1;
        self.metrics.call_ended(reason, attempts, self.now - started, self.now);
        if let Some(think_time) = &self.think_time {
            let at = self.now.saturating_add(think_time.draw(&mut self.streams.arrivals));
            self.queue.push(at, Kind::ClientReady.of(caller));
        }
    }
}

/// Whether a call goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    Waiting,
    Ended,
}
