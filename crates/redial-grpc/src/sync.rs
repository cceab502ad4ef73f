//! Locks, atomics and exchanged pointers from one place, so that the models of `loom` can stand in
//! for them.

#[cfg(loom)]
mod swap;

#[cfg(not(loom))]
pub(crate) use {
    arc_swap::ArcSwap,
    std::sync::{
        Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering},
    },
};

#[cfg(loom)]
pub(crate) use {
    loom::sync::{
        Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering},
    },
    swap::ArcSwap,
};

/// The lock, even if somebody panicked while holding it: what it guards is consistent between
/// any two statements that can panic.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
