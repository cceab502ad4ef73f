//! Bodies of requests, and refusals.

use std::time::Duration;

use axum::body;
use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use http_body_util::LengthLimitError;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::limits::BODY_BYTES_MAX;

/// How long a body may take to arrive.
const BODY_TIME_MAX: Duration = Duration::from_secs(10);

/// A request that is not carried out.
#[derive(Debug)]
pub(super) struct Refusal {
    status: StatusCode,
    body: Value,
}

impl Refusal {
    pub(super) fn new(status: StatusCode, text: impl Into<String>) -> Refusal {
        Refusal { status, body: json!({ "error": text.into() }) }
    }

    pub(super) fn forbidden(text: &str) -> Refusal {
        Refusal::new(StatusCode::FORBIDDEN, text)
    }

    /// The texts of the editors have problems.
    pub(super) fn problems(problems: &[Value]) -> Refusal {
        Refusal {
            // An answer like any other: browsers report other statuses as failed requests.
            status: StatusCode::OK,
            body: json!({ "problems": problems }),
        }
    }

    /// A computation that ended without a result.
    pub(super) fn internal() -> Refusal {
        let text = "the computation failed; the terminal of `redial ui` shows why";
        Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, text)
    }

    /// The same in a stream of lines.
    pub(super) fn into_line(self) -> Value {
        self.body
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (self.status, answer(&self.body)).into_response()
    }
}

/// A JSON response.
pub(super) fn answer(body: &Value) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], body.to_string()).into_response()
}

/// The JSON in the body of a request.
pub(super) async fn json_of<T: DeserializeOwned>(request: Request) -> Result<T, Refusal> {
    let kind = request.headers().get(header::CONTENT_TYPE);
    if kind.is_none_or(|kind| kind != "application/json") {
        let text = "send application/json";
        return Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, text));
    }
    let reading = body::to_bytes(request.into_body(), BODY_BYTES_MAX);
    let Ok(read) = tokio::time::timeout(BODY_TIME_MAX, reading).await else {
        return Err(Refusal::new(StatusCode::REQUEST_TIMEOUT, "the body did not arrive"));
    };
    let bytes = read.map_err(|error| match error.into_inner().is::<LengthLimitError>() {
        true => {
            let text = format!("the texts are larger than {BODY_BYTES_MAX} bytes");
            Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, text)
        }
        false => Refusal::new(StatusCode::BAD_REQUEST, "the body is not complete"),
    })?;
    serde_json::from_slice(&bytes)
        .map_err(|error| Refusal::new(StatusCode::BAD_REQUEST, error.to_string()))
}
