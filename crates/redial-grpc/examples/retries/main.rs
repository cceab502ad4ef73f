//! A client that retries and hedges, and a server that gives it reason to: over TCP, in one process.
//!
//! ```sh
//! cargo run -p redial-grpc --example retries
//! ```
//!
//! It makes five calls, prints what each of them met with its diary, then the statistics, and ends.
//! `server.rs` is the server, with the helpers that `redial_grpc_server` has for it.

mod server;

use std::error::Error;
use std::sync::atomic::Ordering;
use std::time::Duration;

use redial_echo::EchoRequest;
use redial_echo::echo_client::EchoClient;
use redial_grpc::{Attempts, CallOptions, RetryLayer, RetryService, SharedCallLog};
use tonic::Request;
use tonic::transport::{Channel, Endpoint};
use tower::ServiceBuilder;

/// What the owner of the service would publish: calls are retried, reads are hedged, and both stop
/// when the server is in trouble.
const CONFIG: &str = r#"{
  "methodConfig": [{
    "name": [{ "service": "redial.test.Echo" }],
    "timeout": "5s",
    "retryPolicy": { "maxAttempts": 4, "initialBackoff": "0.02s", "maxBackoff": "0.2s",
                     "backoffMultiplier": 2, "retryableStatusCodes": ["UNAVAILABLE"] }
  }, {
    "name": [{ "service": "redial.test.Echo", "method": "ServerStream" }],
    "timeout": "5s",
    "hedgingPolicy": { "maxAttempts": 3, "hedgingDelay": "0.05s",
                       "nonFatalStatusCodes": ["UNAVAILABLE", "DEADLINE_EXCEEDED"] }
  }],
  "retryThrottling": { "maxTokens": 100, "tokenRatio": 0.1 }
}"#;

type ClientOptions = EchoClient<RetryService<Channel>>;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    println!("{}", run().await?);
    Ok(())
}

/// Makes all calls, and says in one line what they came to.
async fn run() -> Result<String, Box<dyn Error>> {
    let server = server::start()?;

    // These three lines are all that a client needs.
    let layer = RetryLayer::from_json(CONFIG)?;
    let channel = Endpoint::from_shared(format!("http://{}", server.address))?.connect_lazy();
    let mut client = EchoClient::new(ServiceBuilder::new().layer(layer.clone()).service(channel));

    unary(&mut client).await?;
    refused(&mut client).await?;
    hedged_read(&mut client).await?;
    client_stream(&mut client).await?;
    deadline(&mut client).await?;

    println!("Statistics, by method:");
    let control = layer.control();
    let mut retries = 0;
    for (method, counted) in control.statistics() {
        retries += counted.retries.retries;
        println!(
            "    {method:<32} retries and hedges: {}, failed: {}, calls won by a hedge: {}",
            counted.retries.retries, counted.retries.failed, counted.hedges_won
        );
    }
    println!("    tokens left: {:.1} of 100\n", control.tokens().unwrap_or_default());

    let (calls, seen) = (5, u64::from(server.seen.load(Ordering::Relaxed)));
    if seen != calls + retries {
        return Err(format!("the server saw {seen} attempts of {calls} calls").into());
    }
    Ok(format!("{calls} calls, {seen} attempts, {} bytes kept", control.bytes_kept()))
}

/// Two failures, the first with a wait that the server asks for.
async fn unary(client: &mut ClientOptions) -> Result<(), Box<dyn Error>> {
    println!("A call that fails twice, first with pushback:");
    let call_log = SharedCallLog::new();
    let answer = client.unary(with(&call_log, saying("hello"))).await?;
    let attempts = answer.extensions().get().map_or(1, |Attempts(number)| *number);
    println!("    client: {:?} after {attempts} attempts", answer.get_ref().payload);
    told(&call_log);
    Ok(())
}

/// A failure that the policy lists, and a server that says not to retry it.
async fn refused(client: &mut ClientOptions) -> Result<(), Box<dyn Error>> {
    println!("A call that the server does not want again:");
    let call_log = SharedCallLog::new();
    let status = client.unary(with(&call_log, saying("quota"))).await.err().ok_or("no failure")?;
    println!("    client: {:?}: {}", status.code(), status.message());
    told(&call_log);
    Ok(())
}

/// The first attempt hangs and the second fails; the third is the fastest.
async fn hedged_read(client: &mut ClientOptions) -> Result<(), Box<dyn Error>> {
    println!("A read that is hedged:");
    let call_log = SharedCallLog::new();
    let mut lines = client.server_stream(with(&call_log, saying("line"))).await?.into_inner();
    let mut count = 0;
    while let Some(line) = lines.message().await? {
        count += 1;
        println!("    client: {:?} of attempt {}", line.payload, line.previous_attempts + 1);
    }
    told(&call_log);
    if count == 2 { Ok(()) } else { Err(format!("{count} lines").into()) }
}

/// The server fails when it has read half of the stream; the second attempt gets all of it.
async fn client_stream(client: &mut ClientOptions) -> Result<(), Box<dyn Error>> {
    println!("A stream of five messages that is sent again:");
    let call_log = SharedCallLog::new();
    let words = tokio_stream::iter(["a", "b", "c", "d", "e"].map(saying));
    let answer = client.client_stream(with(&call_log, words)).await?.into_inner();
    println!("    client: the server has {:?}", answer.payload);
    told(&call_log);
    if answer.received == 5 { Ok(()) } else { Err("not all arrived".into()) }
}

/// The call's own time: 500 ms for all attempts and waits together.
async fn deadline(client: &mut ClientOptions) -> Result<(), Box<dyn Error>> {
    println!("A call with a deadline of 500 ms, whose second attempt hangs:");
    let call_log = SharedCallLog::new();
    let mut request = with(&call_log, saying("stuck"));
    request.set_timeout(Duration::from_millis(500));
    let status = client.unary(request).await.err().ok_or("no failure")?;
    println!("    client: {:?}: {}", status.code(), status.message());
    told(&call_log);
    Ok(())
}

fn saying(payload: &'static str) -> EchoRequest {
    EchoRequest { payload: payload.into(), ..EchoRequest::default() }
}

/// A request whose call keeps a diary.
fn with<T>(call_log: &SharedCallLog, message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.extensions_mut().insert(CallOptions::new().call_log(call_log));
    request
}

fn told(call_log: &SharedCallLog) {
    println!("{}\n", call_log.take());
}

#[cfg(test)]
mod tests {
    #[tokio::test]
    async fn the_example_ends_with_what_it_promises() {
        let last = super::run().await.unwrap();
        assert_eq!(last, "5 calls, 11 attempts, 0 bytes kept");
    }
}
