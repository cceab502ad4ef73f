//! A blocking call waits in its thread, so it has no sleeper.

use redial::testing::Clock;
use redial::{Policy, ms};

static READ: Policy = Policy::constant(ms(20)).build();

fn main() {
    let _ = READ.retry(|| Ok::<_, ()>(7)).when(|()| true).sleeping_on(Clock).call();
}
