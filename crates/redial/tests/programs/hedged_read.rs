//! Reads from replicas, hedged: a second request when the first is slow, and the loser is cancelled.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use redial::throttle::RetryBudget;
use redial::{Hedged, Policy, Throttle, ms};

static BUDGET: RetryBudget = RetryBudget::new(100.0, 0.1);
static READ: Hedged =
    Policy::hedged(ms(20)).attempts(3).throttle(Throttle::budget(&BUDGET)).build();

#[derive(Default)]
struct Replicas {
    requests: AtomicU32,
    cancelled: AtomicU32,
}

/// Counts a request that is dropped before its answer.
struct CountIfDropped<'a>(Option<&'a AtomicU32>);

impl Drop for CountIfDropped<'_> {
    fn drop(&mut self) {
        if let Some(cancelled) = self.0 {
            cancelled.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Replicas {
    /// Every tenth request takes a second.
    async fn read(&self) -> Result<Duration, &'static str> {
        let request = self.requests.fetch_add(1, Ordering::Relaxed);
        let latency = if request.is_multiple_of(10) { ms(1000) } else { ms(5) };
        let mut guard = CountIfDropped(Some(&self.cancelled));
        tokio::time::sleep(latency).await;
        guard.0 = None;
        Ok(latency)
    }
}

#[tokio::test(start_paused = true)]
async fn program_hedges_slow_reads_and_cancels_the_losers() {
    let replicas = Replicas::default();
    let mut slowest = Duration::ZERO;
    for _ in 0..90 {
        let start = tokio::time::Instant::now();
        READ.retry(|| replicas.read()).when(|_| true).await.expect("a replica answers");
        slowest = slowest.max(start.elapsed());
    }
    assert_eq!(slowest, ms(25), "the hedge after 20 ms, and its answer after 5");
    assert_eq!(replicas.requests.into_inner(), 100, "ten hedges");
    assert_eq!(replicas.cancelled.into_inner(), 10, "ten losers");
}
