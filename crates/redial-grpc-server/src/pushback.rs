//! Server pushback: a status that says when to retry, in the metadata `grpc-retry-pushback-ms`
//! (gRFC A6).

use std::time::Duration;

use tonic::Status;
use tonic::metadata::MetadataValue;

const PUSHBACK_MS: &str = "grpc-retry-pushback-ms";

/// Clients treat a value beyond 32 bits as "do not retry", so longer delays are clamped to this
/// one, 24.8 days.
const PUSHBACK_MS_MAX: i32 = i32::MAX;

/// Clients treat any negative value as "do not retry".
const DO_NOT_RETRY: i32 = -1;

/// Adds server pushback to a failed call's status: when the client should retry, or that it should
/// not.
///
/// It takes effect only if the client receives it before response headers: in an error that a
/// handler returns, or one that [`HoldLayer`](super::HoldLayer) sends in place of the headers.
///
/// ```
/// use std::time::Duration;
///
/// use redial_grpc_server::PushbackExt;
/// use tonic::Status;
///
/// let busy = Status::unavailable("warming up").retry_after(Duration::from_millis(250));
/// assert_eq!(busy.metadata().get("grpc-retry-pushback-ms").unwrap(), "250");
///
/// let full = Status::resource_exhausted("quota is used up for today").do_not_retry();
/// assert_eq!(full.metadata().get("grpc-retry-pushback-ms").unwrap(), "-1");
/// ```
pub trait PushbackExt: private::Sealed + Sized {
    /// Asks the client to retry after exactly `wait` instead of its own backoff, if its policy
    /// lists the status and an attempt is left. Zero means immediately.
    ///
    /// The delay is rounded up to whole milliseconds, so that no client retries too early, and is
    /// at most 2,147,483,647 ms. It replaces earlier pushback.
    #[must_use]
    fn retry_after(self, wait: Duration) -> Self;

    /// Asks the client not to retry, whatever its policy is. It replaces earlier pushback.
    #[must_use]
    fn do_not_retry(self) -> Self;
}

impl PushbackExt for Status {
    fn retry_after(self, wait: Duration) -> Self {
        let ms = wait.as_nanos().div_ceil(1_000_000);
        with(self, i32::try_from(ms).unwrap_or(PUSHBACK_MS_MAX))
    }

    fn do_not_retry(self) -> Self {
        with(self, DO_NOT_RETRY)
    }
}

fn with(mut status: Status, ms: i32) -> Status {
    status.metadata_mut().insert(PUSHBACK_MS, MetadataValue::from(ms));
    status
}

mod private {
    pub trait Sealed {}
    impl Sealed for tonic::Status {}
}

#[cfg(test)]
mod tests {
    //! The values are valid for strict clients (`0|-?[1-9][0-9]*`, 32 bits) and occur once.

    use tonic::Code;

    use super::*;

    fn pushback_values(status: &Status) -> Vec<&str> {
        let values = status.metadata().get_all(PUSHBACK_MS).iter();
        values.map(|value| value.to_str().unwrap()).collect()
    }

    #[test]
    fn pushback_rounds_up_to_milliseconds_and_clamps_at_32_bits() {
        let cases = [
            (Duration::ZERO, "0"),
            (Duration::from_nanos(1), "1"),
            (Duration::from_millis(50), "50"),
            (Duration::from_nanos(50_000_001), "51"),
            (Duration::from_millis(2_147_483_647), "2147483647"),
            (Duration::from_millis(2_147_483_648), "2147483647"),
            (Duration::MAX, "2147483647"),
        ];
        for (wait, expected) in cases {
            assert_eq!(
                pushback_values(&Status::unavailable("").retry_after(wait)),
                [expected],
                "{wait:?}"
            );
        }
    }

    #[test]
    fn pushback_last_value_replaces_earlier_ones() {
        let mut status = Status::unavailable("");
        for value in ["7", "8"] {
            status.metadata_mut().append(PUSHBACK_MS, value.parse().unwrap());
        }
        let status = status.retry_after(Duration::from_secs(1));
        assert_eq!(pushback_values(&status), ["1000"]);
        let status = status.do_not_retry();
        assert_eq!(pushback_values(&status), ["-1"]);
        assert_eq!(pushback_values(&status.retry_after(Duration::ZERO)), ["0"]);
    }

    #[test]
    fn pushback_keeps_code_message_details_and_metadata() {
        let mut status = Status::with_details(Code::Aborted, "text", "details".into());
        status.metadata_mut().insert("key", "value".parse().unwrap());
        let status = status.do_not_retry();
        assert_eq!(status.code(), Code::Aborted);
        assert_eq!(status.message(), "text");
        assert_eq!(status.details(), b"details");
        assert_eq!(status.metadata().get("key").unwrap(), "value");
    }
}
