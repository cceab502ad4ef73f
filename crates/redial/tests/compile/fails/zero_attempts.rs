//! A contradiction in a `static` is a compile error with our message.

use redial::{Hedged, Policy, ms};

static NEVER: Hedged = Policy::hedged(ms(20)).attempts(0).build();

fn main() {
    let _ = NEVER.rules();
}
