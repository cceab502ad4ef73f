//! Random choices.

use redial_core::Random;
use serde_json::{Value, json};

/// The random generator.
pub(crate) struct Dice(pub(crate) Random);

impl Dice {
    pub(crate) fn below(&mut self, most: u64) -> u64 {
        self.0.bits() % most
    }
    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
    pub(crate) fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize].clone()
    }
    /// A duration in whole milliseconds, often zero or equal, so that events coincide.
    pub(crate) fn ms(&mut self) -> u64 {
        self.pick(&[0, 1, 5, 10, 10, 20, 25, 50, 100])
    }
    pub(crate) fn span(&mut self) -> Value {
        let ms = self.ms();
        json!(format!("{ms}ms"))
    }
}
