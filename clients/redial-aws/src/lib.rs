//! x
#![forbid(unsafe_code)]
mod call;
mod call_options;
mod classifier;
mod error;
mod failure;
mod handover;
mod interceptor;
mod sdk_error;
mod waiter;

pub use call_options::{CallOptions, CallReport};
pub use error::SetupError;
pub use interceptor::{CallEnd, RetryInterceptor, SDK_ATTEMPTS_MAX};
pub use sdk_error::sdk_failure;
pub use waiter::{Wait, WaitRule, is_not_found, wait};

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
