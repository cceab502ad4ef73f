//! The random numbers behind jitter: `SplitMix64`, so that a seed gives the same sequence in every
//! release.

/// A small pseudo-random number generator.
///
/// Not taken from a crate, so that a recorded seed replays in every release; not for cryptography.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// Creates a generator from a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Random { state: seed }
    }

    /// The next 64 random bits.
    pub const fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// The next uniform draw in `[0, 1)`, with the 53 bits that an `f64` holds.
    pub const fn draw(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::Random;

    #[test]
    fn random_seed_gives_the_published_sequence() {
        // The published test vector of SplitMix64 for seed 1234567.
        let mut random = Random::new(1_234_567);
        assert_eq!(random.bits(), 6_457_827_717_110_365_317);
        assert_eq!(random.bits(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn random_draws_are_uniform_below_one() {
        let mut random = Random::new(7);
        let (mut low, mut high) = (0, 0);
        for _ in 0..10_000 {
            let u = random.draw();
            assert!((0.0..1.0).contains(&u));
            low += usize::from(u < 0.1);
            high += usize::from(u >= 0.9);
        }
        assert!((900..1100).contains(&low), "{low}");
        assert!((900..1100).contains(&high), "{high}");
    }
}
