//! Requests of reqwest with retries (feature `reqwest`).
//!
//! ```no_run
//! use redial_http::RetryLayer;
//! use redial_http::reqwest::SendWith;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let client = reqwest::Client::new();
//! // One for the program: it has the retry budgets of the hosts.
//! let retries = RetryLayer::standard();
//!
//! let page = client.get("http://example.com/").send_with(&retries).await?.text().await?;
//! # let _ = page;
//! # Ok(())
//! # }
//! ```
//!
//! `reqwest::Client` is also a tower service, so that `retries.layer(client)` is one that retries.
//!
//! reqwest retries by itself a request that an HTTP/2 server has provably not processed, twice and
//! without a delay. `ClientBuilder::retry(reqwest::retry::never())` turns that off, so that attempts are
//! counted in one place.

mod request;
mod response;
mod send;

pub use request::SavedRequest;
pub use response::DrainReqwestResponse;
pub use send::{SendFuture, SendWith};

/// The error of a request that was sent with retries.
pub type Error = crate::Error<::reqwest::Error>;
