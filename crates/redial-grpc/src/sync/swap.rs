//! A replacement for `arc_swap` under loom, which cannot see into that crate: a pointer with an atomic
//! load and an atomic exchange. The atomicity is guaranteed by `arc_swap`; the models check the code
//! that relies on it.

use std::ops::Deref;
use std::sync::Arc;

use super::{Mutex, lock};

pub(crate) type ArcSwap<T> = Swap<Arc<T>>;

#[derive(Debug, Default)]
pub(crate) struct Swap<P>(Mutex<P>);

/// The value at the time of the load.
pub(crate) struct Guard<P>(P);

impl<P> Deref for Guard<P> {
    type Target = P;

    fn deref(&self) -> &P {
        &self.0
    }
}

pub(crate) trait Pointer: Clone {
    fn is(&self, other: &Self) -> bool;
}

impl<T> Pointer for Arc<T> {
    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(self, other)
    }
}

impl<T> Swap<Arc<T>> {
    pub(crate) fn from_pointee(value: T) -> Self {
        Swap(Mutex::new(Arc::new(value)))
    }
}

impl<P: Pointer> Swap<P> {
    pub(crate) fn load(&self) -> Guard<P> {
        Guard(lock(&self.0).clone())
    }

    pub(crate) fn store(&self, pointer: P) {
        // The previous value may have locks of its own, so it is dropped after the lock is released.
        drop(std::mem::replace(&mut *lock(&self.0), pointer));
    }

    pub(crate) fn rcu<R: Into<P>>(&self, mut next: impl FnMut(&P) -> R) -> P {
        let mut before = self.load().0;
        loop {
            let next = next(&before).into();
            let mut now = lock(&self.0);
            if now.is(&before) {
                return std::mem::replace(&mut *now, next);
            }
            let other = now.clone();
            drop(now);
            before = other;
        }
    }
}
