//! A handler that is controlled by the fields of the request.
//!
//! It is stateless: the number of the attempt comes from `grpc-previous-rpc-attempts`, so a call
//! fails the same way on every server.

use std::time::Duration;

use futures_util::stream::{empty, unfold};
use tonic::codegen::BoxStream;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Code, Request, Response, Status, Streaming};

use crate::echo_server::Echo;
use crate::{EchoRequest, EchoResponse, Failing};

const PREVIOUS_ATTEMPTS: &str = "grpc-previous-rpc-attempts";
const PUSHBACK: &str = "grpc-retry-pushback-ms";

/// The service as `proto/echo.proto` describes it.
///
/// A client-streaming method reads its first message before it answers, since that message controls
/// it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Responder;

#[tonic::async_trait]
impl Echo for Responder {
    async fn unary(&self, request: Request<EchoRequest>) -> Result<Response<EchoResponse>, Status> {
        let previous_attempts = previous_attempts(request.metadata());
        let request = request.into_inner();
        tokio::time::sleep(delay(&request)).await;
        match failure(&request, previous_attempts) {
            Some(status) => Err(status),
            None => {
                let payload = request.payload;
                Ok(Response::new(EchoResponse { payload, previous_attempts, received: 1 }))
            }
        }
    }

    async fn client_stream(
        &self,
        request: Request<Streaming<EchoRequest>>,
    ) -> Result<Response<EchoResponse>, Status> {
        let previous_attempts = previous_attempts(request.metadata());
        let mut inbound = request.into_inner();
        let mut payload = Vec::new();
        let mut received = 0;
        while let Some(request) = inbound.message().await? {
            received += 1;
            if received == 1 {
                tokio::time::sleep(delay(&request)).await;
                if let Some(status) = failure(&request, previous_attempts) {
                    return Err(status);
                }
            }
            payload.extend_from_slice(&request.payload);
        }
        let payload = payload.into();
        Ok(Response::new(EchoResponse { payload, previous_attempts, received }))
    }

    type ServerStreamStream = BoxStream<EchoResponse>;

    async fn server_stream(
        &self,
        request: Request<EchoRequest>,
    ) -> Result<Response<BoxStream<EchoResponse>>, Status> {
        let previous_attempts = previous_attempts(request.metadata());
        Answering::begin(request.into_inner(), None, previous_attempts).await
    }

    type BidiStream = BoxStream<EchoResponse>;

    async fn bidi(
        &self,
        request: Request<Streaming<EchoRequest>>,
    ) -> Result<Response<BoxStream<EchoResponse>>, Status> {
        let previous_attempts = previous_attempts(request.metadata());
        let mut inbound = request.into_inner();
        let Some(first) = inbound.message().await? else {
            return Ok(Response::new(Box::pin(empty())));
        };
        Answering::begin(first, Some(inbound), previous_attempts).await
    }
}

/// The state of a streaming method: the current message and the source of the next one.
///
/// A server-streaming method is treated as a stream of one message.
struct Answering {
    current: EchoRequest,
    /// How many responses to the current message remain.
    left: u32,
    received: u32,
    inbound: Option<Streaming<EchoRequest>>,
    previous_attempts: u32,
    delay: Duration,
    failing: Failing,
    failure: Option<Status>,
}

impl Answering {
    async fn begin(
        first: EchoRequest,
        inbound: Option<Streaming<EchoRequest>>,
        previous_attempts: u32,
    ) -> Result<Response<BoxStream<EchoResponse>>, Status> {
        let mut answering = Self {
            left: responses(&first),
            received: 1,
            inbound,
            previous_attempts,
            delay: delay(&first),
            failing: first.failing(),
            failure: failure(&first, previous_attempts),
            current: first,
        };
        if answering.failing == Failing::AtOnce
            && let Some(status) = answering.failure.take()
        {
            tokio::time::sleep(answering.delay).await;
            return Err(status);
        }
        Ok(Response::new(Box::pin(unfold(answering, Self::next))))
    }

    async fn next(mut self) -> Option<(Result<EchoResponse, Status>, Self)> {
        if self.failing == Failing::FirstItem
            && let Some(status) = self.failure.take()
        {
            tokio::time::sleep(self.delay).await;
            return Some((Err(status), self.ended()));
        }
        while self.left == 0 {
            let Some(inbound) = &mut self.inbound else {
                let status = self.failure.take()?;
                return Some((Err(status), self));
            };
            match inbound.message().await {
                Ok(Some(request)) => {
                    self.left = responses(&request);
                    self.received += 1;
                    self.current = request;
                }
                Ok(None) => self.inbound = None,
                Err(status) => return Some((Err(status), self.ended())),
            }
        }
        tokio::time::sleep(self.delay).await;
        self.left -= 1;
        let answer = EchoResponse {
            payload: self.current.payload.clone(),
            previous_attempts: self.previous_attempts,
            received: self.received,
        };
        Some((Ok(answer), self))
    }

    /// The stream ends after this.
    fn ended(self) -> Self {
        Self { left: 0, inbound: None, failure: None, ..self }
    }
}

fn previous_attempts(metadata: &MetadataMap) -> u32 {
    let value = metadata.get(PREVIOUS_ATTEMPTS).and_then(|value| value.to_str().ok());
    value.and_then(|value| value.parse().ok()).unwrap_or(0)
}

fn delay(request: &EchoRequest) -> Duration {
    Duration::from_millis(request.delay_ms.into())
}

fn responses(request: &EchoRequest) -> u32 {
    request.responses.unwrap_or(1)
}

/// The failure of this attempt, if any.
fn failure(request: &EchoRequest, previous_attempts: u32) -> Option<Status> {
    if previous_attempts >= request.failures {
        return None;
    }
    let code = match i32::try_from(request.code) {
        Ok(code @ 1..=16) => Code::from_i32(code),
        _ => Code::Unavailable,
    };
    let text = format!("asked to fail, after {previous_attempts} attempts");
    let mut status = Status::new(code, text);
    if let Some(pushback) = request.pushback_ms {
        status.metadata_mut().insert(PUSHBACK, MetadataValue::from(pushback));
    }
    Some(status)
}
