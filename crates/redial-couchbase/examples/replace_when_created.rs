//! A replace that finds no document, and is retried because the application knows that the document is
//! about to be created (RFC 49, "retryable with application context").
//!
//! `cargo run -p redial-couchbase --features client --example replace_when_created`
//!
//! The server is a scripted double in this process, over loopback TCP.

use std::error::Error;
use std::time::Duration;

use redial::s;
use redial_couchbase::Reason;
use redial_couchbase::client::{Address, Client, ClientOptions};
use redial_couchbase::response::status;
use redial_faults::couchbase::{Script, Server};

/// Nothing was changed, so that a write may be repeated.
const NOT_THERE_YET: Reason = Reason::new("NOT_THERE_YET").allow_non_idempotent();

/// Returns the value of the document in the end.
async fn run() -> Result<String, Box<dyn Error>> {
    let server = Server::new(Script::new()).listen("127.0.0.1").await?;
    let (host, port) = server.address(0);
    let options = ClientOptions::new([Address::new(host, port)], "default")
        .timeout(s(30))
        .on_log(|request, line| println!("{request}: {line}, attempt {}", line.attempt));
    let client = Client::open(options);
    client.wait_until_ready(s(10)).await?;
    let orders = client.default_collection();

    // A known response is final: without the application's knowledge there is one attempt.
    let Err(error) = orders.replace("order_1", "paid").await else {
        return Err("the document exists".into());
    };
    println!("{error}");

    let created_later = {
        let orders = orders.clone();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(50)).await;
            orders.insert("order_1", "new").await.map(drop)
        })
    };
    orders.replace("order_1", "paid").retry_status(status::NOT_FOUND, NOT_THERE_YET).await?;
    created_later.await??;
    let order = orders.get("order_1").await?;
    Ok(String::from_utf8(order.value.to_vec())?)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    println!("the order is {}", run().await?);
    Ok(())
}

#[cfg(test)]
mod tests {
    #[tokio::test]
    async fn example_replace_waits_for_the_document() {
        assert_eq!(super::run().await.unwrap(), "paid");
    }
}
