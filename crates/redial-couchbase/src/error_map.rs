//! The server's error map, which describes KV statuses that the client does not know (RFC 49, "KV Error
//! Map Handling"; decision C8).
//!
//! The format is that of `kv_engine`'s `docs/ErrorMap.md`, versions 1 and 2, which differ in their
//! attributes; unknown attributes are stored and ignored. The retry intervals are those of SDK RFC 13.
//! Custom strategies can read them; the built-in strategies do not use them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The attributes that make a status retryable; `auto-retry` is the older spelling.
pub const RETRY_ATTRIBUTES: [&str; 3] = ["retry-now", "retry-later", "auto-retry"];

/// The error map of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErrorMap {
    version: u32,
    revision: u32,
    entries: BTreeMap<u16, Arc<ErrorMapEntry>>,
}

/// The error map's entry for a status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErrorMapEntry {
    name: String,
    description: String,
    attributes: Vec<String>,
    retry: Option<RetrySpec>,
}

/// The retry intervals that the server proposes for a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RetrySpec {
    /// How the intervals grow with each retry.
    pub strategy: RetrySpecStrategy,
    /// The base interval.
    pub interval: Duration,
    /// The delay before the first retry.
    pub after: Duration,
    /// The maximum interval.
    pub ceil: Option<Duration>,
    /// The maximum time for which the request may be retried.
    pub duration_max: Option<Duration>,
}

/// How the intervals of a [`RetrySpec`] grow with each retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetrySpecStrategy {
    /// The same interval each time.
    Constant,
    /// The interval times the number of retries.
    Linear,
    /// The interval in milliseconds to the power of the number of retries.
    Exponential,
}

impl ErrorMap {
    /// An empty map of the newest version.
    #[must_use]
    pub const fn new() -> Self {
        ErrorMap { version: 2, revision: 0, entries: BTreeMap::new() }
    }

    /// Adds an entry for a status.
    #[must_use]
    pub fn with(mut self, status: u16, entry: impl Into<Arc<ErrorMapEntry>>) -> Self {
        self.entries.insert(status, entry.into());
        self
    }

    /// The version of the format.
    #[must_use]
    pub const fn version(&self) -> u32 {
        self.version
    }

    /// The revision: of two maps of a node, the one with the higher revision is valid.
    #[must_use]
    pub const fn revision(&self) -> u32 {
        self.revision
    }

    /// The entry for a status.
    #[must_use]
    pub fn entry(&self, status: u16) -> Option<&Arc<ErrorMapEntry>> {
        self.entries.get(&status)
    }

    /// All statuses with their entries.
    pub fn entries(&self) -> impl Iterator<Item = (u16, &Arc<ErrorMapEntry>)> {
        self.entries.iter().map(|(status, entry)| (*status, entry))
    }
}

impl ErrorMapEntry {
    /// An entry with only these attributes.
    #[must_use]
    pub fn of<A: Into<String>>(attributes: impl IntoIterator<Item = A>) -> Self {
        let attributes = attributes.into_iter().map(Into::into).collect();
        ErrorMapEntry { attributes, ..ErrorMapEntry::default() }
    }

    /// Adds retry intervals.
    #[must_use]
    pub fn with_retry(mut self, retry: RetrySpec) -> Self {
        self.retry = Some(retry);
        self
    }

    /// The short name of the status.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The description of the status.
    #[must_use]
    pub fn description(&self) -> &str {
        &self.description
    }

    /// The attributes, including unknown ones.
    #[must_use]
    pub fn attributes(&self) -> &[String] {
        &self.attributes
    }

    /// The server's proposed retry intervals. The built-in strategies do not use them.
    #[must_use]
    pub const fn retry(&self) -> Option<&RetrySpec> {
        self.retry.as_ref()
    }

    /// Whether the status is retryable.
    #[must_use]
    pub fn indicates_retry(&self) -> bool {
        self.attributes.iter().any(|attribute| RETRY_ATTRIBUTES.contains(&attribute.as_str()))
    }
}

impl RetrySpec {
    /// Intervals with this growth and base; the first retry has no delay.
    #[must_use]
    pub const fn new(strategy: RetrySpecStrategy, interval: Duration) -> Self {
        RetrySpec { strategy, interval, after: Duration::ZERO, ceil: None, duration_max: None }
    }

    /// The proposed delay after this number of retries: `after` before the first retry, then by the
    /// interval, at most `ceil`.
    #[must_use]
    pub fn delay(&self, retries: u32) -> Duration {
        if retries == 0 {
            return self.after;
        }
        let delay = match self.strategy {
            RetrySpecStrategy::Constant => self.interval,
            RetrySpecStrategy::Linear => self.interval.saturating_mul(retries),
            RetrySpecStrategy::Exponential => {
                let millis = u64::try_from(self.interval.as_millis()).unwrap_or(u64::MAX);
                Duration::from_millis(millis.saturating_pow(retries))
            }
        };
        self.ceil.map_or(delay, |ceil| delay.min(ceil))
    }
}

#[cfg(feature = "serde")]
mod json {
    use std::collections::BTreeMap;
    use std::fmt;
    use std::sync::Arc;
    use std::time::Duration;

    use serde::Deserialize;

    use super::{ErrorMap, ErrorMapEntry, RetrySpec, RetrySpecStrategy};

    /// The maximum length of an error map in bytes; a server's is about 30 KB.
    pub const ERROR_MAP_BYTES_MAX: usize = 1 << 20;

    #[derive(Deserialize)]
    struct Text {
        version: u32,
        revision: u32,
        errors: BTreeMap<String, Entry>,
    }

    #[derive(Deserialize)]
    struct Entry {
        #[serde(default)]
        name: String,
        #[serde(default)]
        desc: String,
        #[serde(default)]
        attrs: Vec<String>,
        retry: Option<Spec>,
    }

    #[derive(Deserialize)]
    #[serde(rename_all = "kebab-case")]
    struct Spec {
        strategy: String,
        interval: u64,
        #[serde(default)]
        after: u64,
        ceil: Option<u64>,
        max_duration: Option<u64>,
    }

    /// The error of an invalid error map. A client continues without a map in that case.
    #[derive(Debug)]
    #[non_exhaustive]
    pub enum ErrorMapError {
        /// The text is longer than [`ERROR_MAP_BYTES_MAX`].
        TooLong,
        /// The text is not JSON of the expected structure.
        Json(serde_json::Error),
        /// The version does not exist.
        Version(u32),
        /// A key is not a status in hexadecimal digits.
        Status(String),
    }

    impl fmt::Display for ErrorMapError {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            match self {
                ErrorMapError::TooLong => {
                    write!(f, "error map: longer than {ERROR_MAP_BYTES_MAX} bytes")
                }
                ErrorMapError::Json(_) => f.write_str("error map: not of the expected shape"),
                ErrorMapError::Version(version) => {
                    write!(f, "error map: there is no version {version}; the first is 1")
                }
                ErrorMapError::Status(key) => {
                    write!(f, "error map: {key:?} is not a status of up to 4 hexadecimal digits")
                }
            }
        }
    }

    impl std::error::Error for ErrorMapError {
        fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
            match self {
                ErrorMapError::Json(error) => Some(error),
                _ => None,
            }
        }
    }

    impl ErrorMap {
        /// Parses the JSON of a server's GET ERROR MAP response.
        ///
        /// Unknown attributes, fields and retry strategies are ignored for compatibility with newer
        /// servers.
        ///
        /// # Errors
        /// The text is not an error map.
        pub fn from_json(text: &str) -> Result<Self, ErrorMapError> {
            if text.len() > ERROR_MAP_BYTES_MAX {
                return Err(ErrorMapError::TooLong);
            }
            let Text { version, revision, errors } =
                serde_json::from_str(text).map_err(ErrorMapError::Json)?;
            if version == 0 {
                return Err(ErrorMapError::Version(version));
            }
            let mut entries = BTreeMap::new();
            for (key, entry) in errors {
                let status = parse_status(&key).ok_or(ErrorMapError::Status(key))?;
                entries.insert(status, Arc::new(ErrorMapEntry::from(entry)));
            }
            Ok(ErrorMap { version, revision, entries })
        }
    }

    fn parse_status(key: &str) -> Option<u16> {
        // `from_str_radix` would also accept a sign.
        let digits = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_hexdigit());
        digits.then(|| u16::from_str_radix(key, 16).ok()).flatten()
    }

    impl From<Entry> for ErrorMapEntry {
        fn from(entry: Entry) -> Self {
            let Entry { name, desc, attrs, retry } = entry;
            let retry = retry.and_then(Spec::read);
            ErrorMapEntry { name, description: desc, attributes: attrs, retry }
        }
    }

    impl Spec {
        fn read(self) -> Option<RetrySpec> {
            let strategy = match self.strategy.as_str() {
                "constant" => RetrySpecStrategy::Constant,
                "linear" => RetrySpecStrategy::Linear,
                "exponential" => RetrySpecStrategy::Exponential,
                _ => return None,
            };
            Some(RetrySpec {
                strategy,
                interval: Duration::from_millis(self.interval),
                after: Duration::from_millis(self.after),
                ceil: self.ceil.map(Duration::from_millis),
                // SDK RFC 13: 0 leaves the duration to the client.
                duration_max: self
                    .max_duration
                    .filter(|millis| *millis > 0)
                    .map(Duration::from_millis),
            })
        }
    }
}

#[cfg(feature = "serde")]
pub use json::{ERROR_MAP_BYTES_MAX, ErrorMapError};
