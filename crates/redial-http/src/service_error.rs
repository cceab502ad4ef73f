//! How the errors of a service are inspected.

use std::error::Error;

use redial::BoxError;

/// Views an error of type `E` as a [`std::error::Error`], whose chain of sources states what happened.
#[diagnostic::on_unimplemented(
    message = "the layer cannot inspect errors of type `{E}`",
    note = "a service whose error is a `Box<dyn Error + Send + Sync>` needs `.boxed_errors()` on the layer",
    note = "any other error must implement `std::error::Error`"
)]
pub trait AsStdError<E> {
    /// The same error.
    fn as_std_error(error: &E) -> &(dyn Error + 'static);
}

/// Errors that implement [`std::error::Error`]. The default of a layer.
#[derive(Clone, Copy, Debug)]
pub enum StdErrors {}

impl<E: Error + 'static> AsStdError<E> for StdErrors {
    fn as_std_error(error: &E) -> &(dyn Error + 'static) {
        error
    }
}

/// Boxed errors, as of most middleware of tower.
#[derive(Clone, Copy, Debug)]
pub enum BoxErrors {}

impl AsStdError<BoxError> for BoxErrors {
    fn as_std_error(error: &BoxError) -> &(dyn Error + 'static) {
        &**error
    }
}
