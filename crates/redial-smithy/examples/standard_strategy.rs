//! The standard retry strategy around a fake object store: no network, virtual time.
//!
//! `cargo run -p redial-smithy --example standard_strategy`

use std::cell::Cell;
use std::fmt;

use redial::Policy;
use redial_smithy::{ErrorFault, ServiceError, StandardRetryStrategy, classifier};

/// The errors of the fake service.
#[derive(Debug)]
enum StoreError {
    SlowDown,
    NoSuchKey,
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            StoreError::SlowDown => "slow down",
            StoreError::NoSuchKey => "no such key",
        })
    }
}

impl std::error::Error for StoreError {}

impl ServiceError for StoreError {
    fn is_throttling(&self) -> bool {
        matches!(self, StoreError::SlowDown)
    }

    fn fault(&self) -> Option<ErrorFault> {
        Some(match self {
            StoreError::SlowDown => ErrorFault::Server,
            StoreError::NoSuchKey => ErrorFault::Client,
        })
    }
}

/// A store that throttles its first requests and has one object.
struct FakeStore {
    throttled: Cell<u32>,
}

impl FakeStore {
    async fn get(&self, key: &str) -> Result<&'static str, StoreError> {
        match self.throttled.get() {
            0 if key == "greeting" => Ok("hello"),
            0 => Err(StoreError::NoSuchKey),
            throttled => {
                self.throttled.set(throttled - 1);
                Err(StoreError::SlowDown)
            }
        }
    }
}

/// Gets an object with retries.
async fn get(
    policy: &Policy,
    store: &FakeStore,
    key: &str,
) -> Result<&'static str, redial::Error<StoreError, &'static str>> {
    policy.retry(|| store.get(key)).classify(classifier()).await
}

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> Result<(), redial::PolicyError> {
    // Built once and cloned: the clones share the token bucket.
    let policy = StandardRetryStrategy::aws_2026().policy()?;
    for (throttled, key) in [(2, "greeting"), (0, "missing"), (9, "greeting")] {
        let store = FakeStore { throttled: Cell::new(throttled) };
        match get(&policy, &store, key).await {
            Ok(object) => println!("{key}: {object}"),
            Err(error) => println!("{key}: {error}"),
        }
        println!("  tokens left: {}", policy.tokens(0).unwrap_or_default());
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn standard_strategy_example_retries_throttling_but_not_client_errors() {
    use redial::StopReason;

    let policy = StandardRetryStrategy::aws_2026().policy().expect("the preset is valid");
    let store = |throttled| FakeStore { throttled: Cell::new(throttled) };

    assert_eq!(get(&policy, &store(2), "greeting").await.ok(), Some("hello"));

    let error = get(&policy, &store(0), "missing").await.expect_err("there is no such key");
    assert_eq!((error.stop_reason(), error.attempts()), (StopReason::NotRetryable, 1));

    let error = get(&policy, &store(9), "greeting").await.expect_err("always throttled");
    assert_eq!((error.stop_reason(), error.attempts()), (StopReason::AttemptsExhausted, 3));
}
