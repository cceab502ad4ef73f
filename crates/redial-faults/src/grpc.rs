//! A gRPC server that follows a script frame by frame, and records what the client sent.
//!
//! It is for tests of clients: their retries, hedging and deadlines. It implements no service and
//! validates no request; it injects the faults that real servers produce rarely.
//!
//! ```
//! use std::time::Duration;
//! use redial_faults::grpc::{Answer, Server, StatusNumber, StreamOutcome};
//!
//! # tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build()?.block_on(async {
//! let failure = Answer::trailers_only(StatusNumber::UNAVAILABLE).pushback("50");
//! let server = Server::new([failure.after(Duration::from_millis(5)), Answer::echo()]).on_pipe();
//! let pipe = server.connect().await?;
//! // A client speaks HTTP/2 over `pipe`, and then:
//! # let (mut client, connection) = h2::client::handshake(pipe).await.unwrap();
//! # tokio::spawn(connection);
//! # let (response, _) = client.send_request(http::Request::post("http://a/b.C/D").body(()).unwrap(), true).unwrap();
//! # response.await.unwrap();
//! let record = server.shutdown().await;
//! let end = record.streams[0].end.unwrap();
//! assert_eq!(end.outcome, StreamOutcome::Answered(Some(StatusNumber::UNAVAILABLE)));
//! assert_eq!(end.at, Duration::from_millis(5));
//! # std::io::Result::Ok(()) })?;
//! # std::io::Result::Ok(())
//! ```
//!
//! # How a stream finds its answer
//! A stream belongs to the call that its request header `x-redial-call` names, else to one call
//! without a name. Each call has a list of answers, used in order of arrival. When the list is used
//! up, the stream gets the script's default answer and is recorded as unscripted. A stream that is
//! refused because too many are open consumes no answer.
//!
//! # Timing
//! All times count from the arrival of the stream's request headers, on tokio's clock: exact on a
//! paused clock and a pipe, in real time over TCP. A step starts when the frames before it are
//! written to the socket. Before the first step, the server waits for the part of the request that
//! [`WaitFor`] names. While it waits it keeps reading the request, up to the limit of
//! [`Answer::accepts`].
//!
//! On a paused clock: tokio rounds every sleep up to a millisecond, so scale up scripts that need
//! finer times; and an answer at the instant of the client's deadline may lose the race against it.
//! Clients outside of the runtime need real time, since a paused clock advances whenever the
//! runtime is idle.
//!
//! # Windows
//! The server announces an initial flow-control window of 0 and opens the window of every stream
//! itself: immediately for most streams, message by message with [`Answer::accepts`]. A client that
//! sends before it has read the server's settings may send HTTP/2's default of 65,535 bytes; on a
//! pipe the settings arrive before the client can send.
//!
//! # Scripts as JSON
//! [`Server`] and [`Answer`] can be deserialized. Unknown fields are errors.
//! ```
//! use redial_faults::grpc::Server;
//!
//! let text = r#"{
//!   "about": "two failures, then a message; and a call that loses its connection",
//!   "attempts": [
//!     { "after": 5, "outcome": "UNAVAILABLE", "message": "busy", "pushback": "50" },
//!     { "headers": 2, "after": 9, "outcome": "INTERNAL", "replies": [{ "after": 3, "text": "abc" }] },
//!     { "after": 1, "outcome": "OK", "replies": [{ "echo": true }] } ],
//!   "calls": {
//!     "lost": [
//!       { "goaway": { "last": "below", "code": "ENHANCE_YOUR_CALM" }, "close": "orderly" },
//!       { "seen": "unsent" },
//!       { "once": { "messages": 2 }, "reset": "CANCEL" },
//!       { "http": { "status": 503, "type": "text/html", "body": "<h1>no</h1>" } } ] },
//!   "otherwise": { "outcome": "hang" },
//!   "concurrent_streams": 100
//! }"#;
//! let server: Server = serde_json::from_str(text)?;
//! # let _ = server;
//! # serde_json::Result::Ok(())
//! ```
//! | field | meaning |
//! | --- | --- |
//! | `about` | a description, ignored by the server |
//! | `attempts` | the answers for streams that name no call, in order of arrival |
//! | `calls` | by name: the answers for the streams of a call |
//! | `in_turn` | `true`: streams that name no call take the answers of the calls, one call after the other |
//! | `doors` | what happens to connections, in order: `[{"door": "silent", "after": 5}]`, see `door` below; later connections succeed |
//! | `otherwise` | the answer for every other stream; default: Trailers-Only INTERNAL, `unscripted attempt` |
//! | `concurrent_streams` | `SETTINGS_MAX_CONCURRENT_STREAMS`; default: not sent |
//!
//! ## Attempts
//! Times are milliseconds since the stream's arrival; fractions are allowed. The first seven fields
//! are those of a `grpc` scenario and mean the same.
//!
//! | field | meaning |
//! | --- | --- |
//! | `after` | when the outcome, reset, GOAWAY, close or response comes; default 0 |
//! | `outcome` | a status by name or number, or `"hang"`. With `headers` or `replies` it comes in the trailers, else as Trailers-Only |
//! | `pushback` | the raw text of `grpc-retry-pushback-ms`; a list is that header several times. Each character up to U+00FF is one byte |
//! | `headers` | when the response headers come, ahead of the rest |
//! | `seen` | `"unprocessed"`: reset with `REFUSED_STREAM`; `"unsent"`: door `closed-after-preface`; `"unconnected"`: door `refused` |
//! | `accepts` | how many messages are read before the stream's window stays closed; default all |
//! | `message` | the status message |
//! | `metadata` | more fields beside the status: `{"name": "value", "twice": ["a", "b"]}` |
//! | `replies` | the messages between headers and trailers: `text`, `hex`, `bytes` (so many zeros), `"echo": true` (the request's next message) or `"echo_rest": true` (all of them, as they come), each with `after`. Default: one without bytes for OK, else none |
//! | `end_stream` | `false`: Trailers-Only without `END_STREAM` |
//! | `once` | the part of the request that must arrive first: `"headers"`, `"quiet"` (the default: what comes with them), `"request"`, `{"messages": 2}` |
//! | `reset` | `RST_STREAM` with this code, by name or number |
//! | `goaway` | `{"last": "below", "code": "NO_ERROR", "debug": ""}`; `last` is `"below"`, `"this"` or `"above"` this stream, or a number. With `close` the connection ends behind it |
//! | `close` | the connection ends: `"orderly"` or `"abrupt"` |
//! | `http` | a response that is not gRPC's: `{"status": 404, "type": "text/html", "body": "..."}`; without `type` it has no content type |
//! | `door` | what happens to the connection of this attempt: `"refused"` (pipe only), `"closed-at-once"`, `"closed-after-preface"`, `"silent"` |
//! | `steps` | the answer as single steps, for cases that the other fields cannot express |
//!
//! A step has `after` and one of: `headers` (`{"status": 200, "fields": {}, "end_stream": false}`),
//! `message` and `data` (as in `replies`; data has no prefix), `trailers` (fields), `end_stream`
//! (`true`), `reset`, `goaway`, `close`.
//!
//! # Records as JSON
//! A [`StreamRecord`] is serialized with times in milliseconds since the server's start: `stream`,
//! `connection`, `id`, `call`, `attempt`, `scripted`, `arrived`, `path`, `headers` (each name with
//! a list), `previous` and `timeout` (the parsed gRPC headers), `messages`, `bytes`, `digest`,
//! `payloads` (hexadecimal), `half_closed`, `reset` (`at`, `code`), `end` (`at`, `how` and `status`
//! or `code`). Absent values are `null`.

mod action;
pub(crate) mod answer;
mod check;
mod connection;
mod frames;
mod io;
pub(crate) mod json;
mod record;
pub(crate) mod request_decoder;
mod script;
mod server;
pub(crate) mod shared;
mod status_number;
mod stream_handler;
mod wire;

pub use action::{
    Action, AnswerStep, Close, GoAway, LastStream, OnConnect, Payload, ResponseHeaders, WaitFor,
};
pub use answer::Answer;
pub use h2::Reason;
pub use record::{
    Connection, Counts, Record, Reset, StreamEnd, StreamOutcome, StreamRecord, timeout,
};
pub use script::{CALL_HEADER, CALLS_MAX, InvalidAnswer, Script};
pub use server::{
    CONNECTIONS_OPEN_MAX, Connector, Handle, PAYLOAD_BYTES_KEPT, PIPE_BYTES, Pipe, STREAMS_KEPT,
    STREAMS_OPEN_MAX, Server, Tcp,
};
pub use status_number::StatusNumber;
