//! A server does its work, its answer is lost, and a careless retry does the work again.
//!
//! `cargo run -p redial-faults --example lost_answer`
//!
//! The proxy stands between a real client and a real server. The first request never reaches the
//! server (503), the second one does and its response is lost (reset), the third one passes.

use std::convert::Infallible;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use redial_faults::proxy::{Fault, Proxy};
use tokio::net::TcpListener;

/// A shop that counts its orders.
async fn shop(listener: TcpListener, orders: Arc<AtomicU64>) {
    while let Ok((socket, _)) = listener.accept().await {
        let orders = orders.clone();
        tokio::spawn(async move {
            let service = service_fn(move |_| {
                orders.fetch_add(1, Ordering::SeqCst);
                let response = Response::new(Full::new(Bytes::from_static(b"ordered")));
                std::future::ready(Ok::<_, Infallible>(response))
            });
            let server = auto::Builder::new(TokioExecutor::new());
            // A client that disconnects is no error of the server.
            let _ = server.serve_connection(TokioIo::new(socket), service).await;
        });
    }
}

async fn run() -> Result<u64, Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let proxy = Proxy::http(listener.local_addr()?)
        .script([
            Fault::status(503).header("retry-after", "1"),
            Fault::reset().after_upstream(),
            Fault::pass(),
        ])
        .listen("127.0.0.1:0")
        .await?;
    let orders = Arc::new(AtomicU64::new(0));
    tokio::spawn(shop(listener, orders.clone()));

    let client = Client::builder(TokioExecutor::new()).build_http();
    for attempt in 1..=3 {
        let request = Request::post(proxy.url()).body(Full::new(Bytes::from_static(b"one")))?;
        match client.request(request).await {
            Ok(response) => println!("attempt {attempt}: status {}", response.status()),
            Err(error) => println!("attempt {attempt}: {error}"),
        }
    }
    for exchange in &proxy.shutdown().await.exchanges {
        println!("the proxy saw: {}", serde_json::to_string(exchange)?);
    }
    let orders = orders.load(Ordering::SeqCst);
    println!("the customer wanted one order; the shop has {orders}");
    Ok(orders)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    run().await.map(drop)
}

#[cfg(test)]
mod tests {
    #[tokio::test]
    async fn example_orders_twice_because_an_answer_was_lost() {
        assert_eq!(super::run().await.unwrap(), 2);
    }
}
