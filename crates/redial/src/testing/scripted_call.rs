//! The driver of one scripted call: runs the commands of the state machine, and reports the events of the
//! script to it.
//!
//! Invariant: all decisions (starts, delays, cancellations, the end) are made by the state machine.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use redial_core::throttle::Bucket;
use redial_core::{
    Advice, Call, CallEnvironment, CallParams, CallStep, Command, Cost, Directive, Failure, Grant,
    LIVE_MAX, NEVER, Ns, RunCommands, Start, duration, ns, run_commands,
};

use super::context::{Draws, ScriptContext};
use super::play::{EventQueue, ScriptEvent};
use super::played::Played;
use super::replay_buffer::{ChannelBuffer, ReplayBuffer};
use super::script::{AttemptOutcome, Script};
use crate::error::BoxError;
use crate::strategy::{Decision, Reasons, Request};
use crate::throttle::Handle;

/// An answer that the call waits for.
enum PendingAnswer {
    Strategy(Pin<Box<dyn Future<Output = Decision> + Send>>),
    Throttle(Pin<Box<dyn Future<Output = Grant> + Send>>),
}

/// One call of a play.
pub(super) struct ScriptedCall<'a> {
    script: &'a Script<'a>,
    call: Option<Call<&'a redial_core::Policy>>,
    env: CallEnvironment<Handle, ScriptContext<'a>>,
    began: Ns,
    /// The attempt in each slot.
    running: [Option<u32>; LIVE_MAX],
    reasons: Reasons,
    pending_answer: Option<PendingAnswer>,
    messages: ReplayBuffer<'a>,
    sent: Vec<u64>,
    tokens: Option<f64>,
    unscripted: Option<u32>,
    strategy_error: Option<BoxError>,
    /// The position of this call in the order in which the calls of the play ended.
    ended_nth: Option<usize>,
    /// The time of a message that was too large.
    too_large: Option<Ns>,
    /// The number of the current timer. Older timers were replaced.
    timer: u64,
}

impl<'a> ScriptedCall<'a> {
    pub(super) fn new(
        script: &'a Script<'a>,
        throttle: Handle,
        draws: &'a Draws,
        channel: &'a ChannelBuffer,
    ) -> Self {
        ScriptedCall {
            script,
            call: None,
            env: CallEnvironment::new(throttle, ScriptContext::new(draws)),
            began: ns(script.at),
            running: [None; LIVE_MAX],
            reasons: Reasons::default(),
            pending_answer: None,
            messages: ReplayBuffer::new(channel, script.buffer_max.unwrap_or(u64::MAX)),
            sent: Vec::new(),
            tokens: None,
            unscripted: None,
            strategy_error: None,
            ended_nth: None,
            too_large: None,
            timer: 0,
        }
    }

    /// Whether the call waits for an answer.
    pub(super) const fn asks(&self) -> bool {
        self.pending_answer.is_some()
    }

    pub(super) fn played(self) -> Played {
        let ScriptedCall { began, env, sent, tokens, unscripted, strategy_error, .. } = self;
        let call_log = env.context.call_log;
        let (ended_nth, too_large) = (self.ended_nth, self.too_large);
        Played { began, call_log, sent, tokens, unscripted, strategy_error, ended_nth, too_large }
    }

    /// Handles an event of the script or of a timer.
    pub(super) fn handle_event(&mut self, event: ScriptEvent, now: Ns, queue: &mut EventQueue) {
        match (event, &mut self.call) {
            (ScriptEvent::Begins, _) => self.begin(now, queue),
            (ScriptEvent::Headers { slot, attempt }, Some(call)) => {
                if self.running[slot] == Some(attempt) {
                    call.committed(slot, now, &mut self.env);
                }
            }
            (ScriptEvent::Outcome { slot, attempt }, _) => self.outcome(slot, attempt, now),
            (ScriptEvent::Writes(index), _) => self.write(self.script.messages[index].1, now),
            (ScriptEvent::Due { timer }, Some(call)) if timer == self.timer => {
                call.wake_once(now, &mut self.env);
            }
            (ScriptEvent::Cancels, Some(call)) => call.cancel(now, &mut self.env),
            // A timer that was replaced: the current one stays armed.
            _ => return,
        }
        self.run_commands_and_arm_timer(now, queue);
    }

    /// Polls the pending answer.
    pub(super) fn poll_pending_answer(&mut self, now: Ns, queue: &mut EventQueue) {
        let context = &mut Context::from_waker(Waker::noop());
        let Some(call) = &mut self.call else { return };
        match &mut self.pending_answer {
            None => return,
            Some(PendingAnswer::Strategy(decision)) => {
                let Poll::Ready(decision) = decision.as_mut().poll(context) else { return };
                self.pending_answer = None;
                self.apply_decision(decision, now);
            }
            Some(PendingAnswer::Throttle(grant)) => {
                let Poll::Ready(grant) = grant.as_mut().poll(context) else { return };
                self.pending_answer = None;
                call.granted(grant, now, &mut self.env);
            }
        }
        self.run_commands_and_arm_timer(now, queue);
    }

    fn begin(&mut self, now: Ns, queue: &mut EventQueue) {
        let script = self.script;
        let policy = script.policy.core();
        let mut params = CallParams {
            deadline: script.deadline,
            idempotent: script.idempotent,
            not_replayable: false,
            ends_at_attempt_timeout: false,
            uses_strategy: script.strategy.is_some(),
            hedge: None,
        };
        let mut first = script.messages.iter().filter(|(at, _)| at.is_zero());
        if first.any(|(_, bytes)| *bytes > script.message_max) {
            self.too_large = Some(now);
            self.call = Some(Call::cancelled_before_start(policy, params, now, &mut self.env));
            return;
        }
        for (index, (at, bytes)) in script.messages.iter().enumerate() {
            if at.is_zero() {
                params.not_replayable |= !self.messages.write(*bytes);
            } else {
                queue.add(now.saturating_add(ns(*at)), 0, ScriptEvent::Writes(index));
            }
        }
        if let Some(cancel) = script.cancel {
            queue.add(now.saturating_add(ns(cancel)), 0, ScriptEvent::Cancels);
        }
        self.call = Some(Call::begin(policy, params, now, &mut self.env));
    }

    fn outcome(&mut self, slot: usize, attempt: u32, now: Ns) {
        let Some(call) = &mut self.call else { return };
        if self.running[slot] != Some(attempt) {
            return;
        }
        let Some(classification) =
            scripted(self.script, attempt).and_then(|outcome| outcome.classification)
        else {
            return;
        };
        if let Directive::Retry(failure) = classification.directive {
            self.reasons.record(failure.reason);
        }
        let written = self.messages.written;
        record_sent(&mut self.running, &mut self.sent, self.script, written, slot);
        call.outcome(slot, classification, now, &mut self.env);
    }

    /// The application writes a message. If the replay buffer cannot keep it, the call is committed to the
    /// attempt that received the most messages (decision G24).
    fn write(&mut self, bytes: u64, now: Ns) {
        let Some(call) = &mut self.call else { return };
        if call.end().is_some() {
            return;
        }
        if bytes > self.script.message_max {
            self.too_large = Some(now);
            let running = self.running.iter().enumerate();
            let first = running.filter_map(|(slot, it)| it.map(|attempt| (attempt, slot))).min();
            let Some((_, slot)) = first else { return call.cancel(now, &mut self.env) };
            let written = self.messages.written;
            record_sent(&mut self.running, &mut self.sent, self.script, written, slot);
            return call.outcome(slot, Directive::Fail.into(), now, &mut self.env);
        }
        let before = self.messages.written;
        if self.messages.write(bytes) {
            return;
        }
        let received = |attempt: u32| {
            scripted(self.script, attempt).map_or(0, |outcome| outcome.accepts.min(before))
        };
        let running = self.running.iter().enumerate();
        let most = running
            .filter_map(|(slot, attempt)| attempt.map(|attempt| (slot, attempt)))
            .min_by_key(|&(_, attempt)| (std::cmp::Reverse(received(attempt)), attempt));
        let chosen = most.map(|(slot, _)| slot);
        call.not_replayable(chosen, now, &mut self.env);
        // The message goes to that attempt only.
        for slot in (0..LIVE_MAX).filter(|slot| Some(*slot) != chosen) {
            record_sent(&mut self.running, &mut self.sent, self.script, before, slot);
        }
    }

    /// Runs the commands of the state machine, and arms its next timer.
    fn run_commands_and_arm_timer(&mut self, now: Ns, queue: &mut EventQueue) {
        self.run_commands(now, queue);
        if self.unscripted.is_some()
            && let Some(call) = &mut self.call
        {
            call.cancel(now, &mut self.env);
            self.run_commands(now, queue);
        }
        let Some(call) = &self.call else { return };
        if call.is_committed() || call.end().is_some() {
            self.messages.release();
        }
        self.timer += 1;
        if let Some(at) = call.wake_at() {
            let event = ScriptEvent::Due { timer: self.timer };
            if at >= call.deadline() {
                queue.add_deadline(at, event);
            } else {
                queue.add(at.max(now), 0, event);
            }
        }
    }

    fn run_commands(&mut self, now: Ns, queue: &mut EventQueue) {
        while let Some(step) = run_commands(&mut ScriptedDriver { call: self, now }) {
            match step {
                CallStep::Cancel(slot) => {
                    let ScriptedCall { running, sent, script, messages, .. } = &mut *self;
                    record_sent(running, sent, script, messages.written, slot);
                }
                CallStep::Start(start) => self.start(start, now, queue),
                CallStep::End(_) => {
                    self.pending_answer = None;
                    self.ended_nth = Some(queue.ended());
                    self.tokens = self.env.throttle().tokens(now);
                }
            }
        }
    }

    fn start(&mut self, start: Start, now: Ns, queue: &mut EventQueue) {
        let Start { slot, attempt, .. } = start;
        self.running[slot] = Some(attempt);
        let Some(outcome) = scripted(self.script, attempt) else {
            self.unscripted.get_or_insert(attempt);
            return;
        };
        if let Some(headers) = outcome.headers {
            let event = ScriptEvent::Headers { slot, attempt };
            queue.add(now.saturating_add(ns(headers)), attempt, event);
        }
        if outcome.classification.is_some() {
            let event = ScriptEvent::Outcome { slot, attempt };
            queue.add(now.saturating_add(ns(outcome.after)), attempt, event);
        }
    }

    fn ask_strategy(&mut self, failure: Failure, now: Ns) {
        let Some(call) = &self.call else { return };
        let deadline = call.deadline();
        let request = Request {
            idempotent: self.script.idempotent,
            attempts: call.counters().attempts,
            reasons: self.reasons.earlier(),
            failure,
            elapsed: duration(now.saturating_sub(self.began)),
            remaining: (deadline != NEVER).then(|| duration(deadline.saturating_sub(now))),
            data: &self.script.data,
        };
        let decision = match (&self.script.strategy, &self.script.policy.strategy) {
            (Some(strategy), _) => strategy.retry_after(&request),
            (None, Some(strategy)) => strategy.retry_after(&request),
            (None, None) => Decision::Decline,
        };
        self.apply_decision(decision, now);
    }

    fn apply_decision(&mut self, decision: Decision, now: Ns) {
        let advice = match decision {
            Decision::Retry(delay) => Advice::After(ns(delay)),
            Decision::Decline => Advice::Decline,
            Decision::Fail(error) => {
                self.strategy_error = Some(error);
                Advice::Decline
            }
            Decision::Later(decision) => {
                self.pending_answer = Some(PendingAnswer::Strategy(decision));
                return;
            }
        };
        if let Some(call) = &mut self.call {
            call.answered(advice, now, &mut self.env);
        }
    }
}

/// Carries out the commands of a scripted call at this time.
struct ScriptedDriver<'d, 'a> {
    call: &'d mut ScriptedCall<'a>,
    now: Ns,
}

impl RunCommands for ScriptedDriver<'_, '_> {
    fn command(&mut self) -> Option<Command> {
        let ScriptedCall { call, env, .. } = &mut *self.call;
        call.as_mut()?.command(env)
    }
    fn ask(&mut self, failure: Failure) {
        self.call.ask_strategy(failure, self.now);
    }
    fn await_grant(&mut self, cost: Cost) {
        let later = self.call.env.throttle().later(cost);
        self.call.pending_answer = Some(PendingAnswer::Throttle(later));
    }
}

fn scripted<'s>(script: &'s Script<'_>, attempt: u32) -> Option<&'s AttemptOutcome> {
    script.attempts.get(attempt as usize - 1)
}

/// Records how many of the `written` messages the attempt in this slot received until its end.
fn record_sent(
    running: &mut [Option<u32>],
    sent: &mut Vec<u64>,
    script: &Script<'_>,
    written: u64,
    slot: usize,
) {
    let Some(attempt) = running[slot].take() else { return };
    let index = attempt as usize - 1;
    if sent.len() <= index {
        sent.resize(index + 1, 0);
    }
    sent[index] = scripted(script, attempt).map_or(0, |outcome| outcome.accepts.min(written));
}
