//! The player: several scripted calls on one virtual clock.
//!
//! Events of one moment happen in the order of docs/scenarios.md: response headers and outcomes, then
//! what applications write, then deadlines, then timers and calls that begin, then cancelling;
//! among equals the earlier call first, then the lower attempt.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use redial_core::throttle::RetryBudget;
use redial_core::{NEVER, Ns, ns};

use super::context::Draws;
use super::played::Played;
use super::replay_buffer::ChannelBuffer;
use super::script::Script;
use super::scripted_call::ScriptedCall;
use crate::throttle::Handle;

/// Calls that are played together on one virtual clock, which begins at 0.
#[derive(Clone, Debug)]
#[must_use = "a play does nothing until it is run"]
pub struct Play<'p> {
    calls: Vec<Script<'p>>,
    draws: Vec<f64>,
    buffer_max: u64,
}

impl Default for Play<'_> {
    fn default() -> Self {
        Play { calls: Vec::new(), draws: vec![0.5], buffer_max: u64::MAX }
    }
}

impl<'p> Play<'p> {
    /// A play without calls, in which every draw is 0.5.
    pub fn new() -> Self {
        Play::default()
    }

    /// The draws, each in `[0, 1)`, which all calls use in order; the last one repeats.
    ///
    /// # Panics
    /// When it is run: there is no draw, or one that is not in `[0, 1)`.
    pub fn draws(mut self, draws: impl IntoIterator<Item = f64>) -> Self {
        self.draws = draws.into_iter().collect();
        self
    }

    /// How many bytes of messages all calls together may keep (decision G25).
    pub const fn buffer_max(mut self, bytes: u64) -> Self {
        self.buffer_max = bytes;
        self
    }

    /// Adds a call.
    pub fn call(mut self, call: Script<'p>) -> Self {
        self.calls.push(call);
        self
    }

    /// Plays all calls to their ends, and returns what became of them in the order in which they
    /// were added.
    #[must_use]
    pub fn run(self) -> Vec<Played> {
        let draws = Draws::new(self.draws);
        let channel = ChannelBuffer::new(self.buffer_max);
        let mut throttles = Throttles::default();
        let mut order: Vec<usize> = (0..self.calls.len()).collect();
        order.sort_by_key(|&index| self.calls[index].at);
        let mut calls: Vec<_> = order
            .iter()
            .map(|&index| &self.calls[index])
            .map(|script| ScriptedCall::new(script, throttles.of(script), &draws, &channel))
            .collect();
        let mut queue = EventQueue { events: BinaryHeap::new(), rank: 0, ended: 0 };
        for (rank, &index) in order.iter().enumerate() {
            queue.of(rank).add(ns(self.calls[index].at), 0, ScriptEvent::Begins);
        }
        // Who waits for an answer; hardly ever anybody.
        let mut waiting: Vec<usize> = Vec::new();
        while let Some(Reverse(Scheduled { at, rank, event, .. })) = queue.events.pop() {
            calls[rank].handle_event(event, at, queue.of(rank));
            if calls[rank].asks() && !waiting.contains(&rank) {
                waiting.push(rank);
            }
            waiting.retain(|&rank| {
                calls[rank].poll_pending_answer(at, queue.of(rank));
                calls[rank].asks()
            });
        }
        let mut played: Vec<_> =
            order.into_iter().zip(calls.into_iter().map(ScriptedCall::played)).collect();
        played.sort_by_key(|(index, _)| *index);
        played.into_iter().map(|(_, played)| played).collect()
    }

    /// Plays the only call.
    #[track_caller]
    pub(super) fn run_one(self) -> Played {
        let mut played = self.run();
        assert!(played.len() == 1, "one call was written");
        let played = played.remove(0);
        if let Some(attempt) = played.unscripted() {
            panic!("attempt {attempt} started, and the script lists only {}", attempt - 1);
        }
        played
    }
}

/// The throttles of a play: default budgets are its own and start full, so that one test does not
/// drain another's; what was shared by name is used as it is.
#[derive(Default)]
struct Throttles(Vec<(*const RetryBudget, Arc<RetryBudget>)>);

impl Throttles {
    fn of(&mut self, script: &Script<'_>) -> Handle {
        let original: &RetryBudget = match &script.policy.handle {
            Handle::CallSite(place) => place.budget(),
            Handle::Own(budget) => budget,
            shared => return shared.clone(),
        };
        let known = self.0.iter().find(|(known, _)| std::ptr::eq(*known, original));
        if let Some((_, budget)) = known {
            return Handle::Own(budget.clone());
        }
        let (reserve, ratio) = original.parameters();
        let budget = Arc::new(RetryBudget::try_new(reserve, ratio).unwrap_or_default());
        self.0.push((original, budget.clone()));
        Handle::Own(budget)
    }
}

/// What happens to a call. The order of the first two is theirs at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ScriptEvent {
    /// The response of an attempt begins.
    Headers { slot: usize, attempt: u32 },
    /// The outcome of an attempt is there.
    Outcome { slot: usize, attempt: u32 },
    /// The application writes a message.
    Writes(usize),
    /// The call begins.
    Begins,
    /// A timer or the deadline is due.
    Due { timer: u64 },
    /// The application drops the call.
    Cancels,
}

/// The order of events at one moment (decision P4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    Outcome,
    Message,
    Deadline,
    Timer,
    Cancel,
}

/// Something that will happen. The order of the fields is the order of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Scheduled {
    at: Ns,
    class: Class,
    rank: usize,
    attempt: u32,
    event: ScriptEvent,
}

/// What is to happen, as one call after the other adds to it.
pub(super) struct EventQueue {
    events: BinaryHeap<Reverse<Scheduled>>,
    /// The call whose turn it is.
    rank: usize,
    /// How many calls have ended.
    ended: usize,
}

impl EventQueue {
    /// The agenda for this call's turn.
    const fn of(&mut self, rank: usize) -> &mut Self {
        self.rank = rank;
        self
    }

    /// A call has ended: how many did before it.
    pub(super) const fn ended(&mut self) -> usize {
        self.ended += 1;
        self.ended - 1
    }

    pub(super) fn add(&mut self, at: Ns, attempt: u32, event: ScriptEvent) {
        let class = match event {
            ScriptEvent::Headers { .. } | ScriptEvent::Outcome { .. } => Class::Outcome,
            ScriptEvent::Writes(_) => Class::Message,
            ScriptEvent::Begins | ScriptEvent::Due { .. } => Class::Timer,
            ScriptEvent::Cancels => Class::Cancel,
        };
        self.push(at, class, attempt, event);
    }

    pub(super) fn add_deadline(&mut self, at: Ns, event: ScriptEvent) {
        self.push(at, Class::Deadline, 0, event);
    }

    fn push(&mut self, at: Ns, class: Class, attempt: u32, event: ScriptEvent) {
        // What is never due never happens.
        if at != NEVER {
            self.events.push(Reverse(Scheduled { at, class, rank: self.rank, attempt, event }));
        }
    }
}
