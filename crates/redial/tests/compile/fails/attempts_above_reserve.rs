//! A budget without a refill that could never pay for all attempts of a call.

use redial::throttle::RetryBudget;
use redial::{Policy, Throttle, ms};

static BUDGET: RetryBudget = RetryBudget::new(10.0, 0.1);
static LONG: Policy =
    Policy::constant(ms(50)).attempts(100).throttle(Throttle::budget(&BUDGET)).build();

fn main() {
    let _ = LONG.rules();
}
