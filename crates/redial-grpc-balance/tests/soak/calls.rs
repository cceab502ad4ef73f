//! One random call through a generated client, and the checks of its result.

use std::time::Duration;

use fastrand::Rng;
use redial_echo::echo_client::EchoClient;
use redial_echo::{EchoRequest, EchoResponse};
use redial_faults::grpc::CALL_HEADER;
use redial_grpc_balance::{CallOptions, Retries};
use tokio::time::{sleep, timeout};
use tokio_stream::{Stream, StreamExt};
use tonic::{Code, Request, Status, Streaming};

use super::Channel;
use super::answers::text_of;
use super::marks::{Mark, Sequence, Source};

/// The time limit of a call that has a deadline or is dropped: beyond it, the call hangs.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);

/// The codes of failures that no script sent: closed connections, reset streams, responses that are
/// not gRPC, deadlines, messages larger than the config allows.
const LOCAL_CODES: [Code; 7] = [
    Code::Unavailable,
    Code::DeadlineExceeded,
    Code::Cancelled,
    Code::Internal,
    Code::Unknown,
    Code::ResourceExhausted,
    Code::Unimplemented,
];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Unary,
    ClientStream,
    ServerStream,
    Bidi,
}

/// The parameters of a call.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) id: u64,
    kind: Kind,
    messages: u32,
    size: usize,
    /// The delay between two messages of a stream.
    pause: Duration,
    deadline: Option<Duration>,
    /// When the application drops the call.
    dropped: Option<Duration>,
    options: Option<CallOptions>,
}

impl Call {
    pub(crate) fn random(random: &mut Rng, id: u64) -> Call {
        let kinds = [Kind::Unary, Kind::ClientStream, Kind::ServerStream, Kind::Bidi];
        let kind = kinds[random.usize(0..kinds.len())];
        let messages = match kind {
            Kind::Unary | Kind::ServerStream => 1,
            Kind::ClientStream => random.u32(1..=8),
            Kind::Bidi => random.u32(0..=8),
        };
        let size = match random.u32(0..20) {
            0 => random.usize(100_000..300_000),
            1..=4 => random.usize(1_000..20_000),
            _ => random.usize(0..300),
        };
        let drops = random.u32(0..5) == 0;
        let deadline = Duration::from_millis(random.u64(5..=1_000));
        let options = match random.u32(0..10) {
            0 => Some(CallOptions::new().retries(Retries::Off)),
            1 => Some(CallOptions::new().wait_for_ready()),
            _ => None,
        };
        Call {
            id,
            kind,
            messages,
            size,
            pause: Duration::from_millis(random.u64(0..=4)),
            deadline: (!drops || random.bool()).then_some(deadline),
            dropped: drops.then(|| Duration::from_millis(random.u64(0..=100))),
            options,
        }
    }

    /// A call of one message without a deadline.
    pub(crate) fn plain(id: u64) -> Call {
        Call {
            id,
            kind: Kind::Unary,
            messages: 1,
            size: 100,
            pause: Duration::ZERO,
            deadline: None,
            dropped: None,
            options: None,
        }
    }

    fn message(&self, index: u32) -> EchoRequest {
        let total = self.messages;
        let mark = Mark { source: Source::Client, call: self.id, index, total };
        EchoRequest { payload: mark.to_bytes(self.size), ..Default::default() }
    }

    fn stream(&self) -> impl Stream<Item = EchoRequest> + Send + 'static {
        let call = self.clone();
        tokio_stream::iter(0..self.messages).then(move |index| {
            let message = call.message(index);
            let pause = if index > 0 { call.pause } else { Duration::ZERO };
            async move {
                if !pause.is_zero() {
                    sleep(pause).await;
                }
                message
            }
        })
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        let name = self.id.to_string().parse().expect("digits");
        request.metadata_mut().insert(CALL_HEADER, name);
        if let Some(deadline) = self.deadline {
            request.set_timeout(deadline);
        }
        if let Some(options) = &self.options {
            request.extensions_mut().insert(options.clone());
        }
        request
    }

    /// Makes the call. Returns how it ended, or what was wrong.
    pub(crate) async fn make(&self, client: EchoClient<Channel>) -> Result<String, String> {
        let made = timeout(self.dropped.unwrap_or(CALL_TIMEOUT), self.answer(client)).await;
        match made {
            Err(_) if self.dropped.is_some() => Ok("dropped".to_owned()),
            Err(_) => Err(format!("{self:?} hangs")),
            Ok(Ok(())) => Ok("OK".to_owned()),
            Ok(Err(Failure::Failed(status))) => self.failed(&status),
            Ok(Err(Failure::Messages(fault))) => {
                Err(format!("{fault}, at the client, in {self:?}"))
            }
        }
    }

    async fn answer(&self, mut client: EchoClient<Channel>) -> Result<(), Failure> {
        match self.kind {
            Kind::Unary => self.one(client.unary(self.request(self.message(0))).await?.get_ref()),
            Kind::ClientStream => {
                self.one(client.client_stream(self.request(self.stream())).await?.get_ref())
            }
            Kind::ServerStream => {
                let request = self.request(self.message(0));
                self.many(client.server_stream(request).await?.into_inner()).await
            }
            Kind::Bidi => {
                let request = self.request(self.stream());
                self.many(client.bidi(request).await?.into_inner()).await
            }
        }
    }

    fn one(&self, response: &EchoResponse) -> Result<(), Failure> {
        Sequence::of(self.id).take(&response.payload).map_err(Failure::Messages)
    }

    async fn many(&self, mut responses: Streaming<EchoResponse>) -> Result<(), Failure> {
        let mut sequence = Sequence::of(self.id);
        while let Some(response) = responses.message().await? {
            sequence.take(&response.payload).map_err(Failure::Messages)?;
        }
        // Without a message that states the total, an echo returns the messages that were sent.
        let total = sequence.total().unwrap_or(self.messages);
        if total != sequence.count {
            return Err(Failure::Messages(format!("OK after {sequence:?}")));
        }
        Ok(())
    }

    /// Checks that a failure came from this call's script or from a closed connection.
    fn failed(&self, status: &Status) -> Result<String, String> {
        let scripted = status.message().starts_with("scripted for");
        if scripted && status.message() != text_of(self.id) {
            return Err(format!("{self:?} ended with the status of another call: {status:?}"));
        }
        if !scripted && !LOCAL_CODES.contains(&status.code()) {
            return Err(format!("{self:?} ended with a status that no server sent: {status:?}"));
        }
        if self.deadline.is_none() && !scripted && status.code() == Code::DeadlineExceeded {
            return Err(format!("{self:?} has no deadline: {status:?}"));
        }
        Ok(format!("{:?}", status.code()))
    }
}

/// Why a call did not succeed.
enum Failure {
    Failed(Status),
    Messages(String),
}

impl From<Status> for Failure {
    fn from(status: Status) -> Failure {
        Failure::Failed(status)
    }
}
