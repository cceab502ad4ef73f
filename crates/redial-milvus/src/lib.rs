//! The retry interceptor of Milvus's Node.js client, for Rust: a failed call is retried after 20, 40 and
//! 80 ms unless its status code is in [`IGNORED_CODES`], and each attempt has the full timeout.
//!
//! # When to use it
//!
//! Use it with a Milvus client that is built on tonic and should retry as the official client for Node.js
//! does. [`WriteRetries::OnlyIfNotRun`] departs from that client: it keeps a retried insert from adding
//! its rows twice.
//!
//! - With the feature `tonic` (0.14) or `tonic-0-13`, [`Interceptor`] becomes a tower layer for the client's
//!   channel: `Interceptor::layer`, `Interceptor::layer_0_13` (module `layer`). The [guide] begins with it.
//! - Without them, [`Interceptor::call`] runs any async operation whose error implements [`GrpcStatus`]:
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
//! None by default, as in the Milvus client; [`Interceptor::sharing`] adds a retry budget.
//!
//! # Coming from the Milvus client
//! | Milvus client | this crate |
//! | --- | --- |
//! | `getRetryInterceptor` | [`Interceptor`] |
//! | `maxRetries`, `retryDelay`, `timeout` | [`Options`]: `max_retries`, `retry_delay`, `timeout` |
//! | `isInvalidMessage` | [`InterceptedCall::invalid_when`], [`InterceptedCall::inner_code`] with [`Interceptor::invalid_codes`] |
//! | list of ignored status codes | [`IGNORED_CODES`], [`classify`] |
//! | `(retried N times, Mms)` | [`ErrorText::render`] |
//! | `[Request]`, `[Response]`, `[Retry Delay]`, ... | [`LogLine`], [`LogLineKind`], [`log_lines`] |
//!
//! # Features
//! | feature | default | adds |
//! | --- | --- | --- |
//! | `tokio` | yes | the tokio timer for delays; without it, name a sleeper with [`InterceptedCall::sleeping_on`] |
//! | `tonic` | no | the layer for clients of tonic 0.14, and [`GrpcStatus`] for its status |
//! | `tonic-0-13` | no | the same for tonic 0.13, which `milvus-sdk-rust` 3.0 uses |
//! | `layer` | no | the layer for other gRPC clients, with a function that makes their request bodies |
//! | `serde` | no | the options as JSON, with the names of the Milvus client |
//! | `tracing` | no | log lines as debug events under the target `redial::milvus` |
//!
//! `decision M3` and the like are entries of [`docs/decisions.md`][decisions].
//!
//! [guide]: https://github.com/redial-rs/redial/blob/main/docs/milvus.md
//! [decisions]: https://github.com/redial-rs/redial/blob/main/docs/decisions.md
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod call;
mod error;
#[cfg(feature = "layer")]
pub mod layer;
mod log;
mod options;
pub mod presets;
mod status;
mod status_of;
#[cfg(any(feature = "tonic", feature = "tonic-0-13"))]
mod tonic_status;
#[cfg(feature = "layer")]
mod transport_error;

pub use call::{AcceptAll, InnerCode, InterceptedCall, Interceptor, InvalidWhen, ResponseCheck};
pub use error::{Error, ErrorText};
pub use log::{LogColor, LogFormatter, LogLine, LogLineKind, log_lines};
pub use options::{Options, WriteRetries, is_write};
pub use redial_service_config::Code;
pub use status::{GrpcStatus, IGNORED_CODES, MessageValidity, RATE_LIMIT, classify};
pub use status_of::{Execution, StatusOf};
