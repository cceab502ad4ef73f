//! Retries and a hedge around a tower service, without a network.
//!
//! `cargo run -p redial --features tower --example tower_layer`

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use redial::tower::RetryLayer;
use redial::{Hedged, Policy, ms, s};
use tower::{Service, ServiceBuilder, ServiceExt, service_fn};

static FETCH: Policy = Policy::exponential(ms(20)).cap(ms(200)).attempts(4).deadline(s(2)).build();
static READ: Hedged = Policy::hedged(ms(30)).attempts(2).build();

#[derive(Clone, Debug)]
struct Request {
    method: &'static str,
    path: &'static str,
}

/// Only these errors are retried.
fn is_transient(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::ConnectionReset
}

/// A server that fails two requests, then answers.
fn flaky() -> impl Service<Request, Response = String, Error = io::Error, Future: Send> + Clone {
    let requests = Arc::new(AtomicU32::new(0));
    service_fn(move |request: Request| {
        let failed = requests.fetch_add(1, Ordering::Relaxed) < 2;
        async move {
            if failed {
                return Err(io::ErrorKind::ConnectionReset.into());
            }
            Ok(format!("answer to {} {}", request.method, request.path))
        }
    })
}

/// At most 8 requests run at once. Each of them is retried, unless it is not idempotent.
async fn retried(method: &'static str) -> Result<String, redial::Error<io::Error>> {
    let mut client = ServiceBuilder::new()
        .concurrency_limit(8)
        .layer(RetryLayer::new(&FETCH).when(is_transient).call_options(
            |request: &Request, options| match request.method {
                "POST" => options.not_idempotent(),
                _ => options,
            },
        ))
        .service(flaky());
    client.ready().await?.call(Request { method, path: "/users" }).await
}

/// The first request is slow; the hedge, 30 ms later, is faster.
async fn hedged() -> Result<&'static str, redial::Error<io::Error>> {
    let requests = Arc::new(AtomicU32::new(0));
    let replicas = service_fn(move |_key: u32| {
        let first = requests.fetch_add(1, Ordering::Relaxed) == 0;
        async move {
            tokio::time::sleep(if first { s(5) } else { ms(1) }).await;
            io::Result::Ok(if first { "the slow replica" } else { "the fast replica" })
        }
    });
    let client =
        ServiceBuilder::new().layer(RetryLayer::new(&READ).when(is_transient)).service(replicas);
    client.oneshot(7).await
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), redial::Error<io::Error>> {
    println!("retried: {}", retried("GET").await?);
    if let Err(error) = retried("POST").await {
        println!("not retried: {error}");
    }
    println!("hedged: {}", hedged().await?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use redial::StopReason;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn example_retries_what_is_idempotent_and_hedges() {
        assert_eq!(retried("GET").await.unwrap(), "answer to GET /users");
        let error = retried("POST").await.unwrap_err();
        assert_eq!((error.stop_reason(), error.attempts()), (StopReason::NotIdempotent, 1));
        assert_eq!(hedged().await.unwrap(), "the fast replica");
    }
}
