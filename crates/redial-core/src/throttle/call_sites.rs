//! A default retry budget for each call site: each place in the source where a policy is defined.
//!
//! A `static` policy refers to its budget by its call site instead of holding it: a constant is
//! copied at each use, and a budget inside it would be a new one each time. The budgets are in a
//! table of fixed size, and each is claimed at its first use. Call sites never collide; when the
//! table is full, further ones share one budget, and [`call_sites_share_a_budget`] returns `true`.
//!
//! # Implementation
//!
//! A call site is a `&'static Location`, looked up by its address with one load. The compiler may
//! emit several copies of one location. A cell that is claimed for a new address is therefore
//! pending (its address is stored with the lowest bit set) until its file, line and column have
//! been looked up. The first cell registered for them belongs to the call site, and the cells of
//! other copies forward to it. A thread that finds a pending cell does the same lookup with the
//! same result, so no thread waits for another.

use core::panic::Location;

use super::{Bucket, RetryBudget};
use crate::sync::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use crate::time::Ns;
use crate::{Cost, Grant, Withdrawal};

/// The number of call sites with a budget of their own; with the shared one a power of two. Small
/// under loom, so that model tests can fill the table.
const CALL_SITES_MAX: usize = if cfg!(loom) { 3 } else { 511 };
/// The size of the index by content; larger than the number of cells, so that it never fills up.
const CONTENTS: usize = if cfg!(loom) { 4 } else { 1024 };
/// Marks a cell as pending or forwarding; addresses of locations are even.
const PENDING: usize = 1;

/// A call site, as a throttle: its default retry budget.
#[derive(Clone, Copy, Debug)]
pub struct CallSite(&'static Location<'static>);

impl CallSite {
    /// The call site of the caller.
    #[track_caller]
    #[must_use]
    pub const fn here() -> Self {
        CallSite(Location::caller())
    }

    /// The location in the source.
    #[must_use]
    pub const fn location(&self) -> &'static Location<'static> {
        self.0
    }

    /// Whether the budget is the one that call sites share because the table is full.
    ///
    /// ```
    /// use redial_core::throttle::CallSite;
    ///
    /// assert!(!CallSite::here().shares_budget());
    /// ```
    #[must_use]
    pub fn shares_budget(self) -> bool {
        call_sites_share_a_budget() && core::ptr::eq(self.budget(), TABLE.shared_budget())
    }

    /// The budget: always the same one for this call site, and not shared unless the table is full.
    #[inline(always)]
    #[must_use]
    pub fn budget(self) -> &'static RetryBudget {
        TABLE.budget(self.0)
    }
}

/// Fills the default budget of every call site, for tests: see `redial::testing::fresh_budgets`.
///
/// ```
/// use redial_core::throttle::{Bucket, CallSite, refill_call_sites};
/// use redial_core::{Cost, FailureKind};
///
/// let call_site = CallSite::here();
/// call_site.withdraw(Cost { kind: FailureKind::Server }, 0);
/// assert_eq!(call_site.tokens(0), Some(9.0));
/// refill_call_sites();
/// assert_eq!(call_site.tokens(0), Some(10.0));
/// ```
pub fn refill_call_sites() {
    TABLE.cells.iter().for_each(|cell| cell.budget.refill());
}

/// Whether the table is full, so that some call sites share a budget.
#[must_use]
pub fn call_sites_share_a_budget() -> bool {
    TABLE.shared.load(Ordering::Relaxed) != 0
}

impl Bucket for CallSite {
    fn watches_calls(&self) -> bool {
        false
    }
    #[inline]
    fn withdraw(&self, _cost: Cost, now: Ns) -> Grant {
        self.budget().withdraw_standard(now)
    }
    fn refund(&self, withdrawal: Withdrawal) {
        self.budget().refund(withdrawal);
    }
    #[inline(always)]
    fn succeeded(&self, _withdrawal: Option<Withdrawal>) {
        self.budget().add(RetryBudget::STANDARD_SPENT_MASK, RetryBudget::RATIO_MILLI);
    }
    fn tokens(&self, now: Ns) -> Option<f64> {
        self.budget().tokens(now)
    }
}

// Its 32 bytes are a power of two, so that an address becomes an offset in two instructions.
struct Cell {
    /// The address of the location; 0: free.
    address: AtomicUsize,
    budget: RetryBudget,
}

struct Table {
    /// The last cell is the shared one.
    cells: [Cell; CALL_SITES_MAX + 1],
    /// For a cell that holds a copy of a location: the index of the cell that it forwards to, plus 1;
    /// 0: unknown. Not in the cell, whose size is a power of two.
    forwards: [AtomicU32; CALL_SITES_MAX],
    /// The index by content: 48 bits of a hash, and below them the index of the cell; 0: free.
    contents: [AtomicU64; CONTENTS],
    /// Not 0 once the shared cell is in use.
    shared: AtomicU32,
}

#[cfg(not(loom))]
static TABLE: Table = Table::new();
#[cfg(loom)]
loom::lazy_static! {
    static ref TABLE: Table = Table::new();
}

/// Finds or claims a cell, for model tests: the compiler does not emit copies on demand.
#[cfg(loom)]
#[doc(hidden)]
#[must_use]
pub fn call_site_cell(content: u64, address: usize) -> usize {
    TABLE.search(|| content, address)
}

impl Table {
    #[cfg(not(loom))]
    const fn new() -> Self {
        Table {
            cells: [const { Cell { address: AtomicUsize::new(0), budget: RetryBudget::standard() } };
                CALL_SITES_MAX + 1],
            forwards: [const { AtomicU32::new(0) }; CALL_SITES_MAX],
            contents: [const { AtomicU64::new(0) }; CONTENTS],
            shared: AtomicU32::new(0),
        }
    }

    #[cfg(loom)]
    fn new() -> Self {
        Table {
            cells: core::array::from_fn(|_| Cell {
                address: AtomicUsize::new(0),
                budget: RetryBudget::standard(),
            }),
            forwards: core::array::from_fn(|_| AtomicU32::new(0)),
            contents: core::array::from_fn(|_| AtomicU64::new(0)),
            shared: AtomicU32::new(0),
        }
    }

    #[inline(always)]
    fn budget(&self, location: &'static Location<'static>) -> &RetryBudget {
        let address = core::ptr::from_ref(location).addr();
        let cell = &self.cells[slot(address)];
        if cell.address.load(Ordering::Relaxed) == address {
            return &cell.budget;
        }
        self.search_budget(location, address)
    }

    /// The budget of the call sites that found the table full.
    fn shared_budget(&self) -> &RetryBudget {
        &self.cells[CALL_SITES_MAX].budget
    }

    #[cold]
    #[inline(never)]
    fn search_budget(&self, location: &'static Location<'static>, address: usize) -> &RetryBudget {
        &self.cells[self.search(content(location), address)].budget
    }

    /// Finds or claims the cell of a location.
    fn search(&self, content: impl FnOnce() -> u64, address: usize) -> usize {
        let pending = address | PENDING;
        for probe in 0..CALL_SITES_MAX {
            let index = (slot(address) + probe) % CALL_SITES_MAX;
            let cell = &self.cells[index];
            let claim =
                cell.address.compare_exchange(0, pending, Ordering::Relaxed, Ordering::Relaxed);
            match claim {
                Err(found) if found == address => return index,
                Err(found) if found != pending => continue,
                _ => {}
            }
            let forward = self.forwards[index].load(Ordering::Relaxed);
            if forward != 0 {
                return forward as usize - 1;
            }
            let own = self.enter(content(), index);
            if own == index {
                cell.address.store(address, Ordering::Relaxed);
            } else {
                // An index is below 512.
                self.forwards[index].store(own as u32 + 1, Ordering::Relaxed);
            }
            return own;
        }
        self.shared.store(1, Ordering::Relaxed);
        CALL_SITES_MAX
    }

    /// The cell first registered for this content; this one if there is none yet.
    fn enter(&self, content: u64, index: usize) -> usize {
        let hash = content & !0xffff;
        for probe in 0..CONTENTS {
            let entry = &self.contents[((content >> 16) as usize + probe) % CONTENTS];
            let new = hash | index as u64;
            match entry.compare_exchange(0, new, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return index,
                Err(found) if found & !0xffff == hash => return (found & 0xffff) as usize,
                Err(_) => {}
            }
        }
        index
    }
}

/// The first cell to try for an address: locations are about 24 bytes apart.
#[inline(always)]
fn slot(address: usize) -> usize {
    (address >> 3) & CALL_SITES_MAX
}

/// A hash of file, line and column; its upper 48 bits are never 0.
fn content(location: &'static Location<'static>) -> impl FnOnce() -> u64 {
    move || {
        let numbers = [location.line().to_le_bytes(), location.column().to_le_bytes()];
        let bytes = location.file().bytes().chain(numbers.into_iter().flatten());
        crate::Random::new(fnv(bytes)).bits() | 1 << 63
    }
}

/// The FNV-1a hash.
fn fnv(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::FailureKind;

    const COST: Cost = Cost { kind: FailureKind::Server };

    #[track_caller]
    fn call_site_here() -> CallSite {
        CallSite::here()
    }

    #[test]
    fn call_site_budgets_are_independent() {
        let (dead, alive) = (call_site_here(), call_site_here());
        (0..10).for_each(|_| assert_eq!(dead.withdraw(COST, 0), Grant::Now(Withdrawal(1000))));
        assert_eq!((dead.withdraw(COST, 0), dead.tokens(0)), (Grant::Refused, Some(0.0)));
        assert_eq!(alive.tokens(0), Some(10.0));
        assert!(!call_sites_share_a_budget());
    }

    #[test]
    fn call_site_success_and_refund_reach_its_budget() {
        let call_site = call_site_here();
        let Grant::Now(withdrawal) = call_site.withdraw(COST, 0) else { panic!("it is full") };
        call_site.succeeded(Some(withdrawal));
        assert_eq!(call_site.tokens(0), Some(9.1));
        assert_eq!(call_site.withdraw(COST, 0), Grant::Now(withdrawal));
        call_site.refund(withdrawal);
        assert_eq!(call_site.tokens(0), Some(9.1));
    }

    #[test]
    fn call_site_claims_its_own_cell_or_the_next() {
        let location = call_site_here().location();
        let address = core::ptr::from_ref(location).addr();
        let mine = slot(address) % CALL_SITES_MAX;
        let table = alloc::boxed::Box::new(Table::new());
        for _ in 0..2 {
            assert!(core::ptr::eq(table.budget(location), &table.cells[mine].budget));
            assert_eq!(table.cells[mine].address.load(Ordering::Relaxed), address);
        }
        // The cell is already claimed by another call site.
        let table = alloc::boxed::Box::new(Table::new());
        assert_eq!(table.search(|| 1 << 40, address + ((CALL_SITES_MAX + 1) << 3)), mine);
        for _ in 0..2 {
            let next = (mine + 1) % CALL_SITES_MAX;
            assert!(core::ptr::eq(table.budget(location), &table.cells[next].budget));
        }
    }

    #[test]
    fn call_site_reached_twice_has_one_budget() {
        let same = || call_site_here();
        assert_eq!(same().withdraw(COST, 0), Grant::Now(Withdrawal(1000)));
        assert_eq!(same().tokens(0), Some(9.0));
    }

    #[test]
    fn call_site_adjacent_locations_map_to_different_cells() {
        assert_eq!([4096, 4120, 4144, 8168].map(slot), [0, 3, 6, 509]);
    }

    #[test]
    fn call_site_hash_matches_published_vectors() {
        let of = |text: &str| fnv(text.bytes());
        assert_eq!(of(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(of("a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(of("foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn call_site_copies_of_a_location_share_its_cell() {
        let table = alloc::boxed::Box::new(Table::new());
        let content = 7 << 40 | 0xabcd;
        let first = table.search(|| content, 8);
        let copy = table.search(|| content, 160);
        assert_eq!((first, copy), (slot(8), slot(8)));
        assert_eq!(table.search(|| unreachable!("the copy is known"), 160), first);
        assert_ne!(table.search(|| 9 << 40, 320), first);
        // The cell of the copy does not serve another call site with the same first cell.
        let same_first_cell = 160 + ((CALL_SITES_MAX + 1) << 3);
        assert_eq!(table.search(|| 11 << 40, same_first_cell), slot(160) + 1);
    }

    #[test]
    fn call_site_copies_resolve_despite_hash_collisions() {
        let table = alloc::boxed::Box::new(Table::new());
        let find =
            |copy: usize| (1..=200).map(move |call_site| (call_site, call_site << 20 | copy << 3));
        let cell = |(call_site, address)| table.search(|| (call_site as u64) << 40, address);
        let first: alloc::vec::Vec<_> = find(0).map(cell).collect();
        assert!(find(1).map(cell).eq(first));
    }

    #[test]
    fn call_sites_beyond_the_table_share_the_last_cell() {
        let table = alloc::boxed::Box::new(Table::new());
        let mut seen = alloc::collections::BTreeSet::new();
        // All addresses have the same first cell; each later lookup finds the cell that was
        // claimed.
        for call_site in (1..=CALL_SITES_MAX).chain(1..=CALL_SITES_MAX) {
            seen.insert(table.search(|| (call_site as u64) << 20, call_site << 20));
        }
        assert_eq!(seen.len(), CALL_SITES_MAX);
        assert!(!seen.contains(&CALL_SITES_MAX) && table.shared.load(Ordering::Relaxed) == 0);
        assert_eq!(table.search(|| 1 << 60, 1 << 40), CALL_SITES_MAX);
        assert_eq!(table.shared.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn call_site_threads_claim_one_cell() {
        let table = std::sync::Arc::new(Table::new());
        let threads = [16, 16, 160, 160].map(|address| {
            let table = table.clone();
            std::thread::spawn(move || table.search(|| 5 << 40, address))
        });
        let found = threads.map(|thread| thread.join().unwrap());
        assert!(found.iter().all(|index| *index == found[0]), "{found:?}");
    }
}
