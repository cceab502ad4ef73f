//! A call of `retry_on` ends with `when`.

use redial::{Policy, ms};

static POP: Policy = Policy::constant(ms(20)).build();

#[tokio::main]
async fn main() {
    let mut queue = vec![7];
    let _ = POP.retry_on(&mut queue, async |queue| queue.pop().ok_or("empty")).await;
}
