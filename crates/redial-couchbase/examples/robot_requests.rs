//! A strategy that does not retry the requests of robots (RFC 49, "Accessible Context").
//!
//! `cargo run -p redial-couchbase --features client --example robot_requests`
//!
//! The server is a scripted double in this process, over loopback TCP.

use std::error::Error;

use redial::s;
use redial::strategy::{Decision, Request, Strategy};
use redial_couchbase::FastFailOnTerminalError;
use redial_couchbase::client::{Address, Client, ClientOptions};
use redial_faults::couchbase::{Answer, Script, Server};

/// Attached to requests that the web application made for a robot.
struct IsRobot;

fn strategy(request: &Request<'_>) -> Decision {
    match request.data::<IsRobot>() {
        Some(IsRobot) => Decision::Decline,
        None => FastFailOnTerminalError::new().retry_after(request),
    }
}

/// Returns the attempts of a robot's read and of a person's.
async fn run() -> Result<(u32, u64), Box<dyn Error>> {
    let server = Server::new(Script::new()).listen("127.0.0.1").await?;
    let (host, port) = server.address(0);
    let options = ClientOptions::new([Address::new(host, port)], "default").strategy(strategy);
    let client = Client::open(options);
    client.wait_until_ready(s(10)).await?;
    let documents = client.default_collection();
    documents.upsert("page", "<h1>hello</h1>").await?;

    server.push_answers([Answer::status(0x86)]);
    let Err(error) = documents.get("page").data(IsRobot).await else {
        return Err("the read of the robot was retried".into());
    };
    println!("robot:  {error}");

    server.push_answers([Answer::status(0x86), Answer::status(0x86)]);
    let before = server.request_count();
    let page = documents.get("page").await?;
    let attempts = server.request_count() - before;
    println!("person: {:?} with attempt {attempts}", page.value);
    Ok((error.attempts(), attempts))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    run().await.map(drop)
}

#[cfg(test)]
mod tests {
    #[tokio::test]
    async fn example_robot_request_is_not_retried() {
        assert_eq!(super::run().await.unwrap(), (1, 3));
    }
}
