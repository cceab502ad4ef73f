//! Fail fast in three lines: the crate exports no such strategy, as RFC 49 requires.
//!
//! `cargo run -p redial-couchbase --features client --example fail_fast`
//!
//! The server is a scripted double in this process, over loopback TCP.

use std::error::Error;

use redial::s;
use redial::strategy::{Decision, Request};
use redial_couchbase::client::{Address, Client, ClientOptions};
use redial_faults::couchbase::{Answer, Script, Server};

fn fail_fast(_: &Request<'_>) -> Decision {
    Decision::Decline
}

/// Returns the attempts of a write with each strategy.
async fn run() -> Result<(u32, u64), Box<dyn Error>> {
    let server = Server::new(Script::new()).listen("127.0.0.1").await?;
    let (host, port) = server.address(0);
    let client = Client::open(ClientOptions::new([Address::new(host, port)], "default"));
    client.wait_until_ready(s(10)).await?;
    let documents = client.default_collection();

    server.push_answers([Answer::status(0x86)]);
    let Err(error) = documents.upsert("airline_10", "{}").strategy(fail_fast).await else {
        return Err("the write did not fail".into());
    };
    println!("fail fast:     {error}");

    server.push_answers([Answer::status(0x86), Answer::status(0x86)]);
    let before = server.request_count();
    documents.upsert("airline_10", "{}").await?;
    let attempts = server.request_count() - before;
    println!("best effort:   written with attempt {attempts}");
    Ok((error.attempts(), attempts))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    run().await.map(drop)
}

#[cfg(test)]
mod tests {
    #[tokio::test]
    async fn example_fail_fast_makes_one_attempt() {
        assert_eq!(super::run().await.unwrap(), (1, 3));
    }
}
