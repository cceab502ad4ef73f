//! A contradiction in a `static` is an error with our own text.

use redial::{Hedged, Policy, ms};

static NEVER: Hedged = Policy::hedged(ms(20)).attempts(0).build();

fn main() {
    let _ = NEVER.rules();
}
