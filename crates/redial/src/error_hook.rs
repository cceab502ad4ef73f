//! What a call does with the errors of its operation besides classifying them: `notify` and
//! `record_errors`.

use std::fmt;
use std::time::Duration;

use redial_core::Directive;

use crate::classify::{AddClassify, AddUntil, AddWhen, Classify, Last};

/// Receives the errors of a call. A call without hooks has no code for them.
pub trait ErrorHook<E> {
    /// Whether [`notify`](ErrorHook::notify) does anything.
    const NOTIFIES: bool = false;
    /// Whether [`text`](ErrorHook::text) can have a text.
    const RECORDS: bool = true;

    /// Called when an error is retried, with the delay before the next attempt.
    fn notify(&mut self, _error: &E, _delay: Duration) {}

    /// The text of an error, where it is recorded.
    fn text(_error: &E) -> Option<&dyn fmt::Display> {
        None
    }
}

/// No hook.
#[derive(Clone, Copy, Debug)]
pub struct NoHook;

impl<E> ErrorHook<E> for NoHook {
    const RECORDS: bool = false;
}

/// The hook of [`Retry::notify`](crate::Retry::notify).
#[derive(Clone, Copy)]
pub struct Notify<F>(pub(crate) F);

impl<E, F: FnMut(&E, Duration)> ErrorHook<E> for Notify<F> {
    const NOTIFIES: bool = true;
    const RECORDS: bool = false;

    fn notify(&mut self, error: &E, delay: Duration) {
        (self.0)(error, delay);
    }
}

impl<F> fmt::Debug for Notify<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notify").finish_non_exhaustive()
    }
}

/// The hook of [`Retry::record_errors`](crate::Retry::record_errors).
#[derive(Clone, Copy, Debug)]
pub struct RecordErrors;

impl<E: fmt::Display> ErrorHook<E> for RecordErrors {
    fn text(error: &E) -> Option<&dyn fmt::Display> {
        Some(error)
    }
}

/// Two hooks in order.
impl<E, A: ErrorHook<E>, B: ErrorHook<E>> ErrorHook<E> for (A, B) {
    const NOTIFIES: bool = A::NOTIFIES || B::NOTIFIES;
    const RECORDS: bool = A::RECORDS || B::RECORDS;

    fn notify(&mut self, error: &E, delay: Duration) {
        self.0.notify(error, delay);
        self.1.notify(error, delay);
    }

    fn text(error: &E) -> Option<&dyn fmt::Display> {
        A::text(error).or_else(|| B::text(error))
    }
}

/// A classifier with a hook for errors.
#[derive(Clone, Copy, Debug)]
pub struct Hooked<C, H>(pub(crate) C, pub(crate) H);

impl<T, E, C: Classify<T, E>, H: ErrorHook<E>> Classify<T, E> for Hooked<C, H> {
    type Kept = C::Kept;
    const ACCEPTS_VALUES: bool = C::ACCEPTS_VALUES;
    const NOTIFIES: bool = C::NOTIFIES || H::NOTIFIES;
    const RELEASES: bool = C::RELEASES;
    const RECORDS_ERRORS: bool = C::RECORDS_ERRORS || H::RECORDS;

    fn directive(&mut self, result: &Result<T, E>) -> Directive {
        self.0.directive(result)
    }

    fn keep(result: Result<T, E>) -> Option<Last<E, Self::Kept>> {
        C::keep(result)
    }

    fn notify(&mut self, error: &E, delay: Duration) {
        self.0.notify(error, delay);
        self.1.notify(error, delay);
    }

    fn release(&mut self, result: &mut Result<T, E>) {
        self.0.release(result);
    }

    fn error_text(error: &E) -> Option<&dyn fmt::Display> {
        C::error_text(error).or_else(|| H::text(error))
    }
}

// A hook stays outside the rules, so it sees every error.
impl<C: AddWhen, H> AddWhen for Hooked<C, H> {
    type Added<W> = Hooked<C::Added<W>, H>;
    fn add<W>(self, rule: W) -> Self::Added<W> {
        Hooked(self.0.add(rule), self.1)
    }
}

impl<C: AddUntil, H> AddUntil for Hooked<C, H> {
    type Added<F> = Hooked<C::Added<F>, H>;
    fn add<F>(self, accepts: F) -> Self::Added<F> {
        Hooked(self.0.add(accepts), self.1)
    }
}

impl<C: AddClassify, H> AddClassify for Hooked<C, H> {}
