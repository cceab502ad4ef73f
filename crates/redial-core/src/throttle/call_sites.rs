//! One default budget for each place in the source where a policy is written.
//!
//! A `static` policy names its budget by its place and never holds it: a constant is copied at
//! each use, and a budget inside it would be new each time. The cells are a fixed table; each is
//! claimed at its first use. Places do not collide: when the table is full the rest share one
//! cell, and [`call_sites_share_a_budget`] says so.
//!
//! Implementation details: a place is a `&'static Location`, found by its address, which costs one
//! load. The compiler may keep copies of one location, so a cell whose address is new is pending
//! (its address is stored with the lowest bit set) until its file, line and column were looked up:
//! the first cell that is entered under them is the place's own, and the cells of copies forward to
//! it. Whoever meets a pending cell does the same step with the same result, so nobody waits.

use core::panic::Location;

use super::{Bucket, RetryBudget};
use crate::sync::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use crate::time::Ns;
use crate::{Cost, Grant, Withdrawal};

/// How many places have a budget of their own; a power of two with the shared one. The models fill
/// the table, and need it small.
const CALL_SITES_MAX: usize = if cfg!(loom) { 3 } else { 511 };
/// Entries of the table by content; more than there are cells, so that it never fills.
const CONTENTS: usize = if cfg!(loom) { 4 } else { 1024 };
/// The bit that says that a cell is pending or forwards; addresses of locations are even.
const PENDING: usize = 1;

/// The default budget of one place in the source.
#[derive(Clone, Copy, Debug)]
pub struct CallSite(&'static Location<'static>);

impl CallSite {
    /// The place of the caller.
    #[track_caller]
    #[must_use]
    pub const fn here() -> Self {
        CallSite(Location::caller())
    }

    /// Where it is.
    #[must_use]
    pub const fn location(&self) -> &'static Location<'static> {
        self.0
    }

    /// Its budget: the same whenever this place is reached, and its own unless the table is full.
    #[inline(always)]
    #[must_use]
    pub fn budget(self) -> &'static RetryBudget {
        TABLE.budget(self.0)
    }
}

/// Whether there were more places than cells, so that those that came last share one budget.
#[must_use]
pub fn call_sites_share_a_budget() -> bool {
    TABLE.shared.load(Ordering::Relaxed) != 0
}

impl Bucket for CallSite {
    fn watches_calls(&self) -> bool {
        false
    }
    #[inline]
    fn withdraw(&self, cost: Cost, now: Ns) -> Grant {
        self.budget().withdraw(cost, now)
    }
    fn refund(&self, withdrawal: Withdrawal) {
        self.budget().refund(withdrawal);
    }
    #[inline(always)]
    fn succeeded(&self, _withdrawal: Option<Withdrawal>) {
        self.budget().add(RetryBudget::RATIO_MILLI);
    }
    fn tokens(&self, now: Ns) -> Option<f64> {
        self.budget().tokens(now)
    }
}

// A power of two, so that an address becomes an offset in two instructions.
#[repr(align(32))]
struct Cell {
    /// The location's address; 0: free.
    address: AtomicUsize,
    /// The index of the cell that this copy of a location forwards to, plus 1; 0: not known.
    forward: AtomicU32,
    budget: RetryBudget,
}

struct Table {
    /// The last one is shared by those that found none.
    cells: [Cell; CALL_SITES_MAX + 1],
    /// 48 bits of a hash of the content, and below them the index of its cell; 0: free.
    contents: [AtomicU64; CONTENTS],
    /// Not 0 once the last cell is in use.
    shared: AtomicU32,
}

#[cfg(not(loom))]
static TABLE: Table = Table::new();
#[cfg(loom)]
loom::lazy_static! {
    static ref TABLE: Table = Table::new();
}

/// Finds or claims a cell, for the models: a copy of a location cannot be had at will.
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
            cells: [const {
                Cell {
                    address: AtomicUsize::new(0),
                    forward: AtomicU32::new(0),
                    budget: RetryBudget::standard(),
                }
            }; CALL_SITES_MAX + 1],
            contents: [const { AtomicU64::new(0) }; CONTENTS],
            shared: AtomicU32::new(0),
        }
    }

    #[cfg(loom)]
    fn new() -> Self {
        Table {
            cells: core::array::from_fn(|_| Cell {
                address: AtomicUsize::new(0),
                forward: AtomicU32::new(0),
                budget: RetryBudget::standard(),
            }),
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
            let forward = cell.forward.load(Ordering::Relaxed);
            if forward != 0 {
                return forward as usize - 1;
            }
            let own = self.enter(content(), index);
            if own == index {
                cell.address.store(address, Ordering::Relaxed);
            } else {
                // An index is below 512.
                cell.forward.store(own as u32 + 1, Ordering::Relaxed);
            }
            return own;
        }
        self.shared.store(1, Ordering::Relaxed);
        CALL_SITES_MAX
    }

    /// The index of the cell that was first entered under this content: this one, if none was.
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

/// Where an address is looked for first: locations lie side by side, some 24 bytes apart.
#[inline(always)]
fn slot(address: usize) -> usize {
    (address >> 3) & CALL_SITES_MAX
}

/// A hash of file, line and column; never 0 in its upper 48 bits.
fn content(location: &'static Location<'static>) -> impl FnOnce() -> u64 {
    move || {
        let numbers = [location.line().to_le_bytes(), location.column().to_le_bytes()];
        let bytes = location.file().bytes().chain(numbers.into_iter().flatten());
        crate::Random::new(fnv(bytes)).bits() | 1 << 63
    }
}

/// FNV-1a, by its authors' definition.
fn fnv(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::Kind;

    const COST: Cost = Cost { kind: Kind::Server };

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
        // Another place that asks for the same cell was there before.
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
        // Nor does the copy's cell take in another place that asks for it.
        let asks_for_it = 160 + ((CALL_SITES_MAX + 1) << 3);
        assert_eq!(table.search(|| 11 << 40, asks_for_it), slot(160) + 1);
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
        // All addresses ask for the same slot; whoever comes back finds what it claimed.
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
