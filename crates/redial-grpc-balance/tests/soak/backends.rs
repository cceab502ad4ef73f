//! Servers that restart, and the checks of every stream that they see.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use prost::Message;
use redial_echo::EchoRequest;
use redial_faults::grpc::{
    Answer, CALL_HEADER, Handle, Script, Server, StatusNumber as Code, StreamOutcome, StreamRecord,
    Tcp,
};
use tokio::time::{sleep, timeout};

use super::answers;
use super::faults::Faults;
use super::marks::Sequence;

/// More than all messages of a call together.
const PAYLOAD_BYTES: u64 = 8 << 20;
/// How long the last cancellations may need to arrive at a server.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(30);

/// One server, which keeps its address across restarts.
pub(crate) struct Backend {
    pub(crate) address: SocketAddr,
    handle: Mutex<Option<Handle<Tcp>>>,
    faults: Arc<Faults>,
}

impl Backend {
    pub(crate) async fn start(faults: Arc<Faults>) -> Backend {
        let handle = server(answers::quiet(), &faults)
            .listen("127.0.0.1:0")
            .await
            .expect("loopback has a free port");
        let address = handle.addr();
        Backend { address, handle: Mutex::new(Some(handle)), faults }
    }

    /// Prepares the responses to the attempts of a call on this server.
    pub(crate) fn prepare(&self, call: u64, answers: Vec<Answer>) {
        if let Some(handle) = &*self.handle.lock().unwrap() {
            handle.call(&call.to_string(), answers);
        }
    }

    /// Stops, and starts again after `away` with this script. Existing connections are closed.
    pub(crate) async fn restart(&self, script: Script, away: Duration) {
        let gone = self.handle.lock().unwrap().take();
        if let Some(handle) = gone {
            handle.shutdown().await;
        }
        sleep(away).await;
        let server = server(script, &self.faults);
        // The port may be in use for a moment by an outgoing connection.
        let handle = loop {
            match server.clone().listen(self.address).await {
                Ok(handle) => break handle,
                Err(_) => sleep(Duration::from_millis(10)).await,
            }
        };
        *self.handle.lock().unwrap() = Some(handle);
    }

    /// Waits until no stream is open, and stops.
    pub(crate) async fn finish(&self) {
        let Some(handle) = self.handle.lock().unwrap().take() else { return };
        let idle =
            timeout(DRAIN_TIMEOUT, handle.until_counts(|counts| counts.streams_open == 0)).await;
        if idle.is_err() {
            self.faults.report(format!("streams stay open: {:?}", handle.counts()));
        }
        handle.shutdown().await;
    }
}

fn server(script: Script, faults: &Arc<Faults>) -> Server {
    let faults = faults.clone();
    Server::new(script).streams_kept(0).payload_bytes_kept(PAYLOAD_BYTES).on_end(move |stream| {
        let unavailable = StreamOutcome::Answered(Some(Code::UNAVAILABLE));
        faults.seen_stream(stream.end.is_some_and(|end| end.outcome == unavailable));
        if let Err(fault) = check(stream) {
            faults.report(format!("{fault}, at a server, in {stream:?}"));
        }
    })
}

/// Checks that no message was lost, duplicated or reordered within an attempt.
fn check(stream: &StreamRecord) -> Result<(), String> {
    let call = stream.headers.get(CALL_HEADER).and_then(|call| call.to_str().ok()?.parse().ok());
    let call = call.ok_or("a stream of no call")?;
    let mut sequence = Sequence::of(call);
    for payload in &stream.payloads {
        let request = EchoRequest::decode(&payload[..]).map_err(|error| error.to_string())?;
        sequence.take(&request.payload)?;
    }
    if stream.half_closed.is_some() && sequence.total().unwrap_or(0) != sequence.count {
        return Err(format!("{sequence:?} is not whole, and the client has ended it"));
    }
    Ok(())
}
