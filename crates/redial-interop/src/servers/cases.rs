//! The cases: one call each, and the expected behaviour.
//!
//! A case is data: one call, whose first message controls the server (`echo.proto`). The observed
//! behaviour is one line: the final status, the number of attempts that the application sees, the
//! number of messages, and errors in them.

use std::time::{Duration, Instant};

use redial_echo::echo_client::EchoClient;
use redial_echo::{EchoRequest, EchoResponse, Failing};
use redial_grpc::{RetryLayer, RetryService};
use tonic::codec::CompressionEncoding;
use tonic::metadata::MetadataMap;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status, Streaming};
use tower::Layer;

use crate::BoxError;

const RETRY: &str = r#"{"methodConfig": [{"name": [{}], "retryPolicy": {
    "maxAttempts": 4, "initialBackoff": "0.05s", "maxBackoff": "0.1s", "backoffMultiplier": 2,
    "retryableStatusCodes": ["UNAVAILABLE", "ABORTED"]}}]}"#;
const HEDGE: &str = r#"{"methodConfig": [{"name": [{}], "hedgingPolicy": {
    "maxAttempts": 3, "hedgingDelay": "0.2s", "nonFatalStatusCodes": ["UNAVAILABLE"]}}]}"#;

/// How often a failed case is repeated: a library is deterministic, a busy machine is not.
const RETRIES: usize = 2;
/// How long after its earliest end a call must have ended, on a busy machine.
const LATE: Duration = Duration::from_secs(20);
/// The time after which an open call counts as never ending.
const NEVER: Duration = Duration::from_secs(60);

/// The kinds of calls.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Unary,
    ClientStream,
    ServerStream,
    Bidi,
}

/// One call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Case {
    pub(super) name: &'static str,
    config: &'static str,
    kind: Kind,
    /// How many messages are written, and how large each is.
    messages: u32,
    bytes: usize,
    /// The instructions for the server: see `echo.proto`.
    failures: u32,
    code: Code,
    pushback_ms: Option<i32>,
    failing: Failing,
    delay_ms: u32,
    responses: Option<u32>,
    deadline_ms: Option<u64>,
    /// The earliest possible end.
    waits_ms: u64,
    is_compressed: bool,
    /// How many such calls run concurrently.
    at_once: usize,
    /// The expected behaviour.
    pub(super) expected: &'static str,
}

const UNARY: Case = Case {
    name: "",
    config: RETRY,
    kind: Kind::Unary,
    messages: 1,
    bytes: 10,
    failures: 0,
    code: Code::Unavailable,
    pushback_ms: None,
    failing: Failing::AtOnce,
    delay_ms: 0,
    responses: None,
    deadline_ms: None,
    waits_ms: 0,
    is_compressed: false,
    at_once: 1,
    expected: "",
};

/// All cases.
pub(super) const ALL: &[Case] = &[
    Case {
        name: "unary: two failures, then an answer",
        failures: 2,
        expected: "OK, 2 previous attempts, 1 answer",
        ..UNARY
    },
    Case {
        name: "unary: another listed code",
        failures: 1,
        code: Code::Aborted,
        expected: "OK, 1 previous attempt, 1 answer",
        ..UNARY
    },
    Case {
        name: "unary: a code that is not listed",
        failures: 1,
        code: Code::InvalidArgument,
        expected: "INVALID_ARGUMENT (asked to fail, after 0 attempts), 0 previous attempts, 0 answers",
        ..UNARY
    },
    Case {
        name: "unary: more failures than attempts",
        failures: 9,
        expected: "UNAVAILABLE (asked to fail, after 3 attempts), 3 previous attempts, 0 answers",
        ..UNARY
    },
    Case {
        name: "unary: a pushback is waited for",
        failures: 1,
        pushback_ms: Some(700),
        waits_ms: 700,
        expected: "OK, 1 previous attempt, 1 answer",
        ..UNARY
    },
    Case {
        name: "unary: a negative pushback stops",
        failures: 1,
        pushback_ms: Some(-1),
        expected: "UNAVAILABLE (asked to fail, after 0 attempts), 0 previous attempts, 0 answers",
        ..UNARY
    },
    Case {
        name: "unary: the deadline",
        delay_ms: 30_000,
        deadline_ms: Some(500),
        waits_ms: 500,
        expected: "DEADLINE_EXCEEDED, 0 previous attempts, 0 answers",
        ..UNARY
    },
    Case {
        name: "unary: half a mebibyte is replayed",
        failures: 2,
        bytes: 512 << 10,
        expected: "OK, 2 previous attempts, 1 answer",
        ..UNARY
    },
    Case {
        name: "unary: compressed with gzip, and replayed so",
        failures: 1,
        bytes: 100_000,
        is_compressed: true,
        expected: "OK, 1 previous attempt, 1 answer",
        ..UNARY
    },
    Case {
        name: "unary: forty calls at once",
        failures: 1,
        at_once: 40,
        expected: "OK, 1 previous attempt, 1 answer",
        ..UNARY
    },
    Case {
        name: "client stream: replayed whole",
        kind: Kind::ClientStream,
        messages: 5,
        bytes: 1_000,
        failures: 2,
        expected: "OK, 2 previous attempts, 1 answer",
        ..UNARY
    },
    Case {
        name: "server stream: fails before it begins",
        kind: Kind::ServerStream,
        failures: 1,
        responses: Some(4),
        expected: "OK, 1 previous attempt, 4 answers",
        ..UNARY
    },
    Case {
        name: "server stream: fails with its first item",
        kind: Kind::ServerStream,
        failures: 1,
        responses: Some(4),
        failing: Failing::FirstItem,
        expected: "UNAVAILABLE (asked to fail, after 0 attempts), 0 previous attempts, 0 answers",
        ..UNARY
    },
    Case {
        name: "server stream: fails at its end",
        kind: Kind::ServerStream,
        failures: 1,
        responses: Some(3),
        failing: Failing::AtEnd,
        expected: "UNAVAILABLE (asked to fail, after 0 attempts), 0 previous attempts, 3 answers",
        ..UNARY
    },
    Case {
        name: "bidi: fails before it begins",
        kind: Kind::Bidi,
        messages: 3,
        failures: 2,
        responses: Some(2),
        expected: "OK, 2 previous attempts, 6 answers",
        ..UNARY
    },
    Case {
        name: "bidi: fails at its end",
        kind: Kind::Bidi,
        messages: 3,
        failures: 1,
        failing: Failing::AtEnd,
        expected: "UNAVAILABLE (asked to fail, after 0 attempts), 0 previous attempts, 3 answers",
        ..UNARY
    },
    Case {
        name: "hedging: a failure sends the next at once",
        config: HEDGE,
        failures: 1,
        expected: "OK, 1 previous attempt, 1 answer",
        ..UNARY
    },
    Case {
        name: "hedging: the first answer wins, the others are cancelled",
        config: HEDGE,
        delay_ms: 1_500,
        waits_ms: 1_500,
        expected: "OK, 0 previous attempts, 1 answer",
        ..UNARY
    },
    Case {
        name: "hedging: all fail",
        config: HEDGE,
        failures: 9,
        expected: "UNAVAILABLE (asked to fail, after 2 attempts), 2 previous attempts, 0 answers",
        ..UNARY
    },
];

/// What the application received.
struct Observed {
    code: Code,
    text: String,
    /// The layer's count of previous attempts.
    previous: u32,
    answers: Vec<EchoResponse>,
}

type Client = EchoClient<RetryService<Channel>>;

impl Case {
    /// Runs the case, and repeats it if it fails; returns the last observed behaviour.
    pub(super) async fn play(
        &self,
        port: u16,
        holds: impl Fn(&str) -> bool,
    ) -> Result<String, BoxError> {
        let mut seen = self.play_once(port).await?;
        for _ in 0..RETRIES {
            if holds(&seen) {
                break;
            }
            println!("played again: {}: {seen}", self.name);
            seen = self.play_once(port).await?;
        }
        Ok(seen)
    }

    /// Makes the call, and returns the observed behaviour; for concurrent calls, the first
    /// unexpected one.
    async fn play_once(&self, port: u16) -> Result<String, BoxError> {
        let endpoint = Endpoint::from_shared(format!("http://127.0.0.1:{port}"))?;
        let service = RetryLayer::from_json(self.config)?.layer(endpoint.connect_lazy());
        let mut client = EchoClient::new(service).max_decoding_message_size(4 << 20);
        if self.is_compressed {
            let gzip = CompressionEncoding::Gzip;
            client = client.send_compressed(gzip).accept_compressed(gzip);
        }
        let calls = (0..self.at_once).map(|_| tokio::spawn(self.call(client.clone())));
        let mut seen = String::new();
        for call in calls.collect::<Vec<_>>() {
            let one = call.await?;
            if seen.is_empty() || seen == self.expected {
                seen = one;
            }
        }
        Ok(seen)
    }

    async fn call(self, client: Client) -> String {
        let begun = Instant::now();
        match tokio::time::timeout(NEVER, self.ask(client)).await {
            Ok(got) => self.describe(&got, begun.elapsed()),
            Err(_) => "it never ends".to_owned(),
        }
    }

    async fn ask(&self, mut client: Client) -> Observed {
        let stream = || tokio_stream::iter(self.requests());
        let one = || self.request(0);
        match self.kind {
            Kind::Unary => answered(client.unary(self.timed(one())).await),
            Kind::ClientStream => answered(client.client_stream(self.timed(stream())).await),
            Kind::ServerStream => streamed(client.server_stream(self.timed(one())).await).await,
            Kind::Bidi => streamed(client.bidi(self.timed(stream())).await).await,
        }
    }

    fn timed<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(deadline) = self.deadline_ms {
            request.set_timeout(Duration::from_millis(deadline));
        }
        request
    }

    fn requests(&self) -> Vec<EchoRequest> {
        (0..self.messages).map(|index| self.request(index)).collect()
    }

    /// The message with this index; all payloads differ.
    fn request(&self, index: u32) -> EchoRequest {
        let letter = u8::try_from(index).unwrap_or(u8::MAX).wrapping_add(b'a');
        EchoRequest {
            payload: vec![letter; self.bytes].into(),
            failures: self.failures,
            code: i32::from(self.code).unsigned_abs(),
            pushback_ms: self.pushback_ms,
            failing: self.failing.into(),
            delay_ms: self.delay_ms,
            responses: self.responses,
        }
    }

    /// The expected answers: payload and number of received messages.
    fn right(&self) -> Vec<(Vec<u8>, u32)> {
        let requests = self.requests();
        let payload = |request: &EchoRequest| request.payload.to_vec();
        match self.kind {
            Kind::Unary => vec![(payload(&requests[0]), 1)],
            Kind::ClientStream => {
                vec![(requests.iter().flat_map(payload).collect(), self.messages)]
            }
            Kind::ServerStream | Kind::Bidi => {
                let each = (1..).zip(&requests).flat_map(|(received, request)| {
                    let times = self.responses.unwrap_or(1) as usize;
                    std::iter::repeat_n((payload(request), received), times)
                });
                each.collect()
            }
        }
    }

    /// The observed behaviour in one line.
    fn describe(&self, got: &Observed, took: Duration) -> String {
        let plural = |count: u32| if count == 1 { "" } else { "s" };
        let count = u32::try_from(got.answers.len()).unwrap_or(u32::MAX);
        // At a deadline the status message comes from the client, not from the server.
        let text = match got.code {
            Code::Ok | Code::DeadlineExceeded => String::new(),
            _ => format!(" ({})", got.text),
        };
        let (name, previous) = (name(got.code), got.previous);
        let mut described = format!(
            "{name}{text}, {previous} previous attempt{}, {count} answer{}",
            plural(previous),
            plural(count)
        );
        let answers = got.answers.iter().map(|it| (it.payload.to_vec(), it.received));
        if answers.collect::<Vec<_>>() != self.right()[..got.answers.len().min(self.right().len())]
        {
            described.push_str(", not those that were asked for");
        }
        if got.answers.iter().any(|answer| answer.previous_attempts != previous) {
            described.push_str(", and the server received another attempt number");
        }
        let waits = Duration::from_millis(self.waits_ms);
        if took < waits {
            described.push_str(", too early");
        } else if took > waits + LATE {
            described.push_str(", too late");
        }
        described
    }
}

fn answered(result: Result<tonic::Response<EchoResponse>, Status>) -> Observed {
    match result {
        Ok(response) => Observed {
            code: Code::Ok,
            text: String::new(),
            previous: previous(response.metadata()),
            answers: vec![response.into_inner()],
        },
        Err(status) => failed(&status, Vec::new()),
    }
}

async fn streamed(result: Result<tonic::Response<Streaming<EchoResponse>>, Status>) -> Observed {
    let response = match result {
        Ok(response) => response,
        Err(status) => return failed(&status, Vec::new()),
    };
    let previous = previous(response.metadata());
    let mut stream = response.into_inner();
    let mut answers = Vec::new();
    loop {
        match stream.message().await {
            Ok(Some(answer)) => answers.push(answer),
            Ok(None) => return Observed { code: Code::Ok, text: String::new(), previous, answers },
            Err(status) => return failed(&status, answers),
        }
    }
}

fn failed(status: &Status, answers: Vec<EchoResponse>) -> Observed {
    let (code, text) = (status.code(), status.message().to_owned());
    Observed { code, text, previous: previous(status.metadata()), answers }
}

/// The layer's count of previous attempts (decision G30).
fn previous(metadata: &MetadataMap) -> u32 {
    let value = metadata.get("grpc-previous-rpc-attempts").and_then(|value| value.to_str().ok());
    value.and_then(|value| value.parse().ok()).unwrap_or(0)
}

/// The name of a status as gRPC writes it.
fn name(code: Code) -> &'static str {
    let number = i64::from(i32::from(code));
    redial_grpc::Code::from_number(number).map_or("UNKNOWN", redial_grpc::Code::name)
}

#[cfg(test)]
mod tests {
    //! Goal: the cases pass against our own server, so that differences come from the other
    //! libraries.

    use redial_echo::Responder;
    use redial_echo::echo_server::EchoServer;
    use tonic::transport::Server;
    use tonic::transport::server::TcpIncoming;

    use super::*;

    #[tokio::test]
    async fn interop_servers_cases_pass_against_tonic() {
        let incoming = TcpIncoming::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let port = incoming.local_addr().unwrap().port();
        let gzip = CompressionEncoding::Gzip;
        let echo = EchoServer::new(Responder).accept_compressed(gzip).send_compressed(gzip);
        let server = Server::builder().add_service(echo).serve_with_incoming(incoming);
        let server = tokio::spawn(server);
        for case in ALL {
            let seen = case.play(port, |seen| seen == case.expected).await.unwrap();
            assert_eq!(seen, case.expected, "{}", case.name);
        }
        server.abort();
    }

    #[test]
    fn interop_servers_wrong_payloads_attempts_and_times_are_reported() {
        let case = Case { name: "one", waits_ms: 100, ..UNARY };
        let answer = |payload: &'static str, previous_attempts| EchoResponse {
            payload: payload.into(),
            previous_attempts,
            received: 1,
        };
        let described = |answer, ms| {
            let got = Observed {
                code: Code::Ok,
                text: String::new(),
                previous: 1,
                answers: vec![answer],
            };
            case.describe(&got, Duration::from_millis(ms))
        };
        let right = "OK, 1 previous attempt, 1 answer";
        assert_eq!(described(answer("aaaaaaaaaa", 1), 100), right);
        assert_eq!(described(answer("aaaaaaaaaa", 1), 20_100), right);
        let other = described(answer("b", 0), 99);
        let wrong =
            ", not those that were asked for, and the server received another attempt number";
        assert_eq!(other, format!("{right}{wrong}, too early"));
        assert_eq!(described(answer("aaaaaaaaaa", 1), 20_101), format!("{right}, too late"));
    }
}
