//! A client that retries and hedges, and a server that fails in a predictable way: over TCP, in one
//! process.
//!
//! ```sh
//! cargo run -p redial-grpc --example retries
//! ```
//!
//! It makes five calls, prints the call log of each and finally the statistics. `server.rs` is the
//! server, with the helpers of `redial_grpc_server`.

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

/// The service config that the owner of the service would publish: calls are retried, reads are hedged,
/// and the throttle stops both when too many attempts fail.
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

type Client = EchoClient<RetryService<Channel>>;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    println!("{}", run().await?);
    Ok(())
}

/// Makes all calls and returns a summary.
async fn run() -> Result<String, Box<dyn Error>> {
    let server = server::start()?;

    // A client needs only these three statements.
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

/// Two failures, the first with a pushback delay from the server.
async fn unary(client: &mut Client) -> Result<(), Box<dyn Error>> {
    println!("A call that fails twice, first with pushback:");
    let call_log = SharedCallLog::new();
    let answer = client.unary(with_call_log(&call_log, request("hello"))).await?;
    let attempts = answer.extensions().get().map_or(1, |Attempts(number)| *number);
    println!("    client: {:?} after {attempts} attempts", answer.get_ref().payload);
    print_call_log(&call_log);
    Ok(())
}

/// A retryable failure with a pushback that forbids the retry.
async fn refused(client: &mut Client) -> Result<(), Box<dyn Error>> {
    println!("A call that the server forbids to retry:");
    let call_log = SharedCallLog::new();
    let status =
        client.unary(with_call_log(&call_log, request("quota"))).await.err().ok_or("no failure")?;
    println!("    client: {:?}: {}", status.code(), status.message());
    print_call_log(&call_log);
    Ok(())
}

/// The first attempt hangs and the second fails; the third is the fastest.
async fn hedged_read(client: &mut Client) -> Result<(), Box<dyn Error>> {
    println!("A read that is hedged:");
    let call_log = SharedCallLog::new();
    let mut lines =
        client.server_stream(with_call_log(&call_log, request("line"))).await?.into_inner();
    let mut count = 0;
    while let Some(line) = lines.message().await? {
        count += 1;
        println!("    client: {:?} of attempt {}", line.payload, line.previous_attempts + 1);
    }
    print_call_log(&call_log);
    if count == 2 { Ok(()) } else { Err(format!("{count} lines").into()) }
}

/// The server fails when it has read half of the stream; the second attempt gets all of it.
async fn client_stream(client: &mut Client) -> Result<(), Box<dyn Error>> {
    println!("A stream of five messages that is sent again:");
    let call_log = SharedCallLog::new();
    let words = tokio_stream::iter(["a", "b", "c", "d", "e"].map(request));
    let answer = client.client_stream(with_call_log(&call_log, words)).await?.into_inner();
    println!("    client: the server has {:?}", answer.payload);
    print_call_log(&call_log);
    if answer.received == 5 { Ok(()) } else { Err("not all arrived".into()) }
}

/// A deadline of 500 ms for all attempts and delays together.
async fn deadline(client: &mut Client) -> Result<(), Box<dyn Error>> {
    println!("A call with a deadline of 500 ms, whose second attempt hangs:");
    let call_log = SharedCallLog::new();
    let mut request = with_call_log(&call_log, request("stuck"));
    request.set_timeout(Duration::from_millis(500));
    let status = client.unary(request).await.err().ok_or("no failure")?;
    println!("    client: {:?}: {}", status.code(), status.message());
    print_call_log(&call_log);
    Ok(())
}

fn request(payload: &'static str) -> EchoRequest {
    EchoRequest { payload: payload.into(), ..EchoRequest::default() }
}

/// A request with a call log.
fn with_call_log<T>(call_log: &SharedCallLog, message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.extensions_mut().insert(CallOptions::new().call_log(call_log));
    request
}

fn print_call_log(call_log: &SharedCallLog) {
    println!("{}\n", call_log.take());
}

#[cfg(test)]
mod tests {
    #[tokio::test]
    async fn example_makes_the_expected_number_of_attempts() {
        let last = super::run().await.unwrap();
        assert_eq!(last, "5 calls, 11 attempts, 0 bytes kept");
    }
}
