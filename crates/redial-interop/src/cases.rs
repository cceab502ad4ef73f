//! The client's part of the cases, one function each.
//!
//! Rule: a case is known by its official name. Where the description speaks of cancelling, the call is
//! dropped, which is how a program in Rust cancels; the call's diary then says what the layer made of it.

mod ending;
mod load;
mod plain;

use std::fmt::Debug;
use std::time::Duration;

use redial_grpc::{CallOptions, SharedCallLog};
use tonic::{Request, Status};

use crate::BoxError;
use crate::caller::{Caller, Connection};
pub(crate) use load::who;

use crate::testing::{Payload, PayloadType, ResponseParameters, StreamingOutputCallRequest};

/// The longest that a case may take, on a machine with much else to do.
pub const CASE_MAX: Duration = Duration::from_secs(60);

/// The cases that [`play`] knows, by their official names.
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

/// Plays one case against the server of `caller`.
///
/// # Errors
/// What was not as the case says; and if the layer still keeps bytes when all calls of the case are over,
/// or there is no such case, or it takes longer than [`CASE_MAX`].
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
    wanted: U,
) -> Result<(), BoxError> {
    if found == wanted {
        return Ok(());
    }
    Err(format!("{what}: expected {wanted:?}, found {found:?}").into())
}

/// What a call that should have failed ended with.
fn failure<T>(what: &str, result: Result<T, Status>) -> Result<Status, BoxError> {
    result.err().ok_or_else(|| format!("{what}: expected a failure, found an answer").into())
}

fn zeros(size: usize) -> Payload {
    Payload { r#type: PayloadType::Compressable.into(), body: vec![0; size].into() }
}

/// A message of `size` bytes that asks for one of `answer` bytes.
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

/// A request whose diary is kept.
fn noted<T>(message: T) -> (Request<T>, SharedCallLog) {
    let diary = SharedCallLog::new();
    let mut request = Request::new(message);
    request.extensions_mut().insert(CallOptions::new().call_log(&diary));
    (request, diary)
}

/// The last of what `diary` says, as a person reads it.
fn last_note(diary: &SharedCallLog) -> String {
    diary.read().to_string().lines().next_back().unwrap_or_default().to_owned()
}

/// The channel still works after what became of the call before.
async fn still_works(connection: &Connection) -> Result<(), BoxError> {
    plain::empty_unary(connection).await
}
