//! The client side of the cases, one function each.
//!
//! Cases have their official names. Where the description cancels a call, its future is dropped, as
//! usual in Rust; the call log then shows how the layer ended it.

mod ending;
mod load;
mod plain;

use std::fmt::Debug;
use std::time::Duration;

use redial_grpc::{CallOptions, SharedCallLog};
use tonic::{Request, Status};

use crate::BoxError;
use crate::caller::{Caller, Connection};
pub(crate) use load::server_id_request;

use crate::testing::{Payload, PayloadType, ResponseParameters, StreamingOutputCallRequest};

/// The longest allowed duration of a case, on a busy machine.
pub const CASE_MAX: Duration = Duration::from_secs(60);

/// The official names of the implemented cases.
pub const CASES: &[&str] = &[
    "empty_unary",
    "large_unary",
    "client_streaming",
    "server_streaming",
    "ping_pong",
    "empty_stream",
    "custom_metadata",
    "timeout_on_sleeping_server",
    "cancel_after_begin",
    "cancel_after_first_response",
    "status_code_and_message",
    "special_status_message",
    "unimplemented_method",
    "unimplemented_service",
    "pick_first_unary",
    "rpc_soak",
    "channel_soak",
    "orca_per_rpc",
    "orca_oob",
];

/// Runs one case against the server of `caller`.
///
/// # Errors
/// The case failed, the layer still buffers bytes after all calls, the case does not exist, or it
/// takes longer than [`CASE_MAX`].
pub async fn play(name: &str, caller: &Caller) -> Result<(), BoxError> {
    let connection = caller.connect()?;
    let case = async {
        match name {
            "empty_unary" => plain::empty_unary(&connection).await,
            "large_unary" => plain::large_unary(&connection).await,
            "client_streaming" => plain::client_streaming(&connection).await,
            "server_streaming" => plain::server_streaming(&connection).await,
            "ping_pong" => plain::ping_pong(&connection).await,
            "empty_stream" => plain::empty_stream(&connection).await,
            "custom_metadata" => plain::custom_metadata(&connection).await,
            "timeout_on_sleeping_server" => ending::timeout_on_sleeping_server(&connection).await,
            "cancel_after_begin" => ending::cancel_after_begin(&connection).await,
            "cancel_after_first_response" => ending::cancel_after_first_response(&connection).await,
            "status_code_and_message" => ending::status_code_and_message(&connection).await,
            "special_status_message" => ending::special_status_message(&connection).await,
            "unimplemented_method" => ending::unimplemented_method(&connection).await,
            "unimplemented_service" => ending::unimplemented_service(&connection).await,
            "pick_first_unary" => load::pick_first_unary(&connection).await,
            "rpc_soak" => load::rpc_soak(&connection).await,
            "channel_soak" => load::channel_soak(caller).await,
            "orca_per_rpc" => load::orca_per_rpc(&connection).await,
            "orca_oob" => load::orca_oob(&connection).await,
            _ => Err(format!("there is no case `{name}`").into()),
        }
    };
    tokio::time::timeout(CASE_MAX, case)
        .await
        .map_err(|_| format!("not done after {} s", CASE_MAX.as_secs()))??;
    expect("what the layer keeps afterwards", connection.control.bytes_kept(), 0)
}

#[expect(clippy::needless_pass_by_value, reason = "what is compared is mostly made for it")]
fn expect<T: PartialEq<U> + Debug, U: Debug>(
    what: &str,
    found: T,
    requested: U,
) -> Result<(), BoxError> {
    if found == requested {
        return Ok(());
    }
    Err(format!("{what}: expected {requested:?}, found {found:?}").into())
}

/// The status of a call that must fail.
fn failure<T>(what: &str, result: Result<T, Status>) -> Result<Status, BoxError> {
    result.err().ok_or_else(|| format!("{what}: expected a failure, found an answer").into())
}

fn zeros(size: usize) -> Payload {
    Payload { r#type: PayloadType::Compressable.into(), body: vec![0; size].into() }
}

/// A message of `size` bytes that requests one of `answer` bytes.
fn ask(size: usize, answer: i32) -> StreamingOutputCallRequest {
    StreamingOutputCallRequest {
        response_parameters: vec![ResponseParameters { size: answer, interval_us: 0 }],
        payload: Some(zeros(size)),
        ..StreamingOutputCallRequest::default()
    }
}

fn expect_size(payload: Option<Payload>, size: i32) -> Result<(), BoxError> {
    let body = payload.map(|payload| payload.body).unwrap_or_default();
    expect("the size of a payload", body.len(), usize::try_from(size)?)?;
    expect("bytes that are not zero", body.iter().filter(|byte| **byte != 0).count(), 0)
}

/// A request with a call log.
fn with_call_log<T>(message: T) -> (Request<T>, SharedCallLog) {
    let call_log = SharedCallLog::new();
    let mut request = Request::new(message);
    request.extensions_mut().insert(CallOptions::new().call_log(&call_log));
    (request, call_log)
}

/// The last event of a call log, as text.
fn last_event(call_log: &SharedCallLog) -> String {
    call_log.read().to_string().lines().next_back().unwrap_or_default().to_owned()
}

/// Checks that the channel still works after the previous call.
async fn still_works(connection: &Connection) -> Result<(), BoxError> {
    plain::empty_unary(connection).await
}
