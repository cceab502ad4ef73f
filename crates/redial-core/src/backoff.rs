//! The delay before a retry, before jitter and limits.
//!
//! Invariant: for every attempt number, factor and duration the result is a number of nanoseconds;
//! nothing overflows, becomes NaN or panics (decision P2).

use core::time::Duration;

use crate::time::{NEVER, Ns, ns};
use crate::{Failure, PolicyError};

/// The series of base delays. Retry `n` counts from 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Backoff {
    /// The same delay each time.
    Constant(Duration),
    /// `first + step × (n − 1)`, at most `cap`.
    Arithmetic {
        /// The delay before the first retry.
        first: Duration,
        /// The increase of each further delay.
        step: Duration,
        /// The maximum delay.
        cap: Option<Duration>,
    },
    /// `first × factor^(n − 1)`, at most `cap`.
    Exponential {
        /// The delay before the first retry.
        first: Duration,
        /// The factor of each further delay; any number above 0.
        factor: f64,
        /// The maximum delay.
        cap: Option<Duration>,
    },
    /// `first` times the Fibonacci numbers 1, 1, 2, 3, 5, 8 ..., at most `cap`.
    Fibonacci {
        /// The delay before the first retry.
        first: Duration,
        /// The maximum delay.
        cap: Option<Duration>,
    },
    /// The listed delays; the last one repeats.
    Table(&'static [Duration]),
    /// A table or function that the [`Policy`](crate::Policy) owns.
    Own,
}

/// The input of a backoff function.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// The number of the delay, from 1.
    pub number: u32,
    /// The failure of the last attempt.
    pub failure: &'a Failure,
    /// The previous delay; `None` before the first.
    pub previous: Option<Duration>,
}

/// The controlled backoff of Couchbase's RFC 49: 1, 10, 50, 100, 500 ms, then always 1 s.
pub const CONTROLLED: Backoff = Backoff::Table(&[
    Duration::from_millis(1),
    Duration::from_millis(10),
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(500),
    Duration::from_millis(1000),
]);

impl Backoff {
    /// The base delay of retry `n`; 0 for [`Backoff::Own`], which the policy computes.
    #[must_use]
    pub const fn base(&self, n: u32) -> Ns {
        match self {
            Backoff::Constant(delay) => ns(*delay),
            _ => self.varying_base(n),
        }
    }

    /// The base delay of a series that is not constant.
    const fn varying_base(&self, n: u32) -> Ns {
        let steps = n.saturating_sub(1);
        let base = match *self {
            Backoff::Constant(delay) => ns(delay),
            Backoff::Arithmetic { first, step, .. } => {
                ns(first).saturating_add(ns(step).saturating_mul(steps as Ns))
            }
            Backoff::Exponential { first, factor, .. } => grow(ns(first), factor, steps),
            Backoff::Fibonacci { first, .. } => ns(first).saturating_mul(fibonacci(n)),
            Backoff::Table(table) => entry(table, n),
            Backoff::Own => 0,
        };
        let cap = self.cap();
        if base < cap { base } else { cap }
    }

    /// The same series with another first delay (used after throttling, decision S6).
    #[must_use]
    pub const fn starting_at(self, first: Duration) -> Self {
        match self {
            Backoff::Constant(_) => Backoff::Constant(first),
            Backoff::Arithmetic { step, cap, .. } => Backoff::Arithmetic { first, step, cap },
            Backoff::Exponential { factor, cap, .. } => Backoff::Exponential { first, factor, cap },
            Backoff::Fibonacci { cap, .. } => Backoff::Fibonacci { first, cap },
            own => own,
        }
    }

    /// The first delay, from which decorrelated jitter grows.
    #[must_use]
    pub const fn first(&self) -> Ns {
        match *self {
            Backoff::Constant(first)
            | Backoff::Arithmetic { first, .. }
            | Backoff::Exponential { first, .. }
            | Backoff::Fibonacci { first, .. } => ns(first),
            Backoff::Table([first, ..]) => ns(*first),
            Backoff::Table([]) | Backoff::Own => 0,
        }
    }

    /// The maximum delay; [`NEVER`] without a cap.
    #[must_use]
    pub const fn cap(&self) -> Ns {
        match *self {
            Backoff::Arithmetic { cap: Some(cap), .. }
            | Backoff::Exponential { cap: Some(cap), .. }
            | Backoff::Fibonacci { cap: Some(cap), .. } => ns(cap),
            _ => NEVER,
        }
    }

    /// Whether the sum of the delays exceeds every bound.
    pub(crate) const fn sum_is_unbounded(&self) -> bool {
        if self.cap() == 0 {
            return false;
        }
        match *self {
            Backoff::Constant(delay) => !delay.is_zero(),
            Backoff::Arithmetic { first, step, .. } => !first.is_zero() || !step.is_zero(),
            Backoff::Exponential { first, factor, .. } => !first.is_zero() && factor >= 1.0,
            Backoff::Fibonacci { first, .. } => !first.is_zero(),
            Backoff::Table([.., last]) => !last.is_zero(),
            Backoff::Table([]) | Backoff::Own => false,
        }
    }

    pub(crate) const fn problem(&self) -> Option<PolicyError> {
        match *self {
            Backoff::Exponential { factor, .. } if !(factor > 0.0 && factor < f64::INFINITY) => {
                Some(PolicyError::Factor)
            }
            Backoff::Table([]) => Some(PolicyError::EmptyTable),
            _ => None,
        }
    }
}

/// The entry for retry `n`; the last one repeats.
pub(crate) const fn entry(table: &[Duration], n: u32) -> Ns {
    let index = n.saturating_sub(1) as usize;
    match table {
        [] => 0,
        [.., last] if index >= table.len() => ns(*last),
        _ => ns(table[index]),
    }
}

/// The Fibonacci number `n`, counted from 1, of which the first two are 1; saturates.
const fn fibonacci(n: u32) -> u64 {
    let (mut number, mut next): (u64, u64) = (1, 1);
    let mut i = 1;
    // The 93rd is the last one that fits, so that a saturated number ends the loop.
    while i < n && number != u64::MAX {
        (number, next) = (next, number.saturating_add(next));
        i += 1;
    }
    number
}

/// `first × factor^steps`, rounded down; saturates to [`NEVER`].
const fn grow(first: Ns, factor: f64, steps: u32) -> Ns {
    if steps == 0 || factor == 1.0 {
        return first;
    }
    // A float cast saturates, and turns the NaN of 0 × ∞ into 0, as intended.
    (first as f64 * power(factor, steps)) as Ns
}

/// `factor^exponent` by squaring; `core` has no `powf`, and this gives the same bits everywhere.
const fn power(factor: f64, mut exponent: u32) -> f64 {
    let (mut result, mut square) = (1.0, factor);
    while exponent != 0 {
        if exponent & 1 == 1 {
            result *= square;
        }
        square *= square;
        exponent >>= 1;
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::{ms, s};

    fn exponential(first: Duration, factor: f64, cap: Option<Duration>) -> Backoff {
        Backoff::Exponential { first, factor, cap }
    }

    #[test]
    fn backoff_series_follow_their_formulas() {
        let base = |backoff: Backoff| [1, 2, 3, 4].map(|n| backoff.base(n) / 1_000_000);
        assert_eq!(base(Backoff::Constant(ms(7))), [7, 7, 7, 7]);
        let arithmetic = Backoff::Arithmetic { first: ms(5), step: ms(3), cap: Some(ms(10)) };
        assert_eq!(base(arithmetic), [5, 8, 10, 10]);
        assert_eq!(base(exponential(ms(100), 2.0, None)), [100, 200, 400, 800]);
        assert_eq!(base(exponential(ms(100), 0.5, None)), [100, 50, 25, 12]);
        assert_eq!(base(exponential(s(1), 2.0, Some(ms(300)))), [300, 300, 300, 300]);
        let fibonacci = |cap| Backoff::Fibonacci { first: ms(10), cap };
        assert_eq!(base(fibonacci(None)), [10, 10, 20, 30]);
        assert_eq!([5, 6, 7, 8].map(|n| fibonacci(None).base(n) / 1_000_000), [50, 80, 130, 210]);
        assert_eq!(base(fibonacci(Some(ms(25)))), [10, 10, 20, 25]);
        assert_eq!(fibonacci(Some(s(5))).base(u32::MAX), ns(s(5)));
        assert_eq!(base(fibonacci(None).starting_at(ms(1))), [1, 1, 2, 3]);
        assert_eq!(fibonacci(None).first(), ns(ms(10)));
        assert_eq!(base(CONTROLLED), [1, 10, 50, 100]);
        assert_eq!(CONTROLLED.base(6), ns(s(1)));
        assert_eq!(CONTROLLED.base(u32::MAX), ns(s(1)));
    }

    #[test]
    fn backoff_never_overflows() {
        let spans = [Duration::ZERO, Duration::from_nanos(1), s(1), Duration::MAX];
        for n in [0, 1, 2, 3, 64, 65_536, u32::MAX - 1, u32::MAX] {
            for first in spans {
                for factor in [f64::MIN_POSITIVE, 1e-9, 0.5, 1.0, 1.000_000_1, 2.0, 1e300, f64::MAX]
                {
                    let value = exponential(first, factor, None).base(n);
                    if factor >= 1.0 {
                        assert!(value >= ns(first), "{first:?} × {factor}^{n} = {value}");
                    } else {
                        assert!(value <= ns(first), "{first:?} × {factor}^{n} = {value}");
                    }
                    assert!(exponential(first, factor, Some(ms(1))).base(n) <= ns(ms(1)));
                }
                let value = Backoff::Fibonacci { first, cap: None }.base(n);
                assert!(value >= ns(first));
                for step in spans {
                    let value = Backoff::Arithmetic { first, step, cap: None }.base(n);
                    assert!(value >= ns(first));
                }
            }
        }
    }

    #[test]
    fn backoff_constant_delay_is_exact_to_the_nanosecond() {
        // The first integer that an `f64` cannot represent.
        let long = Duration::from_nanos((1 << 53) + 1);
        assert_eq!(exponential(long, 2.0, None).base(1), (1 << 53) + 1);
        assert_eq!(exponential(long, 1.0, None).base(7), (1 << 53) + 1);
    }

    #[test]
    fn backoff_sum_is_unbounded_unless_delays_vanish() {
        static NOTHING_AT_LAST: [Duration; 2] = [ms(1), Duration::ZERO];
        static SOMETHING_AT_LAST: [Duration; 2] = [Duration::ZERO, ms(1)];
        let (zero, one) = (Duration::ZERO, ms(1));
        let arithmetic = |first, step, cap| Backoff::Arithmetic { first, step, cap };
        let table = [
            (Backoff::Constant(one), true),
            (Backoff::Constant(zero), false),
            (arithmetic(one, zero, None), true),
            (arithmetic(zero, one, None), true),
            (arithmetic(one, one, None), true),
            (arithmetic(zero, zero, None), false),
            (arithmetic(one, one, Some(zero)), false),
            (exponential(one, 1.0, None), true),
            (exponential(one, 2.0, Some(one)), true),
            (exponential(one, 0.999, None), false),
            (exponential(zero, 2.0, None), false),
            (exponential(one, 2.0, Some(zero)), false),
            (Backoff::Fibonacci { first: one, cap: None }, true),
            (Backoff::Fibonacci { first: one, cap: Some(zero) }, false),
            (Backoff::Fibonacci { first: zero, cap: None }, false),
            (Backoff::Table(&SOMETHING_AT_LAST), true),
            (Backoff::Table(&NOTHING_AT_LAST), false),
            (Backoff::Table(&[]), false),
            (Backoff::Own, false),
        ];
        for (backoff, grows) in table {
            assert_eq!(backoff.sum_is_unbounded(), grows, "{backoff:?}");
        }
    }

    #[test]
    fn backoff_fibonacci_numbers_saturate() {
        assert_eq!([1, 2, 3, 10, 50].map(fibonacci), [1, 1, 2, 55, 12_586_269_025]);
        assert_eq!(fibonacci(93), 12_200_160_415_121_876_738);
        assert_eq!([94, 95, 96, u32::MAX].map(fibonacci), [u64::MAX; 4]);
        assert_eq!(fibonacci(0), 1);
    }
}
