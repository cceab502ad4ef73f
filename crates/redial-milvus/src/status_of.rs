//! A status for the error of any client library.

use std::error::Error;
use std::fmt;

use redial_service_config::Code;

use crate::status::GrpcStatus;

/// Whether the server may have executed the request of a failed attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Execution {
    /// It may have, or it is not known.
    #[default]
    Possible,
    /// It has not: the request was not sent, or the server refused it unseen.
    Excluded,
}

/// An error of a client library with its gRPC status code, for calls of a client whose error type is
/// not a status: `milvus-sdk-rust`'s, for example.
///
/// ```
/// use redial_milvus::{Code, Options, StatusOf};
///
/// # #[derive(Debug)] struct SdkError; impl std::error::Error for SdkError {}
/// # impl std::fmt::Display for SdkError {
/// #     fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { f.write_str("no route") }
/// # }
/// # async fn sdk_search() -> Result<(), SdkError> { Err(SdkError) }
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), redial::PolicyError> {
/// let interceptor = Options::default().max_retries(1).interceptor()?;
/// let search = || async { sdk_search().await.map_err(|error| StatusOf::new(Code::Unavailable, error)) };
/// let error = interceptor.call("Search", search).send().await.unwrap_err();
/// assert_eq!(error.message(), "no route (retried 1 times, 20ms)");
/// let _original: SdkError = error.into_status().unwrap().into_error();
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct StatusOf<E> {
    code: Code,
    message: String,
    execution: Execution,
    error: E,
}

impl<E: fmt::Display> StatusOf<E> {
    /// The error with this code; its text is the message.
    #[must_use]
    pub fn new(code: Code, error: E) -> Self {
        let message = error.to_string();
        StatusOf { code, message, execution: Execution::Possible, error }
    }

    /// States whether the server may have executed the request.
    #[must_use]
    pub fn execution(mut self, execution: Execution) -> Self {
        self.execution = execution;
        self
    }
}

impl<E> StatusOf<E> {
    /// The client library's error.
    pub const fn error(&self) -> &E {
        &self.error
    }

    /// The client library's error.
    pub fn into_error(self) -> E {
        self.error
    }
}

impl<E> GrpcStatus for StatusOf<E> {
    fn code(&self) -> Code {
        self.code
    }

    fn message(&self) -> &str {
        &self.message
    }

    fn with_message(mut self, message: String) -> Self {
        self.message = message;
        self
    }

    fn is_unsent(&self) -> bool {
        self.execution == Execution::Excluded
    }
}

impl<E> fmt::Display for StatusOf<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl<E: Error + 'static> Error for StatusOf<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.error)
    }
}
