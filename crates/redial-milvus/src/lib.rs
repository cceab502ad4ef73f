//! The Milvus client's retry interceptor: statuses outside a list are retried after 20, 40 and
//! 80 ms, each attempt with its whole timeout (section M of the decisions).
//!
//! [`Interceptor`] runs any async operation that
//! returns a [`GrpcStatus`] as its error.
//!
//! ```
//! use redial_milvus::{Code, Options, GrpcStatus};
//!
//! #[derive(Debug)]
//! struct MyStatus(Code, String);
//!
//! impl GrpcStatus for MyStatus {
//!     fn code(&self) -> Code { self.0 }
//!     fn message(&self) -> &str { &self.1 }
//!     fn with_message(self, message: String) -> Self { MyStatus(self.0, message) }
//! }
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), redial::PolicyError> {
//! let interceptor = Options::default().max_retries(1).interceptor()?;
//! let search = || async { Err::<(), _>(MyStatus(Code::Unavailable, "boom".into())) };
//! let error = interceptor.call("Search", search).send().await.unwrap_err();
//! assert_eq!((error.code(), error.message()), (Code::Unavailable, "boom (retried 1 times, 20ms)"));
//! # Ok(())
//! # }
//! ```
//!
//! # Throttle
//! None, as in the client that the design describes; [`Interceptor::sharing`] adds a budget.
//!
//! # Words
//! | the design | here |
//! | --- | --- |
//! | `getRetryInterceptor` | [`Interceptor`] |
//! | `maxRetries`, `retryDelay`, `timeout` | [`Options`]: `max_retries`, `retry_delay`, `timeout` |
//! | `isInvalidMessage` | [`InterceptedCall::invalid_when`], [`InterceptedCall::inner_code`] with [`Interceptor::invalid_codes`] |
//! | the ignore list | [`IGNORED_CODES`], [`classify`] |
//! | `(retried N times, Mms)` | [`ErrorText::render`] |
//! | `[Request]`, `[Response]`, `[Retry Delay]`, ... | [`LogLine`], [`LogLineKind`], [`log_lines`] |
#![forbid(unsafe_code)]

mod call;
mod error;
mod log;
mod options;
pub mod presets;
mod status;

pub use call::{AcceptAll, InnerCode, InterceptedCall, Interceptor, InvalidWhen, ResponseCheck};
pub use error::{Error, ErrorText};
pub use log::{LogColor, LogFormatter, LogLine, LogLineKind, log_lines};
pub use options::{Options, WriteRetries, is_write};
pub use redial_service_config::Code;
pub use status::{GrpcStatus, IGNORED_CODES, MessageValidity, RATE_LIMIT, classify};
