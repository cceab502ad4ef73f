//! `Retry-After`: a number of seconds, or one of the three date forms of HTTP (decision H3).

use std::time::{Duration, SystemTime};

use http::HeaderMap;
use http::header::{DATE, RETRY_AFTER};

/// The delay that the server asks for; `None` without a header that can be read, and for zero or a date
/// that has passed: the backoff of the policy applies then.
///
/// A date counts from the `Date` of the response, so that a wrong clock of this machine does not matter.
/// Of several headers, the first that can be read counts.
///
/// ```
/// use http::{HeaderMap, HeaderValue, header};
/// use std::time::Duration;
///
/// let mut headers = HeaderMap::new();
/// headers.insert(header::DATE, HeaderValue::from_static("Sun, 06 Nov 1994 08:49:37 GMT"));
/// headers.insert(header::RETRY_AFTER, HeaderValue::from_static("Sunday, 06-Nov-94 08:49:40 GMT"));
/// assert_eq!(redial_http::retry_after(&headers), Some(Duration::from_secs(3)));
/// ```
#[must_use]
pub fn parse(headers: &HeaderMap) -> Option<Duration> {
    let mut values = headers.get_all(RETRY_AFTER).iter();
    let delay = values.find_map(|value| {
        let delay = value.to_str().ok().and_then(|text| parse_value(text.trim(), headers));
        if delay.is_none() {
            unreadable(value);
        }
        delay
    })?;
    (!delay.is_zero()).then_some(delay)
}

/// The delay of one value; zero for a date that has passed.
fn parse_value(text: &str, headers: &HeaderMap) -> Option<Duration> {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // Digits fail to parse only if the number is too large.
        return Some(Duration::from_secs(text.parse().unwrap_or(u64::MAX)));
    }
    let until = httpdate::parse_http_date(text).ok()?;
    let date = headers.get(DATE).and_then(|date| date.to_str().ok());
    let now = date.and_then(|date| httpdate::parse_http_date(date).ok());
    let now = now.unwrap_or_else(SystemTime::now);
    Some(until.duration_since(now).unwrap_or_default())
}

#[cfg(feature = "tracing")]
fn unreadable(value: &http::HeaderValue) {
    tracing::warn!(target: "redial", ?value, "unreadable Retry-After");
}

#[cfg(not(feature = "tracing"))]
fn unreadable(_value: &http::HeaderValue) {}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    const DATE_NOW: &str = "Sun, 06 Nov 1994 08:49:37 GMT";

    fn parse_all(values: &[&str]) -> Option<Duration> {
        let mut headers = HeaderMap::new();
        headers.insert(DATE, HeaderValue::from_static(DATE_NOW));
        for value in values {
            headers.append(RETRY_AFTER, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        parse(&headers)
    }

    #[test]
    fn retry_after_reads_seconds_and_all_date_forms() {
        for (value, secs) in [
            ("120", 120),
            (" 7 ", 7),
            ("007", 7),
            ("Sun, 06 Nov 1994 08:49:40 GMT", 3),
            ("Sunday, 06-Nov-94 08:49:40 GMT", 3),
            ("Sun Nov  6 08:49:40 1994", 3),
            ("18446744073709551616", u64::MAX),
        ] {
            assert_eq!(parse_all(&[value]), Some(Duration::from_secs(secs)), "{value}");
        }
    }

    #[test]
    fn retry_after_of_zero_or_past_is_no_hint() {
        for value in ["0", DATE_NOW, "Sun, 06 Nov 1994 08:49:36 GMT"] {
            assert_eq!(parse_all(&[value]), None, "{value}");
        }
    }

    #[test]
    fn retry_after_that_cannot_be_read_is_skipped() {
        for value in ["", "soon", "-1", "1.5", "1 2", "Sun, 99 Nov 1994 08:49:40 GMT", "\u{e9}"] {
            assert_eq!(parse_all(&[value]), None, "{value}");
        }
        assert_eq!(parse_all(&["soon", "5", "9"]), Some(Duration::from_secs(5)));
    }

    #[test]
    fn retry_after_without_a_date_counts_from_the_local_clock() {
        let soon = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(30));
        let headers = HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_str(&soon).unwrap())]);
        let delay = parse(&headers).unwrap();
        // Generous: the date has whole seconds, and the machine may be busy.
        assert!(delay <= Duration::from_secs(30) && delay > Duration::from_secs(15), "{delay:?}");
    }
}
