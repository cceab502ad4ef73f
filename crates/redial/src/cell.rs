//! Where an attempt or the sleep before the next one lives: the one module with `unsafe`.
//!
//! [`Retrying`] is the future of a call: a driver, which decides nothing about memory, and the
//! cell, which decides nothing about retries.
//!
//! An attempt and a sleep are never alive at once in this place, so they share it. A safe enum
//! would do, at the price of a tag of its own (8 bytes, which push the future over the size class of
//! its task) and of copies on the way of a success (35 instructions). What is alive is said by two
//! bits of the ledger's flags instead.
//!
//! Invariants:
//! 1. `HAS_ATTEMPT` is set if and only if `union.run` holds a live value; `HAS_SLEEP` if and only if
//!    `union.sleep` does. They are never both set.
//! 2. The bits change only in this module: `with_ledger` hands out the ledger and puts the two bits
//!    back as they were.
//! 3. What is alive is pinned: it is written in place, polled in place and dropped in place; no
//!    method moves it or hands out `&mut` to it.
//! 4. `ENDED` is set once an attempt has ended, so that a cell in which nothing is alive any more is
//!    not a new one. A bit is cleared before its value is dropped, so that a destructor that panics
//!    is not run twice.
//! 5. `HAS_BOX` is set if and only if the driver owns a box, `HAS_WITHDRAWAL` if it holds a payment; a driver
//!    with either is told when it is dropped. (A wrong bit would leak them, nothing worse.)
//!
//! `tests/memory.rs` takes every path through it, and runs under valgrind's memcheck.

use std::marker::PhantomPinned;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::pin::Pin;
use std::task::{Context, Poll};

use redial_core::CallCounters;

const HAS_ATTEMPT: u16 = CallCounters::FREE;
const HAS_SLEEP: u16 = CallCounters::FREE << 1;
/// The driver owns a box.
pub(crate) const HAS_BOX: u16 = CallCounters::FREE << 2;
/// The driver holds what a retry was paid with that has not started.
pub(crate) const HAS_WITHDRAWAL: u16 = CallCounters::FREE << 3;
/// The first bit that is left to the driver.
pub(crate) const FREE: u16 = CallCounters::FIRST_DRIVER_BIT << 4;

union Slot<R, S> {
    attempt: ManuallyDrop<R>,
    sleep: ManuallyDrop<S>,
}

/// A ledger with an attempt, a sleep, or nothing beside it. It has no destructor of its own: only
/// [`Retrying`] holds one, and clears it.
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
    /// With nothing in it, for the first attempt.
    #[inline(always)]
    fn new(flags: u16) -> Self {
        let counters = CallCounters { attempts: 1, flags, ..CallCounters::new(0) };
        Cell { counters, slot: MaybeUninit::uninit(), _pinned: PhantomPinned }
    }

    #[inline]
    pub(crate) const fn counters(&self) -> &CallCounters {
        &self.counters
    }

    /// Lets `change` see and change the ledger; the bits of this module stay as they are, even if it
    /// panics.
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
        // SAFETY: nothing is moved out of the pinned place: only the ledger, which is not pinned,
        // is handed out (invariant 3).
        let this = unsafe { self.get_unchecked_mut() };
        let alive = this.counters.flags & (HAS_ATTEMPT | HAS_SLEEP);
        let restore = RestoreBits { counters: &mut this.counters, alive };
        change(restore.counters)
    }

    /// Counts another attempt, and says which one it is.
    #[inline(always)]
    pub(crate) fn count_attempt(self: Pin<&mut Self>) -> u32 {
        // SAFETY: as above.
        unsafe { &mut self.get_unchecked_mut().counters }.count()
    }

    /// Whether nothing has happened yet.
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

    /// Puts an attempt in place.
    ///
    /// # Panics
    /// An attempt or a sleep is there.
    #[inline(always)]
    pub(crate) fn put_attempt(self: Pin<&mut Self>, attempt: impl FnOnce() -> R) {
        // SAFETY: what is pinned is neither moved nor handed out (invariant 3).
        let this = unsafe { self.get_unchecked_mut() };
        // Kept over the call: the compiler must not think that the closure can reach them.
        let flags = this.counters.flags;
        assert!(flags & (HAS_ATTEMPT | HAS_SLEEP) == 0, "an attempt or a sleep is there");
        let slot = this.slot.as_mut_ptr();
        // SAFETY: nothing is alive, so nothing is overwritten without its drop, and writing a new
        // value in place moves nothing that is pinned (invariants 1 and 3). If the closure panics
        // nothing is alive, as the bits say. The place is ours and large enough for each of its
        // fields; only the field is written, which is less than the whole where a sleep is larger.
        unsafe { (&raw mut (*slot).attempt).write(ManuallyDrop::new(attempt())) };
        this.counters.flags = flags | HAS_ATTEMPT;
    }

    /// Puts a sleep in place; what was there is dropped.
    #[inline]
    pub(crate) fn put_sleep(mut self: Pin<&mut Self>, sleep: S) {
        self.as_mut().clear();
        // SAFETY: as in `run`.
        let this = unsafe { self.get_unchecked_mut() };
        this.slot.write(Slot { sleep: ManuallyDrop::new(sleep) });
        this.counters.set(HAS_SLEEP);
    }

    /// Drops what is there.
    #[inline(always)]
    pub(crate) fn clear(self: Pin<&mut Self>) {
        if self.counters.flags & (HAS_ATTEMPT | HAS_SLEEP) != 0 {
            self.clear_slot();
        }
    }

    fn clear_slot(self: Pin<&mut Self>) {
        // SAFETY: what is pinned is only dropped in place (invariant 3).
        let this = unsafe { self.get_unchecked_mut() };
        if this.counters.has(HAS_ATTEMPT) {
            this.counters.clear(HAS_ATTEMPT);
            // SAFETY: the bit says that `run` is alive, and it is cleared already (1 and 4).
            unsafe { ManuallyDrop::drop(&mut this.slot.assume_init_mut().attempt) };
        } else if this.counters.has(HAS_SLEEP) {
            this.counters.clear(HAS_SLEEP);
            // SAFETY: the bit says that `sleep` is alive, and it is cleared already (1 and 4).
            unsafe { ManuallyDrop::drop(&mut this.slot.assume_init_mut().sleep) };
        }
    }
}

impl<R: Future, S> Cell<R, S> {
    /// Polls the attempt, and drops it when it is ready.
    ///
    /// # Panics
    /// No attempt is there.
    #[inline(always)]
    pub(crate) fn poll_attempt(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<R::Output> {
        assert!(self.has_attempt(), "no attempt is running");
        let flags = self.counters.flags;
        // SAFETY: the bit says that `run` is alive; it is pinned with this cell and not moved
        // (invariants 1 and 3).
        let attempt = unsafe {
            self.as_mut().map_unchecked_mut(|this| &mut *this.slot.assume_init_mut().attempt)
        };
        let output = attempt.poll(cx);
        if output.is_ready() {
            // SAFETY: what is pinned is only dropped in place (invariant 3).
            let this = unsafe { self.get_unchecked_mut() };
            // Polling cannot reach the flags: that they are what they were, and that nothing sleeps
            // where an attempt runs, is for the compiler to see.
            this.counters.flags = flags & !(HAS_ATTEMPT | HAS_SLEEP) | CallCounters::ENDED;
            // SAFETY: it was alive before it was polled, polling cannot reach the bits, and the bit
            // is cleared already (invariants 1 and 4).
            unsafe { ManuallyDrop::drop(&mut this.slot.assume_init_mut().attempt) };
        }
        output
    }
}

impl<R, S: Future<Output = ()>> Cell<R, S> {
    /// Polls the sleep, and drops it when it is over.
    ///
    /// # Panics
    /// No sleep is there.
    #[inline(always)]
    pub(crate) fn poll_sleep(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        assert!(self.has_sleep(), "nothing sleeps");
        // SAFETY: the bit says that `sleep` is alive; it is pinned with this cell and not moved
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

/// A cell with a driver beside it: the future of a call. It polls by handing the cell to the driver.
///
/// The order of its fields is given: what is zero at the start lies together.
#[must_use = "futures do nothing unless polled"]
#[repr(C)]
pub struct Retrying<D: Drive<R, S>, R, S> {
    driver: D,
    cell: Cell<R, S>,
}

/// What plays a call in a cell.
pub trait Drive<R, S> {
    /// What the call results in.
    type Output;

    /// Goes on.
    #[doc(hidden)]
    fn poll(&mut self, cell: Pin<&mut Cell<R, S>>, cx: &mut Context<'_>) -> Poll<Self::Output>;

    /// The future is dropped, and something of the call is left; what runs is dropped after this.
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
        // SAFETY: the cell is pinned whenever this is, and nothing moves it; the driver is never
        // pinned, so handing out `&mut` to it breaks no promise (invariant 3).
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
        // Nothing of a call that has ended is left.
        if self.cell.counters.flags & (HAS_ATTEMPT | HAS_SLEEP | HAS_BOX | HAS_WITHDRAWAL) != 0 {
            self.drop_rest();
        }
    }
}

impl<D: Drive<R, S>, R, S> Retrying<D, R, S> {
    #[cold]
    #[inline(never)]
    fn drop_rest(&mut self) {
        /// Clears the cell whatever the driver does: its memory goes even if that panics, and what
        /// was pinned there must have been dropped by then.
        struct ClearOnDrop<'a, R, S>(&'a mut Cell<R, S>);
        impl<R, S> Drop for ClearOnDrop<'_, R, S> {
            fn drop(&mut self) {
                // SAFETY: a value that is being dropped is not moved any more; if it was pinned it
                // still is, and if it never was, nothing was put in place (invariant 3).
                unsafe { Pin::new_unchecked(&mut *self.0) }.clear();
            }
        }
        let rest = ClearOnDrop(&mut self.cell);
        self.driver.dropped(&rest.0.counters);
    }
}

impl<D: Drive<R, S>, R, S> std::fmt::Debug for Retrying<D, R, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Retrying").field("ledger", &self.cell.counters).finish_non_exhaustive()
    }
}
