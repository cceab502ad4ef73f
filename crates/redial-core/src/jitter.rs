//! Jitter: randomness in a delay, which spreads out clients that failed at the same time
//! (thundering herd).
//!
//! `u` is a draw in `[0, 1)`, `b` the base delay (docs/scenarios.md, `jitter`).

use crate::PolicyError;
use crate::time::Ns;

/// How a random draw changes a base delay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Jitter {
    /// `b`: no jitter, and no draw.
    None,
    /// `u·b`: between zero and the base.
    Full,
    /// `b + u·b/2`: the base and up to half of it.
    Half,
    /// `b/2 + u·b/2`: between half of the base and the base.
    Equal,
    /// `b·(1 − p + 2p·u)`: the base plus or minus the proportion `p`.
    Proportional(f64),
    /// `first + u·(3·previous − first)`: grows from the previous delay, independent of the base.
    Decorrelated,
}

impl Jitter {
    /// The delay for this draw; `Decorrelated` alone uses `first` and `previous`.
    #[must_use]
    pub fn apply(self, base: Ns, u: f64, first: Ns, previous: Ns) -> Ns {
        let b = base as f64;
        // Each result is rounded down once, by the cast, which also saturates.
        match self {
            Jitter::None => base,
            Jitter::Full => ((u * b) as Ns).min(base),
            Jitter::Half => base.saturating_add((u * b / 2.0) as Ns),
            Jitter::Equal => ((b / 2.0 + u * b / 2.0) as Ns).min(base),
            Jitter::Proportional(p) => (b * (1.0 - p + 2.0 * p * u)) as Ns,
            Jitter::Decorrelated => {
                (first as f64 + u * (3.0 * previous as f64 - first as f64)) as Ns
            }
        }
    }

    /// The shortest delay that any draw gives.
    pub(crate) const fn least(self, base: Ns) -> Ns {
        match self {
            Jitter::None | Jitter::Half => base,
            Jitter::Equal => base / 2,
            Jitter::Proportional(p) => (base as f64 * (1.0 - p)) as Ns,
            Jitter::Full | Jitter::Decorrelated => 0,
        }
    }

    /// Whether a delay needs a draw.
    #[must_use]
    pub const fn draws(&self) -> bool {
        !matches!(self, Jitter::None)
    }

    pub(crate) const fn problem(&self) -> Option<PolicyError> {
        match *self {
            Jitter::Proportional(p) if !(p >= 0.0 && p <= 1.0) => Some(PolicyError::Proportion),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_kinds_follow_their_formulas() {
        let of = |jitter: Jitter, u| jitter.apply(1000, u, 300, 500);
        assert_eq!(of(Jitter::None, 0.9), 1000);
        assert_eq!((of(Jitter::Full, 0.0), of(Jitter::Full, 0.5)), (0, 500));
        assert_eq!((of(Jitter::Half, 0.0), of(Jitter::Half, 0.5)), (1000, 1250));
        assert_eq!((of(Jitter::Equal, 0.0), of(Jitter::Equal, 0.5)), (500, 750));
        let proportional = Jitter::Proportional(0.2);
        assert_eq!((of(proportional, 0.0), of(proportional, 0.5)), (800, 1000));
        assert_eq!((of(Jitter::Decorrelated, 0.0), of(Jitter::Decorrelated, 0.5)), (300, 900));
    }

    #[test]
    fn jitter_least_is_the_shortest_possible_delay() {
        let kinds = [Jitter::None, Jitter::Half, Jitter::Equal, Jitter::Proportional(0.2)];
        for jitter in kinds.into_iter().chain([Jitter::Full, Jitter::Proportional(1.0)]) {
            for base in [0, 1, 3, 1000] {
                assert_eq!(jitter.least(base), jitter.apply(base, 0.0, base, base), "{jitter:?}");
            }
        }
        assert_eq!(Jitter::Decorrelated.least(1000), 0);
    }

    #[test]
    fn jitter_never_overflows() {
        let almost = 1.0 - f64::EPSILON / 2.0;
        for base in [0, 1, 3, 1 << 53, (1 << 53) + 1, Ns::MAX - 1, Ns::MAX] {
            for u in [0.0, 0.1, 0.5, almost] {
                assert!(Jitter::Full.apply(base, u, base, base) <= base);
                assert!(Jitter::Half.apply(base, u, base, base) >= base);
                let equal = Jitter::Equal.apply(base, u, base, base);
                assert!(equal <= base && equal as f64 >= base as f64 / 2.0 - 1.0);
                let whole = Jitter::Proportional(1.0).apply(base, u, base, base);
                assert!(whole as f64 <= base as f64 * 2.0);
                // The smallest previous delay that a cap allows does not give a negative result.
                let least = Jitter::Decorrelated.apply(base, u, base, 0);
                assert!(least as f64 <= base as f64);
            }
        }
    }
}
