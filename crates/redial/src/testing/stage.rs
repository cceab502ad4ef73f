//! What a scripted call sees of the outside: given draws, and a diary.

use std::cell::Cell;

use redial_core::{Note, Ns, Outside};

use crate::diary::Diary;

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

/// What one call draws from and writes to.
pub(super) struct Stage<'a> {
    draws: &'a Draws,
    pub(super) diary: Diary,
}

impl<'a> Stage<'a> {
    pub(super) fn new(draws: &'a Draws) -> Self {
        Stage { draws, diary: Diary::new() }
    }
}

impl Outside for Stage<'_> {
    fn draw(&mut self) -> f64 {
        self.draws.draw()
    }
    fn note(&mut self, at: Ns, note: Note) {
        self.diary.push(at, note);
    }
}
