//! A builder is not a policy: call `build`.

use redial::{Policy, ms};

static UNCHECKED: Policy = Policy::exponential(ms(100)).attempts(5);

fn main() {
    let _ = UNCHECKED.rules();
}
