//! Wakers of the readers that wait for a frame, and work deferred until the lock is released.
//!
//! A reader that has got its frame may stay registered: at worst it is woken once more than needed.
//! Invariant: no waker runs under the lock of this module.

use std::any::Any;
use std::sync::Arc;
use std::task::{Wake, Waker};

use crate::sync::{Mutex, lock};

/// Registered readers. Used as a waker, it wakes all of them.
#[derive(Default)]
pub(super) struct ReaderWakers {
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    readers: Vec<(u32, Waker)>,
}

impl ReaderWakers {
    /// Registers a waiting reader; returns the waker that it replaces.
    pub(super) fn register(&self, attempt: u32, waker: &Waker) -> Option<Waker> {
        let mut waiting = lock(&self.waiting);
        match waiting.readers.iter_mut().find(|(other, _)| *other == attempt) {
            Some((_, registered)) if registered.will_wake(waker) => None,
            Some((_, registered)) => Some(std::mem::replace(registered, waker.clone())),
            None => {
                waiting.readers.push((attempt, waker.clone()));
                None
            }
        }
    }

    /// Removes a reader.
    pub(super) fn remove(&self, attempt: u32) -> Option<Waker> {
        let mut waiting = lock(&self.waiting);
        let index = waiting.readers.iter().position(|(other, _)| *other == attempt)?;
        Some(waiting.readers.swap_remove(index).1)
    }

    /// Takes the wakers of all readers except this one, which stays registered.
    pub(super) fn take_others(&self, attempt: u32) -> Vec<Waker> {
        let mut waiting = lock(&self.waiting);
        let others = waiting.readers.extract_if(.., |(other, _)| *other != attempt);
        others.map(|(_, waker)| waker).collect()
    }

    /// Wakes and removes all readers.
    pub(super) fn wake_all(&self) {
        let wakers = lock(&self.waiting).take();
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl Waiting {
    fn take(&mut self) -> Vec<Waker> {
        self.readers.drain(..).map(|(_, waker)| waker).collect()
    }
}

impl Wake for ReaderWakers {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.wake_all();
    }
}

/// Work to do after the lock is released: wakers to call and values to drop.
#[derive(Default)]
#[must_use]
pub(super) struct Deferred {
    wakers: Vec<Waker>,
    rest: Vec<Box<dyn Any + Send>>,
}

impl Deferred {
    pub(super) fn wake(&mut self, wakers: impl IntoIterator<Item = Waker>) {
        self.wakers.extend(wakers);
    }

    pub(super) fn drop<T: Send + 'static>(&mut self, rest: Option<T>) {
        if let Some(rest) = rest {
            self.rest.push(Box::new(rest));
        }
    }

    pub(super) fn run(self) {
        self.wakers.into_iter().for_each(Waker::wake);
    }
}
