//! The status of tonic, for calls that are wrapped one by one.

use redial_service_config::Code;

use crate::status::GrpcStatus;
use crate::transport_error::{chain, classify, proves_unsent};

macro_rules! implement {
    ($tonic:ident) => {
        impl GrpcStatus for $tonic::Status {
            fn code(&self) -> Code {
                // tonic reports its own timer as CANCELLED.
                if chain(self).any(|error| error.is::<$tonic::TimeoutExpired>()) {
                    return Code::DeadlineExceeded;
                }
                let number = i64::from(i32::from($tonic::Status::code(self)));
                Code::from_number(number).unwrap_or(Code::Unknown)
            }

            fn message(&self) -> &str {
                $tonic::Status::message(self)
            }

            /// The original status becomes the source.
            fn with_message(self, message: String) -> Self {
                let mut status = $tonic::Status::with_details_and_metadata(
                    $tonic::Status::code(&self),
                    message,
                    self.details().to_vec().into(),
                    self.metadata().clone(),
                );
                status.set_source(std::sync::Arc::new(self));
                status
            }

            fn is_unsent(&self) -> bool {
                // A status from the server has no cause.
                let cause = std::error::Error::source(self);
                cause.is_some_and(|cause| proves_unsent(classify(cause).0))
            }
        }
    };
}

#[cfg(feature = "tonic")]
implement!(tonic);
#[cfg(feature = "tonic-0-13")]
implement!(tonic_0_13);
