//! The draws of calls that were given no seed: each thread's own generator, or a given list.

use std::cell::RefCell;
use std::hash::{BuildHasher, RandomState};
use std::marker::PhantomData;

use redial_core::Random;

#[derive(Debug)]
enum Source {
    Random(Random),
    /// The last one repeats.
    List {
        list: Vec<f64>,
        next: usize,
    },
}

thread_local! {
    static SOURCE: RefCell<Source> = RefCell::new(random());
}

/// A generator with a seed of its own.
fn random() -> Source {
    Source::Random(Random::new(RandomState::new().hash_one(std::thread::current().id())))
}

/// The next draw of this thread, in `[0, 1)`: for drivers of your own around `redial-core`.
///
/// Each thread has its own generator with a seed of its own; [`testing::draws`](crate::testing::draws)
/// gives a list instead.
#[must_use]
pub fn draw() -> f64 {
    // A call in a destructor of a thread that ends may find that the source went before it.
    SOURCE.try_with(|source| source.borrow_mut().draw()).unwrap_or_else(|_| random().draw())
}

impl Source {
    fn draw(&mut self) -> f64 {
        match self {
            Source::Random(random) => random.draw(),
            Source::List { list, next } => {
                let u = list[*next];
                *next = (*next + 1).min(list.len() - 1);
                u
            }
        }
    }
}

/// Given draws are in force on this thread until this is dropped.
#[derive(Debug)]
#[must_use = "the draws are given until this is dropped"]
pub struct Given {
    /// What was in force before; it is again when this is dropped.
    before: Option<Source>,
    /// It belongs to the thread that it was made on.
    thread: PhantomData<*const ()>,
}

/// Gives all calls of this thread that have no seed these draws, in order; the last one repeats.
///
/// # Panics
/// There is no draw, or one that is not in `[0, 1)`.
pub fn given(draws: impl IntoIterator<Item = f64>) -> Given {
    let list: Vec<f64> = draws.into_iter().collect();
    assert!(!list.is_empty(), "at least one draw is given");
    assert!(list.iter().all(|u| (0.0..1.0).contains(u)), "a draw is in [0, 1)");
    let before = SOURCE.replace(Source::List { list, next: 0 });
    Given { before: Some(before), thread: PhantomData }
}

impl Drop for Given {
    fn drop(&mut self) {
        if let Some(before) = self.before.take() {
            // A thread that ends may have freed its source already.
            let _ = SOURCE.try_with(|source| source.replace(before));
        }
    }
}
