//! What was not checked is not a policy.

use redial::{Policy, ms};

static UNCHECKED: Policy = Policy::exponential(ms(100)).attempts(5);

fn main() {
    let _ = UNCHECKED.rules();
}
