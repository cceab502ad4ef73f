//! The throttles of all callers of a layer, one type per run, so that an idle client takes only the
//! bytes of its bucket.

use redial_core::throttle::{Bucket, CostBucket, RetryBudget, TokenBucket};
use redial_core::{Cost, Grant, Ns, PolicyError, Withdrawal};

use crate::ThrottleSpec;

/// The number of buckets from which the mean of the tokens is taken.
const SAMPLED_MAX: usize = 64;

/// A bucket per caller, or one for all.
#[derive(Debug)]
pub(crate) enum Buckets {
    None,
    Budget(Vec<RetryBudget>),
    Tokens(Vec<TokenBucket>),
    Cost(Vec<CostBucket>),
}

impl Buckets {
    pub(crate) fn new(spec: &ThrottleSpec, count: usize) -> Result<Buckets, PolicyError> {
        Ok(match *spec {
            ThrottleSpec::None => Buckets::None,
            ThrottleSpec::Budget { reserve, ratio, per_second } => {
                let budget = RetryBudget::try_new(reserve, ratio)?.try_per_second(per_second)?;
                Buckets::Budget((0..count).map(|_| budget.fresh()).collect())
            }
            ThrottleSpec::Tokens { max, ratio } => {
                Buckets::Tokens(filled(count, || TokenBucket::new(max, ratio))?)
            }
            ThrottleSpec::Cost(config) => Buckets::Cost(filled(count, || CostBucket::new(config))?),
        })
    }

    /// The bucket of a caller; a list of one bucket is shared by all.
    #[inline]
    pub(crate) fn of(&self, caller: u32) -> BucketRef<'_> {
        #[inline]
        fn entry<T>(list: &[T], caller: u32) -> &T {
            list.get(caller as usize).unwrap_or(&list[0])
        }
        match self {
            Buckets::None => BucketRef::None,
            Buckets::Budget(list) => BucketRef::Budget(entry(list, caller)),
            Buckets::Tokens(list) => BucketRef::Tokens(entry(list, caller)),
            Buckets::Cost(list) => BucketRef::Cost(entry(list, caller)),
        }
    }

    /// The mean of the tokens in up to [`SAMPLED_MAX`] buckets.
    pub(crate) fn tokens(&self, now: Ns) -> Option<f64> {
        fn mean<T: Bucket>(list: &[T], now: Ns) -> Option<f64> {
            let step = list.len().div_ceil(SAMPLED_MAX).max(1);
            let (mut sum, mut count) = (0.0, 0.0);
            for bucket in list.iter().step_by(step) {
                sum += bucket.tokens(now)?;
                count += 1.0;
            }
            (count > 0.0).then(|| sum / count)
        }
        match self {
            Buckets::None => None,
            Buckets::Budget(list) => mean(list, now),
            Buckets::Tokens(list) => mean(list, now),
            Buckets::Cost(list) => mean(list, now),
        }
    }
}

/// A list without spare capacity, which `collect` would leave behind a `Result`.
fn filled<T>(
    count: usize,
    bucket: impl Fn() -> Result<T, PolicyError>,
) -> Result<Vec<T>, PolicyError> {
    let mut list = Vec::with_capacity(count);
    for _ in 0..count {
        list.push(bucket()?);
    }
    Ok(list)
}

/// The bucket of one caller.
#[derive(Clone, Copy, Debug)]
pub(crate) enum BucketRef<'a> {
    None,
    Budget(&'a RetryBudget),
    Tokens(&'a TokenBucket),
    Cost(&'a CostBucket),
}

impl Bucket for BucketRef<'_> {
    fn watches_calls(&self) -> bool {
        false
    }
    fn failed(&self) {
        if let BucketRef::Tokens(bucket) = self {
            bucket.failed();
        }
    }
    fn withdraw(&self, cost: Cost, now: Ns) -> Grant {
        match self {
            BucketRef::None => Grant::Now(Withdrawal(0)),
            BucketRef::Budget(bucket) => bucket.withdraw(cost, now),
            BucketRef::Tokens(bucket) => bucket.withdraw(cost, now),
            BucketRef::Cost(bucket) => bucket.withdraw(cost, now),
        }
    }
    fn refund(&self, withdrawal: Withdrawal) {
        match self {
            BucketRef::None => {}
            BucketRef::Budget(bucket) => bucket.refund(withdrawal),
            BucketRef::Tokens(bucket) => bucket.refund(withdrawal),
            BucketRef::Cost(bucket) => bucket.refund(withdrawal),
        }
    }
    #[inline]
    fn succeeded(&self, withdrawal: Option<Withdrawal>) {
        match self {
            BucketRef::None => {}
            BucketRef::Budget(bucket) => bucket.succeeded(withdrawal),
            BucketRef::Tokens(bucket) => bucket.succeeded(withdrawal),
            BucketRef::Cost(bucket) => bucket.succeeded(withdrawal),
        }
    }
    fn tokens(&self, now: Ns) -> Option<f64> {
        match self {
            BucketRef::None => None,
            BucketRef::Budget(bucket) => bucket.tokens(now),
            BucketRef::Tokens(bucket) => bucket.tokens(now),
            BucketRef::Cost(bucket) => bucket.tokens(now),
        }
    }
}

#[cfg(test)]
mod tests {
    use redial_core::FailureKind;
    use redial_core::throttle::CostBucketConfig;

    use super::*;

    const COST: Cost = Cost { kind: FailureKind::Server };

    #[test]
    fn buckets_are_local_or_shared() {
        let spec = ThrottleSpec::Budget { reserve: 2.0, ratio: 0.1, per_second: 0.0 };
        let local = Buckets::new(&spec, 3).unwrap();
        local.of(1).withdraw(COST, 0);
        assert_eq!([0, 1, 2].map(|it| local.of(it).tokens(0)), [Some(2.0), Some(1.0), Some(2.0)]);
        let shared = Buckets::new(&spec, 1).unwrap();
        shared.of(7).withdraw(COST, 0);
        assert_eq!(shared.of(0).tokens(0), Some(1.0));
    }

    #[test]
    fn buckets_of_every_kind_report_tokens() {
        let kinds = [
            (ThrottleSpec::None, None),
            (ThrottleSpec::STANDARD, Some(9.0)),
            (ThrottleSpec::Tokens { max: 10.0, ratio: 0.1 }, Some(9.0)),
            (ThrottleSpec::Cost(CostBucketConfig::AWS_2026), Some(486.0)),
        ];
        for (spec, tokens) in kinds {
            let buckets = Buckets::new(&spec, 1).unwrap();
            let bucket = buckets.of(0);
            bucket.failed();
            assert!(matches!(bucket.withdraw(COST, 0), Grant::Now(_)), "{spec:?}");
            assert_eq!(buckets.tokens(0), tokens, "{spec:?}");
        }
    }

    #[test]
    fn buckets_of_idle_clients_take_the_documented_bytes() {
        const CLIENTS: usize = 1000;
        let bytes = |spec| match Buckets::new(&spec, CLIENTS).unwrap() {
            Buckets::None => 0,
            Buckets::Budget(list) => list.capacity() * size_of::<RetryBudget>(),
            Buckets::Tokens(list) => list.capacity() * size_of::<TokenBucket>(),
            Buckets::Cost(list) => list.capacity() * size_of::<CostBucket>(),
        };
        assert_eq!(bytes(ThrottleSpec::None), 0);
        assert_eq!(bytes(ThrottleSpec::STANDARD), 24 * CLIENTS);
        assert_eq!(bytes(ThrottleSpec::Tokens { max: 10.0, ratio: 0.1 }), 8 * CLIENTS);
        assert_eq!(bytes(ThrottleSpec::Cost(CostBucketConfig::AWS_2026)), 88 * CLIENTS);
    }
}
