//! The retry budget against section B of the decisions, written out: whenever a retry asks, the whole
//! milliseconds since the reference are paid out in thousandths, up to the reserve.
//!
//! Random sequences of retries, successes and refunds at random times. The model keeps the reference
//! in nanoseconds, and the tokens and the reference apart.
#![cfg(not(loom))]

use proptest::prelude::*;
use redial_core::throttle::RetryBudget;
use redial_core::{Bucket, Cost, FailureKind, Grant, Ns, Withdrawal};

const COST: Cost = Cost { kind: FailureKind::Server };

/// The largest time between two steps: longer than the reserve takes to fill.
const STEP_MAX_US: u64 = 20_000_000;

#[derive(Clone, Copy, Debug)]
enum Step {
    Retry,
    Success,
    /// Refunds the last retry, if it was granted.
    Refund,
}

struct Model {
    /// In thousandths.
    left: u64,
    reserve: u64,
    ratio: u64,
    per_second: u64,
    reference: Ns,
}

impl Model {
    fn add(&mut self, milli: u64) {
        self.left = (self.left + milli).min(self.reserve);
    }

    fn withdraw(&mut self, now: Ns) -> bool {
        let whole_ms = (now - self.reference) / 1_000_000;
        // Of a refill that is no whole number, only the milliseconds of whole thousandths are paid.
        let added = whole_ms * self.per_second / 1000;
        let missing = self.reserve - self.left;
        if self.per_second > 0 {
            self.add(added);
            let is_full = added >= missing;
            let paid_ms = (added * 1000).div_ceil(self.per_second);
            self.reference = if is_full { now } else { self.reference + paid_ms * 1_000_000 };
        }
        let granted = self.left >= 1000;
        self.left -= if granted { 1000 } else { 0 };
        granted
    }
}

fn any_step() -> impl Strategy<Value = (u64, Step)> {
    let step =
        prop_oneof![4 => Just(Step::Retry), 2 => Just(Step::Success), 1 => Just(Step::Refund)];
    let wait =
        prop_oneof![Just(0), 0..2_000u64, (0..2_000u64).prop_map(|ms| ms * 1_000), 0..STEP_MAX_US];
    (wait, step)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn retry_budget_refill_follows_the_decision_to_the_thousandth(
        reserve in prop_oneof![1_000u64..20_000, Just(1_048_575)],
        ratio in 0u64..3_000,
        per_second in prop_oneof![
            Just(0), Just(1_000), 1u64..10_000, (1u64..100).prop_map(|n| n * 1_000)
        ],
        start_us in 0u64..(1 << 51),
        steps in prop::collection::vec(any_step(), 1..60),
    ) {
        let tokens = |milli: u64| milli as f64 / 1000.0;
        let budget = RetryBudget::try_new(tokens(reserve), tokens(ratio)).unwrap();
        let budget = budget.try_per_second(tokens(per_second)).unwrap();
        let mut now = start_us * 1_000;
        let mut model = Model { left: reserve, reserve, ratio, per_second, reference: now };
        let mut granted = false;
        for (wait_us, step) in steps {
            now += wait_us * 1_000;
            match step {
                Step::Retry => {
                    let grant = budget.withdraw(COST, now);
                    granted = model.withdraw(now);
                    prop_assert_eq!(grant != Grant::Refused, granted, "at {}", now);
                }
                Step::Success => {
                    budget.succeeded(None);
                    model.add(model.ratio);
                }
                Step::Refund if granted => {
                    budget.refund(Withdrawal(1000));
                    model.add(1000);
                    granted = false;
                }
                Step::Refund => {}
            }
            prop_assert_eq!(budget.tokens(now), Some(tokens(model.left)), "at {}", now);
        }
    }
}
