//! The status of tonic, for calls that are wrapped one by one.

use redial_grpc::balancing::transport_error::{TransportFailure, classify};
use redial_service_config::Code;

use crate::status::GrpcStatus;

/// How many causes of a status are looked at: the chain of a custom error may be cyclic.
const CHAIN_MAX: usize = 32;

/// The causes of a status.
fn chain<'e>(
    status: &'e (dyn std::error::Error + 'static),
) -> impl Iterator<Item = &'e (dyn std::error::Error + 'static)> {
    std::iter::successors(status.source(), |error| error.source()).take(CHAIN_MAX)
}

/// What the cause of a status says about the request. A status from the server has no cause.
fn cause(source: Option<&(dyn std::error::Error + 'static)>) -> Option<TransportFailure> {
    source.map(|error| classify(error).0)
}

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
                let cause = cause(std::error::Error::source(self));
                matches!(
                    cause,
                    Some(
                        TransportFailure::NotSent
                            | TransportFailure::Unprocessed
                            | TransportFailure::NotConnected
                    )
                )
            }
        }
    };
}

#[cfg(feature = "tonic")]
implement!(tonic);
#[cfg(feature = "tonic-0-13")]
implement!(tonic_0_13);
