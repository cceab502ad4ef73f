//! Random draws for calls without a seed: a generator per thread, or a list that a test sets.

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

/// A generator with a random seed.
fn random() -> Source {
    Source::Random(Random::new(RandomState::new().hash_one(std::thread::current().id())))
}

/// The next random draw of this thread, in `[0, 1)`, for your own drivers around `redial-core`.
///
/// Each thread has its own generator with a random seed; [`testing::draws`](crate::testing::draws)
/// replaces it with a list.
#[must_use]
pub fn draw() -> f64 {
    // A call in a thread-local destructor may run after the source was destroyed.
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

/// A guard: the listed draws are used on this thread until it is dropped.
#[derive(Debug)]
#[must_use = "the draws apply until this guard is dropped"]
pub struct DrawsGuard {
    /// The source to restore.
    before: Option<Source>,
    /// Not `Send`: the source is thread-local.
    thread: PhantomData<*const ()>,
}

/// Makes all calls of this thread without a seed use these draws in order; the last one repeats.
///
/// # Panics
/// There is no draw, or one that is not in `[0, 1)`.
pub fn set_draws(draws: impl IntoIterator<Item = f64>) -> DrawsGuard {
    let list: Vec<f64> = draws.into_iter().collect();
    assert!(!list.is_empty(), "at least one draw is needed");
    assert!(list.iter().all(|u| (0.0..1.0).contains(u)), "a draw must be in [0, 1)");
    let before = SOURCE.replace(Source::List { list, next: 0 });
    DrawsGuard { before: Some(before), thread: PhantomData }
}

impl Drop for DrawsGuard {
    fn drop(&mut self) {
        if let Some(before) = self.before.take() {
            // The source may already be destroyed when the thread ends.
            let _ = SOURCE.try_with(|source| source.replace(before));
        }
    }
}
