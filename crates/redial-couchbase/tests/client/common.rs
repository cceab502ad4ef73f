//! A client and a scripted server that are connected by pipes.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use redial_couchbase::client::{
    Address, Client, ClientOptions, Connecting, Connector, RequestError, Stream,
};
use redial_couchbase::{BestEffort, Error};
use redial_faults::couchbase::{Handle, RequestOutcome, Script, Server};
use tokio::time::Instant;

pub(crate) type ClientError = Error<RequestError>;

/// Connects to the nodes of a server on pipes.
pub(crate) struct PipeConnector<F>(pub(crate) F);

impl<F> Connector for PipeConnector<F>
where
    F: Fn(usize) -> std::io::Result<tokio::io::DuplexStream> + Send + Sync,
{
    fn connect(&self, address: &Address) -> Connecting {
        let node = address.host().strip_prefix("node").and_then(|node| node.parse().ok());
        let stream = (self.0)(node.expect("an address of the server"));
        Box::pin(async move { Ok(Box::new(stream?) as Box<dyn Stream>) })
    }
}

/// The options of a client for a server on pipes.
pub(crate) fn options(server: &Handle) -> ClientOptions {
    unchanged_options(server).strategy(BestEffort::new())
}

/// The defaults of a new client.
pub(crate) fn unchanged_options(server: &Handle) -> ClientOptions {
    ClientOptions::new([Address::new("node0", 11210)], "default")
        .connector(PipeConnector(server.connector()))
}

pub(crate) fn serve(script: Script) -> Handle {
    Server::new(script).on_pipe().expect("the script is valid")
}

/// A client that is ready, and its server.
pub(crate) async fn ready(script: Script) -> (Client, Handle) {
    let server = serve(script);
    let client = Client::open(options(&server));
    client.wait_until_ready(Duration::from_secs(10)).await.expect("the server is there");
    (client, server)
}

/// The log lines of a client's requests.
#[derive(Clone, Default)]
pub(crate) struct Lines(Arc<Mutex<Vec<String>>>);

impl Lines {
    /// Adds each line of a client's document requests.
    pub(crate) fn of(&self, options: ClientOptions) -> ClientOptions {
        let lines = self.0.clone();
        options.on_log(move |context, line| {
            if context.operation().name().starts_with("kv.") {
                lines.lock().unwrap().push(line.to_string());
            }
        })
    }

    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// When the requests since `start` arrived, in ms, and what they met.
pub(crate) fn arrivals(
    server: &Handle,
    origin: Instant,
    start: Instant,
) -> Vec<(u128, RequestOutcome)> {
    let offset = start - origin;
    let requests = server.requests();
    let since = requests.iter().filter(|request| request.at >= offset);
    since.map(|request| ((request.at - offset).as_millis(), request.outcome)).collect()
}

/// Waits for a condition, which background tasks fulfil.
pub(crate) async fn until(condition: impl Fn() -> bool) {
    for _ in 0..10_000 {
        if condition() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("the condition was never fulfilled");
}
