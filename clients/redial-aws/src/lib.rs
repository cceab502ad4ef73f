//! x
#![forbid(unsafe_code)]
mod call;
mod call_options;
mod classifier;
mod error;
mod failure;
mod handover;
mod interceptor;

pub use call_options::{CallOptions, CallReport};
pub use error::SetupError;
pub use interceptor::{CallEnd, RetryInterceptor, SDK_ATTEMPTS_MAX};

/// Installs
#[macro_export]
macro_rules! with_retries {
    ($builder:expr, $retries:expr $(,)?) => {{
        let retries: $crate::RetryInterceptor = $retries;
        $builder
            .retry_config(retries.retry_config())
            .interceptor(retries.clone())
            .retry_classifier(retries)
    }};
}
