//! The header `grpc-timeout`: at most eight digits and a unit.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};

/// The header name.
pub const TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");

/// The largest value of eight digits.
const DIGITS_MAX: u128 = 99_999_999;

/// The timeout in these request headers: the first value that is not malformed, as the layer reads it.
#[must_use]
pub fn of_headers(headers: &HeaderMap) -> Option<Duration> {
    headers.get_all(TIMEOUT).iter().find_map(parse)
}

/// Parses the header; `None` if it is malformed.
#[must_use]
pub fn parse(value: &HeaderValue) -> Option<Duration> {
    let (&unit, digits) = value.as_bytes().split_last()?;
    if digits.is_empty() || digits.len() > 8 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let count = digits.iter().fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0'));
    match unit {
        b'H' => Some(Duration::from_secs(count * 3600)),
        b'M' => Some(Duration::from_secs(count * 60)),
        b'S' => Some(Duration::from_secs(count)),
        b'm' => Some(Duration::from_millis(count)),
        b'u' => Some(Duration::from_micros(count)),
        b'n' => Some(Duration::from_nanos(count)),
        _ => None,
    }
}

/// Formats the remaining time in the finest unit that fits, rounded down, so that the server does not
/// work longer than the client waits.
#[must_use]
pub fn format(remaining: Duration) -> HeaderValue {
    let ns = remaining.as_nanos();
    let units = [
        (1, 'n'),
        (1_000, 'u'),
        (1_000_000, 'm'),
        (1_000_000_000, 'S'),
        (60_000_000_000, 'M'),
        (3_600_000_000_000, 'H'),
    ];
    let fits = units.into_iter().find(|(unit, _)| ns / unit <= DIGITS_MAX);
    let (count, name) = match fits {
        Some((unit, name)) => (ns / unit, name),
        None => (DIGITS_MAX, 'H'),
    };
    // Digits and a letter are a valid header value.
    HeaderValue::try_from(format!("{count}{name}")).unwrap_or(HeaderValue::from_static("0n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grpc_timeout_parses_every_unit() {
        let cases = [
            ("1H", 3_600_000_000_000),
            ("1M", 60_000_000_000),
            ("99999999S", 99_999_999_000_000_000),
            ("5m", 5_000_000),
            ("5u", 5_000),
            ("0n", 0),
        ];
        for (text, ns) in cases {
            let read = parse(&HeaderValue::from_static(text)).unwrap();
            assert_eq!(read, Duration::from_nanos(ns), "{text}");
        }
        for text in ["", "S", "1", "1s", "123456789S", "-1S", "1.5S", " 1S", "1 S", "+1S"] {
            assert_eq!(parse(&HeaderValue::from_static(text)), None, "{text:?}");
        }
    }

    #[test]
    fn grpc_timeout_of_headers_is_the_first_valid_one() {
        let mut headers = HeaderMap::new();
        assert_eq!(of_headers(&headers), None);
        headers.append(TIMEOUT, HeaderValue::from_static("soon"));
        assert_eq!(of_headers(&headers), None);
        headers.append(TIMEOUT, HeaderValue::from_static("2S"));
        headers.append(TIMEOUT, HeaderValue::from_static("1S"));
        assert_eq!(of_headers(&headers), Some(Duration::from_secs(2)));
    }

    #[test]
    fn grpc_timeout_is_written_in_finest_unit_rounded_down() {
        let cases = [
            (Duration::ZERO, "0n"),
            (Duration::from_nanos(99_999_999), "99999999n"),
            (Duration::from_nanos(100_000_999), "100000u"),
            (Duration::from_secs(100), "100000m"),
            (Duration::from_secs(100_000), "100000S"),
            (Duration::from_secs(100_000_000), "1666666M"),
            (Duration::from_secs(u64::MAX), "99999999H"),
        ];
        for (span, text) in cases {
            assert_eq!(format(span), text, "{span:?}");
            assert!(parse(&format(span)).unwrap() <= span);
        }
    }
}
