//! The maximum number of hedged attempts is checked at compile time.

use redial::{Hedged, Policy, ms};

static MANY: Hedged = Policy::hedged(ms(20)).attempts(33).build();

fn main() {
    let _ = MANY.rules();
}
