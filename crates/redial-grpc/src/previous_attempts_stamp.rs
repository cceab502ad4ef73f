//! Writes the number of previous attempts into the header `grpc-previous-rpc-attempts`: in requests for
//! servers, in responses and statuses for the application (decision G30).

use http::{HeaderMap, HeaderValue, Response};

use crate::header_scanner::PREVIOUS_ATTEMPTS;
use crate::{Attempts, BoxError};

/// Stamps the headers of a request or a response, or trailers, with the number of an attempt. The first
/// attempt has no stamp.
pub(crate) fn stamp_headers(headers: &mut HeaderMap, number: u32) {
    if number > 1 {
        headers.insert(PREVIOUS_ATTEMPTS, HeaderValue::from(number - 1));
    }
}

/// Stamps a response; [`Attempts`] is in its extensions then.
pub(crate) fn stamp_response<R>(response: &mut Response<R>, number: u32) {
    stamp_headers(response.headers_mut(), number);
    if number > 1 {
        response.extensions_mut().insert(Attempts(number));
    }
}

/// Stamps an error that is a status; another error stays as it is.
#[cfg(feature = "tonic")]
pub(crate) fn stamp_error(error: BoxError, number: u32) -> BoxError {
    match error.downcast::<tonic::Status>() {
        Ok(mut status) => {
            stamp_headers(status.metadata_mut().as_mut(), number);
            status
        }
        Err(error) => error,
    }
}

#[cfg(not(feature = "tonic"))]
pub(crate) fn stamp_error(error: BoxError, _number: u32) -> BoxError {
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn previous_attempts_header_is_absent_for_the_first_attempt() {
        for number in [0, 1] {
            let mut response = Response::new(());
            stamp_response(&mut response, number);
            assert!(response.headers().is_empty() && response.extensions().is_empty());
        }
        let mut response = Response::new(());
        stamp_response(&mut response, 3);
        assert_eq!(response.headers()[PREVIOUS_ATTEMPTS], "2");
        assert_eq!(response.extensions().get(), Some(&Attempts(3)));
    }
}
