//! One default budget for each place in the source where a policy is written.
//!
//! A `static` policy names its budget by its place and never holds it: a constant is copied at
//! each use, and a budget inside it would be new each time. The cells are a fixed table; each is
//! claimed at its first use. Places do not collide: when the table is full the rest share one
//! cell, and [`places_shared`] says how many do.
//!
//! Implementation details: a place is a `&'static Location`, found by its address, which costs one
//! load. The compiler may keep copies of one location, so a new address first looks for a cell with
//! the same file, line and column. An entry is claimed by a compare-and-swap of its address; its
//! cell is then found by content, so that whoever races for it finds the same one.

use core::panic::Location;

use super::{Bucket, Budget};
use crate::sync::{AtomicU64, AtomicUsize, Ordering};
use crate::time::Ns;
use crate::{Cost, Grant, Taken};

/// How many places have a budget of their own.
const PLACES_MAX: usize = 512;
/// Entries of the address table: copies of a location need entries of their own.
const ENTRIES: usize = 2 * PLACES_MAX;

/// The default budget of one place in the source.
#[derive(Clone, Copy, Debug)]
pub struct Place(&'static Location<'static>);

impl Place {
    /// The place of the caller.
    #[track_caller]
    #[must_use]
    pub const fn here() -> Self {
        Place(Location::caller())
    }

    /// Where it is.
    #[must_use]
    pub const fn location(&self) -> &'static Location<'static> {
        self.0
    }

    /// How many different values [`Place::index`] has.
    pub const COUNT: usize = PLACES_MAX + 1;

    /// Its number, below [`Place::COUNT`]: the same whenever this place is reached, and its own
    /// unless the table is full.
    #[inline]
    #[must_use]
    pub fn index(self) -> usize {
        TABLE.index(self.0)
    }

    /// Its budget.
    #[inline]
    #[must_use]
    pub fn budget(self) -> &'static Budget {
        &TABLE.cells[self.index()].budget
    }
}

/// How many places found no cell of their own and share the last one.
#[must_use]
pub fn places_shared() -> usize {
    TABLE.shared.load(Ordering::Relaxed)
}

impl Bucket for Place {
    #[inline]
    fn take(&self, cost: Cost, now: Ns) -> Grant {
        self.budget().take(cost, now)
    }
    fn give_back(&self, taken: Taken) {
        self.budget().give_back(taken);
    }
    #[inline]
    fn succeeded(&self, taken: Option<Taken>) {
        self.budget().succeeded(taken);
    }
    fn tokens(&self, now: Ns) -> Option<f64> {
        self.budget().tokens(now)
    }
}

struct Entry {
    /// The location's address; 0: free.
    address: AtomicUsize,
    /// The cell's index plus 1; 0: not known yet.
    cell: AtomicUsize,
}

struct Cell {
    /// A hash of file, line and column; 0: free.
    content: AtomicU64,
    budget: Budget,
}

struct Table {
    entries: [Entry; ENTRIES],
    /// The last cell is shared by those that found none.
    cells: [Cell; PLACES_MAX + 1],
    shared: AtomicUsize,
}

#[cfg(not(loom))]
static TABLE: Table = Table::new();
#[cfg(loom)]
loom::lazy_static! {
    static ref TABLE: Table = unreachable!("the places are not modelled; their budgets are");
}

impl Table {
    #[cfg(not(loom))]
    const fn new() -> Self {
        Table {
            entries: [const { Entry { address: AtomicUsize::new(0), cell: AtomicUsize::new(0) } };
                ENTRIES],
            cells: [const { Cell { content: AtomicU64::new(0), budget: Budget::standard() } };
                PLACES_MAX + 1],
            shared: AtomicUsize::new(0),
        }
    }

    #[inline]
    fn index(&self, location: &'static Location<'static>) -> usize {
        let address = core::ptr::from_ref(location).addr();
        let entry = &self.entries[slot(address)];
        if entry.address.load(Ordering::Relaxed) == address {
            let cell = entry.cell.load(Ordering::Relaxed);
            if cell != 0 {
                return (cell - 1).min(PLACES_MAX);
            }
        }
        self.search(location, address)
    }

    /// Finds or claims the entry and the cell of a location.
    #[cold]
    #[inline(never)]
    fn search(&self, location: &Location<'_>, address: usize) -> usize {
        for probe in 0..ENTRIES {
            let entry = &self.entries[(slot(address) + probe) % ENTRIES];
            let claimed =
                entry.address.compare_exchange(0, address, Ordering::Relaxed, Ordering::Relaxed);
            if claimed.is_ok() || claimed == Err(address) {
                let known = entry.cell.load(Ordering::Relaxed);
                if known != 0 {
                    return known - 1;
                }
                let cell = self.cell(content(location));
                entry.cell.store(cell + 1, Ordering::Relaxed);
                return cell;
            }
        }
        // The copies of locations alone have filled the table; the content still has its cell.
        self.cell(content(location))
    }

    /// The index of the cell for this content; the last one if all are claimed.
    fn cell(&self, content: u64) -> usize {
        for probe in 0..PLACES_MAX {
            let index = (content as usize).wrapping_add(probe) % PLACES_MAX;
            let claimed = self.cells[index].content.compare_exchange(
                0,
                content,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
            if claimed.is_ok() || claimed == Err(content) {
                return index;
            }
        }
        self.shared.fetch_add(1, Ordering::Relaxed);
        PLACES_MAX
    }
}

/// Where an address is looked for first: locations are 24 bytes long and lie side by side.
#[inline]
fn slot(address: usize) -> usize {
    (address >> 3) % ENTRIES
}

/// A hash of file, line and column (FNV-1a, then mixed); never 0.
fn content(location: &Location<'_>) -> u64 {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    let numbers = [location.line().to_le_bytes(), location.column().to_le_bytes()];
    for byte in location.file().bytes().chain(numbers.into_iter().flatten()) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    crate::Random::new(hash).bits() | 1
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::Kind;

    const COST: Cost = Cost { kind: Kind::Server };

    #[track_caller]
    fn written_here() -> Place {
        Place::here()
    }

    #[test]
    fn one_dead_dependency_does_not_drain_the_others() {
        let (dead, alive) = (written_here(), written_here());
        while dead.take(COST, 0) != Grant::Refused {}
        assert_eq!(dead.tokens(0), Some(0.0));
        assert_eq!(alive.tokens(0), Some(10.0));
    }

    #[test]
    fn a_place_that_is_reached_twice_has_one_budget() {
        let same = || written_here();
        assert_eq!(same().take(COST, 0), Grant::Now(Taken(1000)));
        assert_eq!(same().tokens(0), Some(9.0));
    }

    #[test]
    fn copies_of_a_location_share_its_cell_and_a_full_table_shares_one() {
        let table = alloc::boxed::Box::new(Table::new());
        let here = Location::caller();
        let first = table.search(here, 8);
        let copy = table.search(here, 16);
        assert_eq!(first, copy);
        for content in 1..=PLACES_MAX as u64 {
            table.cell(content << 32 | 1);
        }
        let shared = table.shared.load(Ordering::Relaxed);
        assert_eq!(shared, 1, "one cell was claimed by `here`, so one place too many came");
        assert_eq!(table.cell(0xffff_ffff), PLACES_MAX);
    }
}
