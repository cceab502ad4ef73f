//! A hedged call has no strategy: hedges start before there is a failure.

use redial::{Hedged, Policy, ms, strategy::{Decision, Request}};

static READ: Hedged = Policy::hedged(ms(20)).attempts(3).build();

#[tokio::main]
async fn main() {
    let strategy = |_: &Request<'_>| Decision::Decline;
    let _ = READ.retry(|| async { Ok::<_, ()>(7) }).when(|_| true).strategy(strategy).await;
}
