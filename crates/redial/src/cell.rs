//! The memory of a running attempt or of the sleep before the next one. This is the only module with
//! `unsafe`.
//!
//! [`Retrying`] is the future of a call. It consists of a driver, which contains the retry logic, and a
//! [`Cell`], which owns the memory.
//!
//! An attempt and a sleep never exist at the same time, so they share one slot. A safe enum would need
//! a tag of its own (8 bytes, which move the future to the next size class of its task) and copies on
//! the fast path (35 instructions). Two bits of the counters' flags record which one is alive instead.
//!
//! Invariants:
//! 1. `HAS_ATTEMPT` is set if and only if `slot.attempt` holds a live value; `HAS_SLEEP` if and only if
//!    `slot.sleep` does. They are never both set.
//! 2. The two bits change only in this module: `with_counters` lends the counters and restores the
//!    bits afterwards.
//! 3. The live value is pinned: it is written, polled and dropped in place. No method moves it or
//!    returns `&mut` to it.
//! 4. `ENDED` is set once an attempt has ended, so an empty cell after that is not mistaken for a new
//!    one. A bit is cleared before its value is dropped, so a destructor that panics runs only once.
//! 5. `HAS_BOX` is set if and only if the driver owns a box, `HAS_WITHDRAWAL` if it holds the withdrawal
//!    of a retry. A driver with either bit is notified when the future is dropped. (A wrong bit would
//!    leak them, nothing worse.)
//!
//! `tests/memory.rs` takes every path through this module, also under valgrind's memcheck.

use std::marker::PhantomPinned;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::pin::Pin;
use std::task::{Context, Poll};

use redial_core::CallCounters;

const HAS_ATTEMPT: u16 = CallCounters::FIRST_DRIVER_BIT;
const HAS_SLEEP: u16 = CallCounters::FIRST_DRIVER_BIT << 1;
/// The driver owns a box.
pub(crate) const HAS_BOX: u16 = CallCounters::FIRST_DRIVER_BIT << 2;
/// The driver holds the withdrawal of a retry that has not started.
pub(crate) const HAS_WITHDRAWAL: u16 = CallCounters::FIRST_DRIVER_BIT << 3;
/// The first bit that is free for the driver.
pub(crate) const FREE: u16 = CallCounters::FIRST_DRIVER_BIT << 4;

union Slot<R, S> {
    attempt: ManuallyDrop<R>,
    sleep: ManuallyDrop<S>,
}

/// The counters of a call, and a slot with an attempt, a sleep or nothing. It has no destructor:
/// [`Retrying`] owns it and clears it.
#[doc(hidden)]
#[repr(C)]
pub struct Cell<R, S> {
    counters: CallCounters,
    slot: MaybeUninit<Slot<R, S>>,
    _pinned: PhantomPinned,
}

impl<R, S> std::fmt::Debug for Cell<R, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.counters.fmt(f)
    }
}

impl<R, S> Cell<R, S> {
    /// An empty cell.
    #[inline(always)]
    fn new(flags: u16) -> Self {
        let counters = CallCounters { attempts: 1, flags, ..CallCounters::new(0) };
        Cell { counters, slot: MaybeUninit::uninit(), _pinned: PhantomPinned }
    }

    #[inline]
    pub(crate) const fn counters(&self) -> &CallCounters {
        &self.counters
    }

    /// Lends the counters to `change`. The bits of this module keep their values, even if it panics.
    #[inline(always)]
    pub(crate) fn with_counters<T>(
        self: Pin<&mut Self>,
        change: impl FnOnce(&mut CallCounters) -> T,
    ) -> T {
        struct RestoreBits<'a> {
            counters: &'a mut CallCounters,
            alive: u16,
        }
        impl Drop for RestoreBits<'_> {
            #[inline(always)]
            fn drop(&mut self) {
                self.counters.flags = self.counters.flags & !(HAS_ATTEMPT | HAS_SLEEP) | self.alive;
            }
        }
        // SAFETY: nothing is moved out of the pinned slot; only the counters, which are not pinned,
        // are lent (invariant 3).
        let this = unsafe { self.get_unchecked_mut() };
        let alive = this.counters.flags & (HAS_ATTEMPT | HAS_SLEEP);
        let restore = RestoreBits { counters: &mut this.counters, alive };
        change(restore.counters)
    }

    /// Counts another attempt and returns its number.
    #[inline(always)]
    pub(crate) fn count_attempt(self: Pin<&mut Self>) -> u32 {
        // SAFETY: as above.
        unsafe { &mut self.get_unchecked_mut().counters }.count()
    }

    /// Whether the future has not been polled.
    #[inline]
    pub(crate) const fn is_new(&self) -> bool {
        self.counters.flags == 0
    }

    #[inline]
    pub(crate) const fn has_attempt(&self) -> bool {
        self.counters.has(HAS_ATTEMPT)
    }

    #[inline]
    pub(crate) const fn has_sleep(&self) -> bool {
        self.counters.has(HAS_SLEEP)
    }

    /// Makes an attempt in the slot.
    ///
    /// # Panics
    /// The slot is not empty.
    #[inline(always)]
    pub(crate) fn put_attempt(self: Pin<&mut Self>, attempt: impl FnOnce() -> R) {
        // SAFETY: the pinned value is neither moved nor lent (invariant 3).
        let this = unsafe { self.get_unchecked_mut() };
        // A local copy shows the compiler that the closure cannot change the flags.
        let flags = this.counters.flags;
        assert!(flags & (HAS_ATTEMPT | HAS_SLEEP) == 0, "the slot is not empty");
        let slot = this.slot.as_mut_ptr();
        // SAFETY: the slot is empty, so no live value is overwritten, and writing a new value in place
        // moves nothing that is pinned (invariants 1 and 3). If the closure panics, the slot is still
        // empty, as the bits state. The slot is large enough for each of its fields; only the field is
        // written, which is less than the whole slot where a sleep is larger.
        unsafe { (&raw mut (*slot).attempt).write(ManuallyDrop::new(attempt())) };
        this.counters.flags = flags | HAS_ATTEMPT;
    }

    /// Puts a sleep into the slot and drops the previous value.
    #[inline]
    pub(crate) fn put_sleep(mut self: Pin<&mut Self>, sleep: S) {
        self.as_mut().clear();
        // SAFETY: as in `put_attempt`.
        let this = unsafe { self.get_unchecked_mut() };
        this.slot.write(Slot { sleep: ManuallyDrop::new(sleep) });
        this.counters.set(HAS_SLEEP);
    }

    /// Drops the value in the slot.
    #[inline(always)]
    pub(crate) fn clear(self: Pin<&mut Self>) {
        if self.counters.flags & (HAS_ATTEMPT | HAS_SLEEP) != 0 {
            self.clear_slot();
        }
    }

    fn clear_slot(self: Pin<&mut Self>) {
        // SAFETY: the pinned value is only dropped in place (invariant 3).
        let this = unsafe { self.get_unchecked_mut() };
        if this.counters.has(HAS_ATTEMPT) {
            this.counters.clear(HAS_ATTEMPT);
            // SAFETY: the bit was set, so `attempt` is alive; it is already cleared (1 and 4).
            unsafe { ManuallyDrop::drop(&mut this.slot.assume_init_mut().attempt) };
        } else if this.counters.has(HAS_SLEEP) {
            this.counters.clear(HAS_SLEEP);
            // SAFETY: the bit was set, so `sleep` is alive; it is already cleared (1 and 4).
            unsafe { ManuallyDrop::drop(&mut this.slot.assume_init_mut().sleep) };
        }
    }
}

impl<R: Future, S> Cell<R, S> {
    /// Polls the attempt, and drops it when it is ready.
    ///
    /// # Panics
    /// The slot has no attempt.
    #[inline(always)]
    pub(crate) fn poll_attempt(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<R::Output> {
        assert!(self.has_attempt(), "no attempt is running");
        let flags = self.counters.flags;
        // SAFETY: the bit is set, so `attempt` is alive; it is pinned with this cell and not moved
        // (invariants 1 and 3).
        let attempt = unsafe {
            self.as_mut().map_unchecked_mut(|this| &mut *this.slot.assume_init_mut().attempt)
        };
        let output = attempt.poll(cx);
        if output.is_ready() {
            // SAFETY: the pinned value is only dropped in place (invariant 3).
            let this = unsafe { self.get_unchecked_mut() };
            // Polling cannot reach the flags. The local copy shows the compiler that they have not
            // changed and that the slot has no sleep.
            this.counters.flags = flags & !(HAS_ATTEMPT | HAS_SLEEP) | CallCounters::ENDED;
            // SAFETY: `attempt` was alive before the poll, polling cannot reach the bits, and the bit is
            // already cleared (invariants 1 and 4).
            unsafe { ManuallyDrop::drop(&mut this.slot.assume_init_mut().attempt) };
        }
        output
    }
}

impl<R, S: Future<Output = ()>> Cell<R, S> {
    /// Polls the sleep, and drops it when it is over.
    ///
    /// # Panics
    /// The slot has no sleep.
    #[inline(always)]
    pub(crate) fn poll_sleep(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        assert!(self.has_sleep(), "no sleep is running");
        // SAFETY: the bit is set, so `sleep` is alive; it is pinned with this cell and not moved
        // (invariants 1 and 3).
        let sleep = unsafe {
            self.as_mut().map_unchecked_mut(|this| &mut *this.slot.assume_init_mut().sleep)
        };
        let output = sleep.poll(cx);
        if output.is_ready() {
            self.clear();
        }
        output
    }
}

/// The future of a call: a driver and its cell.
///
/// The order of the fields is fixed, so that the fields that are zero at the start are adjacent.
#[must_use = "futures do nothing unless polled"]
#[repr(C)]
pub struct Retrying<D: Drive<R, S>, R, S> {
    driver: D,
    cell: Cell<R, S>,
}

/// The logic of a call whose attempts live in a cell.
pub trait Drive<R, S> {
    /// The result of the call.
    type Output;

    /// Advances the call.
    #[doc(hidden)]
    fn poll(&mut self, cell: Pin<&mut Cell<R, S>>, cx: &mut Context<'_>) -> Poll<Self::Output>;

    /// Called when the future is dropped before the call has ended. The attempt is dropped afterwards.
    #[doc(hidden)]
    fn dropped(&mut self, _counters: &CallCounters) {}
}

impl<D: Drive<R, S>, R, S> Retrying<D, R, S> {
    #[inline(always)]
    pub(crate) fn new(driver: D, flags: u16) -> Self {
        Retrying { driver, cell: Cell::new(flags & !(HAS_ATTEMPT | HAS_SLEEP)) }
    }

    /// The driver.
    pub(crate) const fn driver(&self) -> &D {
        &self.driver
    }

    /// The driver, and the cell that is pinned with this.
    #[inline]
    pub(crate) fn parts(self: Pin<&mut Self>) -> (&mut D, Pin<&mut Cell<R, S>>) {
        // SAFETY: the cell is pinned whenever this future is, and nothing moves it; the driver is never
        // pinned, so `&mut` to it is sound (invariant 3).
        let this = unsafe { self.get_unchecked_mut() };
        // SAFETY: as above.
        (&mut this.driver, unsafe { Pin::new_unchecked(&mut this.cell) })
    }
}

impl<D: Drive<R, S>, R, S> Future for Retrying<D, R, S> {
    type Output = D::Output;

    #[inline(always)]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let (driver, cell) = self.parts();
        driver.poll(cell, cx)
    }
}

impl<D: Drive<R, S>, R, S> Drop for Retrying<D, R, S> {
    #[inline(always)]
    fn drop(&mut self) {
        // A call that has ended has nothing to drop.
        if self.cell.counters.flags & (HAS_ATTEMPT | HAS_SLEEP | HAS_BOX | HAS_WITHDRAWAL) != 0 {
            self.drop_rest();
        }
    }
}

impl<D: Drive<R, S>, R, S> Retrying<D, R, S> {
    #[cold]
    #[inline(never)]
    fn drop_rest(&mut self) {
        /// Clears the cell even if the driver panics: the memory is freed in any case, and a pinned value
        /// must have been dropped by then.
        struct ClearOnDrop<'a, R, S>(&'a mut Cell<R, S>);
        impl<R, S> Drop for ClearOnDrop<'_, R, S> {
            fn drop(&mut self) {
                // SAFETY: a value that is being dropped is not moved any more. If it was pinned, it
                // still is; if it never was, the slot is empty (invariant 3).
                unsafe { Pin::new_unchecked(&mut *self.0) }.clear();
            }
        }
        let rest = ClearOnDrop(&mut self.cell);
        self.driver.dropped(&rest.0.counters);
    }
}

impl<D: Drive<R, S>, R, S> std::fmt::Debug for Retrying<D, R, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Retrying").field("counters", &self.cell.counters).finish_non_exhaustive()
    }
}
