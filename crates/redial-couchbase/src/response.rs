//! Classification of responses: RFC 49, "Response Code Retry List" (decisions C4, C5, C8).
//!
//! A known response is final unless the list names it. An unknown KV status is looked up in the server's
//! error map.

use std::borrow::Cow;
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;

use redial_core::{Directive, Reason};

use crate::error_map::{ErrorMap, ErrorMapEntry};
use crate::reason;

/// KV protocol statuses with a special meaning for retries.
pub mod status {
    /// Success.
    pub const SUCCESS: u16 = 0x00;
    /// Document not found; in response to SELECT BUCKET: the bucket is warming up (decision C1).
    pub const NOT_FOUND: u16 = 0x01;
    /// The node does not own the vbucket.
    pub const NOT_MY_VBUCKET: u16 = 0x07;
    /// The document is locked.
    pub const LOCKED: u16 = 0x09;
    /// Another document has the key, or the CAS differs.
    pub const EXISTS: u16 = 0x02;
    /// Wrong credentials. RFC 49 says 0x2, which means "key exists" (decision C1).
    pub const AUTH_ERROR: u16 = 0x20;
    /// Authentication continues with another message.
    pub const AUTH_CONTINUE: u16 = 0x21;
    /// The user lacks permission, or the bucket does not exist.
    pub const NO_ACCESS: u16 = 0x24;
    /// The server is busy.
    pub const BUSY: u16 = 0x85;
    /// A temporary failure.
    pub const TEMPORARY_FAILURE: u16 = 0x86;
    /// The collection id is outdated.
    pub const COLLECTION_OUTDATED: u16 = 0x88;
    /// Another durable write to the document is in progress.
    pub const SYNC_WRITE_IN_PROGRESS: u16 = 0xa2;
    /// A durable write to the document is being re-committed.
    pub const SYNC_WRITE_RE_COMMIT_IN_PROGRESS: u16 = 0xa4;
    /// Some paths of a sub-document request failed.
    pub const SUBDOC_MULTI_PATH_FAILURE: u16 = 0xcc;
}

/// The known statuses, to which the error map does not apply (decision C8).
pub const KNOWN_STATUSES: [RangeInclusive<u16>; 5] =
    [0x00..=0x09, 0x1f..=0x24, 0x80..=0x8c, 0xa0..=0xa4, 0xc0..=0xd6];

/// A server's response.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Response {
    /// The KV service.
    Kv {
        /// The status in the header.
        status: u16,
        /// The command in lower case: `get`, `unlock`, `dcp_open`; empty for the command of the request's
        /// operation ([`Response::for_operation`]).
        command: Cow<'static, str>,
        /// The error map entry of the status.
        error_map: Option<Arc<ErrorMapEntry>>,
        /// The server's explanation (an extended error), if it sent one.
        context: Option<Arc<str>>,
    },
    /// The query service.
    Query {
        /// The error code; 0 for success.
        code: u32,
        /// The error text.
        text: Cow<'static, str>,
    },
    /// The analytics service.
    Analytics {
        /// The error code; 0 for success.
        code: u32,
    },
    /// The search service.
    Search {
        /// The HTTP status.
        http: u16,
    },
    /// The view engine.
    Views {
        /// The HTTP status.
        http: u16,
        /// The response body.
        text: Cow<'static, str>,
    },
}

/// The classification of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseOutcome {
    /// Success.
    Ok,
    /// A final error, returned without a retry.
    Failed,
    /// Retryable for this reason; the orchestrator decides.
    Retry(Reason),
}

impl ResponseOutcome {
    /// The classification as the core's directive.
    #[must_use]
    pub fn directive(self) -> Directive {
        match self {
            ResponseOutcome::Ok => Directive::Succeed,
            ResponseOutcome::Failed => Directive::Fail,
            ResponseOutcome::Retry(reason) => Directive::Retry(reason::failure(reason)),
        }
    }
}

impl Response {
    /// A response of the KV service to the command of the request's operation.
    #[must_use]
    pub const fn kv(status: u16) -> Self {
        Response::Kv { status, command: Cow::Borrowed(""), error_map: None, context: None }
    }

    /// A response of the query service.
    #[must_use]
    pub fn query(code: u32, text: impl Into<Cow<'static, str>>) -> Self {
        Response::Query { code, text: text.into() }
    }

    /// A response of the analytics service.
    #[must_use]
    pub const fn analytics(code: u32) -> Self {
        Response::Analytics { code }
    }

    /// A response of the search service.
    #[must_use]
    pub const fn search(http: u16) -> Self {
        Response::Search { http }
    }

    /// A response of the view engine.
    #[must_use]
    pub fn views(http: u16, text: impl Into<Cow<'static, str>>) -> Self {
        Response::Views { http, text: text.into() }
    }

    /// Sets the command of a KV response; other responses are unchanged.
    #[must_use]
    pub fn to_command(mut self, name: impl Into<Cow<'static, str>>) -> Self {
        if let Response::Kv { command, .. } = &mut self {
            *command = name.into();
        }
        self
    }

    /// Sets the command of a KV response without a command from the name of an operation (decision C5).
    /// The [`Orchestrator`](crate::Orchestrator) does this by itself.
    ///
    /// ```
    /// use redial_couchbase::{ResponseOutcome, Response, operation, reason};
    ///
    /// let locked = Response::kv(0x09);
    /// let get = locked.clone().for_operation(operation::KV_GET_AND_LOCK.name());
    /// assert_eq!(get.classify(), ResponseOutcome::Retry(reason::KV_LOCKED));
    /// let unlock = locked.for_operation(operation::KV_UNLOCK.name());
    /// assert_eq!(unlock.classify(), ResponseOutcome::Failed);
    /// assert!(unlock.is_cas_mismatch());
    /// ```
    #[must_use]
    pub fn for_operation(mut self, operation: &str) -> Self {
        if let Response::Kv { command, .. } = &mut self
            && command.is_empty()
            && let Some(name) = operation.strip_prefix("kv.")
        {
            *command = Cow::Owned(name.to_owned());
        }
        self
    }

    /// Whether the response reports an unlock with the wrong CAS: LOCKED in response to `unlock`.
    #[must_use]
    pub fn is_cas_mismatch(&self) -> bool {
        matches!(self, Response::Kv { status: status::LOCKED, command, .. } if command == "unlock")
    }

    /// Sets the error map entry of a KV response; other responses are unchanged.
    #[must_use]
    pub fn with_error_map_entry(mut self, entry: impl Into<Arc<ErrorMapEntry>>) -> Self {
        if let Response::Kv { error_map, .. } = &mut self {
            *error_map = Some(entry.into());
        }
        self
    }

    /// Sets the server's explanation of a KV response; other responses are unchanged.
    #[must_use]
    pub fn with_context(mut self, text: impl Into<Arc<str>>) -> Self {
        if let Response::Kv { context, .. } = &mut self {
            *context = Some(text.into());
        }
        self
    }

    /// Looks up the status of a KV response in the server's error map.
    #[must_use]
    pub fn with_error_map(self, map: &ErrorMap) -> Self {
        let entry = match &self {
            Response::Kv { status, .. } => map.entry(*status).cloned(),
            _ => None,
        };
        match entry {
            Some(entry) => self.with_error_map_entry(entry),
            None => self,
        }
    }

    /// Classifies the response.
    #[must_use]
    pub fn classify(&self) -> ResponseOutcome {
        match self {
            Response::Kv { status, command, error_map, .. } => {
                classify_kv(*status, command, error_map.as_deref())
            }
            Response::Query { code, text } => classify_query(*code, text),
            Response::Analytics { code } => classify_analytics(*code),
            Response::Search { http } => classify_search(*http),
            Response::Views { http, text } => classify_views(*http, text),
        }
    }

    /// The retry reason; `None` if the response is not retryable.
    #[must_use]
    pub fn reason(&self) -> Option<Reason> {
        match self.classify() {
            ResponseOutcome::Retry(reason) => Some(reason),
            ResponseOutcome::Ok | ResponseOutcome::Failed => None,
        }
    }
}

fn classify_kv(status: u16, command: &str, error_map: Option<&ErrorMapEntry>) -> ResponseOutcome {
    let reason = match (status, command) {
        (status::SUCCESS, _) => return ResponseOutcome::Ok,
        // The list and the error map do not apply to DCP.
        (_, command) if command.starts_with("dcp_") => return ResponseOutcome::Failed,
        // Errors of the connection setup, for requests that wait for the connection (C1).
        (status::AUTH_ERROR, "sasl_auth" | "sasl_step") => reason::AUTHENTICATION_ERROR,
        (status::NO_ACCESS, "select_bucket") => reason::BUCKET_ACCESS_ERROR,
        (status::NOT_FOUND, "select_bucket") => reason::SERVICE_NOT_AVAILABLE,

        (status::NOT_MY_VBUCKET, _) => reason::KV_NOT_MY_VBUCKET,
        // Here it means that the collection does not exist.
        (status::COLLECTION_OUTDATED, "get_collection_id") => return ResponseOutcome::Failed,
        (status::COLLECTION_OUTDATED, _) => reason::KV_COLLECTION_OUTDATED,
        // Here it means a CAS mismatch, which is an error of the application.
        (status::LOCKED, "unlock") => return ResponseOutcome::Failed,
        (status::LOCKED, _) => reason::KV_LOCKED,
        (status::TEMPORARY_FAILURE | status::BUSY, _) => reason::KV_TEMPORARY_FAILURE,
        (status::SYNC_WRITE_IN_PROGRESS, _) => reason::KV_SYNC_WRITE_IN_PROGRESS,
        (status::SYNC_WRITE_RE_COMMIT_IN_PROGRESS, _) => {
            reason::KV_SYNC_WRITE_RE_COMMIT_IN_PROGRESS
        }
        _ if is_known(status) => return ResponseOutcome::Failed,
        _ if error_map.is_some_and(ErrorMapEntry::indicates_retry) => {
            reason::KV_ERROR_MAP_RETRY_INDICATED
        }
        _ => return ResponseOutcome::Failed,
    };
    ResponseOutcome::Retry(reason)
}

/// Whether a KV status is known, so that the error map does not apply.
#[must_use]
pub fn is_known(status: u16) -> bool {
    KNOWN_STATUSES.iter().any(|range| range.contains(&status))
}

fn classify_query(code: u32, text: &str) -> ResponseOutcome {
    match code {
        0 => ResponseOutcome::Ok,
        4040 | 4050 | 4070 => ResponseOutcome::Retry(reason::QUERY_PREPARED_STATEMENT_FAILURE),
        5000 if text.contains("queryport.indexNotFound") => {
            ResponseOutcome::Retry(reason::QUERY_INDEX_NOT_FOUND)
        }
        _ => ResponseOutcome::Failed,
    }
}

const fn classify_analytics(code: u32) -> ResponseOutcome {
    match code {
        0 => ResponseOutcome::Ok,
        23000 | 23003 | 23007 => ResponseOutcome::Retry(reason::ANALYTICS_TEMPORARY_FAILURE),
        _ => ResponseOutcome::Failed,
    }
}

const fn classify_search(http: u16) -> ResponseOutcome {
    match http {
        200..=299 => ResponseOutcome::Ok,
        429 => ResponseOutcome::Retry(reason::SEARCH_TOO_MANY_REQUESTS),
        _ => ResponseOutcome::Failed,
    }
}

fn classify_views(http: u16, text: &str) -> ResponseOutcome {
    let final_500 = || {
        text.contains("error")
            && (text.contains("{not_found, missing_named_view}") || text.contains("\"badarg\""))
    };
    match http {
        200..=299 => ResponseOutcome::Ok,
        // RFC 49 also lists 302 among the temporary failures; the specific line takes precedence.
        302 => ResponseOutcome::Retry(reason::VIEWS_NO_ACTIVE_PARTITION),
        300 | 301 | 303 | 307 | 401 | 408 | 409 | 412 | 416 | 417 | 501..=504 => {
            ResponseOutcome::Retry(reason::VIEWS_TEMPORARY_FAILURE)
        }
        404 if text.contains("\"reason\":\"missing\"") => {
            ResponseOutcome::Retry(reason::VIEWS_TEMPORARY_FAILURE)
        }
        500 if !final_500() => ResponseOutcome::Retry(reason::VIEWS_TEMPORARY_FAILURE),
        _ => ResponseOutcome::Failed,
    }
}

impl fmt::Display for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Response::Kv { status, command, error_map, context } => {
                write!(f, "kv status {status:#04x}")?;
                if !command.is_empty() {
                    write!(f, " to {command}")?;
                }
                match error_map {
                    Some(entry) if !entry.name().is_empty() => write!(f, " ({})", entry.name())?,
                    _ => {}
                }
                context.as_ref().map_or(Ok(()), |context| write!(f, ": {context}"))
            }
            Response::Query { code, text } if text.is_empty() => write!(f, "query error {code}"),
            Response::Query { code, text } => write!(f, "query error {code}: {text}"),
            Response::Analytics { code } => write!(f, "analytics error {code}"),
            Response::Search { http } => write!(f, "search answered with http {http}"),
            Response::Views { http, text } if text.is_empty() => {
                write!(f, "views answered with http {http}")
            }
            Response::Views { http, text } => write!(f, "views answered with http {http}: {text}"),
        }
    }
}

impl std::error::Error for Response {}
