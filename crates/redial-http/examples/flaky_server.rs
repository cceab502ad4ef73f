//! A client of reqwest and a server that fails: what is retried, what is not, and what callers see.
//!
//! `cargo run -p redial-http --features reqwest --example flaky_server`

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use redial::{Policy, Report, ms, s};
use redial_http::reqwest::SendWith;
use redial_http::{RequestOptions, RetryLayer};
use tokio::net::TcpListener;

static API: Policy = Policy::exponential(ms(20)).attempts(4).deadline(s(10)).build();

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("{}", run().await?);
    Ok(())
}

/// Sends three requests; returns the last line of the output.
async fn run() -> Result<String, Box<dyn std::error::Error>> {
    let (address, requests) = serve().await?;
    let client = reqwest::Client::builder().no_proxy().build()?;
    let retries = RetryLayer::new(&API);

    let response = client.get(format!("http://{address}/page")).send_with(&retries).await?;
    println!("GET: {}", response.status());
    if let Some(report) = response.extensions().get::<Report>() {
        for attempt in &report.history {
            println!("  attempt {} {}", attempt.attempt, attempt.end);
        }
    }

    let order = || client.post(format!("http://{address}/orders")).body("one book");
    let response = order().send_with(&retries).await?;
    println!("POST: {}, not sent again: it may have run", response.status());

    let options = RequestOptions::new().idempotent();
    let response = order().send_with_options(&retries, options).await?;
    println!("POST that may run twice: {}", response.status());
    Ok(format!("the server received {} requests", requests.load(Ordering::Relaxed)))
}

/// A server that answers the first two requests, and the fourth and fifth, with 503.
async fn serve() -> std::io::Result<(SocketAddr, Arc<AtomicU32>)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let requests = Arc::new(AtomicU32::new(0));
    let counter = requests.clone();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let counter = counter.clone();
            let service = service_fn(move |_: Request<Incoming>| {
                let number = counter.fetch_add(1, Ordering::Relaxed);
                async move {
                    let status = if [0, 1, 3, 4].contains(&number) { 503 } else { 200 };
                    let mut response = Response::new("done".to_owned());
                    *response.status_mut() = status.try_into().expect("a status");
                    Ok::<_, Infallible>(response)
                }
            });
            tokio::spawn(async move {
                let builder = auto::Builder::new(TokioExecutor::new());
                // The error of a client that went away.
                let _ = builder.serve_connection(TokioIo::new(socket), service).await;
            });
        }
    });
    Ok((address, requests))
}

#[tokio::test]
async fn flaky_server_example_prints_the_number_of_requests() {
    assert_eq!(run().await.expect("a run"), "the server received 6 requests");
}
