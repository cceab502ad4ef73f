//! Hedging needs an idempotent operation.

use redial::{Hedged, Policy, ms};

static READ: Hedged = Policy::hedged(ms(20)).attempts(3).build();

#[tokio::main]
async fn main() {
    let _ = READ.retry(|| async { Ok::<_, ()>(7) }).when(|_| true).not_idempotent().await;
}
