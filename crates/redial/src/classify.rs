//! Classification of results: success, failure, or a failure that is worth a retry.
//!
//! A classifier sees the whole `Result`, so waiting for a value ([`Retry::until`](crate::Retry::until))
//! and retrying an error ([`Retry::when`](crate::Retry::when)) are the same mechanism.

pub use redial_core::{Classification, Hint, Proof};

use std::fmt;
use std::time::Duration;

use redial_core::{Directive, Failure};

use crate::error_hook::Hooked;

/// The return types of a `when` closure: `bool`, [`Failure`], `Option<Failure>` or [`Directive`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not state whether to retry",
    label = "this closure must state whether to retry",
    note = "return `true` or `false`, a `Failure`, an `Option<Failure>` or a `Directive`"
)]
pub trait IntoDirective {
    /// Converts the value to a directive.
    fn directive(self) -> Directive;
}

impl IntoDirective for bool {
    fn directive(self) -> Directive {
        if self { Directive::Retry(Failure::server()) } else { Directive::Fail }
    }
}

impl IntoDirective for Failure {
    fn directive(self) -> Directive {
        Directive::Retry(self)
    }
}

impl IntoDirective for Option<Failure> {
    fn directive(self) -> Directive {
        self.map_or(Directive::Fail, Directive::Retry)
    }
}

impl IntoDirective for Directive {
    fn directive(self) -> Directive {
        self
    }
}

/// An error type that knows which of its values are worth a retry. Calls with such an error need no
/// `.when(..)`, except [`Policy::retry_on`](crate::Policy::retry_on), which takes
/// `.when(Transient::failure)`.
///
/// ```
/// use redial::{Failure, Transient};
///
/// #[derive(Debug)]
/// enum MyError { Busy, NotFound }
///
/// impl Transient for MyError {
///     fn failure(&self) -> Option<Failure> {
///         match self {
///             MyError::Busy => Some(Failure::throttling()),
///             MyError::NotFound => None,
///         }
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// use redial::Policy;
///
/// static GET: Policy = Policy::immediate().attempts(2).build();
/// let gone = GET.retry(async || Err::<(), _>(MyError::NotFound)).await;
/// assert_eq!(gone.unwrap_err().attempts(), 1);
///
/// let mut tries = 0;
/// let busy = GET
///     .retry_on(&mut tries, async |tries| {
///         *tries += 1;
///         Err::<(), _>(MyError::Busy)
///     })
///     .when(Transient::failure)
///     .await;
/// assert_eq!((busy.unwrap_err().attempts(), tries), (2, 2));
/// # }
/// ```
pub trait Transient {
    /// The failure, if a retry can help; `None` if it cannot.
    fn failure(&self) -> Option<Failure>;
}

/// The last outcome of a call that did not succeed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Last<E, V> {
    /// An error.
    Error(E),
    /// A value that was not accepted.
    Value(V),
}

/// The type of a rejected value where every value is accepted. It has no values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoValue {}

/// Classifies the results of a call.
pub trait Classify<T, E> {
    /// The rejected value that [`Error`](crate::Error) keeps.
    type Kept;
    /// Whether every value is a success. If so, values are not classified.
    const ACCEPTS_VALUES: bool = false;
    /// Whether [`notify`](Classify::notify) does anything.
    const NOTIFIES: bool = false;
    /// Whether [`release`](Classify::release) does anything.
    const RELEASES: bool = false;
    /// Whether [`error_text`](Classify::error_text) can have a text. If not, call sites have no code for it.
    const RECORDS_ERRORS: bool = true;

    /// Whether the result is a success, a failure, or a failure that is worth a retry.
    fn directive(&mut self, result: &Result<T, E>) -> Directive;

    /// What [`Error`](crate::Error) keeps of the last result.
    fn keep(result: Result<T, E>) -> Option<Last<E, Self::Kept>>;

    /// Called when an error is retried, with the delay before the next attempt; see
    /// [`Retry::notify`](crate::Retry::notify).
    fn notify(&mut self, _error: &E, _delay: Duration) {}

    /// Called when a result is retried, before the delay: it may drop what the result holds, such as a
    /// connection. A call that is cut off before its next result has this one as its last.
    fn release(&mut self, _result: &mut Result<T, E>) {}

    /// The text of an error, where it is recorded.
    fn error_text(_error: &E) -> Option<&dyn fmt::Display> {
        None
    }
}

/// The classifier of a call without `.when(..)`, around its rule for values and its hooks. It works for errors
/// that implement [`Transient`]; for all others, the name of this type in the compile error states what is
/// missing. It is short, and the outermost type of a classifier, because rustc shortens long types from the inside.
#[derive(Clone, Copy, Debug)]
pub struct NeedsWhen<C = ByTransient>(pub(crate) C);

impl NeedsWhen {
    pub(crate) const NEW: Self = NeedsWhen(ByTransient);
}

impl<T, E, C: Classify<T, E>> Classify<T, E> for NeedsWhen<C> {
    type Kept = C::Kept;
    const ACCEPTS_VALUES: bool = C::ACCEPTS_VALUES;
    const NOTIFIES: bool = C::NOTIFIES;
    const RELEASES: bool = C::RELEASES;
    const RECORDS_ERRORS: bool = C::RECORDS_ERRORS;

    fn directive(&mut self, result: &Result<T, E>) -> Directive {
        self.0.directive(result)
    }

    fn keep(result: Result<T, E>) -> Option<Last<E, C::Kept>> {
        C::keep(result)
    }

    fn notify(&mut self, error: &E, delay: Duration) {
        self.0.notify(error, delay);
    }

    fn release(&mut self, result: &mut Result<T, E>) {
        self.0.release(result);
    }

    fn error_text(error: &E) -> Option<&dyn fmt::Display> {
        C::error_text(error)
    }
}

/// Classifies errors by [`Transient`]; every value is a success.
#[derive(Clone, Copy, Debug)]
pub struct ByTransient;

impl<T, E: Transient> Classify<T, E> for ByTransient {
    type Kept = NoValue;
    const ACCEPTS_VALUES: bool = true;
    const RECORDS_ERRORS: bool = false;

    fn directive(&mut self, result: &Result<T, E>) -> Directive {
        match result {
            Ok(_) => Directive::Succeed,
            Err(error) => error.failure().directive(),
        }
    }

    fn keep(result: Result<T, E>) -> Option<Last<E, NoValue>> {
        match result {
            Ok(_) => None,
            Err(error) => Some(Last::Error(error)),
        }
    }
}

/// `.when(..)`: classifies errors; every value is a success.
#[derive(Clone, Copy, Debug)]
pub struct When<F>(pub(crate) F);

impl<T, E, W: IntoDirective, F: FnMut(&E) -> W> Classify<T, E> for When<F> {
    type Kept = NoValue;
    const ACCEPTS_VALUES: bool = true;
    const RECORDS_ERRORS: bool = false;

    fn directive(&mut self, result: &Result<T, E>) -> Directive {
        match result {
            Ok(_) => Directive::Succeed,
            Err(error) => (self.0)(error).directive(),
        }
    }

    fn keep(result: Result<T, E>) -> Option<Last<E, NoValue>> {
        match result {
            Ok(_) => None,
            Err(error) => Some(Last::Error(error)),
        }
    }
}

/// `.until(..)`: retries until a value is accepted; the inner classifier classifies errors.
#[derive(Clone, Copy, Debug)]
pub struct Until<F, C>(pub(crate) F, pub(crate) C);

impl<T, E, F, C> Classify<T, E> for Until<F, C>
where
    F: FnMut(&T) -> bool,
    C: Classify<T, E>,
{
    type Kept = T;
    const RECORDS_ERRORS: bool = false;

    fn directive(&mut self, result: &Result<T, E>) -> Directive {
        match result {
            Ok(value) if (self.0)(value) => Directive::Succeed,
            Ok(_) => Directive::Retry(Failure::not_ready()),
            Err(_) => self.1.directive(result),
        }
    }

    fn keep(result: Result<T, E>) -> Option<Last<E, T>> {
        keep_any(result)
    }
}

fn keep_any<T, E>(result: Result<T, E>) -> Option<Last<E, T>> {
    Some(match result {
        Ok(value) => Last::Value(value),
        Err(error) => Last::Error(error),
    })
}

/// A rule that classifies some results and leaves the others to the next rule.
pub trait ClassifyRule<T, E> {
    /// Whether [`release`](ClassifyRule::release) does anything.
    const RELEASES: bool = false;

    /// Classifies the result; `None` leaves it to the next rule.
    fn classify(&mut self, result: &Result<T, E>) -> Option<Directive>;

    /// Called when a result is retried, before the delay; see [`Classify::release`].
    fn release(&mut self, _result: &mut Result<T, E>) {}

    /// Chains two rules: the first one that returns a directive decides.
    fn or<R: ClassifyRule<T, E>>(self, other: R) -> Or<Self, R>
    where
        Self: Sized,
    {
        Or(self, other)
    }
}

impl<T, E, F: FnMut(&Result<T, E>) -> Option<Directive>> ClassifyRule<T, E> for F {
    fn classify(&mut self, result: &Result<T, E>) -> Option<Directive> {
        self(result)
    }
}

/// Two rules in order; see [`ClassifyRule::or`].
#[derive(Clone, Copy, Debug)]
pub struct Or<A, B>(A, B);

impl<T, E, A: ClassifyRule<T, E>, B: ClassifyRule<T, E>> ClassifyRule<T, E> for Or<A, B> {
    const RELEASES: bool = A::RELEASES || B::RELEASES;

    fn classify(&mut self, result: &Result<T, E>) -> Option<Directive> {
        self.0.classify(result).or_else(|| self.1.classify(result))
    }

    fn release(&mut self, result: &mut Result<T, E>) {
        self.0.release(result);
        self.1.release(result);
    }
}

/// `.classify(..)`: a chain of rules classifies values and errors. If no rule decides, a value is a
/// success and an error fails.
#[derive(Clone, Copy, Debug)]
pub struct Chain<R>(pub(crate) R);

impl<T, E, R: ClassifyRule<T, E>> Classify<T, E> for Chain<R> {
    type Kept = T;
    const RELEASES: bool = R::RELEASES;
    const RECORDS_ERRORS: bool = false;

    fn directive(&mut self, result: &Result<T, E>) -> Directive {
        let otherwise = if result.is_ok() { Directive::Succeed } else { Directive::Fail };
        self.0.classify(result).unwrap_or(otherwise)
    }

    fn release(&mut self, result: &mut Result<T, E>) {
        self.0.release(result);
    }

    fn keep(result: Result<T, E>) -> Option<Last<E, T>> {
        keep_any(result)
    }
}

/// A classifier that does not say yet which errors are retried.
#[diagnostic::on_unimplemented(
    message = "the call is classified already",
    label = "a second `.when(..)`, or one after `.classify(..)`"
)]
pub trait AddWhen {
    /// The classifier with this rule for errors.
    type Added<W>;
    /// Adds the rule.
    fn add<W>(self, rule: W) -> Self::Added<W>;
}

/// A classifier that accepts every value so far.
#[diagnostic::on_unimplemented(
    message = "the values of the call are classified already",
    label = "a second `.until(..)`, or one after `.classify(..)`"
)]
pub trait AddUntil {
    /// The classifier with this rule for values.
    type Added<F>;
    /// Adds the rule.
    fn add<F>(self, accepts: F) -> Self::Added<F>;
}

/// A classifier without rules.
#[diagnostic::on_unimplemented(
    message = "the call is classified already",
    label = "`.classify(..)` after `.when(..)`, `.until(..)` or another one"
)]
pub trait AddClassify: AddWhen {}

/// A classifier to which a hook for errors can be added.
pub trait AddHook {
    /// The classifier with this hook.
    type Added<H>;
    /// Adds the hook.
    fn add<H>(self, hook: H) -> Self::Added<H>;
}

impl<C: AddWhen> AddWhen for NeedsWhen<C> {
    type Added<W> = C::Added<W>;
    fn add<W>(self, rule: W) -> Self::Added<W> {
        self.0.add(rule)
    }
}

impl AddWhen for ByTransient {
    type Added<W> = W;
    fn add<W>(self, rule: W) -> W {
        rule
    }
}

impl<F, C: AddWhen> AddWhen for Until<F, C> {
    type Added<W> = Until<F, C::Added<W>>;
    fn add<W>(self, rule: W) -> Self::Added<W> {
        Until(self.0, self.1.add(rule))
    }
}

impl<C: AddUntil> AddUntil for NeedsWhen<C> {
    type Added<F> = NeedsWhen<C::Added<F>>;
    fn add<F>(self, accepts: F) -> Self::Added<F> {
        NeedsWhen(self.0.add(accepts))
    }
}

impl AddUntil for ByTransient {
    type Added<F> = Until<F, Self>;
    fn add<F>(self, accepts: F) -> Self::Added<F> {
        Until(accepts, self)
    }
}

impl<G> AddUntil for When<G> {
    type Added<F> = Until<F, Self>;
    fn add<F>(self, accepts: F) -> Self::Added<F> {
        Until(accepts, self)
    }
}

impl<C: AddClassify> AddClassify for NeedsWhen<C> {}

impl AddClassify for ByTransient {}

impl<C> AddHook for NeedsWhen<C> {
    type Added<H> = NeedsWhen<Hooked<C, H>>;
    fn add<H>(self, hook: H) -> Self::Added<H> {
        NeedsWhen(Hooked(self.0, hook))
    }
}

/// Classifiers that state already which errors are retried: the hook is around them.
macro_rules! add_hook {
    ($($name:ident<$($parameter:ident),*>),*) => {
        $(impl<$($parameter),*> AddHook for $name<$($parameter),*> {
            type Added<H> = Hooked<Self, H>;
            fn add<H>(self, hook: H) -> Self::Added<H> {
                Hooked(self, hook)
            }
        })*
    };
}

add_hook!(When<F>, Until<F, C>, Chain<R>, Hooked<C, N>);
