//! Cases in which calls fail, are cancelled, or run out of time.
//!
//! The policy retries UNKNOWN, the status that the server is asked for: each such call makes all
//! its attempts, and the application receives the server's last status unchanged.

use std::time::Duration;

use http::uri::PathAndQuery;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::client::Grpc;
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;

use super::{ask, expect, failure, last_event, still_works, with_call_log, zeros};
use crate::BoxError;
use crate::caller::{ATTEMPTS, Connection};
use crate::testing::{
    EchoStatus, Empty, SimpleRequest, StreamingInputCallRequest, StreamingOutputCallRequest,
};

const SPECIAL: &str =
    "\t\ntest with whitespace\r\nand Unicode BMP \u{263a} and non-BMP \u{1f608}\t\n";
/// By then the request headers are sent; correctness does not depend on it.
const UNDER_WAY: Duration = Duration::from_millis(200);

pub(super) async fn timeout_on_sleeping_server(connection: &Connection) -> Result<(), BoxError> {
    let (out, messages) = mpsc::channel(1);
    let silent = StreamingOutputCallRequest {
        payload: Some(zeros(27182)),
        ..StreamingOutputCallRequest::default()
    };
    out.send(silent).await?;
    let mut request = Request::new(ReceiverStream::new(messages));
    request.set_timeout(Duration::from_millis(1));
    let status = match connection.client().full_duplex_call(request).await {
        Err(status) => status,
        Ok(answers) => failure("the call", answers.into_inner().message().await)?,
    };
    expect("the status", status.code(), Code::DeadlineExceeded)?;
    still_works(connection).await
}

pub(super) async fn cancel_after_begin(connection: &Connection) -> Result<(), BoxError> {
    let (_out, messages) = mpsc::channel::<StreamingInputCallRequest>(1);
    let (request, call_log) = with_call_log(ReceiverStream::new(messages));
    let mut client = connection.client();
    let call = client.streaming_input_call(request);
    if tokio::time::timeout(UNDER_WAY, call).await.is_ok() {
        return Err("the call ended before the request did".into());
    }
    expect_cancelled(&last_event(&call_log))?;
    still_works(connection).await
}

pub(super) async fn cancel_after_first_response(connection: &Connection) -> Result<(), BoxError> {
    let (out, messages) = mpsc::channel(1);
    out.send(ask(27182, 31415)).await?;
    let (request, call_log) = with_call_log(ReceiverStream::new(messages));
    let mut answers = connection.client().full_duplex_call(request).await?.into_inner();
    answers.message().await?.ok_or("the stream ended without an answer")?;
    drop(answers);
    expect_cancelled(&last_event(&call_log))?;
    // The stream is closed on this side too: further messages are not read.
    tokio::time::timeout(super::CASE_MAX, out.closed()).await?;
    still_works(connection).await
}

fn expect_cancelled(note: &str) -> Result<(), BoxError> {
    expect("whether the call was cancelled", note.ends_with("cancelled"), true)
        .map_err(|problem| format!("{problem}: {note}").into())
}

pub(super) async fn status_code_and_message(connection: &Connection) -> Result<(), BoxError> {
    let text = "test status message";
    let requested = EchoStatus { code: Code::Unknown.into(), message: text.into() };
    let request =
        SimpleRequest { response_status: Some(requested.clone()), ..SimpleRequest::default() };
    let answer = connection.client().unary_call(request).await;
    expect_status(&failure("the unary call", answer)?, text)?;

    let message = StreamingOutputCallRequest {
        response_status: Some(requested),
        ..StreamingOutputCallRequest::default()
    };
    let messages = tokio_stream::once(message);
    let answer = match connection.client().full_duplex_call(messages).await {
        Err(status) => Err(status),
        Ok(answers) => answers.into_inner().message().await,
    };
    expect_status(&failure("the stream", answer)?, text)
}

pub(super) async fn special_status_message(connection: &Connection) -> Result<(), BoxError> {
    let requested = EchoStatus { code: Code::Unknown.into(), message: SPECIAL.into() };
    let request = SimpleRequest { response_status: Some(requested), ..SimpleRequest::default() };
    let answer = connection.client().unary_call(request).await;
    expect_status(&failure("the call", answer)?, SPECIAL)
}

/// The server's status unchanged, after all attempts that the policy allows.
fn expect_status(status: &Status, text: &str) -> Result<(), BoxError> {
    expect("the status", status.code(), Code::Unknown)?;
    expect("the message", status.message(), text)?;
    let previous = status.metadata().get("grpc-previous-rpc-attempts");
    let previous = previous.and_then(|value| value.to_str().ok());
    expect("the attempts before the last", previous, Some((ATTEMPTS - 1).to_string().as_str()))
}

pub(super) async fn unimplemented_method(connection: &Connection) -> Result<(), BoxError> {
    unimplemented(connection, "/grpc.testing.TestService/UnimplementedCall").await
}

pub(super) async fn unimplemented_service(connection: &Connection) -> Result<(), BoxError> {
    unimplemented(connection, "/grpc.testing.UnimplementedService/UnimplementedCall").await
}

async fn unimplemented(connection: &Connection, path: &'static str) -> Result<(), BoxError> {
    let mut client = Grpc::new(connection.channel.clone());
    client.ready().await?;
    let codec = ProstCodec::<Empty, Empty>::default();
    let answer = client.unary(Request::new(Empty {}), PathAndQuery::from_static(path), codec).await;
    expect("the status", failure("the call", answer)?.code(), Code::Unimplemented)
}
