//! A blocking operation cannot be hedged.

use redial::{Hedged, Policy, ms};

static READ: Hedged = Policy::hedged(ms(20)).attempts(3).build();

fn main() {
    let _ = READ.retry(|| std::fs::read("file")).when(|_| true).call();
}
