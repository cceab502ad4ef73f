//! A set of statuses, and their names.

use std::fmt;

use http::StatusCode;

/// The number of status codes that `http` accepts: 100 to 999.
const WORDS: usize = 1000usize.div_ceil(64);

/// A set of statuses, one bit each.
#[derive(Clone)]
pub(super) struct Statuses([u64; WORDS]);

impl Statuses {
    pub(super) fn standard() -> Self {
        let mut statuses = Statuses([0; WORDS]);
        for status in [
            StatusCode::REQUEST_TIMEOUT,
            StatusCode::TOO_EARLY,
            StatusCode::TOO_MANY_REQUESTS,
            StatusCode::INTERNAL_SERVER_ERROR,
            StatusCode::BAD_GATEWAY,
            StatusCode::SERVICE_UNAVAILABLE,
            StatusCode::GATEWAY_TIMEOUT,
        ] {
            statuses.insert(status);
        }
        statuses
    }

    fn bit(status: StatusCode) -> (usize, u64) {
        let number = usize::from(status.as_u16());
        (number / 64, 1 << (number % 64))
    }

    pub(super) fn insert(&mut self, status: StatusCode) {
        let (word, bit) = Statuses::bit(status);
        self.0[word] |= bit;
    }

    pub(super) fn remove(&mut self, status: StatusCode) {
        let (word, bit) = Statuses::bit(status);
        self.0[word] &= !bit;
    }

    #[inline]
    pub(super) fn contains(&self, status: StatusCode) -> bool {
        let (word, bit) = Statuses::bit(status);
        self.0[word] & bit != 0
    }
}

impl fmt::Debug for Statuses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = (100..1000).filter_map(|number| StatusCode::from_u16(number).ok());
        f.debug_set()
            .entries(all.filter(|status| self.contains(*status)).map(|it| it.as_u16()))
            .finish()
    }
}

/// The name of a status in reports and call logs.
pub(super) fn reason(status: StatusCode) -> &'static str {
    match status.as_u16() {
        408 => "408 Request Timeout",
        409 => "409 Conflict",
        413 => "413 Content Too Large",
        425 => "425 Too Early",
        429 => "429 Too Many Requests",
        500 => "500 Internal Server Error",
        502 => "502 Bad Gateway",
        503 => "503 Service Unavailable",
        504 => "504 Gateway Timeout",
        _ => status.canonical_reason().unwrap_or("a retryable status"),
    }
}
