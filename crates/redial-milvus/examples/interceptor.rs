//! A search through the retry interceptor, against a fake server that is unavailable twice. Virtual
//! time, no network.
//!
//! `cargo run -p redial-milvus --example interceptor`

use std::cell::Cell;

use redial_milvus::{Code, GrpcStatus, Options};

/// The status type of the client library; `tonic::Status` in a real client.
#[derive(Debug)]
struct Status {
    code: Code,
    message: String,
}

impl GrpcStatus for Status {
    fn code(&self) -> Code {
        self.code
    }

    fn message(&self) -> &str {
        &self.message
    }

    fn with_message(self, message: String) -> Self {
        Status { message, ..self }
    }
}

/// A server that fails with UNAVAILABLE a number of times and then succeeds.
struct FakeServer {
    failures: Cell<u32>,
}

impl FakeServer {
    async fn search(&self) -> Result<&'static str, Status> {
        match self.failures.get() {
            0 => Ok("10 rows"),
            failures => {
                self.failures.set(failures - 1);
                Err(Status { code: Code::Unavailable, message: "proxy not ready".to_owned() })
            }
        }
    }
}

/// Searches with default options; returns the result, or the error message, and the log lines.
async fn search(failures: u32) -> (Result<&'static str, String>, Vec<String>) {
    let interceptor = Options::DEFAULT.interceptor().expect("the default options are valid");
    let server = FakeServer { failures: Cell::new(failures) };
    let mut log = Vec::new();
    let result = interceptor
        .call("Search", || server.search())
        .log(|line| log.push(line.to_string()))
        .send()
        .await;
    (result.map_err(|error| error.to_string()), log)
}

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() {
    for failures in [2, 9] {
        let (result, log) = search(failures).await;
        println!("{}\n=> {result:?}\n", log.join("\n"));
    }
}

#[tokio::test(start_paused = true)]
async fn interceptor_example_retries_until_success_or_exhaustion() {
    let (result, log) = search(2).await;
    assert_eq!(result, Ok("10 rows"));
    assert!(log.contains(&"[Retry Attempt 2/3] Search: will be sent again in 40ms".to_owned()));

    let (result, _) = search(9).await;
    let message = "UNAVAILABLE: proxy not ready (retried 3 times, 140ms)";
    assert_eq!(result, Err(message.to_owned()));
}
