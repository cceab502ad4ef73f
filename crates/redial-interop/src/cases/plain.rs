//! Cases in which every call succeeds: all four kinds, empty and large messages, metadata.

use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Request;
use tonic::metadata::{MetadataMap, MetadataValue};

use super::{ask, expect, expect_size, zeros};
use crate::BoxError;
use crate::caller::Connection;
use crate::server::{ECHO_INITIAL, ECHO_TRAILING};
use crate::testing::{
    Empty, ResponseParameters, SimpleRequest, StreamingInputCallRequest, StreamingOutputCallRequest,
};

const REQUESTS: [usize; 4] = [27182, 8, 1828, 45904];
const RESPONSES: [i32; 4] = [31415, 9, 2653, 58979];
pub(super) const LARGE_REQUEST: usize = 271_828;
pub(super) const LARGE_RESPONSE: i32 = 314_159;
const INITIAL_VALUE: &str = "test_initial_metadata_value";
const TRAILING_VALUE: &[u8] = &[0xab, 0xab, 0xab];

pub(super) async fn empty_unary(connection: &Connection) -> Result<(), BoxError> {
    connection.client().empty_call(Empty {}).await?;
    Ok(())
}

pub(super) async fn large_unary(connection: &Connection) -> Result<(), BoxError> {
    let request = SimpleRequest {
        response_size: LARGE_RESPONSE,
        payload: Some(zeros(LARGE_REQUEST)),
        ..SimpleRequest::default()
    };
    let answer = connection.client().unary_call(request).await?.into_inner();
    expect_size(answer.payload, LARGE_RESPONSE)
}

pub(super) async fn client_streaming(connection: &Connection) -> Result<(), BoxError> {
    let messages = REQUESTS.map(|size| StreamingInputCallRequest { payload: Some(zeros(size)) });
    let answer = connection.client().streaming_input_call(tokio_stream::iter(messages)).await?;
    let sum = i32::try_from(REQUESTS.iter().sum::<usize>())?;
    expect("the bytes that arrived", answer.into_inner().aggregated_payload_size, sum)
}

pub(super) async fn server_streaming(connection: &Connection) -> Result<(), BoxError> {
    let parameters = RESPONSES.map(|size| ResponseParameters { size, interval_us: 0 });
    let request = StreamingOutputCallRequest {
        response_parameters: parameters.to_vec(),
        ..StreamingOutputCallRequest::default()
    };
    let mut answers = connection.client().streaming_output_call(request).await?.into_inner();
    for size in RESPONSES {
        let answer = answers.message().await?.ok_or("the stream ended too early")?;
        expect_size(answer.payload, size)?;
    }
    expect("what follows the last message", answers.message().await?, None)
}

pub(super) async fn ping_pong(connection: &Connection) -> Result<(), BoxError> {
    let (out, messages) = mpsc::channel(1);
    // The server may send headers only after the first message, so do not wait for them.
    out.send(ask(REQUESTS[0], RESPONSES[0])).await?;
    let call = connection.client().full_duplex_call(ReceiverStream::new(messages)).await?;
    let mut answers = call.into_inner();
    for (turn, size) in RESPONSES.into_iter().enumerate() {
        if turn > 0 {
            out.send(ask(REQUESTS[turn], size)).await?;
        }
        let answer = answers.message().await?.ok_or("the stream ended too early")?;
        expect_size(answer.payload, size)?;
    }
    drop(out);
    expect("what follows the last message", answers.message().await?, None)
}

pub(super) async fn empty_stream(connection: &Connection) -> Result<(), BoxError> {
    let mut answers =
        connection.client().full_duplex_call(tokio_stream::empty()).await?.into_inner();
    expect("an answer to no message", answers.message().await?, None)
}

pub(super) async fn custom_metadata(connection: &Connection) -> Result<(), BoxError> {
    let message =
        SimpleRequest { response_size: 1, payload: Some(zeros(1)), ..SimpleRequest::default() };
    let answer = connection.client().unary_call(with_metadata(message)).await?;
    // tonic merges headers and trailers of a unary call into one map.
    expect_initial(answer.metadata())?;
    expect_trailing(answer.metadata())?;
    expect_size(answer.into_inner().payload, 1)?;

    let messages = with_metadata(tokio_stream::once(ask(1, 1)));
    let answer = connection.client().full_duplex_call(messages).await?;
    expect_initial(answer.metadata())?;
    expect("the trailer before the end", answer.metadata().get_bin(ECHO_TRAILING), None)?;
    let mut answers = answer.into_inner();
    let first = answers.message().await?.ok_or("the stream ended too early")?;
    expect_size(first.payload, 1)?;
    expect("what follows the last message", answers.message().await?, None)?;
    expect_trailing(&answers.trailers().await?.ok_or("the call ended without trailers")?)
}

fn with_metadata<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    let metadata = request.metadata_mut();
    metadata.insert(ECHO_INITIAL, MetadataValue::from_static(INITIAL_VALUE));
    metadata.insert_bin(ECHO_TRAILING, MetadataValue::from_bytes(TRAILING_VALUE));
    request
}

fn expect_initial(metadata: &MetadataMap) -> Result<(), BoxError> {
    let value = metadata.get(ECHO_INITIAL).and_then(|value| value.to_str().ok());
    expect("the header that comes back", value, Some(INITIAL_VALUE))
}

fn expect_trailing(metadata: &MetadataMap) -> Result<(), BoxError> {
    let value = metadata.get_bin(ECHO_TRAILING).and_then(|value| value.to_bytes().ok());
    expect("the trailer that comes back", value.as_deref(), Some(TRAILING_VALUE))
}
