//! Requests: their way to a server, its queue and workers, and back.

use redial_core::{NEVER, Ns, Start, StopReason};
use slab::Slab;

use super::state::{CallState, FullCall, Machine, NONE, Request, RequestResult};
use super::{Engine, Kind, either};

/// A duration times a factor. Apart, since the conversions would otherwise be made for every request.
#[cold]
fn multiplied(time: Ns, factor: f64) -> Ns {
    (time as f64 * factor) as Ns
}

impl Engine<'_> {
    /// Sends the request of an attempt.
    pub(super) fn send(&mut self, id: u32, start: Start) {
        self.count_attempt();
        let parent = self.calls[id as usize].parent;
        let passed_on = if parent == NONE { NEVER } else { self.deadline_passed_on(parent) };
        let call = &mut self.calls[id as usize];
        let service = usize::from(call.hop);
        self.metrics.services[service].attempts += 1;
        let (state, hop) = (&mut self.services[service], &self.hops[service]);
        let random = &mut self.streams.service;
        call.last_server = state.choose_server(call.last_server, random);
        let timeout = self.now.saturating_add(hop.attempt_timeout);
        let request = self.requests.insert(Request {
            call: id,
            server: call.last_server,
            deadline: timeout.min(call.counters.start.saturating_add(hop.deadline)).min(passed_on),
            version: 0,
            pending: 0,
            service: service as u16,
            slot: start.slot as u8,
            is_retry: start.number > 1 || call.below_retry,
            result: RequestResult::Succeeded,
        }) as u32;
        let delay = state.network_delay(random);
        match start.slot {
            0 => call.request = request,
            slot => *Self::hedge_in(&mut self.machines, call, slot) = request,
        }
        if delay > 0 {
            self.queue.push(self.now.saturating_add(delay), Kind::Deliver.of(request));
        } else {
            self.deliver(request);
        }
    }

    /// The deadline that a server passes on to the calls that it makes for a request, or `NEVER`.
    pub(super) fn deadline_passed_on(&self, parent: u32) -> Ns {
        let Request { service, deadline, .. } = self.requests[parent as usize];
        if self.services[usize::from(service)].propagates { deadline } else { NEVER }
    }

    /// The entry of the request in a slot of a call.
    #[inline]
    fn request_in(&mut self, id: u32, slot: usize) -> &mut u32 {
        let call = &mut self.calls[id as usize];
        match slot {
            0 => &mut call.request,
            slot => Self::hedge_in(&mut self.machines, call, slot),
        }
    }

    #[cold]
    fn hedge_in<'m>(
        machines: &'m mut Slab<FullCall<'_>>,
        call: &'m mut CallState,
        slot: usize,
    ) -> &'m mut u32 {
        let Machine::Full(machine) = call.machine else { return &mut call.request };
        let FullCall { hedges, .. } = &mut machines[machine as usize];
        if hedges.len() < slot {
            hedges.resize(slot, NONE);
        }
        &mut hedges[slot - 1]
    }

    /// The caller gives up an attempt. The server does not know, unless deadlines are propagated.
    pub(super) fn abandon(&mut self, id: u32, slot: usize) {
        let request = std::mem::replace(self.request_in(id, slot), NONE);
        if let Some(request) = self.requests.get_mut(request as usize) {
            request.call = NONE;
        }
    }

    /// A request reaches its server.
    #[inline(always)]
    pub(super) fn deliver(&mut self, id: u32) {
        let Request { server, service, .. } = self.requests[id as usize];
        let service = usize::from(service);
        self.metrics.offered(service);
        let state = &self.services[service];
        if state.condition.refusing {
            self.respond(id, RequestResult::Refused);
            return;
        }
        if state.optimistic_lock {
            self.requests[id as usize].version = self.servers[server as usize].version;
            let random = &mut self.streams.service;
            let (back, forth) = (state.network_delay(random), state.network_delay(random));
            let at = self.now.saturating_add(back).saturating_add(forth);
            self.queue.push(at, Kind::Write.of(id));
            return;
        }
        let is_free =
            !state.condition.stalled && self.servers[server as usize].busy < state.workers;
        if is_free {
            self.start_work(id);
        } else if self.servers[server as usize].waiting.len() < state.queue_max {
            self.servers[server as usize].waiting.push_back(id);
        } else {
            self.metrics.services[service].rejected += 1;
            self.respond(id, RequestResult::Rejected);
        }
    }

    /// The write of an optimistic lock succeeds if no other write came since the read.
    pub(super) fn write(&mut self, id: u32) {
        let Request { server, version, .. } = self.requests[id as usize];
        let server = &mut self.servers[server as usize];
        let result = if server.version == version {
            server.version += 1;
            RequestResult::Succeeded
        } else {
            RequestResult::Failed
        };
        self.respond(id, result);
    }

    #[inline(always)]
    fn start_work(&mut self, id: u32) {
        let Request { server, service, .. } = self.requests[id as usize];
        let state = &self.services[usize::from(service)];
        self.servers[server as usize].busy += 1;
        let sampler = match &state.slow_time {
            Some(slow) if server >= state.slow_from => slow,
            _ => &state.time,
        };
        let mut time = sampler.draw(&mut self.streams.service);
        if state.condition.slow != 1.0 {
            time = multiplied(time, state.condition.slow);
        }
        self.queue.push(self.now.saturating_add(time), Kind::Done.of(id));
    }

    /// A worker is done with a request, and takes the next one.
    pub(super) fn work_done(&mut self, id: u32) {
        let Request { server, service, call, .. } = self.requests[id as usize];
        let service = usize::from(service);
        self.servers[server as usize].busy -= 1;
        if !self.servers[server as usize].waiting.is_empty() {
            self.take_waiting(service, server);
        }
        self.metrics.services[service].wasted += u64::from(call == NONE);
        let state = &self.services[service];
        let fails = either(state.failure_rate, state.condition.fail);
        let (fan_out, propagates) = (state.fan_out, state.propagates);
        if fails > 0.0 && self.streams.service.draw() < fails {
            self.respond(id, RequestResult::Failed);
        } else if service + 1 == self.services.len() || propagates && call == NONE {
            self.respond(id, RequestResult::Succeeded);
        } else {
            self.requests[id as usize].pending = fan_out;
            let caller = server - state.first;
            for _ in 0..fan_out {
                self.start_call(service + 1, caller, id);
            }
        }
    }

    /// Starts waiting requests while workers are free.
    fn take_waiting(&mut self, service: usize, server: u32) {
        let state = &self.services[service];
        let (workers, stalled, propagates) =
            (state.workers, state.condition.stalled, state.propagates);
        while !stalled && self.servers[server as usize].busy < workers {
            let Some(id) = self.servers[server as usize].waiting.pop_front() else { return };
            let Request { call, deadline, slot, .. } = self.requests[id as usize];
            if propagates && (call == NONE || deadline <= self.now) {
                if call != NONE {
                    // Its timer fires at this moment, too.
                    *self.request_in(call, usize::from(slot)) = NONE;
                }
                self.metrics.services[service].dropped += 1;
                self.requests.remove(id as usize);
            } else {
                self.start_work(id);
            }
        }
    }

    /// Starts the waiting requests of a service after an outage.
    pub(super) fn resume(&mut self, service: usize) {
        let first = self.services[service].first;
        for server in first..first + self.services[service].servers {
            self.take_waiting(service, server);
        }
    }

    /// A call to the next service has ended.
    pub(super) fn nested_call_ended(&mut self, parent: u32, reason: StopReason) {
        let request = &mut self.requests[parent as usize];
        request.pending -= 1;
        if reason != StopReason::Succeeded {
            request.result = RequestResult::Failed;
        }
        if request.pending == 0 {
            let result = request.result;
            self.respond(parent, result);
        }
    }

    /// Sends the response. A rejection is always an event, so that it does not arrive while its attempt
    /// starts.
    #[inline(always)]
    fn respond(&mut self, id: u32, result: RequestResult) {
        let request = &mut self.requests[id as usize];
        request.result = result;
        if request.call == NONE {
            self.requests.remove(id as usize);
            return;
        }
        let service = usize::from(request.service);
        let delay = self.services[service].network_delay(&mut self.streams.service);
        match (delay, result) {
            (0, RequestResult::Succeeded | RequestResult::Failed) => self.finish_request(id),
            (delay, _) => {
                self.queue.push(self.now.saturating_add(delay), Kind::Respond.of(id));
            }
        }
    }

    /// A response reaches the caller.
    #[inline]
    pub(super) fn finish_request(&mut self, id: u32) {
        let Request { call, slot, result, .. } = self.requests.remove(id as usize);
        if call != NONE {
            *self.request_in(call, usize::from(slot)) = NONE;
            self.outcome(call, usize::from(slot), result);
        }
    }
}
