//! What a scripted call sees of the world: given draws, its real throttle, and a diary.

use std::cell::Cell;

use redial_core::{Cost, Grant, Note, Ns, Purse, World};

use crate::diary::Diary;
use crate::throttle::Handle;

/// Random numbers that are given, used in order by all calls of a play; the last one repeats.
#[derive(Debug)]
pub(super) struct Draws {
    list: Vec<f64>,
    next: Cell<usize>,
}

impl Draws {
    pub(super) fn new(list: Vec<f64>) -> Self {
        assert!(!list.is_empty(), "at least one draw is given");
        assert!(list.iter().all(|u| (0.0..1.0).contains(u)), "a draw is in [0, 1)");
        Draws { list, next: Cell::new(0) }
    }

    fn draw(&self) -> f64 {
        let next = self.next.get();
        self.next.set((next + 1).min(self.list.len() - 1));
        self.list[next]
    }
}

/// The world of one call.
pub(super) struct Stage<'a> {
    pub(super) purse: Purse<Handle>,
    draws: &'a Draws,
    previous: Option<Ns>,
    pub(super) diary: Diary,
}

impl<'a> Stage<'a> {
    pub(super) fn new(throttle: Handle, draws: &'a Draws) -> Self {
        Stage { purse: Purse::new(throttle), draws, previous: None, diary: Diary::new() }
    }
}

impl World for Stage<'_> {
    fn draw(&mut self) -> f64 {
        self.draws.draw()
    }
    fn failed(&mut self) {
        self.purse.failed();
    }
    fn take(&mut self, cost: Cost, now: Ns) -> Grant {
        self.purse.take(cost, now)
    }
    fn granted(&mut self, grant: Grant) {
        self.purse.hold(grant);
    }
    fn started(&mut self) {
        self.purse.started();
    }
    fn succeeded(&mut self) {
        self.purse.succeeded();
    }
    fn ended(&mut self) {
        self.purse.ended();
    }
    fn previous(&self) -> Option<Ns> {
        self.previous
    }
    fn remember(&mut self, delay: Ns) {
        self.previous = Some(delay);
    }
    fn note(&mut self, at: Ns, note: Note) {
        self.diary.push(at, note);
    }
}
