//! Smithy's token bucket: retries cost by the kind of failure, time refills it (section S).
//!
//! Implementation details: one word says what is missing. Without a refill it is the amount that
//! was taken, in millionths of a token. With one it is the moment at which the bucket will be full
//! again, in nanoseconds; `now` stands for "full". Both are the same arithmetic, with a token worth
//! so many units and `now` fixed at 0 where time changes nothing. A success subtracts without
//! knowing the time: what is subtracted below `now` is cut off when somebody next takes, and until
//! then only additions can happen, so nothing is gained by it.
//!
//! Invariant: without waiting, `0 <= left <= capacity`; with it, a debt is what callers wait for.

use super::Bucket;
use crate::sync::{AtomicU64, Ordering};
use crate::time::Ns;
use crate::{Cost, Grant, Kind, Problem, Taken};

/// What an empty bucket does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Empty {
    /// It lends, and the caller waits until the refill has paid the debt.
    Wait,
    /// It refuses: a circuit breaker.
    Fail,
}

/// The parameters of a [`Costs`] bucket.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CostsSpec {
    /// How many tokens it holds.
    pub capacity: f64,
    /// What a retry costs after a server failure.
    pub server: f64,
    /// What a retry costs after a client failure.
    pub client: f64,
    /// What a retry costs after throttling.
    pub throttling: f64,
    /// What a retry costs after a timeout.
    pub timeout: f64,
    /// What a success at the first try adds.
    pub success: f64,
    /// How many tokens come back per second.
    pub refill_per_second: f64,
    /// What happens when less than the cost is there.
    pub empty: Empty,
}

impl CostsSpec {
    /// Smithy's standard bucket (ruling S1).
    pub const STANDARD: CostsSpec = CostsSpec {
        capacity: 500.0,
        server: 5.0,
        client: 5.0,
        throttling: 10.0,
        timeout: 10.0,
        success: 1.0,
        refill_per_second: 10.0,
        empty: Empty::Wait,
    };

    /// The bucket of the AWS SDKs' rules of 2026 (ruling S6).
    pub const AWS_2026: CostsSpec = CostsSpec {
        server: 14.0,
        client: 14.0,
        throttling: 5.0,
        timeout: 14.0,
        refill_per_second: 0.0,
        empty: Empty::Fail,
        ..CostsSpec::STANDARD
    };

    fn problem(&self) -> Option<Problem> {
        if !(0.0..=1e9).contains(&self.capacity) {
            return Some(Problem::Capacity);
        }
        let costs = [self.server, self.client, self.throttling, self.timeout];
        if costs.iter().chain([&self.success]).any(|cost| !(*cost >= 0.0 && cost.is_finite())) {
            return Some(Problem::Cost);
        }
        if costs.iter().any(|cost| *cost > self.capacity) {
            return Some(Problem::CostAboveCapacity);
        }
        let refill = self.refill_per_second;
        if refill != 0.0
            && !(refill.is_finite() && refill > 0.0 && self.capacity / refill <= CENTURY)
        {
            return Some(Problem::Refill);
        }
        if refill == 0.0 && self.empty == Empty::Wait {
            return Some(Problem::WaitWithoutRefill);
        }
        None
    }
}

/// A hundred years in seconds: the slowest refill whose arithmetic fits a word.
const CENTURY: f64 = 100.0 * 365.25 * 86_400.0;
/// Units per token where time changes nothing.
const MICRO: f64 = 1e6;
/// Units per second of refill.
const NANO: f64 = 1e9;

/// A bucket whose retries cost by the kind of failure.
#[derive(Debug)]
pub struct Costs {
    /// What is missing; see the head of this file.
    missing: AtomicU64,
    spec: CostsSpec,
    /// What a full bucket holds, in units.
    capacity: u64,
    /// What one token is worth in units.
    unit: f64,
}

impl Costs {
    /// A full bucket.
    ///
    /// # Errors
    /// A contradiction in the parameters, with what to write instead.
    pub fn new(spec: CostsSpec) -> Result<Self, Problem> {
        if let Some(problem) = spec.problem() {
            return Err(problem);
        }
        let unit =
            if spec.refill_per_second == 0.0 { MICRO } else { NANO / spec.refill_per_second };
        let capacity = to_units(spec.capacity, unit);
        Ok(Costs { missing: AtomicU64::new(0), spec, capacity, unit })
    }

    /// Its parameters.
    #[must_use]
    pub const fn spec(&self) -> &CostsSpec {
        &self.spec
    }

    /// What a retry costs after a failure of this kind.
    #[must_use]
    pub const fn cost(&self, kind: Kind) -> f64 {
        match kind {
            Kind::Server => self.spec.server,
            Kind::Client => self.spec.client,
            Kind::Throttling => self.spec.throttling,
            Kind::Timeout => self.spec.timeout,
        }
    }

    /// The moment that stands for a full bucket.
    fn full(&self, now: Ns) -> u64 {
        if self.spec.refill_per_second == 0.0 { 0 } else { now }
    }

    fn add(&self, units: u64) {
        let mut missing = self.missing.load(Ordering::Relaxed);
        while missing > 0 && units > 0 {
            let next = missing.saturating_sub(units);
            let swap = self.missing.compare_exchange_weak(
                missing,
                next,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
            match swap {
                Ok(_) => return,
                Err(current) => missing = current,
            }
        }
    }
}

impl Bucket for Costs {
    fn take(&self, cost: Cost, now: Ns) -> Grant {
        let cost = to_units(self.cost(cost.kind), self.unit);
        let full = self.full(now);
        let mut missing = self.missing.load(Ordering::Relaxed);
        loop {
            let next = missing.max(full).saturating_add(cost);
            let debt = (next - full).saturating_sub(self.capacity);
            if debt > 0 && self.spec.empty == Empty::Fail {
                return Grant::Refused;
            }
            let swap = self.missing.compare_exchange_weak(
                missing,
                next,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
            match swap {
                // Units are nanoseconds wherever there is a refill to wait for.
                Ok(_) if debt > 0 => return Grant::After(debt, Taken(cost)),
                Ok(_) => return Grant::Now(Taken(cost)),
                Err(current) => missing = current,
            }
        }
    }

    fn give_back(&self, taken: Taken) {
        self.add(taken.0);
    }

    fn succeeded(&self, taken: Option<Taken>) {
        let units = taken.map_or_else(|| to_units(self.spec.success, self.unit), |taken| taken.0);
        self.add(units);
    }

    fn tokens(&self, now: Ns) -> Option<f64> {
        let full = self.full(now);
        let missing = self.missing.load(Ordering::Relaxed).max(full) - full;
        Some(self.spec.capacity - missing as f64 / self.unit)
    }
}

/// Tokens in units, to the nearest one.
fn to_units(tokens: f64, unit: f64) -> u64 {
    (tokens * unit + 0.5) as u64
}
