//! Options of a single call.

use std::sync::{Arc, Mutex, PoisonError};

use aws_smithy_runtime_api::box_error::BoxError;
use aws_smithy_runtime_api::client::interceptors::context::BeforeSerializationInterceptorContextRef;
use aws_smithy_runtime_api::client::interceptors::{Intercept, dyn_dispatch_hint};
use aws_smithy_types::config_bag::{ConfigBag, Storable, StoreReplace};
use redial::Report;

/// Options of a single call, added to it with `customize().interceptor(..)`. Its client must have a
/// [`RetryInterceptor`](crate::RetryInterceptor).
///
/// ```
/// # use aws_sdk_dynamodb::{Client, Error};
/// use redial_aws::{CallOptions, ReportSlot};
///
/// # async fn count(client: Client) -> Result<(), Error> {
/// let report = ReportSlot::new();
/// let options = CallOptions::new().not_idempotent().report(&report);
/// client
///     .update_item()
///     .table_name("counters")
///     .update_expression("ADD hits :one")
///     .customize()
///     .interceptor(options)
///     .send()
///     .await?;
/// println!("{:?}", report.take());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct CallOptions {
    not_idempotent: bool,
    report: Option<ReportSlot>,
}

impl CallOptions {
    /// No options.
    #[must_use]
    pub fn new() -> Self {
        CallOptions::default()
    }

    /// Marks the operation as not idempotent: it is retried only if the connection was refused, so that it
    /// cannot have run.
    #[must_use]
    pub fn not_idempotent(mut self) -> Self {
        self.not_idempotent = true;
        self
    }

    /// Stores the report of the call.
    #[must_use]
    pub fn report(mut self, report: &ReportSlot) -> Self {
        self.report = Some(report.clone());
        self
    }

    pub(crate) const fn is_not_idempotent(&self) -> bool {
        self.not_idempotent
    }

    pub(crate) const fn wants_report(&self) -> bool {
        self.report.is_some()
    }

    pub(crate) fn set_report(&self, report: Report) {
        if let Some(slot) = &self.report {
            *slot.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(report);
        }
    }
}

impl Storable for CallOptions {
    type Storer = StoreReplace<Self>;
}

#[dyn_dispatch_hint]
impl Intercept for CallOptions {
    fn name(&self) -> &'static str {
        "RedialCallOptions"
    }

    fn read_before_execution(
        &self,
        _context: &BeforeSerializationInterceptorContextRef<'_>,
        cfg: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        cfg.interceptor_state().store_put(self.clone());
        Ok(())
    }
}

/// Where a call stores its report: attempts, delays and why it stopped.
#[derive(Clone, Debug, Default)]
pub struct ReportSlot(Arc<Mutex<Option<Report>>>);

impl ReportSlot {
    /// Empty until a call with it has ended.
    #[must_use]
    pub fn new() -> Self {
        ReportSlot::default()
    }

    /// Takes the report of the last call.
    #[must_use]
    pub fn take(&self) -> Option<Report> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
