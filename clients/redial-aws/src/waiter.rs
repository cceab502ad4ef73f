//! Waiters: poll an operation until a resource has the awaited state.

use std::error::Error;

use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use aws_smithy_runtime_api::client::result::SdkError;
use aws_smithy_types::retry::ProvideErrorKind;
use redial::classify::ClassifyRule;
use redial::parts::{Async, Chain};
use redial::{Directive, Failure, Policy, Retry};

use crate::sdk_failure;

/// What a result of the polled operation means for a waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// The awaited state: the waiter returns this result. If it is an error (the bucket is gone), the call
    /// returns that error with [`StopReason::Succeeded`](redial::StopReason::Succeeded).
    Done,
    /// Not yet: the operation is called again, which costs nothing of a retry budget or token bucket.
    NotYet,
    /// The awaited state cannot be reached any more: the waiter fails with this result.
    Failed,
    /// None of these: a value is returned, and an error is retried if [`sdk_failure`] accepts it.
    Other,
}

/// Polls an operation by a policy until the rule says [`Wait::Done`]. The policy should have a deadline.
///
/// ```
/// use aws_sdk_dynamodb::{Client, types::TableStatus};
/// use redial::{Policy, ms, s};
/// use redial_aws::{Wait, is_not_found, wait};
///
/// static POLL: Policy = Policy::constant(ms(500)).unlimited().deadline(s(120)).build();
///
/// # async fn ready(client: Client) -> Result<(), Box<dyn std::error::Error>> {
/// wait(&POLL, || client.describe_table().table_name("orders").send(), |result| match result {
///     Ok(output) => match output.table().and_then(|table| table.table_status()) {
///         Some(TableStatus::Active) => Wait::Done,
///         Some(TableStatus::Deleting) => Wait::Failed,
///         _ => Wait::NotYet,
///     },
///     Err(error) if is_not_found(error) => Wait::NotYet,
///     Err(_) => Wait::Other,
/// })
/// .await?;
/// # Ok(())
/// # }
/// ```
///
/// The result is a call like any other of the library: it can have a deadline, a report or a call log, and
/// its error has the last output ([`last_value`](redial::Error::last_value)) or the last error.
pub fn wait<'p, O, A, T, E, F>(
    policy: &'p Policy,
    operation: O,
    rule: F,
) -> Retry<'p, Chain<WaitRule<F>>, &'p Policy, O, Async>
where
    O: FnMut() -> A,
    A: Future<Output = Result<T, SdkError<E, HttpResponse>>>,
    F: FnMut(&Result<T, SdkError<E, HttpResponse>>) -> Wait,
    E: ProvideErrorKind + Error + 'static,
{
    policy.retry(operation).classify(WaitRule(rule))
}

/// The rule of a waiter; see [`wait`].
#[derive(Clone, Copy, Debug)]
pub struct WaitRule<F>(F);

impl<F, T, E> ClassifyRule<T, SdkError<E, HttpResponse>> for WaitRule<F>
where
    F: FnMut(&Result<T, SdkError<E, HttpResponse>>) -> Wait,
    E: ProvideErrorKind + Error + 'static,
{
    fn classify(&mut self, result: &Result<T, SdkError<E, HttpResponse>>) -> Option<Directive> {
        match (self.0)(result) {
            Wait::Done => Some(Directive::Succeed),
            Wait::NotYet => Some(Directive::Retry(Failure::not_ready())),
            Wait::Failed => Some(Directive::Fail),
            Wait::Other => sdk_failure(result.as_ref().err()?).map(Directive::Retry),
        }
    }
}

/// Whether the service answered that the resource does not exist: status 404, or an error code that ends with
/// `NotFound` or `NotFoundException`.
#[must_use]
pub fn is_not_found<E: ProvideErrorKind>(error: &SdkError<E, HttpResponse>) -> bool {
    let SdkError::ServiceError(error) = error else { return false };
    let by_code = |code: &str| code.ends_with("NotFound") || code.ends_with("NotFoundException");
    error.raw().status().as_u16() == 404 || error.err().code().is_some_and(by_code)
}
