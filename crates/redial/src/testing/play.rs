//! Plays several scripted calls on one virtual clock.
//!
//! Simultaneous events are ordered as `docs/scenarios.md` defines: response headers and outcomes, then
//! messages of the application, then deadlines, then timers and starts of calls, then cancellation; among
//! equals the earlier call first, then the lower attempt.

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

/// Several calls on one virtual clock, which begins at 0.
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
    /// A play without calls; every random draw is 0.5.
    pub fn new() -> Self {
        Play::default()
    }

    /// The random draws, each in `[0, 1)`, which all calls use in order; the last one repeats.
    ///
    /// # Panics
    /// `run` panics if the list is empty or a draw is not in `[0, 1)`.
    pub fn draws(mut self, draws: impl IntoIterator<Item = f64>) -> Self {
        self.draws = draws.into_iter().collect();
        self
    }

    /// The size of the replay buffer that all calls share, in bytes (decision G25).
    pub const fn buffer_max(mut self, bytes: u64) -> Self {
        self.buffer_max = bytes;
        self
    }

    /// Adds a call.
    pub fn call(mut self, call: Script<'p>) -> Self {
        self.calls.push(call);
        self
    }

    /// Plays all calls to their ends, and returns their results in the order in which they were added.
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
        // The calls that wait for an answer; usually none.
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

    /// Plays a single call.
    #[track_caller]
    pub(super) fn run_one(self) -> Played {
        let mut played = self.run();
        assert!(played.len() == 1, "the play has one call");
        let played = played.remove(0);
        if let Some(attempt) = played.unscripted() {
            panic!("attempt {attempt} started, and the script lists only {}", attempt - 1);
        }
        played
    }
}

/// The throttles of a play. Default budgets are replaced by full ones of the play, so that tests do not
/// affect each other; a named throttle is used as it is.
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
        let budget = Arc::new(original.fresh());
        self.0.push((original, budget.clone()));
        Handle::Own(budget)
    }
}

/// An event of a script. The first two are ordered as listed if they are simultaneous.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ScriptEvent {
    /// The response headers of an attempt arrive.
    Headers { slot: usize, attempt: u32 },
    /// The outcome of an attempt arrives.
    Outcome { slot: usize, attempt: u32 },
    /// The application writes a message.
    Writes(usize),
    /// The call starts.
    Begins,
    /// A timer or the deadline fires.
    Due { timer: u64 },
    /// The application drops the call.
    Cancels,
}

/// The order of simultaneous events (decision P4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    Outcome,
    Message,
    Deadline,
    Timer,
    Cancel,
}

/// A scheduled event. The order of the fields is the order of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Scheduled {
    at: Ns,
    class: Class,
    rank: usize,
    attempt: u32,
    event: ScriptEvent,
}

/// The scheduled events of all calls.
pub(super) struct EventQueue {
    events: BinaryHeap<Reverse<Scheduled>>,
    /// The call that adds events now.
    rank: usize,
    /// The number of calls that have ended.
    ended: usize,
}

impl EventQueue {
    /// The queue, for events of this call.
    const fn of(&mut self, rank: usize) -> &mut Self {
        self.rank = rank;
        self
    }

    /// Counts a call that has ended; returns how many ended before it.
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
        // An event that is never due is not scheduled.
        if at != NEVER {
            self.events.push(Reverse(Scheduled { at, class, rank: self.rank, attempt, event }));
        }
    }
}
