//! Distributions of durations: service times, network delays and think times.
//!
//! Exponentials are those of `libm` rather than of the platform, so that a seed gives the same durations
//! on (almost) every platform: the rare tails of `rand_distr` may differ in the last digit.

use std::convert::Infallible;
use std::time::Duration;

use rand_core::TryRng;
use rand_distr::{Distribution as _, Exp1, StandardNormal};
use redial_core::{Ns, Random, ns};

/// The largest number of samples, histogram buckets or parts of a mixture.
pub const PARTS_MAX: usize = 100_000;

/// The largest depth of nested mixtures.
pub const MIXTURE_DEPTH_MAX: usize = 4;

/// A distribution of durations.
#[derive(Clone, Debug, PartialEq)]
pub enum Distribution {
    /// Always the same.
    Fixed(Duration),
    /// Uniform between two durations.
    Uniform {
        /// The shortest.
        min: Duration,
        /// The longest.
        max: Duration,
    },
    /// Exponential, as the service times of a queueing model.
    Exponential {
        /// The mean.
        mean: Duration,
    },
    /// Normal, cut off at zero.
    Normal {
        /// The mean.
        mean: Duration,
        /// The standard deviation.
        deviation: Duration,
    },
    /// Lognormal, the usual shape of measured latencies.
    Lognormal {
        /// The median.
        median: Duration,
        /// The standard deviation of the logarithm; 0.4 is typical of a healthy server.
        sigma: f64,
    },
    /// Each of these measured durations is equally likely.
    Samples(Vec<Duration>),
    /// A histogram: counts of durations up to a bound, uniform within a bucket.
    Histogram(Vec<HistogramBucket>),
    /// One of several distributions, in proportion to their weights.
    Mixture(Vec<Part>),
}

/// A bucket of a histogram. It begins where the one before it ends; the first begins at zero.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HistogramBucket {
    /// The longest duration in the bucket.
    pub up_to: Duration,
    /// How many durations were counted, or any other weight.
    pub count: f64,
}

/// A part of a mixture.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// The weight.
    pub weight: f64,
    /// The distribution of this part.
    pub distribution: Distribution,
}

impl Distribution {
    /// What is wrong with the numbers, and what to write instead.
    ///
    /// ```
    /// use redial_sim::Distribution;
    ///
    /// let problem = Distribution::Samples(vec![]).problem().unwrap();
    /// assert_eq!(problem, "samples: the list is empty; write at least one duration");
    /// ```
    #[must_use]
    pub fn problem(&self) -> Option<String> {
        self.problem_at(0)
    }

    fn problem_at(&self, depth: usize) -> Option<String> {
        let count = |name: &str, length: usize, one: &str| match length {
            0 => Some(format!("{name}: the list is empty; write at least one {one}")),
            1..=PARTS_MAX => None,
            _ => Some(format!("{name}: {length} entries; at most {PARTS_MAX} are allowed")),
        };
        let weights = |name: &str, weights: &mut dyn Iterator<Item = f64>| {
            let mut sum = 0.0;
            for weight in weights {
                if !(weight >= 0.0 && weight.is_finite()) {
                    return Some(format!(
                        "{name}: {weight} is not a weight; write a number from 0"
                    ));
                }
                sum += weight;
            }
            (sum <= 0.0).then(|| format!("{name}: all weights are 0; at least one must be above 0"))
        };
        match self {
            Distribution::Fixed(_) | Distribution::Exponential { .. } => None,
            Distribution::Normal { .. } => None,
            Distribution::Uniform { min, max } => {
                (min > max).then(|| format!("uniform: min {min:?} is above max {max:?}; swap them"))
            }
            Distribution::Lognormal { sigma, .. } => (!(0.0..=10.0).contains(sigma))
                .then(|| format!("lognormal: sigma {sigma} must be from 0 to 10")),
            Distribution::Samples(samples) => count("samples", samples.len(), "duration"),
            Distribution::Histogram(buckets) => count("histogram", buckets.len(), "bucket")
                .or_else(|| weights("histogram", &mut buckets.iter().map(|it| it.count)))
                .or_else(|| {
                    let sorted = buckets.is_sorted_by(|a, b| a.up_to < b.up_to);
                    let text = "histogram: each bucket must end after the one before it";
                    (!sorted).then(|| text.to_owned())
                }),
            Distribution::Mixture(_) if depth >= MIXTURE_DEPTH_MAX => {
                Some(format!("mixture: nested more than {MIXTURE_DEPTH_MAX} deep"))
            }
            Distribution::Mixture(parts) => count("mixture", parts.len(), "part")
                .or_else(|| weights("mixture", &mut parts.iter().map(|it| it.weight)))
                .or_else(|| parts.iter().find_map(|it| it.distribution.problem_at(depth + 1))),
        }
    }

    /// The mean, which together with the number of workers gives the capacity of a server.
    #[must_use]
    pub fn mean(&self) -> Duration {
        Duration::try_from_secs_f64(self.mean_seconds()).unwrap_or(Duration::MAX)
    }

    pub(crate) fn mean_seconds(&self) -> f64 {
        match self {
            Distribution::Fixed(fixed) => fixed.as_secs_f64(),
            Distribution::Uniform { min, max } => (min.as_secs_f64() + max.as_secs_f64()) / 2.0,
            Distribution::Exponential { mean } | Distribution::Normal { mean, .. } => {
                mean.as_secs_f64()
            }
            Distribution::Lognormal { median, sigma } => {
                median.as_secs_f64() * libm::exp(sigma * sigma / 2.0)
            }
            Distribution::Samples(samples) => {
                samples.iter().map(Duration::as_secs_f64).sum::<f64>() / samples.len().max(1) as f64
            }
            Distribution::Histogram(buckets) => {
                let mut from = 0.0;
                let (mut sum, mut weight) = (0.0, 0.0);
                for bucket in buckets {
                    let to = bucket.up_to.as_secs_f64();
                    sum += bucket.count * (from + to) / 2.0;
                    weight += bucket.count;
                    from = to;
                }
                sum / weight
            }
            Distribution::Mixture(parts) => {
                let weight: f64 = parts.iter().map(|part| part.weight).sum();
                let mean = |part: &Part| part.weight * part.distribution.mean_seconds();
                parts.iter().map(mean).sum::<f64>() / weight
            }
        }
    }
}

/// A distribution that is ready to be drawn from.
#[derive(Clone, Debug)]
pub(crate) enum Sampler {
    Fixed(Ns),
    Uniform(Ns, Ns),
    Exponential(f64),
    Normal {
        mean: f64,
        deviation: f64,
    },
    Lognormal {
        median: f64,
        sigma: f64,
    },
    Samples(Box<[Ns]>),
    /// Cumulative weights, and the start and length of each bucket.
    Histogram(Box<[(f64, f64, f64)]>),
    /// Cumulative weights.
    Mixture(Box<[(f64, Sampler)]>),
}

impl Sampler {
    pub(crate) fn new(distribution: &Distribution) -> Sampler {
        match distribution {
            Distribution::Fixed(fixed) => Sampler::Fixed(ns(*fixed)),
            Distribution::Uniform { min, max } => Sampler::Uniform(ns(*min), ns(*max)),
            Distribution::Exponential { mean } => Sampler::Exponential(ns(*mean) as f64),
            Distribution::Normal { mean, deviation } => {
                Sampler::Normal { mean: ns(*mean) as f64, deviation: ns(*deviation) as f64 }
            }
            Distribution::Lognormal { median, sigma } => {
                Sampler::Lognormal { median: ns(*median) as f64, sigma: *sigma }
            }
            Distribution::Samples(samples) => {
                Sampler::Samples(samples.iter().map(|sample| ns(*sample)).collect())
            }
            Distribution::Histogram(buckets) => {
                let total: f64 = buckets.iter().map(|bucket| bucket.count).sum();
                let (mut sum, mut from) = (0.0, 0.0);
                let entry = |bucket: &HistogramBucket| {
                    sum += bucket.count / total;
                    let to = ns(bucket.up_to) as f64;
                    let entry = (sum, from, to - from);
                    from = to;
                    entry
                };
                Sampler::Histogram(buckets.iter().map(entry).collect())
            }
            Distribution::Mixture(parts) => {
                let total: f64 = parts.iter().map(|part| part.weight).sum();
                let mut sum = 0.0;
                let entry = |part: &Part| {
                    sum += part.weight / total;
                    (sum, Sampler::new(&part.distribution))
                };
                Sampler::Mixture(parts.iter().map(entry).collect())
            }
        }
    }

    /// A duration in nanoseconds.
    #[inline]
    pub(crate) fn draw(&self, random: &mut Random) -> Ns {
        match self {
            Sampler::Fixed(fixed) => *fixed,
            Sampler::Uniform(min, max) => min + ((max - min) as f64 * random.draw()) as Ns,
            Sampler::Exponential(mean) => exponential(*mean, random),
            Sampler::Normal { mean, deviation } => (mean + deviation * normal(random)) as Ns,
            Sampler::Lognormal { median, sigma } => {
                (median * libm::exp(sigma * normal(random))) as Ns
            }
            Sampler::Samples(samples) => {
                samples[((samples.len() as f64 * random.draw()) as usize).min(samples.len() - 1)]
            }
            Sampler::Histogram(buckets) => {
                let u = random.draw();
                let index = buckets.partition_point(|bucket| bucket.0 <= u).min(buckets.len() - 1);
                let (_, from, length) = buckets[index];
                (from + length * random.draw()) as Ns
            }
            Sampler::Mixture(parts) => {
                let u = random.draw();
                let index = parts.partition_point(|part| part.0 <= u).min(parts.len() - 1);
                parts[index].1.draw(random)
            }
        }
    }
}

/// An exponential draw.
#[inline]
pub(crate) fn exponential(mean: f64, random: &mut Random) -> Ns {
    let draw: f64 = Exp1.sample(&mut Source(random));
    (mean * draw) as Ns
}

/// A standard normal draw.
#[inline]
fn normal(random: &mut Random) -> f64 {
    StandardNormal.sample(&mut Source(random))
}

/// The generator of this project as a source for the distributions of `rand_distr`.
struct Source<'r>(&'r mut Random);

impl TryRng for Source<'_> {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        Ok((self.0.bits() >> 32) as u32)
    }

    #[inline]
    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok(self.0.bits())
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        for chunk in bytes.chunks_mut(8) {
            let word = self.0.bits().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use redial_core::ms;

    use super::*;

    /// The mean and the median of many draws, in milliseconds.
    fn drawn(distribution: &Distribution) -> (f64, f64) {
        let sampler = Sampler::new(distribution);
        let mut random = Random::new(1);
        let mut draws: Vec<Ns> = (0..100_000).map(|_| sampler.draw(&mut random)).collect();
        draws.sort_unstable();
        let mean = draws.iter().map(|&draw| draw as f64).sum::<f64>() / draws.len() as f64;
        (mean / 1e6, draws[draws.len() / 2] as f64 / 1e6)
    }

    #[test]
    fn distribution_draws_have_the_stated_mean_and_median() {
        let part = |weight, distribution| Part { weight, distribution };
        let bucket = |millis, count| HistogramBucket { up_to: ms(millis), count };
        let cases = [
            (Distribution::Fixed(ms(7)), 7.0),
            (Distribution::Uniform { min: ms(10), max: ms(30) }, 20.0),
            (Distribution::Exponential { mean: ms(10) }, 10.0 * std::f64::consts::LN_2),
            (Distribution::Normal { mean: ms(10), deviation: ms(2) }, 10.0),
            (Distribution::Lognormal { median: ms(5), sigma: 0.4 }, 5.0),
            (Distribution::Samples(vec![ms(1), ms(2), ms(9)]), 2.0),
            (Distribution::Histogram(vec![bucket(10, 1.0), bucket(20, 3.0)]), 20.0 - 20.0 / 3.0),
            (
                Distribution::Mixture(vec![
                    part(3.0, Distribution::Fixed(ms(1))),
                    part(1.0, Distribution::Fixed(ms(9))),
                ]),
                1.0,
            ),
        ];
        for (distribution, median) in cases {
            let expected = distribution.mean().as_secs_f64() * 1e3;
            let (mean, middle) = drawn(&distribution);
            assert!((mean / expected - 1.0).abs() < 0.02, "{distribution:?}: mean {mean}");
            assert!((middle / median - 1.0).abs() < 0.03, "{distribution:?}: median {middle}");
            assert_eq!(distribution.problem(), None);
        }
    }

    #[test]
    fn distribution_problems_state_the_correction() {
        let bucket = |millis, count| HistogramBucket { up_to: ms(millis), count };
        let part = |distribution| Part { weight: 1.0, distribution };
        let nested = |depth: usize| {
            let mut distribution = Distribution::Fixed(ms(1));
            for _ in 0..depth {
                distribution = Distribution::Mixture(vec![part(distribution)]);
            }
            distribution
        };
        let problems = [
            (Distribution::Uniform { min: ms(2), max: ms(1) }, "swap them"),
            (Distribution::Lognormal { median: ms(1), sigma: f64::NAN }, "from 0 to 10"),
            (Distribution::Samples(vec![ms(1); PARTS_MAX + 1]), "at most 100000"),
            (Distribution::Histogram(vec![bucket(2, 1.0), bucket(2, 1.0)]), "must end after"),
            (Distribution::Histogram(vec![bucket(2, 0.0)]), "at least one must be above 0"),
            (Distribution::Histogram(vec![bucket(2, -1.0)]), "write a number from 0"),
            (Distribution::Mixture(vec![]), "write at least one part"),
            (nested(MIXTURE_DEPTH_MAX + 1), "nested more than 4 deep"),
        ];
        for (distribution, text) in problems {
            let problem = distribution.problem().expect("there is a problem");
            assert!(problem.contains(text), "{problem}");
        }
        assert_eq!(Distribution::Samples(vec![ms(1); PARTS_MAX]).problem(), None);
        assert_eq!(nested(MIXTURE_DEPTH_MAX).problem(), None);
    }
}
