//! The header `grpc-previous-rpc-attempts` (A6, "Exposed Retry Metadata").

use super::Headers;
use crate::header_scanner::PREVIOUS_ATTEMPTS;

/// Number of previous attempts of the same call, as sent by the client.
///
/// 0 for a first attempt, which has no such header, and for a malformed header: anything but decimal
/// digits, or more than one value. A number that is too large becomes `u32::MAX`. Retries and hedges
/// both count. The client is not trusted: use the number for logs, metrics and load shedding, not for
/// decisions that need proof.
///
/// ```
/// use redial_grpc::inbound_attempt::previous_attempts;
///
/// let mut request = tonic::Request::new(());
/// assert_eq!(previous_attempts(&request), 0);
/// request.metadata_mut().insert("grpc-previous-rpc-attempts", "2".parse().unwrap());
/// assert_eq!(previous_attempts(&request), 2);
/// assert_eq!(previous_attempts(request.metadata()), 2);
/// ```
#[must_use]
pub fn previous_attempts<H: Headers + ?Sized>(call: &H) -> u32 {
    let mut values = call.header_map().get_all(PREVIOUS_ATTEMPTS).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return 0 };
    let digits = value.as_bytes();
    if !digits.iter().all(u8::is_ascii_digit) {
        return 0;
    }
    let add = |sum: u32, digit: &u8| sum.saturating_mul(10).saturating_add((digit - b'0').into());
    digits.iter().fold(0, add)
}

#[cfg(test)]
mod tests {
    //! Valid values are read from every request type; malformed values count as a first attempt.

    use http::{HeaderMap, HeaderValue};
    use tonic::metadata::MetadataMap;

    use super::*;

    fn with(values: &[&[u8]]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(PREVIOUS_ATTEMPTS, HeaderValue::from_bytes(value).unwrap());
        }
        headers
    }

    #[test]
    fn previous_attempts_header_saturates() {
        let cases: [(&[u8], u32); 7] = [
            (b"0", 0),
            (b"1", 1),
            (b"007", 7),
            (b"4294967295", u32::MAX),
            (b"4294967296", u32::MAX),
            (b"42949672950", u32::MAX),
            (b"99999999999999999999999999999999999999999999", u32::MAX),
        ];
        for (value, expected) in cases {
            assert_eq!(previous_attempts(&with(&[value])), expected, "{value:?}");
        }
    }

    #[test]
    fn previous_attempts_header_malformed_is_zero() {
        let unreadable: [&[&[u8]]; 9] = [
            &[],
            &[b""],
            &[b"+1"],
            &[b"-1"],
            &[b" 1"],
            &[b"1.0"],
            &[b"1,2"],
            &[b"\xff"],
            &[b"1", b"2"],
        ];
        for values in unreadable {
            assert_eq!(previous_attempts(&with(values)), 0, "{values:?}");
        }
    }

    #[test]
    fn previous_attempts_header_is_read_from_every_request_type() {
        let headers = with(&[b"3"]);
        let metadata = MetadataMap::from_headers(headers.clone());
        let mut request = http::Request::new(());
        *request.headers_mut() = headers.clone();
        assert_eq!(previous_attempts(&headers), 3);
        assert_eq!(previous_attempts(&metadata), 3);
        assert_eq!(previous_attempts(&request), 3);
        assert_eq!(previous_attempts(&tonic::Request::from_http(request)), 3);
    }
}
