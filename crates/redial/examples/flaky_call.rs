//! Retries, a hedge and an error report, without a network.
//!
//! `cargo run -p redial --example flaky_call`

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use redial::{Hedged, Policy, ms, s};

static FETCH: Policy = Policy::exponential(ms(20)).cap(ms(200)).attempts(4).deadline(s(2)).build();
static READ: Hedged = Policy::hedged(ms(30)).attempts(2).build();

/// Only these errors are retried.
fn is_transient(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::TimedOut)
}

/// A call that fails `failures` times, then succeeds.
struct Flaky {
    calls: AtomicU32,
    failures: u32,
}

impl Flaky {
    const fn new(failures: u32) -> Self {
        Flaky { calls: AtomicU32::new(0), failures }
    }

    async fn fetch(&self) -> io::Result<&'static str> {
        match self.calls.fetch_add(1, Ordering::Relaxed) < self.failures {
            true => Err(io::ErrorKind::ConnectionReset.into()),
            false => Ok("the page"),
        }
    }
}

/// Two failures, then success.
async fn retried() -> io::Result<u32> {
    let server = Flaky::new(2);
    let page = FETCH.retry(|| server.fetch()).when(is_transient).await?;
    let attempts = server.calls.load(Ordering::Relaxed);
    println!("retried: {page:?} after {attempts} attempts");
    Ok(attempts)
}

/// The server never recovers: the error says how many attempts were made and why they stopped.
async fn gave_up() -> String {
    let server = Flaky::new(u32::MAX);
    let Err(error) = FETCH.retry(|| server.fetch()).when(is_transient).await else {
        return "it succeeded".to_owned();
    };
    println!("gave up: {error}");
    format!("{:?}", error.stop_reason())
}

/// The first replica is slow; the hedge, 30 ms later, is faster.
async fn hedged() -> io::Result<Duration> {
    let calls = AtomicU32::new(0);
    let read = || async {
        let delay = if calls.fetch_add(1, Ordering::Relaxed) == 0 { s(5) } else { ms(1) };
        tokio::time::sleep(delay).await;
        io::Result::Ok("the value")
    };
    let start = Instant::now();
    let value = READ.retry(read).when(is_transient).await?;
    let elapsed = start.elapsed();
    println!("hedged: {value:?} in {} ms instead of 5 s", elapsed.as_millis());
    Ok(elapsed)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> io::Result<()> {
    retried().await?;
    gave_up().await;
    hedged().await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn example_retries_gives_up_and_hedges() {
        assert_eq!(retried().await.unwrap(), 3);
        assert_eq!(gave_up().await, "AttemptsExhausted");
        assert!(hedged().await.unwrap() < s(4));
    }
}
