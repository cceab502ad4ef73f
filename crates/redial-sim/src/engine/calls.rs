//! The driver of calls: translates between the core and the events of the engine. It decides nothing about
//! retries. As in the async driver, a call with a plain policy and without parameters of its own runs on
//! counters and `decide`; every other call has its state machine.

use redial_core::throttle::Bucket;
use redial_core::{
    Advice, Call, CallCounters, CallEnvironment, CallParams, CallStep, Classification, Cost,
    Directive, Environment, FirstAttempt, Grant, NEVER, Ns, Policy, Random, Start, StopReason,
    Verdict, decide, duration, run_commands,
};

use super::buckets::BucketRef;
use super::state::{CallState, FullCall, Machine, NONE, RequestResult};
use super::{Engine, Kind};

type Env<'a> = CallEnvironment<BucketRef<'a>, Random>;

impl<'a> Engine<'a> {
    /// Starts a call of a client, or of a server on behalf of a request.
    #[inline(always)]
    pub(super) fn start_call(&mut self, hop: usize, caller: u32, parent: u32) {
        self.metrics.services[hop].calls += 1;
        let below_retry = parent != NONE && self.requests[parent as usize].is_retry;
        let id = self.calls.insert(CallState {
            machine: Machine::First,
            counters: CallCounters { attempts: 1, ..CallCounters::new(self.now) },
            random: Random::new(0),
            hop: hop as u16,
            below_retry,
            caller,
            parent,
            timer: NONE,
            request: NONE,
            last_server: NONE,
        }) as u32;
        let policy = self.hops[hop].policy;
        let params = if parent == NONE { CallParams::default() } else { self.params(id) };
        if let Some(first) = FirstAttempt::of(policy, params, self.now) {
            self.send(id, Start { slot: 0, attempt: 1, number: 1 });
            if params.deadline.is_some() {
                self.arm(id, first.wake_at(policy));
            } else {
                self.arm_first(id, hop, policy.first_wake_at(self.now));
            }
        } else {
            let mut env = self.environment(hop, caller);
            let call = Call::begin(policy, params, self.now, &mut env);
            let machine = self.keep_machine(id, call, env);
            self.run_commands(id, machine);
        }
    }

    /// The parameters of a call that a server makes for a request.
    fn params(&self, id: u32) -> CallParams {
        let CallState { counters, hop, below_retry, parent, .. } = self.calls[id as usize];
        let mut params = CallParams::default();
        if parent != NONE {
            params.not_replayable = below_retry && self.hops[usize::from(hop)].stops_nested;
            let deadline = self.deadline_passed_on(parent);
            if deadline != NEVER {
                params.deadline = Some(duration(deadline.saturating_sub(counters.start)));
            }
        }
        params
    }

    /// Whether the caller of a nested call passes a deadline, its cancellation or the rule not to retry on
    /// to it. Such a call needs the state machine.
    fn depends_on_caller(&self, id: u32) -> bool {
        let CallState { hop, below_retry, parent, .. } = self.calls[id as usize];
        if parent == NONE {
            return false;
        }
        let request = &self.requests[parent as usize];
        self.services[usize::from(request.service)].propagates
            || below_retry && self.hops[usize::from(hop)].stops_nested
    }

    /// The outcome of an attempt.
    #[inline(always)]
    pub(super) fn outcome(&mut self, id: u32, slot: usize, result: RequestResult) {
        let CallState { machine, counters, hop, caller, .. } = self.calls[id as usize];
        let hop = &self.hops[usize::from(hop)];
        if result == RequestResult::Succeeded && !matches!(machine, Machine::Full(_)) {
            hop.buckets.of(caller).succeeded(None);
            self.end_call(id, StopReason::Succeeded, counters.attempts);
            return;
        }
        let classification: Classification = match result {
            RequestResult::Succeeded => Directive::Succeed.into(),
            RequestResult::Failed => hop.failures.failed,
            RequestResult::Rejected => hop.failures.rejected,
            RequestResult::Refused => hop.failures.refused,
        };
        let is_counted = machine == Machine::Counters
            || machine == Machine::First && hop.needs_only_counters && !self.depends_on_caller(id);
        if is_counted {
            self.failed(id, classification);
            return;
        }
        let machine = self.machine(id);
        let now = self.now;
        let FullCall { call, env, .. } = &mut self.machines[machine as usize];
        call.outcome(slot, classification, now, env);
        self.cancel_if_abandoned(id, machine);
        self.run_commands(id, machine);
    }

    /// A failed attempt of a call that needs only counters.
    fn failed(&mut self, id: u32, classification: Classification) {
        let CallState { machine, counters, random, hop, caller, .. } = &mut self.calls[id as usize];
        let hop = &self.hops[usize::from(*hop)];
        let attempts = counters.attempts;
        let Directive::Retry(failure) = classification.directive else {
            self.end_call(id, StopReason::NotRetryable, attempts);
            return;
        };
        if *machine == Machine::First {
            *machine = Machine::Counters;
            *random = Random::new(self.streams.calls.bits());
        }
        let mut env = CountersEnvironment { bucket: hop.buckets.of(*caller), random };
        let advice = Advice::None;
        match decide(hop.policy, counters, &failure, advice, self.now, NEVER, &mut env) {
            Verdict::Retry { after: 0, .. } => self.retry(id),
            Verdict::Retry { after, .. } => {
                self.queue.push(self.now.saturating_add(after), Kind::Wake.of(id));
            }
            Verdict::End(reason) => self.end_call(id, reason, attempts),
            // No policy here asks a strategy, and no throttle defers its answer.
            Verdict::Later { .. } | Verdict::Ask => {
                debug_assert!(false, "a question that a simulation cannot answer");
            }
        }
    }

    /// Starts the next attempt of a call that needs only counters.
    fn retry(&mut self, id: u32) {
        let number = self.calls[id as usize].counters.count();
        self.send(id, Start { slot: 0, attempt: number, number });
    }

    /// The timer of a call has fired.
    pub(super) fn wake(&mut self, id: u32) {
        if self.calls[id as usize].machine == Machine::Counters {
            self.retry(id);
            return;
        }
        self.calls[id as usize].timer = NONE;
        let machine = self.machine(id);
        self.cancel_if_abandoned(id, machine);
        loop {
            let FullCall { call, env, .. } = &mut self.machines[machine as usize];
            let fired = call.wake_once(self.now, env);
            match self.run_commands(id, machine) {
                Progress::Waiting(at) if fired && at <= self.now => {}
                _ => return,
            }
        }
    }

    /// Cancels a call whose caller has given up, if cancellation reaches it.
    fn cancel_if_abandoned(&mut self, id: u32, machine: u32) {
        let parent = self.calls[id as usize].parent;
        if parent == NONE {
            return;
        }
        let request = &self.requests[parent as usize];
        if request.call == NONE && self.services[usize::from(request.service)].propagates {
            let FullCall { call, env, .. } = &mut self.machines[machine as usize];
            call.cancel(self.now, env);
        }
    }

    /// Carries out the commands of a call, and sets its timer.
    fn run_commands(&mut self, id: u32, machine: u32) -> Progress {
        loop {
            let full_call = &mut self.machines[machine as usize];
            match run_commands(full_call) {
                Some(CallStep::Start(start)) => self.send(id, start),
                Some(CallStep::Cancel(slot)) => self.abandon(id, slot),
                Some(CallStep::End(end)) => {
                    let attempts = full_call.call.started();
                    self.end_call(id, end.stop_reason, attempts);
                    return Progress::Ended;
                }
                None => {
                    let at = full_call.call.wake_at().unwrap_or(NEVER);
                    self.arm(id, at);
                    return Progress::Waiting(at);
                }
            }
        }
    }

    /// The state machine of a call; created now if the call did not need it before.
    fn machine(&mut self, id: u32) -> u32 {
        let CallState { machine, counters, hop, caller, .. } = self.calls[id as usize];
        if let Machine::Full(machine) = machine {
            return machine;
        }
        let policy = self.hops[usize::from(hop)].policy;
        let first = FirstAttempt::of(policy, self.params(id), counters.start)
            .unwrap_or_else(|| unreachable!("the call started with a first attempt"));
        let mut env = self.environment(usize::from(hop), caller);
        let call = first.begin(policy, &mut env);
        self.keep_machine(id, call, env)
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
                let after = self.hops[hop].policy.first_wake_at(call.counters.start);
                call.machine == Machine::First && after == at
            });
            if is_pending && at > self.now {
                self.queue.push(at, Kind::FirstTimer.of(hop as u32));
                return;
            }
            self.hops[hop].first_timers.list.pop_front();
            if is_pending {
                self.metrics.events += 1;
                self.wake(id);
            }
        }
        self.hops[hop].first_timers.armed = false;
    }

    /// Sets the timer of a call.
    fn arm(&mut self, id: u32, at: Ns) {
        let timer = &mut self.calls[id as usize].timer;
        if *timer != NONE {
            if self.queue.time_of(*timer) == at {
                return;
            }
            self.queue.cancel(*timer);
            *timer = NONE;
        }
        if at != NEVER {
            *timer = self.queue.push(at, Kind::Wake.of(id));
        }
    }

    #[inline(always)]
    fn end_call(&mut self, id: u32, reason: StopReason, attempts: u32) {
        let CallState { machine, counters, hop, caller, parent, timer, .. } =
            self.calls[id as usize];
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
        self.metrics.call_ended(reason, attempts, self.now - counters.start, self.now);
        if let Some(think_time) = &self.think_time {
            let at = self.now.saturating_add(think_time.draw(&mut self.streams.arrivals));
            self.queue.push(at, Kind::ClientReady.of(caller));
        }
    }
}

/// Whether a call goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// The call waits for outcomes, and for its timer at this time.
    Waiting(Ns),
    Ended,
}

/// The environment of a decision without the state machine.
struct CountersEnvironment<'e, 'a> {
    bucket: BucketRef<'a>,
    random: &'e mut Random,
}

impl Environment for CountersEnvironment<'_, '_> {
    fn draw(&mut self) -> f64 {
        self.random.draw()
    }
    fn withdraw(&mut self, cost: Cost, now: Ns) -> Grant {
        self.bucket.withdraw(cost, now)
    }
}
