//! Locks, atomics and `ArcSwap` in one place, so that loom can replace them in the models.

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

/// Locks a mutex and ignores poisoning: the data is consistent between any two statements that can
/// panic.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
