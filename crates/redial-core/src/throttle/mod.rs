//! What calls share to hold retries back.
//!
//! Four kinds: gRPC's [`Tokens`], smithy's [`Costs`], the success-funded [`Budget`], and [`Free`],
//! which holds nothing back. A user's own implements [`Bucket`] like them.
//!
//! Invariant: each is one atomic word that changes by compare-and-swap: no lock, no clock on the
//! way of a success, no write when a success finds it full, and exact under contention. The word
//! publishes nothing but itself, so every access is relaxed.

mod budget;
mod costs;
mod places;
mod tokens;

pub use budget::Budget;
pub use costs::{Costs, CostsSpec, Empty};
pub use places::{Place, places_are_shared};
pub use tokens::Tokens;

use alloc::boxed::Box;
use core::pin::Pin;

use crate::time::Ns;
use crate::{Cost, Grant, Taken};

/// What calls share to hold retries back.
pub trait Bucket {
    /// Counts a failure that may be retried. Only throttles that failures drain heed it.
    fn failed(&self) {}

    /// Asks for a retry or hedge.
    fn take(&self, cost: Cost, now: Ns) -> Grant;

    /// The answer that `take` announced as [`Grant::Later`]. Only a throttle that does so needs it.
    fn later(&self, _cost: Cost) -> Pin<Box<dyn Future<Output = Grant> + Send>> {
        Box::pin(core::future::ready(Grant::Refused))
    }

    /// Takes back what was taken for a retry that never started (ruling P6).
    fn give_back(&self, taken: Taken);

    /// A call succeeded; `taken` is what its last retry or hedge took, if there was one.
    fn succeeded(&self, taken: Option<Taken>);

    /// What is left, for people to read; a debt is negative.
    fn tokens(&self, now: Ns) -> Option<f64>;
}

impl<T: Bucket + ?Sized> Bucket for &T {
    fn failed(&self) {
        (**self).failed();
    }
    fn take(&self, cost: Cost, now: Ns) -> Grant {
        (**self).take(cost, now)
    }
    fn later(&self, cost: Cost) -> Pin<Box<dyn Future<Output = Grant> + Send>> {
        (**self).later(cost)
    }
    fn give_back(&self, taken: Taken) {
        (**self).give_back(taken);
    }
    fn succeeded(&self, taken: Option<Taken>) {
        (**self).succeeded(taken);
    }
    fn tokens(&self, now: Ns) -> Option<f64> {
        (**self).tokens(now)
    }
}

/// No throttle: every retry is granted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Free;

impl Bucket for Free {
    fn take(&self, _cost: Cost, _now: Ns) -> Grant {
        Grant::Now(Taken(0))
    }
    fn give_back(&self, _taken: Taken) {}
    fn succeeded(&self, _taken: Option<Taken>) {}
    fn tokens(&self, _now: Ns) -> Option<f64> {
        None
    }
}

/// Thousandths: what tokens and budgets count in.
pub(crate) const MILLI: f64 = 1000.0;
