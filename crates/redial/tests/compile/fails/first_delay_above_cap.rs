//! A first delay above the default cap of 20 s would be cut without a word.

use redial::{Policy, s};

static SLOW: Policy = Policy::exponential(s(60)).build();

fn main() {
    let _ = SLOW.rules();
}
