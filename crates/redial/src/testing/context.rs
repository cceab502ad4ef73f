//! The context of a scripted call: fixed random draws and a call log.

use std::cell::Cell;

use redial_core::{DriverContext, Event, Ns};

use crate::call_log::CallLog;

/// Random draws from a list, used in order by all calls of a play; the last one repeats.
#[derive(Debug)]
pub(super) struct Draws {
    list: Vec<f64>,
    next: Cell<usize>,
}

impl Draws {
    pub(super) fn new(list: Vec<f64>) -> Self {
        assert!(!list.is_empty(), "at least one draw is needed");
        assert!(list.iter().all(|u| (0.0..1.0).contains(u)), "a draw must be in [0, 1)");
        Draws { list, next: Cell::new(0) }
    }

    fn draw(&self) -> f64 {
        let next = self.next.get();
        self.next.set((next + 1).min(self.list.len() - 1));
        self.list[next]
    }
}

/// The draws and the call log of one call.
pub(super) struct ScriptContext<'a> {
    draws: &'a Draws,
    pub(super) call_log: CallLog,
}

impl<'a> ScriptContext<'a> {
    pub(super) fn new(draws: &'a Draws) -> Self {
        ScriptContext { draws, call_log: CallLog::new() }
    }
}

impl DriverContext for ScriptContext<'_> {
    fn draw(&mut self) -> f64 {
        self.draws.draw()
    }
    fn record(&mut self, at: Ns, event: Event) {
        self.call_log.push(at, event);
    }
}
